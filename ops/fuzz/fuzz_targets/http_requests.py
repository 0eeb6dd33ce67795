"""Requests to the service: whatever is asked by whomever, the answer is one that the service means to give.

An input is a number of requests, made one after the other of an application in this process: a line with a
method, a target and who asks, then the body; a line of ``====`` parts them. Of each answer it must hold that

- its status is below 500, but for a service that says that it is stopping;
- a refusal below ``/v1`` is a problem with a code and its own status, and JSON is strict JSON;
- who is not known learns nothing; who may only read changes nothing; and nobody learns of another's sessions.

The log has two sessions when it begins, and is put back to them before each input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote_to_bytes

from anyio import to_thread
from fastapi import FastAPI

from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.pages.views import Histories
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import Durability, EventLog, LogOptions
from context_paging.service.session import Session
from context_paging.service.session_file import refuse_constant

from . import bridge_lines
from .json_trees import changed, dumped, loaded, words

MOST_BYTES = 8_192
BODY_LIMIT = 4_096
PART = b"\n====\n"
SECRET = "canary-7f3a"
"""In the id and in the label of a session that only the administrator may know of."""
_HEAD = re.compile(
    rb"([A-Z]{1,10}) ([^\s\x00-\x20\x7f-\xff]+) (admin|writer|reader|nobody|forged|browser)( text)?"
)
_METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH")
_WHO = (b"admin", b"admin", b"writer", b"reader", b"nobody", b"forged", b"browser")
_IDS = (
    b"mine/1",
    b"mine%2F1",
    b"mine/2",
    b"mine/",
    b"other",
    b"%00",
    b"%ED%A0%BD",
    b"a%2Fb",
    b"x" * 257,
    b"..",
    b"%20",
)
_ROUTES = tuple(map(str.encode, words("routes")))
_PARAMETERS = tuple(map(str.encode, words("parameters")))
_VALUES = (*map(str.encode, words("values")), b"", b"a" * 300, b"1" * 5_000)


@dataclass(frozen=True, slots=True)
class _Request:
    method: bytes
    target: bytes
    who: bytes
    text: bool
    body: bytes


@dataclass(slots=True)
class _Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class _Service:
    """The application, its log in a file, and what the log held in the beginning."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(
            prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        folder = Path(self._folder.name)
        tokens = TokenFile(folder / "tokens.json")
        self.secrets = {
            b"admin": tokens.add("admin", (Scope.ADMIN,)),
            b"writer": tokens.add("writer", (Scope.WRITE,), "mine/"),
            b"reader": tokens.add("reader", (Scope.READ,), "mine/"),
            b"forged": "cp_" + "x" * 43,
        }
        self.log = EventLog.open(folder / "log.db", LogOptions(durability=Durability.SYNC))
        self.log.engine.dispose()
        _fill(self.log)
        self._file = sqlite3.connect(folder / "log.db")
        self._file.execute("PRAGMA synchronous = OFF")
        self._beginning = sqlite3.connect(":memory:")
        self._file.backup(self._beginning)
        self._tables = [
            name
            for (name,) in self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        ]
        options = ServerOptions(tokens, body_limit=BODY_LIMIT, rate=1e12, burst=1e12)
        self.app: FastAPI = create_app(self.log, options)
        # Streams have an end then.
        self.app.state.service.stopping.set()
        self.loop = asyncio.new_event_loop()

    def begin(self) -> int:
        """Put the log back to its beginning; how many events it has."""
        live = self.app.state.service.live
        live._entries.clear()
        live._closed.clear()
        self.log.forget()
        self.app.state.histories = Histories(self.log)
        if self.events() != self._count():
            self._beginning.backup(self._file)
        return self.events()

    def events(self) -> int:
        """How many events the log has, with those of other tables added."""
        return sum(
            self._file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in self._tables
        )

    def others(self) -> int:
        """How many events the sessions have that only the administrator may know of."""
        query = "SELECT count(*) FROM events WHERE session_id NOT GLOB 'mine/*'"
        return int(self._file.execute(query).fetchone()[0])

    def _count(self) -> int:
        return sum(
            self._beginning.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in self._tables
        )

    def ask(self, request: _Request) -> _Answer:
        """The answer to a request."""
        return self.loop.run_until_complete(self._ask(request))

    async def _ask(self, request: _Request) -> _Answer:
        path, _, query = request.target.partition(b"?")
        raw = unquote_to_bytes(path)
        headers = [(b"host", b"localhost"), (b"content-length", str(len(request.body)).encode())]
        headers.append((b"content-type", b"text/plain" if request.text else b"application/json"))
        secret = self.secrets.get(request.who)
        if request.who == b"browser":
            headers.append((b"cookie", b"context_paging_token=" + self.secrets[b"reader"].encode()))
        elif secret is not None:
            headers.append((b"authorization", b"Bearer " + secret.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method.decode(),
            "scheme": "http",
            "path": raw.decode("utf-8", "replace") if b"%" in path else path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "state": {},
        }
        waiting = [{"type": "http.request", "body": request.body, "more_body": False}]
        answer = _Answer(0, {}, b"")

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert not answer.status, "answered twice"
                answer.status, answer.headers = message["status"], dict(message["headers"])
            else:
                answer.body += message.get("body", b"")

        await self.app(scope, receive, send)
        return answer


@cache
def _service() -> _Service:
    async def here(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        return function(*arguments)

    # One thread: an input does the same each time.
    to_thread.run_sync = here  # type: ignore[assignment]
    return _Service()


def check(data: bytes) -> None:
    """What has to hold for requests.

    Raises:
        Exception: it does not.
    """
    service = _service()
    before, others = service.begin(), service.others()
    for part in data.split(PART):
        request = _request(part)
        if request is None:
            continue
        answer = service.ask(request)
        _check(request, answer)
        if request.who not in (b"admin", b"writer"):
            assert service.events() == before, "who may not write has written"
        if request.who != b"admin":
            assert service.others() == others, "another's session has grown"
        before, others = service.events(), service.others()


def seeds() -> Iterator[tuple[str, bytes]]:
    """Requests to begin with, by name."""
    for name, talk in bridge_lines.seeds():
        events = [json.loads(line).get("event") for line in talk.splitlines() if name != "odd"]
        batch = dumped([event for event in events if event])
        if len(batch) <= BODY_LIMIT and name != "odd":
            posted = b"POST /v1/sessions/mine/2/events?host=agent&label=l admin\n" + batch
            yield (
                f"batch-{name}",
                PART.join(
                    (
                        posted,
                        posted,
                        b"GET /v1/sessions/mine/2/statistics writer\n",
                        b"GET /sessions/mine/2 browser\n",
                    )
                ),
            )
    for number, route in enumerate(_ROUTES):
        target = route.replace(b"ID", b"mine/1")
        method = b"POST" if b"/tools/" in route else b"GET"
        body = b'{"query": "tide", "load": true}' if b"search" in route else b"{}"
        start = b'POST /v1/sessions/mine/1/events writer\n[{"type": "session_start", "reason": "resume"}]'
        yield f"route-{number}", PART.join((start, method + b" " + target + b" admin\n" + body))
    pages = [b"GET /v1/sessions?limit=1 admin\n", b"GET /v1/calls?outcome=aborted&limit=2 admin\n"]
    pages.append(b"GET /v1/sessions/mine/1/what-if?token_budget=50&all_calls=true reader\n")
    pages.append(b"GET /v1/sessions/mine/1/timeline?limit=2 reader\n")
    pages.append(b"GET /v1/tail?after=0&follow=false reader\n")
    tools = [
        event
        for line in dict(bridge_lines.seeds())["tools"].splitlines()[1:]
        for event in [json.loads(line)["event"]]
    ]
    parts = [b"POST /v1/sessions/mine/2/events writer\n" + dumped(tools[:2])]
    for call in tools[2:]:
        head = b"POST /v1/sessions/mine/2/tools/" + call["name"].encode() + b" writer\n"
        parts.append(head + dumped(call["parameters"]))
    yield "tools", PART.join(parts)
    yield "queries", PART.join(pages)
    yield (
        "login",
        b"POST /login nobody text\ntoken=cp_x&next=%2Fsessions"
        + PART
        + b"GET /sessions?since=2026-03-01 browser\n",
    )


def mutate(data: bytes, most: int, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    """Requests that are somewhat different. ``plain`` changes bytes that are no structure."""
    if random.random() < 0.05:
        return plain(data, most)
    parts = data.split(PART)
    at = random.randrange(len(parts))
    request = _request(parts[at])
    match random.choice(
        ("body", "body", "body", "query", "query", "route", "path", "who", "drop", "twice", "plain")
    ):
        case "body" if request is not None:
            value = _value(request.body)
            new = (
                plain(request.body, most)
                if value is None
                else dumped(changed(value, random, bridge_lines.WORDS))
            )
            parts[at] = _written(request, body=new)
        case "query" if request is not None:
            parts[at] = _written(request, target=_queried(request.target, random, plain))
        case "route" if request is not None:
            route = random.choice(_ROUTES).replace(
                b"ID", random.choice(_IDS if random.random() < 0.3 else _IDS[:3])
            )
            _, mark, query = request.target.partition(b"?")
            parts[at] = _written(request, target=route + mark + query)
        case "path" if request is not None:
            path, mark, query = request.target.partition(b"?")
            segments = path.split(b"/")
            segments[random.randrange(len(segments))] = random.choice((*_IDS, *_VALUES, b"2", b"3"))
            parts[at] = _written(request, target=b"/" + b"/".join(segments).lstrip(b"/") + mark + query)
        case "who" if request is not None:
            which = random.random() < 0.5
            parts[at] = _written(
                request,
                method=random.choice(_METHODS) if which else request.method,
                who=request.who if which else random.choice(_WHO),
            )
        case "drop":
            del parts[at]
        case "twice":
            parts.insert(random.randrange(len(parts) + 1), parts[at])
        case _:
            parts[at] = plain(parts[at], most)
    return PART.join(parts)[:most]


def _queried(target: bytes, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    path, _, query = target.partition(b"?")
    pairs = [pair.partition(b"=")[::2] for pair in query.split(b"&") if pair]
    choice = random.random()
    if pairs and choice < 0.2:
        pairs.pop(random.randrange(len(pairs)))
    elif pairs and choice < 0.5:
        number = random.randrange(len(pairs))
        pairs[number] = (pairs[number][0], random.choice(_VALUES))
    elif pairs and choice < 0.6:
        number = random.randrange(len(pairs))
        pairs[number] = (
            pairs[number][0],
            re.sub(rb"[\s\x00-\x20\x7f-\xff]", b"%C3", plain(pairs[number][1], 200)),
        )
    else:
        pairs.append((random.choice(_PARAMETERS), random.choice(_VALUES)))
    return path + b"?" + b"&".join(name + b"=" + value for name, value in pairs)


def _request(part: bytes) -> _Request | None:
    head, _, body = part.partition(b"\n")
    found = _HEAD.fullmatch(head)
    if found is None or not found[2].startswith(b"/"):
        return None
    return _Request(found[1], found[2], found[3], bool(found[4]), body)


def _written(request: _Request, **new: bytes) -> bytes:
    method, target = new.get("method", request.method), new.get("target", request.target)
    head = method + b" " + target + b" " + new.get("who", request.who)
    return head + (b" text" if request.text else b"") + b"\n" + new.get("body", request.body)


def _check(request: _Request, answer: _Answer) -> None:
    told = f"{request.method!r} {request.target!r} {request.who!r}: {answer.status} {answer.body[:300]!r}"
    path = unquote_to_bytes(request.target.partition(b"?")[0])
    assert answer.status, told
    assert answer.status < 500 or (answer.status == 503 and b'"STOPPING"' in answer.body), told
    kind = answer.headers.get(b"content-type", b"").partition(b";")[0]
    value: Any = None
    if kind in (b"application/json", b"application/problem+json") and answer.body:
        value = json.loads(answer.body, parse_constant=refuse_constant)
    if answer.status >= 400 and path.startswith(b"/v1/") and request.method != b"HEAD":
        assert kind == b"application/problem+json", told
        assert {"type", "title", "status", "code", "detail"} <= value.keys(), told
        assert value["status"] == answer.status, told
        assert re.fullmatch("[A-Z_]+", value["code"]), told
        assert value["detail"], told
        assert value["code"] != "INTERNAL_ERROR", told
    assert b"Traceback" not in answer.body or b"Traceback" in request.body + path, told
    if request.who in (b"nobody", b"forged") and path.startswith(b"/v1/"):
        assert answer.status >= 400, told
    if request.who != b"admin":
        assert SECRET.encode() not in answer.body or SECRET.encode() in request.body + request.target, told


def _fill(log: EventLog) -> None:
    numbers = iter(range(10**6))

    def session(session_id: str, label: str, budget: int) -> None:
        live = Session(
            session_id, sink=log, label=label, host="agent", new_id=lambda: f"s-call-{next(numbers)}"
        )
        live.start(global_settings={"contextPaging": {"tokenBudget": budget}})
        live.select_model("m-1", 4_000)
        parent = None
        for number in range(4):
            for role, text in (("user", "Where is the tide table? " * 3), ("assistant", "In docs/. " * 9)):
                entry_id = f"{role[0]}{number}"
                message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": number}
                if role == "assistant":
                    message |= {"stopReason": "stop", "usage": {"input": 9, "output": 9, "totalTokens": 18}}
                live.append([{"type": "message", "id": entry_id, "parentId": parent, "message": message}])
                parent = entry_id
                if role == "user":
                    live.context(system_prompt="You are.", usage_tokens="stored")
                else:
                    live.turn_end(entry_id)
        live.tool("browse_history", {"direction": "backward"})
        live.context(system_prompt="You are. " * 900)
        live.shut_down()

    session("mine/1", "Tides", 80)
    session(f"theirs/{SECRET}", SECRET, 60)


def _value(body: bytes) -> Any:
    try:
        value = loaded(body)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None
