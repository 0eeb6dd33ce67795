"""What the log says, over HTTP: the same as the commands say."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from context_paging.service.example import example_path
from context_paging.service.log import EventLog, LogUnavailable
from context_paging.service.replay import ReplayOptions, replay
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from tests.service.conftest import Shell

from .conftest import Client, answered, user
from .serving import serving


@pytest.fixture
def filled(client: Client) -> Client:
    """A log with the example under two budgets."""
    with example_path() as path:
        file = read_session_file(path)
    for name, budget in (("small", 300), ("paged", 12_000)):
        options = ReplayOptions(global_settings={"contextPaging": {"tokenBudget": budget}})
        for _ in replay(file, Session(name, sink=client.log, label=f"Harbour {name}"), options):
            pass
    client.log.flush()
    return client


def pages(client: Client, path: str, **query: Any) -> Iterator[Any]:
    """All rows of a paged answer."""
    cursor = None
    while True:
        answer = client.get(path, params={**query, **({"cursor": cursor} if cursor else {})}).json()
        yield from answer["rows"]
        cursor = answer["next"]
        if cursor is None:
            return


def test_sessions_are_found_by_what_is_known_of_them(filled: Client) -> None:
    def found(**query: Any) -> list[str]:
        return [row["session_id"] for row in pages(filled, "/sessions", limit=1, **query)]

    assert found() == ["paged", "small"]
    assert found(newest_first=False) == ["small", "paged"]
    assert found(aborted=True) == ["small"]
    assert found(search="HARBOUR P") == ["paged"]
    assert found(search="mal") == ["small"]
    assert found(search="%") == []
    assert found(prefix="p", search="harbour") == ["paged"]
    assert found(since="2999-01-01T00:00:00Z") == []
    assert filled.get("/sessions?sessions=1").status_code == 422
    assert filled.get("/sessions?since=2026-01-01").status_code == 422
    assert filled.get("/sessions?since=0001-01-01T00:00:00%2B14:00").status_code == 422


def test_calls_and_timelines_are_whole_and_in_order(filled: Client) -> None:
    calls = list(pages(filled, "/sessions/paged/calls", limit=50, newest_first=False))
    assert [call["number"] for call in calls] == list(range(1, 132))
    aborted = list(pages(filled, "/calls", outcome="aborted", limit=3))
    assert {call["session_id"] for call in aborted} == {"small"}
    assert len(aborted) == filled.log.session("small").aborted_calls
    events = list(pages(filled, "/sessions/paged/timeline", limit=200))
    assert [event["sequence"] for event in events] == list(range(1, 660))
    for path in ("", "/calls", "/timeline", "/calls/1", "/what-if", "/verify"):
        answer = filled.get(f"/sessions/nope{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_SESSION")


def test_a_postmortem_is_that_of_the_command(filled: Client, shell: Shell) -> None:
    last = filled.log.last_call("small", "aborted")
    assert last is not None
    location = filled.log.engine.url.database
    printed = shell.json("postmortem", "small", "--last-abort", "--log", location)
    told = filled.get(f"/sessions/small/calls/{last.number}").json()

    assert told["would_have_saved"] == printed["would_have_saved"] != []
    for name in ("explanation", "outcome", "window", "waterfall", "largest_units"):
        assert told[name] == printed[name]
    changes = [
        [{**change, "recorded_at": None} for change in each["frontier_life"]] for each in (told, printed)
    ]
    assert changes[0] == changes[1] != []
    by_id = filled.get(f"/sessions/small/calls/{last.call_id}").json()
    assert by_id == told
    assert filled.get("/sessions/small/calls/9999").json()["code"] == "UNKNOWN_CALL"


def test_two_calls_are_compared_as_the_command_does(filled: Client, shell: Shell) -> None:
    told = filled.get("/sessions/paged/calls/16/compare/40").json()
    location = filled.log.engine.url.database
    printed = shell("postmortem", "paged", "--call", 16, "--compare", 40, "--log", location).stdout

    estimates = [filled.log.call_number("paged", number) for number in (16, 40)]
    (line,) = [line for line in told if line["name"] == "estimate"]
    assert [line["first"], line["second"]] == [f"{call.estimated_tokens:,.0f}" for call in estimates if call]
    for row in told:
        for value in (row["first"], row["second"]):
            assert value.partition(",")[0][:12] in printed
    as_json = shell.json("postmortem", "paged", "--call", 16, "--compare", 40, "--log", location)
    assert as_json["compared"] == told


def test_other_settings_are_tried(filled: Client) -> None:
    told = filled.get("/sessions/small/what-if?token_budget=64000").json()
    assert told["considered"] == 131
    assert told["differing"] == len(told["calls"]) > 100
    assert not any("aborted" in call["after"]["outcome"] for call in told["calls"])
    everything = filled.get("/sessions/small/what-if?all_calls=true").json()
    assert (everything["differing"], len(everything["calls"])) == (0, 131)
    assert filled.get("/sessions/small/what-if?token_budget=1.0").status_code == 422


def test_a_session_that_began_anew_is_drawn_anew(client: Client) -> None:
    for size, calls in ((100, 2), (10, 4)):
        session = Session("s", sink=client.log)
        session.start()
        for _ in range(calls):
            session.context([{"role": "user", "content": "x" * 4 * size}])
        client.log.flush()
        page = client.http.get("/sessions/s", headers=client.headers).text
        assert f"Call 1: within-budget, {size + 1:,} of {size + 1:,} tokens sent" in page
        client.log.retire("s")


def test_reading_goes_on_beside_heavy_readers_and_feeding_does(client: Client) -> None:
    client.send("s", {"type": "session_start"})
    held, released = threading.Semaphore(0), threading.Event()

    def slow(*_: object, **__: object) -> None:
        held.release()
        released.wait(20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventLog, "find_sessions", slow)
        with ThreadPoolExecutor(6) as readers:
            for _ in range(6):
                readers.submit(client.get, "/sessions")
            # All readers' threads are taken.
            for _ in range(4):
                assert held.acquire(timeout=10)
            assert client.send("s", {"type": "context"})["outcome"] == "within-budget"
            assert client.http.get("/readyz").status_code == 200
            released.set()


def test_cursors_at_the_ends_of_time_are_no_cursors(client: Client) -> None:
    for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00"):
        cursor = b64encode(json.dumps([moment, "a"]).encode()).decode()
        for path in ("/sessions", "/calls"):
            answer = client.get(path, params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_QUERY")


def test_names_that_no_encoding_has_are_told(client: Client) -> None:
    half = "x\ud83d"
    session = Session("s", sink=client.log, host="h")
    session.start(global_settings={"contextPaging": {"tokenBudget": 300}})
    entries = [user("tide " * 100, half), answered("y " * 200, f"{half}2", half), user("z", "3", f"{half}2")]
    session.append(entries)
    session.context(context_window=float("inf"))
    session.context()
    client.log.flush()
    assert half in client.get("/sessions/s/calls/2").text.encode().decode("unicode_escape", "surrogatepass")
    for path in (
        "/calls/1",
        "/calls/1/compare/2",
        "/what-if?token_budget=200&all_calls=true",
        "/timeline",
        "/calls",
    ):
        assert client.get(f"/sessions/s{path}").status_code == 200, path
    assert client.get("/tail?after=0&follow=false").status_code == 200


def test_a_record_that_was_altered_is_found(filled: Client) -> None:
    assert filled.get("/sessions/paged/verify").json()["fault"] is None
    with filled.log.changing() as connection:
        connection.execute(
            text("UPDATE events SET payload = '{}' WHERE session_id = 'paged' AND sequence = 7")
        )
    told = filled.get("/sessions/paged/verify").json()
    assert (told["fault"], told["sequence"]) == ("altered", 7)
    assert [each["session_id"] for each in filled.get("/verify").json()] == ["paged"]


def positions(text_of_events: str) -> list[int]:
    """The ids of server-sent events."""
    return [int(line[4:]) for line in text_of_events.splitlines() if line.startswith("id: ")]


def test_a_tail_goes_on_where_it_was(filled: Client) -> None:
    everything = positions(filled.get("/tail?after=0&follow=false").text)
    last = filled.log.last_position()
    assert everything == list(range(1, last + 1))
    resumed = filled.http.get(
        "/v1/tail?after=0&follow=false", headers={**filled.headers, "Last-Event-ID": str(last - 3)}
    )
    assert positions(resumed.text) == [last - 2, last - 1, last]
    one = filled.get("/tail?after=0&follow=false&session=small").text
    assert len(positions(one)) == filled.log.session("small").events
    assert '"session_id":"paged"' not in one


def test_tails_end_when_the_service_does(client: Client) -> None:
    received: list[str] = []

    def read(url: str) -> None:
        with httpx2.stream("GET", f"{url}/v1/tail", headers=client.headers, timeout=20) as stream:
            received.extend(stream.iter_lines())

    with serving(client.http.app) as running:  # type: ignore[arg-type]
        reader = threading.Thread(target=read, args=(running.url,))
        reader.start()
        client.send("s", {"type": "session_start"})
        while not any(line.startswith("data:") for line in received) and reader.is_alive():
            client.send("s", {"type": "session_start"})
    reader.join(10)
    assert not reader.is_alive()


def test_many_tails_ask_the_database_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    known = EventLog.last_position

    def counted(log: EventLog) -> int:
        nonlocal asked
        asked += 1
        return known(log)

    monkeypatch.setattr(EventLog, "last_position", counted)
    streams = 20

    async def read(http: httpx2.AsyncClient, url: str) -> list[str]:
        lines = []
        async with http.stream("GET", f"{url}/v1/tail?after=0", headers=client.headers) as stream:
            async for line in stream.aiter_lines():
                lines += [line] if line.startswith("id: ") else []
                if len(lines) == 4:
                    break
        return lines

    async def run(url: str) -> list[list[str]]:
        async with httpx2.AsyncClient(timeout=20) as http:
            readers = [asyncio.create_task(read(http, url)) for _ in range(streams)]
            await asyncio.sleep(2)
            await asyncio.to_thread(client.send, "s", {"type": "session_start"})
            await asyncio.to_thread(client.send, "s", {"type": "session_start"})
            return await asyncio.gather(*readers)

    with serving(client.http.app) as running:  # type: ignore[arg-type]
        received = asyncio.run(run(running.url))
    assert received == [[f"id: {position}" for position in (1, 2, 3, 4)]] * streams
    assert asked < 3 * 4 * 2
    assert client.http.app.state.pulse.streams == 0  # type: ignore[attr-defined]


def test_a_token_that_is_removed_ends_its_tail(client: Client) -> None:
    with (
        serving(client.http.app) as running,  # type: ignore[arg-type]
        httpx2.stream("GET", f"{running.url}/v1/tail", headers=client.headers, timeout=20) as stream,
    ):
        client.tokens.remove("token-0")
        session = Session("s", sink=client.log)
        session.start()
        # The stream ends, so that reading it does.
        told = [line for line in stream.iter_lines() if line.startswith("data:")]
        session.start("reload")
        assert len(told) <= 2


def test_a_log_that_is_away_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.http.get("/readyz").json()["status"] == "ready"

    def away(*_: object, **__: object) -> None:
        raise LogUnavailable("the log cannot be used: it is away")

    monkeypatch.setattr(EventLog, "_rows", away)
    for path in ("/v1/sessions", "/v1/calls", "/v1/sessions/s", "/readyz"):
        answer = client.http.get(path, headers=client.headers)
        assert (answer.status_code, answer.json()["code"]) == (503, "LOG_UNAVAILABLE")
    assert client.http.get("/sessions", headers=client.headers).status_code == 503
    assert client.http.get("/healthz").status_code == 200
    client.http.app.state.service.stopping.set()  # type: ignore[attr-defined]
    assert client.http.get("/readyz").json()["code"] == "STOPPING"
