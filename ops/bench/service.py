"""The service under load: live sessions behind nginx, on workers that share a log in PostgreSQL.

    python ops/bench/service.py --postgres postgresql+psycopg://postgres@/postgres?host=/folder
        [--sessions 500] [--messages 2000] [--seconds 180] [--turns-per-second 40] [--workers 2]

Every session is brought up to its messages, then turns come at a steady rate, each to a random session: a
question and a context request, then an answer and the end of the turn. After that one worker is killed while
turns go on, and its sessions start anew on the others. At last every context request that was answered is
looked up in the log, and all chains are verified. The same turns in process, with the same log and without,
are measured before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy import create_engine, text

from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import Durability, EventLog, LogOptions
from context_paging.service.session import Session

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.service.http.deployment import Worker, free_ports, nginx

BUDGET = 128_000
SETTINGS = {"contextPaging": {"tokenBudget": BUDGET}}
TOKENS_OF_A_MESSAGE = 100
AT_ONCE = 250
"""Entries in a request that brings a session up."""
CONNECTIONS = 64
AGAIN = (0, 502, 503, 504)


def message(number: int) -> dict[str, Any]:
    """A stored message: questions and answers in turns."""
    words = f"message {number} " + "tide table harbour " * (TOKENS_OF_A_MESSAGE * 4 // 19)
    content: dict[str, Any] = {"role": "user", "content": words, "timestamp": number}
    if number % 2:
        block = [{"type": "text", "text": words}]
        content = {"role": "assistant", "content": block, "stopReason": "stop", "timestamp": number}
    parent = f"e{number - 1}" if number else None
    return {"type": "message", "id": f"e{number}", "parentId": parent, "message": content}


@dataclass
class Connections:
    """Connections to the proxy that are used again; as many requests at once as there are."""

    host: str
    port: int
    token: str
    _free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))

    async def post(self, path: str, body: Any) -> tuple[int, Any, float]:
        """Status and JSON of an answer, and how long it took in seconds; status 0 if there was none."""
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode()
        async with self._slots:
            started = time.perf_counter()
            try:
                streams = (
                    self._free.pop() if self._free else await asyncio.open_connection(self.host, self.port)
                )
                status, answer = await asyncio.wait_for(self._ask(streams, head + data), 60)
            except (OSError, EOFError, ValueError, TimeoutError):
                return 0, {}, time.perf_counter() - started
            return status, answer, time.perf_counter() - started

    async def _ask(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
    ) -> tuple[int, Any]:
        reader, writer = streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            writer.close()
        else:
            self._free.append(streams)
        status = int(head[0].split(" ")[1])
        return status, json.loads(body) if "json" in headers.get("content-type", "") else {}


@dataclass
class Host:
    """An agent program with one session, which follows the runbook."""

    connections: Connections
    name: str
    messages: int
    budget: int = BUDGET
    stored: int = 0
    starts: int = 0
    retries: int = 0
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, reason: str) -> None:
        """Begin, or begin anew on another worker."""
        self.starts += 1
        await self.send([{"type": "session_start", "reason": reason, "global_settings": SETTINGS}])
        for first in range(0, self.stored, AT_ONCE):
            last = min(first + AT_ONCE, self.stored)
            await self.send([{"type": "append", "entries": [message(n) for n in range(first, last)]}])

    async def bring_up(self) -> None:
        """Become a session with its messages, and one request."""
        self.stored = self.messages
        await self.start("new")
        await self.context([])
        self.seconds.clear()

    async def turn(self) -> None:
        """A question with its context request, and an answer."""
        async with self.lock:
            question, answer = self.stored, self.stored + 1
            self.stored += 1
            await self.context([{"type": "append", "entries": [message(question)]}])
            self.stored += 1
            ended = {"type": "turn_end", "entry_id": f"e{answer}"}
            await self.send([{"type": "append", "entries": [message(answer)]}, ended])

    async def context(self, before: list[Any]) -> None:
        """A context request, and how long it took."""
        at = time.monotonic()
        answers, took = await self.send([*before, {"type": "context", "system_prompt": "You are helpful."}])
        self.seconds.append((at, took))
        self.acknowledged.append((answers[-1]["call_id"], answers[-1]["sequence"]))

    async def send(self, events: list[dict[str, Any]]) -> tuple[list[Any], float]:
        """Events until they are answered, and how long it took from the first attempt on."""
        events = [{**event, "event_id": uuid4().hex} for event in events]
        started = time.perf_counter()
        for _ in range(200):
            status, answer, _ = await self.connections.post(f"/v1/sessions/{self.name}/events", events)
            if status == 200:
                return answer["answers"], time.perf_counter() - started
            if status == 409 and events[0]["type"] != "session_start":
                await self.start("resume")
            elif status in (*AGAIN, 409):
                self.retries += 1
                await asyncio.sleep(0.2)
            else:
                self.errors.append(f"{status}: {answer.get('code')}: {answer.get('detail')}")
                break
        raise RuntimeError(f"{self.name}: {self.errors[-1:]}")


async def steady(hosts: Sequence[Host], seconds: float, rate: float, generator: random.Random) -> int:
    """Turns at a rate, whoever is still busy with earlier ones; how many failed."""
    turns: set[asyncio.Task[None]] = set()
    begun = time.monotonic()
    number = failed = 0
    while (due := begun + number / rate) < begun + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        turns.add(asyncio.create_task(generator.choice(hosts).turn()))
        number += 1
        done = {turn for turn in turns if turn.done()}
        failed += sum(turn.exception() is not None for turn in done)
        turns -= done
    for outcome in await asyncio.gather(*turns, return_exceptions=True):
        failed += isinstance(outcome, BaseException)
    return failed


def in_process(log: EventLog | None, messages: int, turns: int = 200) -> list[float]:
    """Seconds of the same context requests without a service."""
    session = Session(f"in-process-{uuid4().hex}", sink=log)
    session.start(global_settings=SETTINGS)
    session.append([message(number) for number in range(messages)])
    session.context(system_prompt="You are helpful.")
    taken = []
    for turn in range(turns):
        question = messages + 2 * turn
        session.append([message(question)])
        started = time.perf_counter()
        session.context(system_prompt="You are helpful.")
        taken.append(time.perf_counter() - started)
        session.append([message(question + 1)])
        session.turn_end(f"e{question + 1}")
    return taken


def memory_of(worker: Worker) -> int:
    """Resident memory of a worker, in bytes."""
    assert worker.running is not None
    for line in Path(f"/proc/{worker.running.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at p50 and p99, and the longest."""
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000, "max_ms": max(seconds) * 1000}


