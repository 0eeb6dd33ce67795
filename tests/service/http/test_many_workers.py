"""Two workers behind the real nginx, with a log in the real PostgreSQL: routing, a worker's death."""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from context_paging.domain.events import ContextRequested, ContextSelected
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import EventLog, LogOptions
from tests.service.log.conftest import fresh_database

from .conftest import answered, user
from .deployment import Deployment, Missing, Worker, free_ports, nginx

HOSTS, TURNS = 8, 40
BUDGET = 800


@pytest.fixture
def postgres() -> Iterator[str]:
    """Where a fresh log on a server can be."""
    yield from fresh_database()


@pytest.fixture
def deployment(tmp_path: Path, postgres: str) -> Iterator[Deployment]:
    """Two workers behind the proxy."""
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("host", (Scope.WRITE, Scope.READ))
    environment = {
        **os.environ,
        "CONTEXT_PAGING_LOG": postgres,
        "CONTEXT_PAGING_TOKENS": str(tokens.path),
        "CONTEXT_PAGING_KEY_FILE": str(tmp_path / "key"),
    }
    first, *ports = free_ports(3)
    workers = [Worker(port, tmp_path, environment) for port in ports]
    try:
        for worker in workers:
            worker.start()
        try:
            with nginx(tmp_path, first, ports) as url:
                yield Deployment(url, secret, workers)
        except Missing as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing))
            pytest.skip(str(missing))
    finally:
        for worker in workers:
            worker.stop()


@dataclass
class Host:
    """An agent program that follows the runbook: it sends again what was not answered, and begins anew."""

    deployment: Deployment
    session: str
    entries: list[Any] = field(default_factory=list)
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    starts: int = 0
    retries: int = 0
    failed: str | None = None

    def run(self, turns: int) -> None:
        """Have a conversation."""
        try:
            self.start("new")
            for turn in range(turns):
                self.store(user(f"question {turn} " + "x" * 200, f"q{turn}", self.leaf))
                answer = self.send({"type": "context"})
                self.acknowledged.append((answer["call_id"], answer["sequence"]))
                self.store(answered(f"answer {turn} " + "y" * 200, f"a{turn}", f"q{turn}"))
                self.send({"type": "turn_end", "entry_id": f"a{turn}"})
            self.send({"type": "shut_down"})
        except Exception as error:
            self.failed = repr(error)

    @property
    def leaf(self) -> str | None:
        """The newest entry."""
        return self.entries[-1]["id"] if self.entries else None

    def start(self, reason: str) -> None:
        """Begin, or begin anew elsewhere."""
        self.starts += 1
        settings = {"contextPaging": {"tokenBudget": BUDGET}}
        self.send({"type": "session_start", "reason": reason, "global_settings": settings})
        if self.entries:
            self.send({"type": "append", "entries": self.entries})

    def store(self, entry: Any) -> None:
        """Store an entry, here first."""
        self.entries.append(entry)
        self.send({"type": "append", "entries": [entry]})

    def send(self, event: dict[str, Any]) -> Any:
        """An event, until it is answered."""
        event = {**event, "event_id": uuid4().hex}
        for _ in range(60):
            status, answer = self.deployment.ask(f"/v1/sessions/{self.session}/events", event)
            if status == 200:
                return answer
            if status == 409 and event["type"] != "session_start":
                self.start("resume")
                continue
            assert status in (0, 409, 502, 503, 504), (status, answer)
            self.retries += 1
            time.sleep(0.1)
        raise AssertionError(f"no answer to {event['type']}")


def test_a_workers_death_loses_nothing_that_was_answered(
    deployment: Deployment, postgres: str, tmp_path: Path
) -> None:
    hosts = [Host(deployment, f"team%2F{number}") for number in range(HOSTS)]
    threads = [threading.Thread(target=host.run, args=(TURNS,)) for host in hosts]
    for thread in threads:
        thread.start()
    victim, other = deployment.workers
    while sum(len(host.acknowledged) for host in hosts) < HOSTS * TURNS // 4:
        time.sleep(0.02)
    victim.kill()
    while sum(len(host.acknowledged) for host in hosts) < HOSTS * TURNS // 2:
        time.sleep(0.02)
    victim.start()
    for thread in threads:
        thread.join(120)

    assert [host.failed for host in hosts] == [None] * HOSTS
    moved = [host for host in hosts if host.starts > 1]
    assert len(moved) > 0
    served = re.findall(r"^context_paging_contexts_total\{[^}]*\} (\S+)", other.metrics(), re.MULTILINE)
    assert 0 < sum(map(float, served)) <= HOSTS * TURNS
    with EventLog.open(postgres, LogOptions(key_file=tmp_path / "key", spool=False)) as log:
        assert [found for found in log.verify() if found.finding is not None] == []
        for host in hosts:
            session = host.session.replace("%2F", "/")
            events = list(log.events(session))
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            decided = {event.call_id: event.sequence for event in events if event.type == "context-selected"}
            for call_id, sequence in host.acknowledged:
                assert decided[call_id] == sequence
            starts = [event.sequence for event in events if event.type == "session-started"]
            assert len(starts) >= host.starts
            selected = [(e.sequence, e.event) for e in events if isinstance(e.event, ContextSelected)]
            requested = [(e.sequence, e.event) for e in events if isinstance(e.event, ContextRequested)]
            assert any(event.cut is not None for _, event in selected)
            for start in starts[1:]:
                # Nothing is restored: the first decision after a start knows of no cut, its request of none.
                decisions = [event for sequence, event in selected if sequence > start]
                requests = [event for sequence, event in requested if sequence > start]
                if decisions:
                    assert decisions[0].frontier_before is None
                    assert requests[0].reused == 0


def test_a_session_stays_where_it_is_however_its_id_is_written(deployment: Deployment) -> None:
    written = [("a%2Fb", "a/b", "%61/b"), ("caf%C3%A9", "caf%c3%a9"), ("x%20y", "%78%20y")]
    for number in range(12):
        written.append((f"s-{number}", f"%73-{number}"))
    for ways in written:
        status, _ = deployment.ask(f"/v1/sessions/{ways[0]}/events", {"type": "session_start"})
        assert status == 200
        for way in ways:
            for path, body in (
                ("events", {"type": "context"}),
                ("tools/browse_history", {}),
                ("statistics", None),
            ):
                status, answer = deployment.ask(f"/v1/sessions/{way}/{path}?host=x", body)
                assert status == 200 if path != "tools/browse_history" else status in (200, 422), (
                    way,
                    path,
                    answer,
                )
    live = [
        float(re.findall(r"^context_paging_live_sessions (\S+)", worker.metrics(), re.M)[0])
        for worker in deployment.workers
    ]
    assert sum(live) == len(written)
    assert min(live) > 0


def test_the_proxy_keeps_operators_routes_to_itself_and_passes_streams_on(deployment: Deployment) -> None:
    for path in ("/metrics", "/readyz"):
        assert deployment.ask(path)[0] == 404
    headers = {"Authorization": f"Bearer {deployment.token}", "Last-Event-ID": "0"}
    request = urllib.request.Request(f"{deployment.url}/v1/tail", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as stream:
        status, _ = deployment.ask("/v1/sessions/tailed/events", {"type": "session_start"})
        assert status == 200
        lines: list[bytes] = []
        while sum(line.startswith(b"data:") for line in lines) < 2:
            lines.append(stream.readline())
        assert b'"session_id":"tailed"' in b"".join(lines)
        for worker in deployment.workers:
            started = time.monotonic()
            worker.stop()
            assert time.monotonic() - started < 10
