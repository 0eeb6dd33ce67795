"""The log on an event loop."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from context_paging.service.log import (
    AsyncEventLog,
    CallQuery,
    Durability,
    LogOptions,
    Payloads,
    SessionConflict,
    UnknownSession,
)
from context_paging.service.session import Session

from .events import START, records, small_session, started
from .test_durability import status


@pytest.mark.parametrize("durability", Durability)
def test_everything_can_be_awaited(location: str, durability: Durability) -> None:
    async def use() -> None:
        options = LogOptions(durability=durability, payloads=Payloads.FULL)
        async with await AsyncEventLog.open(location, options) as log:
            written = [record._replace(content=number) for number, record in enumerate(small_session())]
            assert await log.append("s", 0, written, label="label") == 9
            await log.flush()
            assert (await log.session("s")).label == "label"
            assert await log.last_sequence("s") == 9
            assert [s.session_id for s in (await log.find_sessions()).rows] == ["s"]
            (aborted,) = (await log.find_calls(CallQuery(outcome="aborted"))).rows
            assert await log.call(aborted.call_id) == aborted
            assert len((await log.timeline("s", limit=4)).rows) == 4
            assert [event.sequence async for event in log.events("s", 2, 5)] == [3, 4, 5]
            assert [event.position async for event in log.tail(follow=False)] == list(range(1, 10))
            assert await log.content("s", 3) == 2
            assert [result.finding for result in await log.verify()] == [None]
            assert await log.rebuild() == 1
            assert await log.erase("s") == 9
            with pytest.raises(UnknownSession):
                await log.session("nobody")
            await log.retire("s")
            assert await log.retire_before(START) == 0

    asyncio.run(use())


def test_a_long_session_is_read_in_pieces(location: str) -> None:
    async def use() -> list[int]:
        async with await AsyncEventLog.open(location) as log:
            for first in range(0, 2_500, 500):
                await log.append("s", first, [status(number) for number in range(first, first + 500)])
            return [event.sequence async for event in log.events("s")]

    assert asyncio.run(use()) == list(range(1, 2_501))


def test_many_tasks_write_and_one_follows(location: str) -> None:
    async def use() -> list[Any]:
        async with await AsyncEventLog.open(location) as log:

            async def write(name: str) -> None:
                for number in range(20):
                    await log.append(name, number, [status(number, name)])

            async def follow() -> list[Any]:
                found = []
                async for event in log.tail(poll_seconds=0.01):
                    found.append(event)
                    if len(found) == 100:
                        break
                return found

            following = asyncio.create_task(follow())
            await asyncio.gather(*(write(f"s{number}") for number in range(5)))
            return await asyncio.wait_for(following, 30)

    found = asyncio.run(use())

    assert all(before.position < after.position for before, after in pairwise(found))
    assert {event.session_id for event in found} == {f"s{number}" for number in range(5)}


def test_a_conflict_is_raised_where_it_is_awaited(location: str) -> None:
    async def use() -> None:
        async with await AsyncEventLog.open(location, LogOptions(durability="sync")) as log:
            await log.append("s", 0, records(started()))
            await log.append("s", 7, records(started(), first=8))

    with pytest.raises(SessionConflict):
        asyncio.run(use())


def test_an_append_whose_caller_is_cancelled_is_written(location: str) -> None:
    async def use() -> int:
        async with await AsyncEventLog.open(location, LogOptions(durability="sync")) as log:
            task = asyncio.create_task(log.append("s", 0, records(started())))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            deadline = time.monotonic() + 10
            while not await log.last_sequence("s") and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            return await log.last_sequence("s")

    assert asyncio.run(use()) == 1


def test_a_session_on_the_loop_uses_the_log_as_its_sink(location: str) -> None:
    async def use() -> int:
        async with await AsyncEventLog.open(location) as log:
            session = Session("s", sink=log.log, host="loop")
            session.start()
            session.context([{"role": "user", "content": "hello", "timestamp": 1}])
            session.shut_down()
            assert (await log.session("s")).host == "loop"
            return (await log.session("s")).calls

    assert asyncio.run(use()) == 1
