"""What a provider call costs as the session grows: the last calls of sessions of 1k, 10k and 100k messages.

    python ops/bench/selection.py [--messages 1000 10000 100000] [--calls 200] [--json]

Two ways of feeding the same session are measured: ``fed``, where the session composes the request from its
entries, and ``list``, where the host passes the whole list each time. A figure is the median of a call with
everything it needs: appending the new entries, the selection, the end of the turn. Ratios are to the smallest
session of the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from context_paging.service.session import Session

SETTINGS = {"contextPaging": {"tokenBudget": 16_000}}
REPEATS = 5
EXCHANGES_A_REQUEST = 6


@dataclass(frozen=True)
class Figure:
    """Medians for one session length; times in microseconds a call."""

    messages: int
    fed: float
    passed_list: float
    first_selection: float
    fed_ratio: float = 1.0
    list_ratio: float = 1.0


def entries(messages: int) -> Iterator[dict[str, Any]]:
    """A session of tool loops: a request, then exchanges of one call and one result each."""
    parent = None
    for index in range(messages):
        position = index % (1 + 2 * EXCHANGES_A_REQUEST)
        entry = {
            "type": "message",
            "id": f"{index:08x}",
            "parentId": parent,
            "timestamp": "2026-01-05T09:00:00.000Z",
            "message": message(index, position),
        }
        parent = entry["id"]
        yield entry


def message(index: int, position: int) -> dict[str, Any]:
    """One message of about 60 tokens."""
    text = f"line {index} " * 24
    if position == 0:
        return {"role": "user", "content": text, "timestamp": index}
    if position % 2:
        call = {
            "type": "toolCall",
            "id": f"call_{index}",
            "name": "read",
            "arguments": {"path": f"src/{index}.py"},
        }
        blocks = [{"type": "text", "text": text[:80]}, call]
        return {"role": "assistant", "content": blocks, "stopReason": "toolUse", "timestamp": index}
    return {
        "role": "toolResult",
        "toolCallId": f"call_{index - 1}",
        "toolName": "read",
        "content": [{"type": "text", "text": text}],
        "isError": False,
        "timestamp": index,
    }


def measure(messages: int, calls: int, *, as_list: bool) -> tuple[float, float]:
    """Median microseconds of the last calls, and of the first selection of the resumed session."""
    stored = list(entries(messages))
    session = Session("bench")
    session.start("resume", global_settings=SETTINGS)
    tail = [index for index, entry in enumerate(stored) if entry["message"]["role"] == "assistant"][-calls:]
    session.append(stored[: tail[0]])
    outgoing = [entry["message"] for entry in stored[: tail[0]]] if as_list else None
    begin = time.perf_counter()
    session.context(outgoing)
    first = (time.perf_counter() - begin) * 1e6
    times = []
    for number, index in enumerate(tail):
        until = tail[number + 1] if number + 1 < len(tail) else len(stored)
        begin = time.perf_counter()
        session.context(outgoing)
        session.append(stored[index : index + 1])
        session.turn_end(stored[index]["id"])
        session.append(stored[index + 1 : until])
        if outgoing is not None:
            outgoing += [entry["message"] for entry in stored[index:until]]
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times), first


def main() -> int:
    """Print the table; 1 if the fed session grows beyond the promised ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    for messages in options.messages:
        calls = min(options.calls, messages // 4)
        fed = [measure(messages, calls, as_list=False) for _ in range(REPEATS)]
        passed = [measure(messages, calls, as_list=True)[0] for _ in range(REPEATS)]
        figure = Figure(
            messages,
            statistics.median(time for time, _ in fed),
            statistics.median(passed),
            statistics.median(first for _, first in fed),
        )
        base = figures[0] if figures else figure
        figures.append(
            Figure(
                messages,
                figure.fed,
                figure.passed_list,
                figure.first_selection,
                figure.fed / base.fed,
                figure.passed_list / base.passed_list,
            )
        )
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures]))
    else:
        print(f"{'messages':>9} {'fed µs':>9} {'ratio':>6} {'list µs':>9} {'ratio':>6} {'first µs':>11}")
        for row in figures:
            print(
                f"{row.messages:>9,} {row.fed:>9,.0f} {row.fed_ratio:>6.2f} {row.passed_list:>9,.0f} "
                f"{row.list_ratio:>6.2f} {row.first_selection:>11,.0f}"
            )
    return 1 if figures[-1].fed_ratio > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
