"""Letting go: idle sessions, and the garbage collection of a worker with millions of objects that stay.

A full collection walks all of them and stops everything meanwhile: a second or more for some hundred live
sessions. What needs one is sessions that were let go, whose steps refer to themselves; so it comes when a
share of the memory may be had back by it, and not by itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from .live import LiveSessions

YOUNG, MIDDLE, NEVER = 10_000, 10, 1_000_000
SHARE = 0.25
"""A full collection comes when so many sessions were let go, of those that are live."""
CHECK_SECONDS = 30.0
LONGEST_SECONDS = 3600.0


@asynccontextmanager
async def collected(live: LiveSessions) -> AsyncIterator[None]:
    """Collect as a worker needs it, until the end of the block."""
    thresholds = gc.get_threshold()
    gc.collect()
    # What is loaded by now stays for the life of the process.
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    keeper = asyncio.create_task(_keep(live))
    try:
        yield
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _keep(live: LiveSessions) -> None:
    clock = asyncio.get_running_loop().time
    last, let_go = clock(), live.let_go
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        live.let_idle_go()
        gone = live.let_go - let_go
        if gone > SHARE * len(live) or clock() - last > LONGEST_SECONDS:
            gc.collect()
            last, let_go = clock(), live.let_go
