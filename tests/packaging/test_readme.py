"""What the README shows works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs_and_sends_the_message(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "Where is the tide table?" in done.stdout
    assert (tmp_path / "paging.db").exists()


def test_the_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text("utf-8")):
        assert (README.parent / target).exists(), target
