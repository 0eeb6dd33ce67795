"""Clients that mean harm, against a real process: 4xx, no traceback, no content in its log; it lives on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from context_paging.service.http.tokens import Scope, TokenFile

SECRET = "xyzzy-secret-content"


@dataclass
class Process:
    """A running `context-paging serve`."""

    port: int
    token: str
    output: Path
    running: subprocess.Popen[bytes]

    def ask(
        self, method: str, path: str, body: bytes | None = None, timeout: float = 20, **headers: str
    ) -> tuple[int, bytes]:
        """Status and body of an answer; underscores in header names are hyphens."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)) as connection:
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            sent |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def raw(self, data: bytes, timeout: float = 20) -> bytes:
        """What is answered to bytes, until the connection is closed."""
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=timeout)) as connection:
            connection.sendall(data)
            received = b""
            with suppress(TimeoutError, ConnectionError):
                while part := connection.recv(65_536):
                    received += part
            return received

    def check(self) -> None:
        """Whether the service lives, and told nothing it must not."""
        assert self.running.poll() is None
        assert self.ask("GET", "/v1/sessions")[0] == 200
        told = self.output.read_text()
        assert "Traceback" not in told
        assert SECRET not in told
        # The last line may be in the middle of being written.
        for line in told.split("\n")[1:-1]:
            assert json.loads(line)["level"] in ("info", "warning"), line


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The service as an operator runs it, with small limits."""
    folder = tmp_path_factory.mktemp("hostile")
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("t", (Scope.WRITE, Scope.READ), "mine/")
    output = folder / "output"
    command = [sys.executable, "-c", "from context_paging.service.cli import main; main()", "serve"]
    options = ["--port", "0", "--tokens", str(tokens.path), "--log", str(folder / "log.db")]
    limits = ["--body-limit", "1", "--body-seconds", "1.5"]
    with output.open("wb") as file:
        running = subprocess.Popen([*command, *options, *limits], stderr=file, stdout=file, env=os.environ)
    try:
        deadline = time.monotonic() + 30
        while "startup complete" not in output.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        port = int(output.read_text().splitlines()[0].rpartition(":")[2].rstrip("/"))
        yield Process(port, secret, output, running)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0


def events(session: str = "mine/1") -> str:
    """Where events go."""
    return f"/v1/sessions/{session.replace('/', '%2F')}/events"


def code_of(answer: tuple[int, bytes]) -> tuple[int, Any]:
    """Status and code of a problem."""
    return answer[0], json.loads(answer[1])["code"]


START = b'{"type": "session_start"}'


def test_bodies_that_are_too_large(process: Process) -> None:
    large = b'{"type": "append", "entries": ["' + b"x" * 2**20 + b'"]}'
    assert code_of(process.ask("POST", events(), large)) == (413, "BODY_TOO_LARGE")
    # One that says nothing of its size, and one that lies.
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    head = (
        f"POST {events()} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {process.token}\r\n"
        "Content-Type: application/json\r\n"
    ).encode()
    assert b" 413 " in process.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3)
    assert b" 413 " in process.raw(head + b"Content-Length: 9999999999\r\n\r\n{}")
    process.check()


def test_bodies_that_do_not_arrive(process: Process) -> None:
    head = (
        f"POST {events()} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {process.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    ).encode()
    started = time.monotonic()
    assert b" 408 " in process.raw(head + b'{"type"')
    assert time.monotonic() - started < 10
    process.check()


def test_a_request_that_is_given_up_half_way(process: Process) -> None:
    head = f"POST {events()} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode()
    for _ in range(20):
        with closing(socket.create_connection(("127.0.0.1", process.port), timeout=5)) as connection:
            connection.sendall(head)
    process.check()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'"session_start"',
        b"1e999",
        b'{"type": "context", "context_window": NaN}',
        b'{"type": "context", "context_window": 1' + b"0" * 400 + b"}",
        b'{"type": "context", "usage_tokens": 1' + b"0" * 5_000 + b"}",
        b'{"type": "context", "messages": [{"role": "user", "content": [{"type": "x", "v": -1e999}]}]}',
        b'{"type": "append", "entries": [{"type": "message", "id": "i", "timestamp": 1e400}]}',
        b'{"type": "context", "unchanged": -1}',
        b'{"type": "context", "unchanged": true}',
        b'{"type": "context", "messages": {}}',
        b'{"type": "append", "entries": [1]}',
        b'{"type": "append", "entries": [{}]}',
        b'{"type": "append", "entries": [{"type": "message", "id": 7, "message": []}]}',
        b'{"type": "tool", "name": ["a"], "parameters": {}}',
        b'{"type": ["context"]}',
        b'{"type": "' + SECRET.encode() + b'"}',
        b'{"' + SECRET.encode() + b'": 1, "type": "context"}',
        b'{"type": "session_start", "event_id": ""}',
        b'{"type": "session_start", "event_id": "' + b"x" * 200 + b'"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"type": "append", "entries": [' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}",
        b'{"type": "tool", "name": "search_history", "parameters": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"type": "context", "event_id": "d", "tools": ['
        + b'{"a":' * 400
        + b"1"
        + b"}" * 400
        + b'], "x": 1}',
        b"[" + b",".join([START] * 1_001) + b"]",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_bodies_that_are_no_events(process: Process, body: bytes) -> None:
    process.ask("POST", events(), START)
    status, answer = process.ask("POST", events(), body)
    assert 400 <= status < 500, answer
    assert json.loads(answer)["code"]
    process.check()


def test_deep_values_are_kept_or_refused(process: Process) -> None:
    for depth in (100, 200, 250, 300, 320, 400, 900, 2_000, 20_000):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        message = b'{"role": "user", "content": [{"type": "x", "deep": ' + deep + b"}]}"
        for named in (b"", b'"event_id": "d%d", ' % depth):
            body = b"{" + named + b'"type": "context", "messages": [' + message + b"]}"
            status, answer = process.ask("POST", events(), body)
            assert status in (200, 400, 409, 422), answer
    process.check()


def test_tokens_that_are_forged(process: Process) -> None:
    forged = ["", "Bearer", "Bearer " + "x" * 30_000, f"Basic {process.token}", f"Bearer {process.token}x"]
    for header in forged:
        assert process.ask("GET", "/v1/sessions", Authorization=header)[0] == 401
    assert process.ask("GET", "/v1/sessions", Authorization="x", Cookie="context_paging_token=cp_x")[0] == 401
    cookie = f"context_paging_token={process.token}"
    assert process.ask("POST", events(), START, Authorization="", Cookie=cookie)[0] == 401
    process.check()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions/other%2F1/events",
        "/v1/sessions/mine/events",
        "/v1/sessions/%6Dine%2F..%2Fother/events/../../x",
        "/v1/sessions/mine%2F%00/events",
        "/v1/sessions/mine%2F%0d%0aX: y/events".replace(" ", "%20"),
        "/v1/sessions/mine%2F" + "x" * 5_000 + "/events",
        "/v1/../../etc/passwd",
        "/static/../../../pyproject.toml",
        "/static/%2e%2e/%2e%2e/routes.py",
        "/static/..%5c..%5croutes.py",
        "//evil.example/v1/sessions",
        "/v1/sessions/%ff%fe/events",
        f"/v1/{SECRET}",
        f"/{SECRET}?{SECRET}={SECRET}",
        "/v1/tail?after=99999999999999999999&session=%00",
        "/v1/calls?cursor=%00&limit=0",
        "/v1/calls?cursor=" + b64encode(b"[" * 740).decode(),
        "/sessions/mine%2F1/timeline?cursor=" + b64encode(b"[" * 5_000).decode(),
        "/sessions/mine%2F1?cursor=AAAA",
        "/sessions/mine%2F1/calls/99999999999999999999999",
        "/sessions/mine%2F1/compare?first=1",
        "/sessions/mine%2F1/what-if?token_budget=-1e9",
    ],
)
def test_paths_that_lead_elsewhere(process: Process, path: str) -> None:
    for method in ("GET", "POST"):
        status, answer = process.ask(method, path, START if method == "POST" else None)
        if "what-if" in path and method == "GET":
            assert status in (200, 404)
            continue
        assert 400 <= status < 500, (method, status, answer[:300])
    process.check()


def test_heads_that_are_no_heads(process: Process) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/calls HTTP/9.9\r\n\r\n",
        b"GET /v1/sessions HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /v1/sessions HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"GET /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/sessions HTTP/1.1\r\nHost : x\r\n\r\n",
    ):
        answer = process.raw(data, timeout=3)
        assert answer == b"" or answer.split(b" ", 2)[1].startswith(b"4"), answer[:200]
    process.check()


def test_request_ids_are_not_a_way_into_the_log(process: Process) -> None:
    for given in ("a b", SECRET * 10, '"},{"x":"', "é"):
        status, _ = process.ask("GET", "/v1/sessions", X_Request_Id=given)
        assert status == 200
    process.check()
