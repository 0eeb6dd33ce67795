"""The pages about hosts: each example runs as it stands, against a provider that checks every request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from context_paging.service.log import EventLog

from .agents import FILES, Script, check, file_text
from .provider import serving

PAGES = Path(__file__).parents[3] / "ops" / "hosts"


def _programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)


def _run(program: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("agent-framework.md", 0),
        ("anthropic.md", 0),
        ("google-adk.md", 0),
        ("langchain.md", 0),
        ("openai-agents.md", 0),
        ("openai.md", 0),
        ("openai.md", 1),
        ("pydantic-ai.md", 0),
        ("strands.md", 0),
    ],
)
def test_an_example_reads_again_what_left_its_window(tmp_path: Path, page: str, number: int) -> None:
    harbours = tmp_path / "harbours"
    harbours.mkdir()
    for file in range(1, FILES + 1):
        (harbours / f"{file}.txt").write_text(file_text(file), "utf-8")

    with serving(Script()) as provider:
        printed = _run(_programs(page)[number], tmp_path, provider.environment())

    assert provider.faults == []
    check(provider.script)
    assert "Harbour 2." in printed
    with EventLog.open(tmp_path / "paging.db") as log:
        (session,) = log.find_sessions().rows
        assert session.calls == provider.script.turn
        assert session.cuts > 0
        assert [verified.finding for verified in log.verify()] == [None]
        *_, last = log.events(session.session_id)
        assert last.event.type == "session-shut-down"


def test_the_examples_of_a_host_of_its_own_run(tmp_path: Path) -> None:
    for program in _programs("python.md"):
        assert "Where is the tide table?" in _run(program, tmp_path, {})


def test_every_page_is_listed_and_every_link_leads_somewhere() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (PAGES / "README.md").read_text("utf-8")))
    assert listed == {page.name for page in PAGES.glob("*.md")} - {"README.md"} | {"pi.md"}
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert target == "pi.md" or (PAGES / target).exists(), target
