"""What one provider call costs as the session grows, for context paging and for what people use instead.

    python ops/bench/calls.py [--plots DIR] [--most 1000000] [--peers PYTHON | --environment DIR | --alone]

Sessions of 1,000 messages, ten times as many, and so on; calls with two further messages each; medians. Each
contender runs at each length in a process of its own. The peers are installed into an environment of their
own (``--environment``), which is made at the first run; ``--peers`` names the interpreter of one that has
them, ``--alone`` leaves them out. One that does not answer within ``--patience`` seconds, or three times as
long in its first call, is stopped; one that grows so that it would take twice as long is not tried. The
table says so.

The status is 1 if a call of a session that is fed grows with the session.

Parts: ``calls``; ``weights``, memory per message beside the host's objects; ``starts``, of processes;
``resumed``, the first selection of a stored session; ``replays`` of recorded sessions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from call_costs.messages import conversation, odd
from call_costs.own import entry
from call_costs.picture import Line, growth
from call_costs.processes import asked, default_environment, peers_python, starts
from call_costs.tables import page
from call_costs.ways import TYPESCRIPT, TYPESCRIPT_COLOUR, WAYS, Way
from prompt_cache.conversations import corpus, recorded
from rich.console import Console
from rich.status import Status

from context_paging.service.example import example_path

PARTS = ("calls", "weights", "starts", "resumed", "replays")
SHORTEST = 1_000
GROWTH = 2.0
"""How many times as much as in the shortest session a call may cost in the longest."""
SELECTION = """
from context_paging.service import ContextPaging
session = ContextPaging().session("bench")
question = {"role": "user", "content": "Where is the tide table?", "timestamp": 1}
session.append([{"type": "message", "id": "1", "parentId": None, "message": question}])
assert session.context().messages
"""
OWN_STARTS = {
    "`python -c pass`": "pass",
    "`import context_paging.service`": "import context_paging.service",
    "the same, a session and its first selection": SELECTION,
}
PEERS_STARTS = {
    f"`{program}`": program
    for program in (
        "from langchain_core.messages import trim_messages",
        "from llama_index.core.memory import Memory",
        "import autogen_core.model_context",
    )
}
OWN = Path(sys.executable)


class Bench:
    """One run: what was asked for, and where the contenders are."""

    def __init__(self, options: argparse.Namespace, peers: Path | None, status: Status) -> None:
        self.options = options
        self.peers = peers
        self._status = status
        self._stopped: dict[str, int] = {}

    def measure(self) -> dict[str, Any]:
        """All parts that were asked for."""
        versions = {"Python": platform.python_version()}
        if self.peers:
            versions |= asked(self.peers, "peers", "versions")
        load = [os.getloadavg()[0]]
        results = {part: getattr(self, part)() for part in self.options.parts}
        load.append(os.getloadavg()[0])
        return {"versions": versions, "cores": os.cpu_count(), "load": load, **results}

    def calls(self) -> dict[str, dict[int, Any]]:
        """Milliseconds a call, by contender and length."""
        found: dict[str, dict[int, Any]] = {}
        for name, way, python in self._contenders():
            for length in lengths(self.options.most):
                self._tell(way, f"{length:,} messages")
                limits = (self.options.calls, self.options.patience)
                earlier = found.setdefault(name, {})
                answer = hopeless(list(earlier.values()), self.options.patience) or asked(
                    python, way.script, "calls", name, length, *limits
                )
                earlier[length] = answer
                if "stopped" in answer:
                    self._stopped[name] = length
                    break
        return found

    def weights(self) -> dict[str, Any]:
        """Bytes per message, resident and traced."""
        found: dict[str, list[Any]] = {}
        messages = self.options.held
        for name, way, python in self._contenders():
            # What cannot answer at this length is not waited for.
            if way.holds and self._stopped.get(name, messages + 1) > messages:
                self._tell(way, "memory")
                found[name] = [
                    asked(python, way.script, "weigh", name, messages, how)
                    if how == "traced" or sys.platform == "linux"
                    else {}
                    for how in ("resident", "traced")
                ]
        return {"messages": messages, "bytes": found}

    def starts(self) -> dict[str, float]:
        """Milliseconds of processes."""
        self._status.update("starts of processes")
        commands = {name: (OWN, program) for name, program in OWN_STARTS.items()}
        if self.peers:
            commands |= {name: (self.peers, program) for name, program in PEERS_STARTS.items()}
        return starts(commands, self.options.starts)

    def resumed(self) -> dict[str, float]:
        """Milliseconds of a resumed session's first selection; medians of some processes."""
        self._status.update("a resumed session")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "session.jsonl"
            length = odd(self.options.held)
            with file.open("w", encoding="utf-8") as stream:
                for number, message in enumerate(conversation(0, length)):
                    stream.write(json.dumps(entry(message, number)) + "\n")
            runs = [asked(OWN, "own", "resume", str(file)) for _ in range(self.options.resumes)]
        medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        return {"messages": length, **medians}

    def replays(self) -> dict[str, dict[str, Any]]:
        """Recorded sessions: those of the corpus, or the bundled one."""
        found: dict[str, dict[str, Any]] = {}
        with example_path() as example, tempfile.TemporaryDirectory() as folder:
            for path in corpus() or [example]:
                played = recorded(path)
                file = Path(folder) / f"{played.name}.json"
                file.write_text(json.dumps(played.messages), "utf-8")
                for name, way, python in self._contenders():
                    if way.replays:
                        self._tell(way, played.name)
                        answer = asked(python, way.script, "replay", name, file, self.options.patience)
                        found.setdefault(played.name, {})[name] = answer
        return found

    def _contenders(self) -> Iterator[tuple[str, Way, Path]]:
        for name, way in WAYS.items():
            if way.script == "own":
                yield name, way, OWN
            elif self.peers:
                yield name, way, self.peers

    def _tell(self, way: Way, what: str) -> None:
        self._status.update(f"{way.label}, {what}")


