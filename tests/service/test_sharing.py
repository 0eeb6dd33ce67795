"""Sessions that are shared by mistake: a typed error that says what to do, and nothing has changed."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from context_paging.domain.entries import Entry
from context_paging.service import AsyncContextPaging, AsyncSession, ContextPaging, LogOptions
from context_paging.service.log import Record
from context_paging.service.log.errors import SessionConflict
from context_paging.service.session import Session, SessionBusy

QUESTION: dict[str, Any] = {"role": "user", "content": "Where is the tide table?", "timestamp": 1}
ANSWER: dict[str, Any] = {
    "role": "assistant",
    "content": [{"type": "text", "text": "In docs/."}],
    "timestamp": 2,
}
ENTRIES: list[dict[str, Any]] = [
    {"type": "message", "id": "1", "parentId": None, "message": QUESTION},
    {"type": "message", "id": "2", "parentId": "1", "message": ANSWER},
]

CALLS: dict[str, Callable[[Session], object]] = {
    "start": lambda session: session.start("resume"),
    "start_without_settings": lambda session: session.start_without_settings("new", "no file"),
    "append": lambda session: session.append([{**ENTRIES[1], "id": "3"}]),
    "context": lambda session: session.context(),
    "turn_end": lambda session: session.turn_end("2"),
    "navigate": lambda session: session.navigate("1"),
    "select_model": lambda session: session.select_model("other"),
    "before_compaction": lambda session: session.before_compaction("manual"),
    "compacted": lambda session: session.compacted("x"),
    "attempt_cancelled": lambda session: session.attempt_cancelled("fork"),
    "command": lambda session: session.command("off"),
    "tool": lambda session: session.tool("browse_history", {"direction": "forward"}),
    "statistics": lambda session: session.statistics(),
    "shut_down": lambda session: session.shut_down(),
}
"""Every public method, called in a way that changes or reads what a session holds."""


class SlowSink:
    """A log that stops in the middle of an append, until it is told to go on."""

    keeps_content = False

    def __init__(self) -> None:
        self.inside, self.go_on = Event(), Event()
        self.records: list[Record] = []
        self.slow = False

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        assert expected_sequence == len(self.records), f"{session_id} forked"
        if self.slow:
            self.slow = False
            self.inside.set()
            assert self.go_on.wait(10)
        self.records += records
        return len(self.records)


def held(session: Session) -> object:
    """All that a session holds."""
    return session.state, session.sequence, session.live, dict(session.stored.entries), session.stored.leaf_id


def test_every_public_method_is_among_the_calls() -> None:
    methods = {
        name for name, member in inspect.getmembers(Session, inspect.isfunction) if not name.startswith("_")
    }

    assert methods == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_from_another_thread_while_one_is_running_is_refused(name: str) -> None:
    sink = SlowSink()
    session = Session("shared", sink=sink)
    session.start()
    session.append(ENTRIES)
    session.context()
    before = held(session)
    sink.slow = True
    running = Thread(target=session.select_model, args=("slow",))
    running.start()
    assert sink.inside.wait(10)

    with pytest.raises(SessionBusy, match=f"{name}.*AsyncSession"):
        CALLS[name](session)

    assert held(session) == before
    sink.go_on.set()
    running.join()
    CALLS[name](session)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_from_within_a_call_is_refused(name: str) -> None:
    session = Session("nested")
    session.start()
    session.append(ENTRIES)

    def entries() -> Iterator[Entry]:
        yield {**ENTRIES[0], "id": "9", "parentId": "2"}
        CALLS[name](session)

    with pytest.raises(SessionBusy):
        session.append(entries())

    assert session.stored.leaf_id == "9"
    CALLS[name](session)


def test_callbacks_of_a_session_cannot_call_it() -> None:
    raised: list[SessionBusy] = []

    def new_id() -> str:
        try:
            session.command("off")
        except SessionBusy as busy:
            raised.append(busy)
        return f"id-{len(raised)}"

    session = Session("called back", sink=SlowSink(), new_id=new_id)
    session.start()
    session.append(ENTRIES)

    assert session.context().messages
    assert raised
    assert session.state.enabled


def test_threads_that_share_a_session_never_spoil_it(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ContextPaging.open(tmp_path / "paging.db") as paging:
            session = paging.session("shared")
            barrier = Barrier(4)

            def use(thread: int) -> tuple[int, int]:
                barrier.wait()
                done = refused = 0
                for number in range(60):
                    entry = {**ENTRIES[0], "id": f"{thread}-{number}", "parentId": None}
                    for call in (lambda entry=entry: session.append([entry]), session.context):
                        try:
                            call()
                            done += 1
                        except SessionBusy:
                            refused += 1
                return done, refused

            with ThreadPoolExecutor(4) as pool:
                counts = list(pool.map(use, range(4)))
            session.append([{**ENTRIES[0], "id": "last"}])
            assert len(session.context().messages) == 1
            assert paging.log is not None
            paging.log.flush()
            logged = [event.event.type for event in paging.log.events("shared")]
    finally:
        sys.setswitchinterval(interval)

    assert sum(done for done, _ in counts) > 0
    assert logged.count("context-requested") == logged.count("context-selected")


def test_threads_may_share_the_home_of_sessions(tmp_path: Path) -> None:
    with ContextPaging.open(tmp_path / "paging.db") as paging:

        def use(number: int) -> int:
            session = paging.session(f"s{number}")
            session.append(ENTRIES)
            session.context()
            session.turn_end("2")
            return session.sequence

        with ThreadPoolExecutor(8) as pool:
            sequences = list(pool.map(use, range(40)))
        assert paging.log is not None
        paging.log.flush()
        verified = paging.log.verify()

    assert len(set(sequences)) == 1
    assert [session.finding for session in verified] == [None] * 40


def test_threads_that_start_one_session_at_once_get_one_that_works(tmp_path: Path) -> None:
    with ContextPaging.open(tmp_path / "paging.db", options=LogOptions(durability="sync")) as paging:
        barrier = Barrier(4)

        def use(_: int) -> str:
            barrier.wait()
            try:
                session = paging.session("one")
                session.append(ENTRIES)
                session.context()
            except SessionConflict:
                return "taken over"
            return "works"

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(use, range(4)))
        assert paging.log is not None
        verified = paging.log.verify("one")

    assert "works" in results
    assert [session.finding for session in verified] == [None]


def test_closing_leaves_a_session_alone_that_is_being_called() -> None:
    paging = ContextPaging()
    session = paging.session("shared")

    def entries() -> Iterator[Entry]:
        yield ENTRIES[0]
        paging.close()

    session.append(entries())

    assert session.live


def test_tasks_that_share_a_session_wait_for_each_other() -> None:
    async def run() -> None:
        session = await AsyncContextPaging(ContextPaging()).session("shared")
        await session.append(ENTRIES)
        replies = await asyncio.gather(
            *(session.context() for _ in range(10)),
            *(session.append([{**ENTRIES[0], "id": f"n{number}"}]) for number in range(10)),
            *(session.statistics() for _ in range(10)),
            return_exceptions=True,
        )
        assert not [reply for reply in replies if isinstance(reply, BaseException)]

    asyncio.run(run())


def test_a_session_of_a_task_that_is_called_directly_is_refused() -> None:
    async def run() -> None:
        sink = SlowSink()
        session = AsyncSession(Session("shared", sink=sink))
        sink.slow = True
        running = asyncio.ensure_future(session.select_model("slow"))
        await asyncio.to_thread(sink.inside.wait, 10)
        with pytest.raises(SessionBusy):
            session.session.append(ENTRIES)
        sink.go_on.set()
        await running

    asyncio.run(run())


def test_a_session_goes_on_under_a_second_event_loop() -> None:
    session = asyncio.run(AsyncContextPaging(ContextPaging()).session("s"))

    async def ask() -> Any:
        await asyncio.gather(session.append(ENTRIES), session.append(ENTRIES))
        return (await asyncio.gather(session.context(), session.context()))[0]

    assert asyncio.run(ask()).messages == asyncio.run(ask()).messages


def test_two_event_loops_cannot_use_a_session_at_once() -> None:
    sink = SlowSink()
    session = AsyncSession(Session("shared", sink=sink))
    sink.slow = True
    other = Thread(target=lambda: asyncio.run(_await(session.select_model("slow"))))
    other.start()
    assert sink.inside.wait(10)

    with pytest.raises(SessionBusy, match="event loop"):
        asyncio.run(_await(session.append(ENTRIES)))

    sink.go_on.set()
    other.join()
    asyncio.run(_await(session.append(ENTRIES)))


async def _await(awaitable: Any) -> Any:
    return await awaitable
