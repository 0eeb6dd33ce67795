"""How far token estimates are from what providers counted, over recorded sessions.

    python ops/bench/tokens.py [FILE…] [--json]

Without files: those of the corpus folder (CONTEXT_PAGING_CORPUS, or beside the project) and the bundled
example. For each response with a usage, the request that led to it, everything stored before it on its
branch, is estimated and compared with what the provider counted of it (input, with what came from the cache
or went there).

A file holds neither the system prompt nor the tool definitions that went out, so that every estimator misses
their tokens alike. They are the fixed part: for each session and estimator, the difference at the first
response, which is not measured then. ``raw`` leaves them out altogether. ``calibrated`` is what a session
makes of the heuristic with the usage of earlier responses, as it does in a live session (architecture,
"Provider-backed usage"); it needs no fixed part.

An error is |estimate − counted| / counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.messages import digest
from context_paging.service.example import example_path
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from context_paging.service.tokenizers import estimator

COUNTERS = ("heuristic", "cl100k_base", "o200k_base")
UNLIMITED: dict[str, Any] = {"contextPaging": {"tokenBudget": 2**53 - 1, "onInvalidStructure": "repair"}}
COLUMNS = (*COUNTERS, *(f"{name}, raw" for name in COUNTERS), "calibrated")


@dataclass
class Errors:
    """Errors of one session, by the way of estimating."""

    name: str
    calls: int = 0
    found: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})


def measure(path: Path | str) -> Errors:
    """The errors over one session file."""
    counters: list[TokenEstimator] = [estimator(name) for name in COUNTERS]
    totals = [0] * len(counters)
    fixed: list[float] | None = None
    file = read_session_file(path)
    errors = Errors(Path(file.name).name)
    session = Session("bench", estimator=counters[0])
    session.start(global_settings=UNLIMITED)
    passed = Session("branch")
    passed.append(file.entries)
    for entry in passed.stored.branch:
        message = entry.get("message")
        if entry.get("type") != "message" or not isinstance(message, dict):
            # A compaction or an edit: what was sent is another conversation from here on.
            session.append([entry])
            totals = [
                sum(counter.message_tokens(sent) for sent in session.stored.messages())
                for counter in counters
            ]
            continue
        refs = [digest(message, counter) for counter in counters]
        counted = refs[0].measured_input_tokens
        if message.get("role") == "assistant" and counted:
            outcome = session.context(usage_tokens="stored").outcome
            if fixed is None:
                fixed = [counted - total for total in totals]
            else:
                errors.calls += 1
                estimates: list[float] = [
                    *(total + part for total, part in zip(totals, fixed, strict=True)),
                    *totals,
                    0 if outcome is None else outcome.estimated_tokens,
                ]
                for name, estimate in zip(COLUMNS, estimates, strict=True):
                    errors.found[name].append(abs(estimate - counted) / counted)
        session.append([entry])
        totals = [total + ref.tokens for total, ref in zip(totals, refs, strict=True)]
        if message.get("role") == "assistant" and counted:
            session.turn_end(entry["id"])
    return errors


def files() -> Iterator[Path]:
    """Those of the corpus, if it is there."""
    folder = os.environ.get("CONTEXT_PAGING_CORPUS")
    beside = Path(__file__).resolve().parents[3] / "shared" / "corpus"
    place = Path(folder) if folder else beside
    yield from sorted(place.glob("*.jsonl.gz"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with example_path() as example:
        paths = [Path(given) for given in options.files] or [*files(), example]
        found = [measure(path) for path in track(paths, "sessions", transient=True)]
    if options.json:
        print(json.dumps([vars(errors) for errors in found]))
        return
    table = Table("session", "calls", "error", *COLUMNS)
    for errors in found:
        for name, of in (("median", statistics.median), ("p90", _p90)):
            shown = (f"{of(values):.1%}" if values else "–" for values in errors.found.values())
            table.add_row(errors.name, f"{errors.calls:,}", name, *shown)
    Console(width=160).print(table)


def _p90(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.9))]


if __name__ == "__main__":
    main()
