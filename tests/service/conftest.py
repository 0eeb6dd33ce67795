"""A shell to run commands in, and a session file that goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class Shell:
    """Runs commands with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(
        self, *arguments: object, code: int = 0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and check its exit status; no command ever prints a traceback."""
        environment = {**os.environ, "XDG_DATA_HOME": str(self.home / "data"), "HOME": str(self.home)}
        command = [sys.executable, "-c", "from context_paging.service.cli import main; main()"]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env=environment,
            cwd=self.home,
            timeout=120,
            check=False,
        )
        text = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )
        assert "Traceback" not in text.stderr
        assert text.returncode == code, text.stderr
        return text

    def json(self, *arguments: object) -> Any:
        """The JSON a command prints."""
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in an empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A session whose first tool call has no result, so that every later call aborts."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": ""}
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}
    lines: list[dict[str, Any]] = [header]
    parent = None
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "user", "content": "well?"},
        {"role": "assistant", "content": [], "stopReason": "stop"},
    ]
    for number, message in enumerate(messages):
        lines.append({"type": "message", "id": f"e{number}", "parentId": parent, "message": message})
        parent = f"e{number}"
    path = tmp_path / "broken.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
