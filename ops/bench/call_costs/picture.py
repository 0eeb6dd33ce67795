"""The figure: milliseconds a call over the length of the session, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from prompt_cache.plots import write

LEFT, TOP, WIDTH, HEIGHT, LABELS = 68, 44, 500, 400, 280
APART = 17
"""Pixels between labels."""


@dataclass(frozen=True)
class Line:
    """One contender.

    Attributes:
        points: length of the session, milliseconds a call.
        stopped: the first length at which it was too slow, and the milliseconds it was given.
        colour: one that can be told apart on light and on dark paper.
        dashes: of the stroke, as in SVG.
    """

    name: str
    points: Sequence[tuple[int, float]]
    colour: str
    dashes: str = ""
    bold: bool = False
    stopped: tuple[int, float] | None = None


@dataclass
class _Axes:
    lines: Sequence[Line]
    least: int = field(init=False)
    most: int = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        every = [
            point
            for line in self.lines
            for point in (*line.points, *([line.stopped] if line.stopped else []))
        ]
        self.least, self.most = min(x for x, _ in every), max(x for x, _ in every)
        self.low = math.floor(math.log10(min(y for _, y in every)))
        self.high = math.ceil(math.log10(max(y for _, y in every)))

    def x(self, length: int) -> float:
        span = math.log10(self.most / self.least) or 1
        return LEFT + WIDTH * math.log10(length / self.least) / span

    def y(self, milliseconds: float) -> float:
        span = (self.high - self.low) or 1
        return TOP + HEIGHT * (1 - (math.log10(milliseconds) - self.low) / span)


def growth(path: Path, title: str, lines: Sequence[Line]) -> None:
    """Draw the lines. A label stands at the right edge, level with where its line ends.

    A dotted end and a triangle say that the contender takes longer than that, however much.
    """
    drawn = [line for line in lines if line.points]
    axes = _Axes(drawn)
    parts = [f'<text x="8" y="22">{escape(title)}</text>', *_grid(axes)]
    for line in drawn:
        parts += _drawn(line, axes)
    parts += _labels(drawn, axes)
    write(path, LEFT + WIDTH + LABELS, TOP + HEIGHT + 56, "".join(parts))


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for power in range(axes.low, axes.high + 1):
        y = axes.y(10.0**power)
        label = f"{10 ** (power - 3):,} s" if power >= 3 else f"{10.0**power:g} ms"
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}"/>')
        parts.append(f'<text class="faint" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for length in sorted({length for line in axes.lines for length, _ in line.points}):
        x = axes.x(length)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + HEIGHT}"/>')
        parts.append(
            f'<text class="faint" x="{x:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{length:,}</text>'
        )
    middle = LEFT + WIDTH / 2
    y = TOP + HEIGHT + 42
    told = "messages in the session"
    if any(line.stopped for line in axes.lines):
        told += " (▲: it would take longer than that)"
    parts.append(f'<text class="faint" x="{middle}" y="{y}" text-anchor="middle">{told}</text>')
    return parts


def _drawn(line: Line, axes: _Axes) -> list[str]:
    stroke = f'stroke="{line.colour}" stroke-width="{2.6 if line.bold else 1.6}"'
    dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
    places = [(axes.x(length), axes.y(time)) for length, time in line.points]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline fill="none" {stroke}{dashes} points="{joined}"/>']
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in places]
    if line.stopped:
        (x, y), (x1, y1) = (axes.x(line.stopped[0]), axes.y(line.stopped[1])), places[-1]
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x:.1f}" y2="{y:.1f}"'
        parts.append(f'<line {ends} {stroke} stroke-dasharray="2 4"/>')
        parts.append(f'<path d="M{x - 5:.1f} {y + 3:.1f}h10l-5 -9z" fill="{line.colour}"/>')
    return parts


def _labels(lines: Sequence[Line], axes: _Axes) -> list[str]:
    """At the right edge, pushed apart, with a thin line to where the contender's own line ends."""
    ends = []
    for line in lines:
        length, time = line.stopped or line.points[-1]
        ends.append((axes.y(time), axes.x(length), line))
    ends.sort(key=lambda end: (end[0], end[1]))
    places: list[float] = []
    for y, _, _ in ends:
        places.append(max(y, places[-1] + APART) if places else y)
    below = places[-1] - (TOP + HEIGHT) if places else 0
    if below > 0:
        places = [place - below for place in places]
    parts = []
    edge = LEFT + WIDTH
    for (y, x, line), place in zip(ends, places, strict=True):
        parts.append(
            f'<path d="M{x + 6:.1f} {y:.1f}L{edge + 8} {place:.1f}h8" fill="none" '
            f'stroke="{line.colour}" stroke-width="0.7" stroke-dasharray="1 3"/>'
        )
        weight = ' font-weight="600"' if line.bold else ""
        parts.append(f'<circle cx="{edge + 20}" cy="{place:.1f}" r="4" fill="{line.colour}"/>')
        parts.append(f'<text x="{edge + 30}" y="{place + 4:.1f}"{weight}>{escape(line.name)}</text>')
    return parts
