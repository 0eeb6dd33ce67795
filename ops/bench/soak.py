"""A day of use in a few minutes: does memory stay where it was?

    python ops/bench/soak.py [--hours 24] [--warm-up 10] [--sessions 40] [--most 0.1] [--trace] [--json]

Each simulated hour many short sessions come and go, and two long ones, with cuts, recovery tools, stats
and branches, go on from hour to hour until they are eight hours old. All of them go to one log, a SQLite file
with its writer running, from which sessions older than six hours are retired. Time comes from a simulated
clock.

The exit status is 1 if memory or the number of objects grew by more than ``--most`` after the warm-up: the
median of the last quarter of the hours is compared with that of the hours just behind the warm-up.
``--trace`` also names what grew, which takes several times as long.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from context_paging.domain.recovery.errors import RecoveryRefused
from context_paging.service.log import EventLog
from context_paging.service.session import Session

START = datetime(2026, 3, 1, tzinfo=UTC)
KEPT = timedelta(hours=6)
LONG_SESSIONS, LONG_LIFE = 2, 8
SETTINGS = {"contextPaging": {"tokenBudget": 4_000}}
SOME_BYTES = 8 * 2**20
"""Growth of the process below this is not told from noise of the allocator."""


@dataclass
class Hour:
    """What was seen at the end of an hour."""

    hour: int
    calls: int
    stored_sessions: int
    log_bytes: int
    resident_bytes: int
    objects: int
    traced_bytes: int | None = None


class Clock:
    """Moves on a little at each reading."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=20)
        return self.now


class User:
    """Somebody with an agent: a session that is worked in."""

    def __init__(self, name: str, log: EventLog, clock: Clock) -> None:
        self.session = Session(name, sink=log, now=clock)
        self.session.start(global_settings=SETTINGS)
        self.stored = 0
        self.calls = 0

    def turns(self, count: int) -> None:
        """Work."""
        for number in range(count):
            self._message("user", f"please look at {number} " * 10)
            for _ in range(3):
                call = f"call-{self.stored}"
                self._ask(
                    [{"type": "toolCall", "id": call, "name": "read", "arguments": {"path": f"src/{call}"}}]
                )
                text = [{"type": "text", "text": f"line {call} " * 150}]
                self._message("toolResult", text, toolCallId=call, toolName="read", isError=False)
            with suppress(RecoveryRefused):
                self.session.tool("search_history", {"query": "line", "limit": 3})
            self._ask([{"type": "text", "text": "done"}])
        self.session.command("stats")
        branch = self.session.stored.branch
        self.session.navigate(branch[len(branch) // 2]["id"])
        self.session.navigate(branch[-1]["id"])

    def leave(self) -> int:
        """Close the session; how many provider calls there were."""
        self.session.shut_down()
        return self.calls

    def _ask(self, answer: list[dict[str, Any]]) -> None:
        self.session.context(system_prompt="You are a helpful agent.", usage_tokens="stored")
        self.calls += 1
        usage = {"input": 2_000, "output": 20, "cacheRead": 0, "cacheWrite": 0}
        self.session.turn_end(self._message("assistant", answer, stopReason="stop", usage=usage))

    def _message(self, role: str, content: Any, **fields: Any) -> str:
        self.stored += 1
        message = {"role": role, "content": content, "timestamp": self.stored, **fields}
        entry_id, parent = f"e{self.stored}", self.session.stored.leaf_id
        self.session.append([{"type": "message", "id": entry_id, "parentId": parent, "message": message}])
        return entry_id


def soak(
    path: Path,
    hours: int,
    sessions: int,
    *,
    trace: bool = False,
    told: Callable[[Hour], None] = lambda _: None,
) -> list[Hour]:
    """Use it for some simulated hours."""
    clock, seen = Clock(), list[Hour]()
    long_ones: list[tuple[int, User]] = []
    calls = 0
    with EventLog.open(path) as log:
        for hour in range(hours):
            begin = START + timedelta(hours=hour)
            for number in range(sessions):
                clock.now = begin + timedelta(hours=number / sessions)
                user = User(f"short-{hour}-{number}", log, clock)
                user.turns(1 + number % 4)
                calls += user.leave()
            if hour % (LONG_LIFE // LONG_SESSIONS) == 0:
                long_ones.append((hour, User(f"long-{hour}", log, clock)))
            for _, user in long_ones:
                user.turns(6)
            for began, user in list(long_ones):
                if hour - began + 1 >= LONG_LIFE:
                    calls += user.leave()
                    long_ones.remove((began, user))
            log.flush()
            log.retire_before(clock.now - KEPT)
            user = None  # type: ignore[assignment]
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] if trace else None
            stored = len(log.sessions())
            seen.append(
                Hour(hour + 1, calls, stored, _bytes_of(path), _resident(), len(gc.get_objects()), traced)
            )
            told(seen[-1])
        for _, user in long_ones:
            user.leave()
    return seen


def growth(seen: list[Hour], warm_up: int) -> dict[str, float]:
    """By what share the medians grew, from the hours behind the warm-up to the last quarter of all hours."""
    quarter = max(1, len(seen) // 4)
    first, last = seen[warm_up : warm_up + quarter], seen[-quarter:]
    grown = {}
    for name, least in (("resident_bytes", SOME_BYTES), ("objects", 0)):
        before = statistics.median(getattr(hour, name) for hour in first)
        after = statistics.median(getattr(hour, name) for hour in last)
        grown[name] = (after - before) / before if abs(after - before) > least else 0.0
    return grown


def _resident() -> int:
    if not Path("/proc/self/statm").exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def _bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def _row(hour: Hour) -> str:
    return (
        f"{hour.hour:>5} {hour.calls:>9,} {hour.stored_sessions:>9,} {hour.log_bytes / 2**20:>9.1f} "
        f"{hour.resident_bytes / 2**20:>9.1f} {hour.objects:>10,}"
        + ("" if hour.traced_bytes is None else f" {hour.traced_bytes / 2**20:>9.2f}")
    )


def main(arguments: list[str] | None = None) -> int:
    """Run, print a row an hour, and say whether memory grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--warm-up", type=int, default=10, help="hours that do not count")
    parser.add_argument("--sessions", type=int, default=40, help="short sessions an hour")
    parser.add_argument("--most", type=float, default=0.1, help="growth that is allowed, as a share")
    parser.add_argument("--trace", action="store_true", help="name what grew")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if not 0 <= given.warm_up < given.hours:
        parser.error("the warm-up must be shorter than the hours")
    if not given.json:
        print(
            " hour     calls  sessions   log MiB   RSS MiB    objects"
            + (" traced MiB" if given.trace else "")
        )
    snapshots: list[tracemalloc.Snapshot] = []
    if given.trace:
        tracemalloc.start()

    def told(hour: Hour) -> None:
        if not given.json:
            print(_row(hour), flush=True)
        if given.trace and hour.hour in (given.warm_up, given.hours):
            snapshots.append(tracemalloc.take_snapshot())

    with tempfile.TemporaryDirectory(prefix="context-paging-soak-") as folder:
        seen = soak(Path(folder) / "log.db", given.hours, given.sessions, trace=given.trace, told=told)
    grown = growth(seen, given.warm_up)
    if given.json:
        print(json.dumps({"hours": [asdict(hour) for hour in seen], "growth": grown}))
    else:
        print(
            "growth behind the warm-up: " + ", ".join(f"{name} {share:+.1%}" for name, share in grown.items())
        )
    if len(snapshots) == 2:
        for line in snapshots[1].compare_to(snapshots[0], "lineno")[:15]:
            print(line)
    return 1 if any(share > given.most for share in grown.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
