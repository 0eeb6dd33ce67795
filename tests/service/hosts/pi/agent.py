"""The real Pi, headless, with a home of its own, talking to the scripted provider."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_paging.service.hosts.pi.installer import install

Json = dict[str, Any]
PACKAGE = Path("node_modules/@earendil-works/pi-coding-agent")
SECONDS = 60
"""How long anything may take before a test gives up on it."""
LARGE, SMALL = "large", "small"
WINDOWS = {LARGE: 200_000, SMALL: 20_000}
USER = Path(__file__).with_name("user.ts")


@dataclass(frozen=True)
class Pi:
    """An installed Pi: Node's program and the folder that npm installed Pi into."""

    node: Path
    folder: Path

    @property
    def package(self) -> Path:
        """Pi's own package."""
        return self.folder / PACKAGE

    @property
    def command(self) -> list[str]:
        """Pi's program."""
        return [str(self.node), str(self.package / "dist/bundle/cli.js")]

    @property
    def version(self) -> str:
        """The version of Pi."""
        return str(json.loads((self.package / "package.json").read_text())["version"])


@dataclass
class Home:
    """A user's home: Pi's settings and models, the extension, a log, and a project to work in."""

    root: Path
    pi: Pi
    provider_url: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project.mkdir(parents=True)
        self.agent.mkdir(parents=True)
        models = [
            {
                "id": name,
                "contextWindow": window,
                "maxTokens": 1_000,
                "input": ["text"],
                "reasoning": False,
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            }
            for name, window in WINDOWS.items()
        ]
        provider = {
            "baseUrl": self.provider_url,
            "api": "openai-completions",
            "apiKey": "none",
            "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
            "models": models,
        }
        (self.agent / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
        install(self.agent / "extensions")

    @property
    def agent(self) -> Path:
        """Pi's global folder."""
        return self.root / "agent"

    @property
    def project(self) -> Path:
        """Where Pi runs."""
        return self.root / "project"

    @property
    def log(self) -> Path:
        """The bridge's log."""
        return self.root / "log.db"

    def settings(self, **paging: Any) -> None:
        """Write the global settings; Pi retries at once."""
        retry = {"enabled": True, "maxRetries": 2, "baseDelayMs": 1}
        compaction = {"enabled": True, "reserveTokens": 1_000, "keepRecentTokens": 500}
        settings = {"contextPaging": paging, "retry": retry, "compaction": compaction}
        (self.agent / "settings.json").write_text(json.dumps(settings))

    def variables(self) -> dict[str, str]:
        """The environment of Pi: nothing of the user who runs the tests, and no network but the loopback."""
        return {
            "PATH": f"{self.pi.node.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root),
            "PI_CODING_AGENT_DIR": str(self.agent),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
            "NO_PROXY": "127.0.0.1",
            "CONTEXT_PAGING_LOG": str(self.log),
            "CONTEXT_PAGING_DURABILITY": "sync",
            **self.environment,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Pi once, without a user interface."""
        return subprocess.run(
            [*self.pi.command, "--model", f"scripted/{LARGE}", *arguments],
            cwd=self.project,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def paging(self, *arguments: str) -> str:
        """What a command of context-paging prints about the log."""
        command = [sys.executable, "-m", "context_paging.service.cli", *arguments, "--log", str(self.log)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def rpc(self, *arguments: str, model: str = LARGE) -> Iterator[Rpc]:
        """Pi in RPC mode; it ends with the block."""
        command = [*self.pi.command, "--mode", "rpc", "--model", f"scripted/{model}", "-e", str(USER)]
        rpc = Rpc([*command, *arguments], self.project, self.variables())
        try:
            yield rpc
        finally:
            rpc.close()


class Rpc:
    """Pi's RPC mode: commands in, events out."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        self.events: list[Json] = []
        self._new: queue.Queue[Json | None] = queue.Queue()
        self._last_id = 0
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._errors: list[bytes] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()

    @property
    def errors(self) -> str:
        """What Pi printed to standard error."""
        return b"".join(self._errors).decode(errors="replace")

    def send(self, kind: str, **fields: Any) -> Json:
        """Send a command and wait for its response."""
        assert self._process.stdin is not None
        self._last_id += 1
        command = {"id": str(self._last_id), "type": kind, **fields}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self.wait(lambda e: e["type"] == "response" and e.get("id") == command["id"])

    def ask(self, kind: str, **fields: Any) -> Any:
        """The data of a command that succeeds."""
        answer = self.send(kind, **fields)
        assert answer["success"], answer
        return answer.get("data")

    def prompt(self, text: str) -> None:
        """Say something, and wait until Pi is done."""
        seen = len(self.events)
        assert self.send("prompt", message=text)["success"]
        if not text.startswith("/"):
            self.wait(lambda e: e["type"] == "agent_settled", since=seen)

    def wait(self, wanted: Callable[[Json], bool], since: int | None = None) -> Json:
        """The first event that is wanted, among those from ``since`` on, else among those to come."""
        for event in self.events[since:] if since is not None else ():
            if wanted(event):
                return event
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                new = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not within {SECONDS} seconds, but: {self.events[-3:]}") from None
            assert new is not None, f"Pi ended: {self.errors}"
            self.events.append(new)
            if wanted(new):
                return new

    def notifications(self) -> list[tuple[str, str]]:
        """What the user was told: level and text."""
        return [(e["notifyType"], e["message"]) for e in self._requests("notify")]

    def statuses(self) -> list[str | None]:
        """What the footer showed, in order."""
        shown = [e for e in self._requests("setStatus") if e["statusKey"] == "context-paging"]
        return [e.get("statusText") for e in shown]

    def extension_errors(self) -> list[Json]:
        """Errors of extensions."""
        return [event for event in self.events if event["type"] == "extension_error"]

    def bridges(self) -> list[int]:
        """Process ids of the bridges that Pi runs."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        return [child for child, line in lines.items() if line.endswith(b"bridge\0")]

    def close(self) -> None:
        """End Pi as a closed client does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            raise
        finally:
            for thread in self._threads:
                thread.join()
            while not self._new.empty():
                if (new := self._new.get()) is not None:
                    self.events.append(new)
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                stream.close()

    def _requests(self, method: str) -> list[Json]:
        return [e for e in self.events if e["type"] == "extension_ui_request" and e["method"] == method]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._new.put(json.loads(line))
        self._new.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)
