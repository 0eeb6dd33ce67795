"""The tables, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .ways import TYPESCRIPT, WAYS

Results = Mapping[str, Any]
"""What the program measured, by part; a part that was not measured is not there."""


def page(results: Results) -> str:
    """All tables of what was measured, each under its title."""
    parts = {
        "calls": _calls,
        "weights": _weights,
        "starts": _starts,
        "resumed": _resumed,
        "replays": _replays,
    }
    shown = [f"{make(results[name])}\n" for name, make in parts.items() if results.get(name)]
    return "\n".join([*shown, f"{_versions(results)}\n"])


def milliseconds(value: float) -> str:
    """With as many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _calls(found: Mapping[str, Mapping[int, Results]]) -> str:
    lengths = sorted({length for one in found.values() for length in one})
    rows = []
    for name, answers in found.items():
        last = [answers[n] for n in lengths if n in answers and "median" in answers[n]]
        sent = [f"{last[-1]['sent']:,}", f"{last[-1]['broken']:,}"] if last else ["–", "–"]
        rows.append([WAYS[name].title, *(_time(answers.get(length)) for length in lengths), *sent])
    known = [milliseconds(TYPESCRIPT[n]) if n in TYPESCRIPT else "–" for n in lengths]
    rows.append(["*implementation in TypeScript, not measured in this run*", *known, "", ""])
    columns = ["milliseconds a call, messages in the session:", *(f"{n:,}" for n in lengths)]
    table = _table([*columns, "sent", "broken pairs"], rows)
    text = f"## Calls\n\n{table}\n"
    if stopped := _stopped(found):
        text += f"\n–: {stopped}. Longer sessions were not tried.\n"
    if yardstick := found.get("dumped"):
        ratios = [
            [WAYS[name].title, *(_ratio(answers.get(n), yardstick.get(n)) for n in lengths)]
            for name, answers in found.items()
            if name != "dumped"
        ]
        columns[0] = "times `json.dumps` of the same list, messages in the session:"
        text += f"\n{_table(columns, ratios)}\n"
    firsts = [
        [
            WAYS[name].title,
            *(milliseconds(answers[n]["first"]) if _done(answers, n) else "–" for n in lengths),
        ]
        for name, answers in found.items()
    ]
    columns[0] = "milliseconds of the first call, messages in the session:"
    return f"{text}\n{_table(columns, firsts)}"


def _done(answers: Mapping[int, Results], length: int) -> bool:
    return "first" in answers.get(length, {})


def _time(answer: Results | None) -> str:
    return "–" if answer is None or "median" not in answer else milliseconds(answer["median"])


def _ratio(answer: Results | None, yardstick: Results | None) -> str:
    if not answer or not yardstick or "median" not in answer or "median" not in yardstick:
        return "–"
    ratio = answer["median"] / yardstick["median"]
    return f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2g}"


def _stopped(found: Mapping[str, Mapping[int, Results]]) -> str:
    told = [
        f"{WAYS[name].title} would take about {answer['expected']:,.0f} s at {length:,} messages, as it grew"
        if "expected" in answer
        else f"{WAYS[name].title} had no answer after {answer['stopped']:,.0f} s at {length:,} messages"
        for name, answers in found.items()
        for length, answer in answers.items()
        if "stopped" in answer
    ]
    return "; ".join(told)


def _weights(found: Mapping[str, Any]) -> str:
    rows = []
    for name, (resident, traced) in found["bytes"].items():
        cells = (one.get(part) for part in ("beside", "host") for one in (resident, traced))
        shown = ["–" if cell is None else f"{max(0.0, cell):,.0f}" for cell in cells]
        rows.append([WAYS[name].title, *shown])
    columns = [
        f"bytes a message, {found['messages']:,} messages",
        "beside the host's objects, resident",
        "traced",
        "the host's objects, resident",
        "traced",
    ]
    return f"## Memory\n\n{_table(columns, rows)}"


def _starts(found: Mapping[str, float]) -> str:
    rows = [[name, milliseconds(value)] for name, value in found.items()]
    return f"## Start\n\n{_table(['a process that ends again', 'milliseconds'], rows)}"


def _resumed(found: Mapping[str, float]) -> str:
    append, context, loads = found["append"], found["context"], found["loads"]
    columns = [
        f"{found['messages']:,.0f} entries, milliseconds",
        "`append`",
        "first `context`",
        "both",
        "`json.loads` of the lines",
        "both / `json.loads`",
    ]
    row = ["resumed session", *map(milliseconds, (append, context, append + context, loads))]
    return f"## Resumed session\n\n{_table(columns, [[*row, f'{(append + context) / loads:.2f}']])}"


def _replays(found: Mapping[str, Any]) -> str:
    rows = []
    for session, answers in found.items():
        for name, answer in answers.items():
            cells = ["–"] * 5
            if "median" in answer:
                times = [milliseconds(answer["median"]), milliseconds(answer["p99"])]
                cells = [f"{answer['calls']:,}", *times, f"{answer['sent']:,.0f}", f"{answer['empty']:,}"]
            rows.append([session, WAYS[name].title, *cells])
    columns = ["recorded session", "", "calls", "median ms", "p99 ms", "sent, median", "empty requests"]
    return f"## Recorded sessions\n\n{_table(columns, rows)}"


def _versions(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    load = "{:.1f} before and {:.1f} after".format(*results["load"])
    return (
        f"Measured with {versions}; {results['cores']} cores, load {load}. "
        "Above one a core, times are too long."
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    named = sum(1 for cell in columns if cell == "") + 1
    marks = ["---"] * named + ["---:"] * (len(columns) - named)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, marks, *rows))
