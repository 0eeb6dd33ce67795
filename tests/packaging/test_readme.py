"""What the README shows works as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from context_paging.service.bridge import Bridge

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    ("number", "printed"), [(0, "Where is the tide table?"), (1, '"preview":"Find the tide table."')]
)
def test_each_example_runs_and_prints_what_it_should(tmp_path: Path, number: int, printed: str) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", examples[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert len(examples) == 2
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert (tmp_path / "paging.db").exists() == (number == 0)


def test_the_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text("utf-8")):
        assert (README.parent / target).exists(), target


def test_the_lines_for_the_bridge_are_answered() -> None:
    (lines,) = re.findall(r"```json\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    bridge = Bridge(None)

    answers = [bridge.answer(line.encode()) for line in lines.splitlines()]

    assert [answer["id"] for answer in answers] == [0, 1, 2, 3]
    assert answers[-1]["ok"]["send"] == [{"first": 0, "last": 0}]


def test_the_commands_for_http_are_answered(tmp_path: Path) -> None:
    (commands,) = re.findall(r"```sh\n(TOKEN=.*?)```", README.read_text("utf-8"), re.DOTALL)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        environment[name] = str(tmp_path / name)
    done = subprocess.run(
        ["bash", "-c", f"{commands}\nstatus=$?; kill %1; wait; exit $status"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)["answers"]
    assert [answer.get("outcome") for answer in answers] == [None, None, "within-budget"]
