"""Pictures as coordinates, which the templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from context_paging.domain.hindsight import Fate, WindowPart

from ...log.queries import cursor_behind
from ...postmortem import Postmortem
from ...window_history import CallPoint, Reset, WindowHistory

WIDTH, HEIGHT = 960, 300
LEFT, BOTTOM, TOP = 70, 40, 12
MOST_COLUMNS = 320
BAR_WIDTH = 560
FATE_CLASSES = {
    Fate.KEPT: "kept",
    Fate.EVICTED: "evicted",
    Fate.PARTLY_EVICTED: "partly",
    Fate.PROTECTED: "protected",
    Fate.REFERENCED: "referenced",
    Fate.REQUEST: "request",
    Fate.NOT_REACHED: "evicted",
}
"""What the style sheet calls each fate."""


@dataclass(frozen=True, slots=True)
class Column:
    """One call, or a few beside each other, as their maxima.

    Attributes:
        first, last: numbers of the calls.
        page: the cursor of a list of calls that begins with these, the newest first.
        label: everything in words.
        history, sent: heights.
        marks: ``cut``, ``abort``, ``reset`` and ``overflow`` (above the budget once), whichever there are.
    """

    first: int
    last: int
    x: float
    width: float
    history: float
    sent: float
    page: str
    label: str
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across with what it stands for."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class WindowPlot:
    """The window over time. ``budget`` holds the points of a line; columns stand on ``base``.

    ``reset_since``: the cut was reset after the last call.
    """

    columns: tuple[Column, ...]
    ticks: tuple[Tick, ...]
    budget: str
    base: float
    reset_since: bool = False
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    top: int = TOP


def window_plot(history: WindowHistory) -> WindowPlot | None:
    """The picture of a session's calls; nothing if it has none."""
    points = list(history.points)
    if not points:
        return None
    count = min(MOST_COLUMNS, len(points))
    bounds = [len(points) * index // count for index in range(count + 1)]
    highest = max(max(_heights(point)) for point in points) or 1
    step = _step(highest)
    top = math.ceil(highest / step) * step
    base = HEIGHT - BOTTOM
    scale = (base - TOP) / top
    width = (WIDTH - LEFT - 6) / count
    resets: dict[int, list[Reset]] = {}
    for reset in list(history.resets):
        resets.setdefault(reset.before_call, []).append(reset)
    columns = tuple(
        _column(points[first:last], resets, LEFT + index * width, width, scale)
        for index, (first, last) in enumerate(pairwise(bounds))
    )
    ticks = tuple(Tick(base - value * scale, f"{value:,.0f}") for value in _values(top, step))
    line = []
    for column, (first, last) in zip(columns, pairwise(bounds), strict=True):
        budgets = [point.budget_tokens for point in points[first:last] if point.budget_tokens]
        if budgets:
            y = base - max(budgets) * scale
            line += [f"{column.x:.2f},{y:.2f}", f"{column.x + column.width:.2f},{y:.2f}"]
    return WindowPlot(columns, ticks, " ".join(line), base, bool(resets.get(len(points) + 1)))


def _heights(point: CallPoint) -> tuple[float, ...]:
    return (point.history_tokens or 0, point.sent_tokens or 0, point.budget_tokens or 0)


def _step(highest: float) -> float:
    """A round distance of lines, so that there are four to eight."""
    power: float = 10 ** math.floor(math.log10(max(highest, 1)))
    return next(step for step in (power / 5, power / 2, power, power * 2) if highest / step <= 8)


def _values(top: float, step: float) -> list[float]:
    return [step * index for index in range(round(top / step) + 1)]


def _column(
    points: Sequence[CallPoint], resets: dict[int, list[Reset]], x: float, width: float, scale: float
) -> Column:
    history = max((point.history_tokens or 0 for point in points), default=0)
    sent = max((point.sent_tokens or 0 for point in points), default=0)
    given_up = [reset for point in points for reset in resets.get(point.number, ())]
    marks = []
    if any(point.advanced for point in points):
        marks.append("cut")
    if any(point.outcome == "aborted" for point in points):
        marks.append("abort")
    if given_up:
        marks.append("reset")
    if any(point.outcome in ("protected-overflow", "recovery") for point in points):
        marks.append("overflow")
    return Column(
        points[0].number,
        points[-1].number,
        x,
        width,
        history * scale,
        sent * scale,
        cursor_behind(points[-1].number + 1),
        _label(points, history, sent, given_up),
        tuple(marks),
    )


def _label(points: Sequence[CallPoint], history: float, sent: float, resets: list[Reset]) -> str:
    first, last = points[0], points[-1]
    if len(points) == 1:
        what = f"Call {first.number}: {first.code or first.outcome}"
    else:
        what = f"Calls {first.number} to {last.number}, at most"
    if all(point.outcome == "aborted" for point in points):
        told = [f"{what}, nothing was sent" + (f" of {history:,.0f} tokens" if history else "")]
    elif all(point.sent_tokens is None for point in points):
        told = [f"{what}, everything was sent"]
    else:
        told = [f"{what}, {sent:,.0f}{f' of {max(history, sent):,.0f}' if history else ''} tokens sent"]
    cuts, aborts = (
        sum(point.advanced for point in points),
        sum(point.outcome == "aborted" for point in points),
    )
    if cuts:
        told.append("the cut advanced" if cuts == 1 else f"{cuts} advances of the cut")
    if aborts and len(points) > 1:
        told.append(f"{aborts} aborted")
    told += [f"the cut was reset: {reset.why}" for reset in resets]
    return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a waterfall, in the coordinates of the picture."""

    name: str
    tokens: float
    x: float
    width: float
    kind: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit across a waterfall."""

    name: str
    tokens: float
    x: float


@dataclass(frozen=True, slots=True)
class Waterfall:
    """What an estimate is made of, beside its limits."""

    bars: tuple[Bar, ...]
    limits: tuple[Limit, ...]
    width: int = BAR_WIDTH


def waterfall(postmortem: Postmortem) -> Waterfall | None:
    """The picture of a call's numbers; nothing where there are none."""
    rows, call = postmortem.waterfall, postmortem.call
    if not rows:
        return None
    total = rows[-1].start + rows[-1].tokens
    limits = [
        (name, value)
        for name, value in (
            ("target", call.target_tokens),
            ("budget", call.budget_tokens),
            ("context window", call.context_window),
        )
        if value
    ]
    reached = [row.start + row.tokens for row in rows]
    shown = max(total, *reached, *(row.start for row in rows), 1.0)
    # A window that dwarfs everything else would leave nothing to see; it stands in the table.
    highest = max(shown, call.budget_tokens or 0) * 2
    near = [(name, value) for name, value in limits if value <= highest]
    scale = BAR_WIDTH / (max([shown, *(value for _, value in near)]) * 1.02)
    bars = [
        Bar(
            row.name,
            row.tokens,
            max(0.0, row.start + min(row.tokens, 0)) * scale,
            abs(row.tokens) * scale,
            "less" if row.tokens < 0 else "more",
        )
        for row in rows
    ]
    bars.append(Bar("estimate", total, 0, max(0.0, total) * scale, "total"))
    return Waterfall(tuple(bars), tuple(Limit(name, value, value * scale) for name, value in near))


def _pieces(part: WindowPart) -> list[tuple[WindowPart, float, str]]:
    if part.fate is not Fate.PARTLY_EVICTED:
        return [(part, part.tokens, FATE_CLASSES[part.fate])]
    # The older messages of a unit leave first.
    left = (part, part.tokens - part.sent_tokens, FATE_CLASSES[Fate.EVICTED])
    return [left, (part, part.sent_tokens, FATE_CLASSES[part.fate])]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the conversation, drawn as wide as its tokens are many."""

    x: float
    width: float
    fate: str
    label: str


def conversation_strip(parts: Sequence[WindowPart]) -> tuple[Segment, ...]:
    """The conversation at a call from left to right; small neighbours of one fate share a segment."""
    total = sum(part.tokens for part in parts)
    if not total:
        return ()
    scale = WIDTH / total
    segments: list[Segment] = []
    x = 0.0
    drawn = [piece for part in parts for piece in _pieces(part)]
    for part, tokens, fate in drawn:
        width = tokens * scale
        label = f"{part.kind}, messages {part.first} to {part.last}: {part.tokens:,.0f} tokens, {part.fate}"
        last = segments[-1] if segments else None
        if last is not None and last.fate == fate and last.width + width < 3:
            segments[-1] = Segment(last.x, last.width + width, fate, f"{part.fate}, small units")
        else:
            segments.append(Segment(x, width, fate, label))
        x += width
    return tuple(segments)