def missing_from(log: EventLog, hosts: Sequence[Host]) -> int:
    """How many answered context requests the log does not have where the answer said."""
    missing = 0
    for host in hosts:
        decided = {e.call_id: e.sequence for e in log.events(host.name) if e.type.startswith("context-")}
        missing += sum(decided.get(call_id) != sequence for call_id, sequence in host.acknowledged)
    return missing


async def load(
    options: argparse.Namespace, url: str, token: str, workers: list[Worker], told: dict[str, Any]
) -> list[Host]:
    """Bring sessions up, load them, kill a worker; figures go into ``told``."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    connections = Connections(parts.hostname, parts.port, token)
    hosts = [Host(connections, f"load-{number}", options.messages) for number in range(options.sessions)]
    generator = random.Random(1)
    empty = [memory_of(worker) for worker in workers]
    started = time.monotonic()
    for first in range(0, len(hosts), 4 * len(workers)):
        await asyncio.gather(*(host.bring_up() for host in hosts[first : first + 4 * len(workers)]))
    told["brought_up_seconds"] = time.monotonic() - started
    grown = sum(memory_of(worker) for worker in workers) - sum(empty)
    told["memory_per_session_bytes"] = grown / options.sessions
    told["memory_per_message_bytes"] = grown / options.sessions / options.messages

    told["failed_turns"] = await steady(hosts, options.seconds, options.turns_per_second, generator)
    told["steady"] = quantiles([took for host in hosts for _, took in host.seconds])
    told["steady"]["requests"] = sum(len(host.seconds) for host in hosts)
    told["steady"]["retries"] = sum(host.retries for host in hosts)
    for host in hosts:
        host.seconds.clear()

    killed = asyncio.get_running_loop().call_later(5, workers[0].kill)
    told["failed_turns_after_kill"] = await steady(
        hosts, options.kill_seconds, options.turns_per_second, generator
    )
    killed.cancel()
    told["killed"] = quantiles([took for host in hosts for _, took in host.seconds])
    told["killed"]["requests"] = sum(len(host.seconds) for host in hosts)
    told["killed"]["retries"] = sum(host.retries for host in hosts) - told["steady"]["retries"]
    told["sessions_started_anew"] = sum(host.starts - 1 for host in hosts)
    return hosts


def main() -> None:
    """Run, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", required=True, help="URL of a server; a database is made and dropped")
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--kill-seconds", type=float, default=60)
    parser.add_argument("--turns-per-second", type=float, default=40)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    name = f"context_paging_bench_{uuid4().hex[:8]}"
    admin = create_engine(options.postgres, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    database = admin.url.set(database=name).render_as_string(hide_password=False)
    told: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            run(options, database, Path(folder), stack, told)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    print(json.dumps(told, indent=2))


def run(
    options: argparse.Namespace, database: str, folder: Path, stack: ExitStack, told: dict[str, Any]
) -> None:
    """Everything with one database."""
    key = folder / "key"
    kept = LogOptions(durability=Durability.SYNC, key_file=key, spool=folder / "spool")
    log = stack.enter_context(EventLog.open(database, kept))
    told["in_process_without_log"] = quantiles(in_process(None, options.messages))
    told["in_process_with_this_log"] = quantiles(in_process(log, options.messages))
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("bench", (Scope.WRITE,))
    environment = {
        **os.environ,
        "CONTEXT_PAGING_LOG": database,
        "CONTEXT_PAGING_TOKENS": str(tokens.path),
        "CONTEXT_PAGING_KEY_FILE": str(key),
    }
    first, *ports = free_ports(1 + options.workers)
    workers = [Worker(port, folder, environment) for port in ports]
    for worker in workers:
        stack.callback(worker.stop)
        worker.start()
    url = stack.enter_context(nginx(folder, first, ports))
    hosts = asyncio.run(load(options, url, secret, workers, told))
    log.forget()
    told["answered_context_requests"] = sum(len(host.acknowledged) for host in hosts)
    told["answered_and_missing_from_the_log"] = missing_from(log, hosts)
    told["errors"] = [error for host in hosts for error in host.errors]
    verified = log.verify()
    told["records_verified"] = sum(each.records for each in verified)
    told["chains_that_do_not_verify"] = sum(each.finding is not None for each in verified)


if __name__ == "__main__":
    main()
