"""The figures, as SVG that is readable on light and on dark paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from .metrics import Played

_STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}.faint{fill:#59636e}.bar{fill:#8b949e}.own{fill:#1a7f37}
.line{fill:none;stroke-width:1.6}.axis{stroke:#d1d9e0}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.faint{fill:#9198a1}.bar{fill:#656c76}.own{fill:#3fb950}
.axis{stroke:#3d444d}}
</style>"""
_COLOURS = ("#2da44e", "#8250df", "#bf8700", "#0969da")
_OWN = "context paging"


def bars(path: Path, title: str, values: Sequence[tuple[str, float, str]]) -> None:
    """A row for each contender: its name, a bar as long as the value, and the value as text."""
    most = max((value for _, value, _ in values), default=1) or 1
    rows = []
    for number, (name, value, shown) in enumerate(values):
        y = 44 + number * 28
        length = max(1.0, 380 * value / most)
        kind = "own" if name.startswith(_OWN) else "bar"
        rows.append(
            f'<text x="250" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{kind}" x="260" y="{y}" width="{length:.1f}" height="19" rx="2"/>'
            f'<text class="faint" x="{268 + length:.1f}" y="{y + 14}">{escape(shown)}</text>'
        )
    height = 54 + len(values) * 28
    write(path, 720, height, f'<text x="8" y="22">{escape(title)}</text>' + "".join(rows))


def windows(path: Path, title: str, played: Sequence[Played], budget: int) -> None:
    """What some contenders sent in each call of one conversation, in tokens."""
    calls = max(len(one.sizes) for one in played)
    most = max(budget * 1.6, *(max((s for s, _ in one.sizes), default=0) for one in played if _shown(one)))
    left, top, width, height = 64, 40, 640, 260
    parts = [f'<text x="8" y="22">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        label = f"{most * share / 1000:,.0f}k"
        parts.append(f'<line class="axis" x1="{left}" y1="{y}" x2="{left + width}" y2="{y}"/>')
        parts.append(f'<text class="faint" x="{left - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
    at = top + height * (1 - budget / most)
    parts.append(
        f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" '
        'stroke="#cf222e" stroke-dasharray="4 4"/>'
    )
    for number, one in enumerate(filter(_shown, played)):
        points = " ".join(
            f"{left + width * call / max(1, calls - 1):.1f},{top + height * (1 - size / most):.1f}"
            for call, (size, _) in enumerate(one.sizes)
        )
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<polyline class="line" stroke="{colour}" points="{points}"/>')
        x, y = left + (number % 2) * 300, top + height + 30 + (number // 2) * 20
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{escape(one.contender)}</text>')
    write(path, 720, top + height + 90, "".join(parts))


def _shown(one: Played) -> bool:
    # Those whose lines can be told apart.
    return one.contender in (_OWN, "sliding window", "LangChain ClearToolUsesEdit", "compaction, Pi-like")


def write(path: Path, width: int, height: int, content: str) -> None:
    """An SVG file of so many pixels, with the styles of all figures."""
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">{_STYLE}{content}</svg>\n',
        "utf-8",
    )
