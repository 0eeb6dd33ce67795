"""The embed API: one home for sessions, in plain and in awaitable form."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from context_paging import service
from context_paging.service import (
    AsyncContextPaging,
    ContextAbortedError,
    ContextPaging,
    InvalidSetting,
    LogOptions,
    PagingSettings,
)
from context_paging.service.log import SessionConflict

QUESTION = {"role": "user", "content": "Where is the tide table?", "timestamp": 1}
ENTRY = {"type": "message", "id": "1", "parentId": None, "message": QUESTION}


def test_three_calls_page_and_are_in_the_log(tmp_path: Path) -> None:
    with ContextPaging.open(tmp_path / "paging.db") as paging:
        with paging.session("chat") as session:
            session.append([ENTRY])
            reply = session.context(system_prompt="Help.")
            answer = {"role": "assistant", "content": [{"type": "text", "text": "In docs/."}]}
            session.turn_end(response={**answer, "stopReason": "stop"})
        assert reply.messages == [QUESTION]
        assert reply.messages[0] is QUESTION
        assert paging.log is not None
        kinds = [event.event.type for event in paging.log.events("chat")]

    assert kinds[0] == "session-started"
    assert kinds[-1] == "session-shut-down"
    assert "context-selected" in kinds


def test_a_session_that_the_log_knows_goes_on_in_it_without_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "paging.db"
    for _ in range(2):
        with ContextPaging.open(path) as paging, paging.session("chat") as session:
            session.append([ENTRY])
            session.context()
            assert session.state.cut is None or session.state.cut.frontier is None
    with ContextPaging.open(path) as paging:
        assert paging.log is not None
        started = [e.event for e in paging.log.events("chat") if e.event.type == "session-started"]

    assert [getattr(event, "reason", None) for event in started] == ["new", "resume"]


def test_a_session_opened_anew_in_the_same_program_takes_over(tmp_path: Path) -> None:
    options = LogOptions(durability="sync")
    with ContextPaging.open(tmp_path / "paging.db", options=options) as paging:
        first = paging.session("chat")
        second = paging.session("chat")

        second.append([ENTRY])
        second.context()
        with pytest.raises(SessionConflict):
            first.context()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"token_budget": 0}, "token_budget is 0"),
        ({"token_budget": True}, "token_budget is True"),
        ({"token_budget": 1.5}, "token_budget is 1.5"),
        ({"token_budget": None}, "token_budget is None"),
        ({"trim_to_tokens": -1}, "trim_to_tokens is -1"),
        ({"on_invalid_structure": "ignore"}, "abort, repair"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        PagingSettings(**settings)


def test_settings_of_a_session_come_before_those_of_its_home() -> None:
    paging = ContextPaging(settings=PagingSettings(token_budget=10))

    with paging.session("a") as small, paging.session("b", settings=PagingSettings()) as large:
        for session in (small, large):
            session.append([{**ENTRY, "message": {**QUESTION, "content": "x" * 400}}])
        with pytest.raises(ContextAbortedError):
            _ = small.context().messages
        assert large.context().messages


def test_the_same_on_an_event_loop_with_calls_in_order(tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with (
            await AsyncContextPaging.open(tmp_path / "paging.db") as paging,
            await paging.session("chat") as session,
        ):
            await session.append([ENTRY])
            replies = await asyncio.gather(*(session.context() for _ in range(20)))
            found = await session.tool("browse_history", {"direction": "forward"})
            assert "tide table" in found.text
            await session.command("off")
            assert not (await session.statistics()).enabled
            return [reply.call_id for reply in replies]

    calls = asyncio.run(run())
    with ContextPaging.open(tmp_path / "paging.db") as paging:
        assert paging.log is not None
        logged = [e.call_id for e in paging.log.events("chat") if e.event.type == "context-requested"]

    assert logged == calls


def test_a_cancelled_call_is_finished_before_the_next_one_begins() -> None:
    async def run() -> None:
        paging = AsyncContextPaging(ContextPaging())
        session = await paging.session("chat")
        await session.append([ENTRY])
        waiting = asyncio.ensure_future(session.context())
        await asyncio.sleep(0)
        waiting.cancel()
        reply = await session.context()
        assert reply.messages == [QUESTION]

    asyncio.run(run())


def test_every_name_is_there_and_none_is_loaded_before_it_is_used() -> None:
    for name in service.__all__:
        assert getattr(service, name) is not None
    assert set(service.__all__) <= set(dir(service))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = service.Nothing
    heavy = (
        "import sys, context_paging.service; print('sqlalchemy' in sys.modules, 'pydantic' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]