def hopeless(earlier: list[dict[str, Any]], patience: float) -> dict[str, float] | None:
    """An answer without a measurement, if the next tenfold of the length would clearly take too long.

    That is: more than twice the patience, should it grow again as it did from the last but one to the last.
    """
    if len(earlier) < 2:
        return None
    before, last = (answer["median"] / 1e3 for answer in earlier[-2:])
    expected = last * last / before
    return {"stopped": patience, "expected": expected} if expected > 2 * patience else None


def lengths(most: int) -> list[int]:
    """Of sessions: 1,000 and its tenfolds, up to ``most``."""
    found = [min(SHORTEST, most)]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found


def lines(found: dict[str, dict[int, Any]]) -> list[Line]:
    """Those of the figure."""
    drawn = []
    for name, answers in found.items():
        way = WAYS[name]
        points = [(length, answer["median"]) for length, answer in answers.items() if "median" in answer]
        stops = [
            (length, answer["stopped"] * 1e3) for length, answer in answers.items() if "stopped" in answer
        ]
        drawn.append(
            Line(way.label, points, way.colour, way.dashes, way.bold, stopped=stops[0] if stops else None)
        )
    measured = {length for answers in found.values() for length in answers}
    known = [(length, time) for length, time in TYPESCRIPT.items() if length in measured]
    name = "TypeScript, not measured in this run"
    return [*drawn, Line(name, known, TYPESCRIPT_COLOUR, "2 5")]


def steady(found: dict[str, dict[int, Any]]) -> bool:
    """Whether a call of a session that is fed does not grow with the session, give or take ``GROWTH``."""
    times = [answer.get("median", math.inf) for answer in found.get("fed", {}).values()]
    return not times or times[-1] <= GROWTH * times[0]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, draw; 1 if a call of a session that is fed grows with the session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="messages in the longest session")
    parser.add_argument("--calls", type=int, default=40, help="the most calls that a median is of")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that a call may take")
    parser.add_argument("--held", type=int, default=100_000, help="messages of weights and of resumed")
    parser.add_argument("--starts", type=int, default=12, help="processes of each kind")
    parser.add_argument("--resumes", type=int, default=3, help="processes that resume")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--plots", "--figures", type=Path, help="a folder for the plot and the tables")
    parser.add_argument("--environment", type=Path, default=default_environment())
    parser.add_argument("--peers", type=Path, help="an interpreter that has the peers installed")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with Console(stderr=True).status("the peers' environment") as status:
        peers = None if options.alone else options.peers or peers_python(options.environment)
        results = Bench(options, peers, status).measure()
    print(json.dumps(results) if options.json else page(results))
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        (options.plots / "calls.md").write_text(page(results), "utf-8")
        if results.get("calls"):
            title = "Milliseconds for one provider call, as the session grows (lower is better)"
            growth(options.plots / "calls.svg", title, lines(results["calls"]))
    return 0 if steady(results.get("calls", {})) else 1


if __name__ == "__main__":
    sys.exit(main())
