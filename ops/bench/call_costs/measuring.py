"""Measuring a contender: time of calls, memory beside the host's objects. Needs the standard library only."""

from __future__ import annotations

import gc
import json
import os
import signal
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from .messages import conversation, odd

FIRST = 3
"""How many times longer than a later call the first one may take: it may have to read everything."""
LEAST_CALLS = 3
SECONDS = 8.0
"""When to stop making further calls of one contender at one length."""

Shape = tuple[str, list[str], list[str]]
"""Of a message that is sent: role, ids of its calls, ids of the calls whose results it holds."""


class Contender(Protocol):
    """One way to find what a provider call sends."""

    def native(self, message: dict[str, Any], number: int) -> Any:
        """The host's own object for a message, which the host has anyway."""
        ...

    def begin(self, messages: list[Any]) -> None:
        """Take the conversation so far. Not timed."""
        ...

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Take the new messages and give what a provider call would send. Timed."""
        ...

    def shape(self, sent: Any) -> Shape:
        """What a message that is sent is."""
        ...


class TooSlow(Exception):
    """A call took longer than the patience."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer.

    Raises:
        TooSlow: it did.
    """

    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def calls(contender: Contender, length: int, most: int, patience: float) -> dict[str, Any]:
    """Calls behind so many messages, each but the first after two more messages.

    Returns ``first`` and ``median`` in milliseconds, how many ``calls`` the median is of, and what
    `described` tells of the last request. Of a contender that does not answer within ``patience`` seconds,
    only ``stopped``: the seconds it was given.
    """
    length = odd(length)
    contender.begin([contender.native(said, n) for n, said in enumerate(conversation(0, length))])
    times: list[float] = []
    sent: Sequence[Any] = ()
    while len(times) <= most and (len(times) <= LEAST_CALLS or sum(times[1:]) < SECONDS):
        stop = length + 2 if times else length
        new = [contender.native(said, length + n) for n, said in enumerate(conversation(length, stop))]
        allowed = patience if times else patience * FIRST
        try:
            with at_most(allowed):
                begin = time.perf_counter()
                sent = contender.call(new)
                times.append(time.perf_counter() - begin)
        except TooSlow:
            return {"stopped": allowed}
        length = stop
    first, *later = times
    return {
        "first": first * 1e3,
        "median": statistics.median(later) * 1e3,
        "calls": len(later),
        **described(contender, sent),
    }


def described(contender: Contender, sent: Sequence[Any]) -> dict[str, Any]:
    """A request: messages ``sent``, ``broken`` pairs of call and result, the role it ``begins`` with."""
    shapes = [contender.shape(one) for one in sent]
    called = {call for _, ids, _ in shapes for call in ids}
    answered = {call for _, _, ids in shapes for call in ids}
    return {
        "sent": len(shapes),
        "broken": len(called ^ answered),
        "begins": shapes[0][0] if shapes else None,
    }


def replayed(contender: Contender, messages: list[dict[str, Any]], patience: float) -> dict[str, Any]:
    """A recorded conversation with a provider call before each response.

    Returns the number of ``calls``, ``median`` and ``p99`` in milliseconds, the first call included, the
    median of messages ``sent``, and how many requests were ``empty``; or ``stopped``, as `calls` does.
    """
    native = [contender.native(said, number) for number, said in enumerate(messages)]
    due = [number for number, said in enumerate(messages) if number and said["role"] == "assistant"]
    times, sizes, before = list[float](), list[int](), due[0] if due else 0
    contender.begin(native[:before])
    for number in due:
        try:
            with at_most(patience * FIRST):
                begin = time.perf_counter()
                sizes.append(len(contender.call(native[before:number])))
                times.append(time.perf_counter() - begin)
        except TooSlow:
            return {"stopped": patience * FIRST}
        before = number
    ordered = sorted(times)
    return {
        "calls": len(times),
        "median": statistics.median(times) * 1e3,
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
        "sent": statistics.median(sizes),
        "empty": sizes.count(0),
    }


def weighed(contender: Contender, length: int, traced: bool) -> dict[str, float]:
    """Bytes per message: the ``host``'s own objects, and what is held ``beside`` them after a first call.

    By ``tracemalloc`` if ``traced``, which sees Python's own objects only; else by the growth of the resident
    set, which is read on Linux only.
    """
    if traced:
        tracemalloc.start()
    length = odd(length)
    held = [_bytes(traced)]
    native = [contender.native(said, number) for number, said in enumerate(conversation(0, length))]
    held.append(_bytes(traced))
    contender.begin(native)
    contender.call([])
    held.append(_bytes(traced))
    return {"host": (held[1] - held[0]) / length, "beside": (held[2] - held[1]) / length}


def _bytes(traced: bool) -> int:
    gc.collect()
    if traced:
        return tracemalloc.get_traced_memory()[0]
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def answer(contenders: dict[str, Callable[[], Contender]], arguments: list[str]) -> dict[str, Any]:
    """What a process is started for: ``WHAT NAME …``, the name being a contender's.

    ``calls NAME LENGTH MOST PATIENCE``, ``replay NAME FILE PATIENCE`` with a JSON list of messages in the
    file, ``weigh NAME LENGTH resident|traced``.
    """
    what, name, *rest = arguments
    contender = contenders[name]()
    match what:
        case "calls":
            return calls(contender, int(rest[0]), int(rest[1]), float(rest[2]))
        case "replay":
            messages = json.loads(Path(rest[0]).read_text("utf-8"))
            return replayed(contender, messages, float(rest[1]))
        case "weigh":
            return weighed(contender, int(rest[0]), rest[1] == "traced")
    raise SystemExit(f"{what}: calls, replay or weigh")


def tell(told: dict[str, Any]) -> None:
    """Print it, and be gone without taking everything down in order: that takes long with many objects."""
    print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)
