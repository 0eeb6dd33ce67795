"""What the README shows works as it is written."""

from __future__ import annotations

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
