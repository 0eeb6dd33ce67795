"""What ways to keep a conversation under a budget cost at a provider with a prompt cache, and what they lose.

    python ops/bench/cache.py [FILE…] [--budget 32000] [--figures DIR] [--json]

Plays session files (those of the corpus folder and the bundled example, unless given) and made-up
conversations through each way, at the same budget and with the same counts of tokens. A provider call is due
before each response. The cache holds every prefix that was sent, for ``--life`` seconds after its last use;
prices are multiples of an input token's price (``--write``, ``--read``, ``--output``). Needs the extras
langchain and agent-framework.

``cost`` is that of all calls, as a share of what sending everything would cost; ``per call`` that of a
request that went out, in input tokens. ``unread`` are tool results of the newest exchange that the model was
not shown; ``dropped`` requests without the user's message that they are about; ``broken`` calls without
results and results without calls; ``lost`` messages that the model can no longer read; ``above`` requests
above the budget, ``beyond`` above the model's window (``--window``), played as if the provider took them;
``refused`` calls that were not made, or had no message.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompt_cache.contenders import CONTENDERS, Limits
from prompt_cache.conversations import Conversation, corpus, made_up, recorded
from prompt_cache.metrics import Played, followers, play, totals
from prompt_cache.plots import bars, windows
from prompt_cache.provider import Prices
from rich.console import Console
from rich.progress import track
from rich.table import Table

from context_paging.service.example import example_path

COLUMNS = (
    "calls",
    "cached",
    "prefix",
    "cost",
    "per call",
    "unread",
    "dropped",
    "broken",
    "lost",
    "above",
    "beyond",
    "refused",
)
COUNTS = COLUMNS[COLUMNS.index("unread") :]


def conversations(files: list[str]) -> Iterator[Conversation]:
    """Those of files, and the made-up ones."""
    if files:
        yield from map(recorded, files)
    else:
        yield from map(recorded, corpus())
        with example_path() as example:
            yield recorded(example)
    yield from made_up()


def shown(result: Played, everything: Played, conversations: int = 1) -> dict[str, str]:
    """A row of the table."""
    following = followers(result, conversations)
    return {
        "calls": f"{result.calls:,}",
        "cached": f"{result.cached / result.tokens:.0%}" if result.tokens else "–",
        "prefix": f"{result.prefixes / following:.0%}" if following else "–",
        "cost": f"{result.cost / everything.cost:.2f}",
        "per call": f"{result.cost / result.made:,.0f}" if result.made else "–",
        **{name: f"{getattr(result, name):,}" for name in COUNTS},
    }


def markdown(rows: list[tuple[str, str, dict[str, str]]]) -> str:
    """The table, for a page."""
    lines = [f"| conversation | way | {' | '.join(COLUMNS)} |", "| --- | --- |" + " ---: |" * len(COLUMNS)]
    lines += [
        f"| {conversation} | {way} | {' | '.join(row[name] for name in COLUMNS)} |"
        for conversation, way, row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Play, count, print, draw."""
    prices = Prices()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--budget", type=int, default=32_000)
    parser.add_argument("--resident", type=int, default=3_000, help="tokens of system prompt and tools")
    parser.add_argument("--window", type=int, default=200_000, help="tokens of the model's context window")
    for name in ("write", "read", "output", "life"):
        parser.add_argument(f"--{name}", type=float, default=getattr(prices, name))
    parser.add_argument("--least", type=int, default=prices.least)
    parser.add_argument("--figures", "--plots", type=Path, help="a folder for the plots and the table")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    limits = Limits(options.budget, options.resident, options.window)
    prices = Prices(options.write, options.read, options.output, options.life, options.least)
    found: dict[str, list[Played]] = {}
    console = Console(width=170)
    played = list(conversations(options.files))
    work = [(kind, one) for one in played for kind in CONTENDERS]
    for kind, one in track(work, "playing", console=Console(stderr=True), transient=True):
        found.setdefault(one.name, []).append(play(kind(one, limits), one, limits, prices))
    together = [totals([results[n] for results in found.values()]) for n in range(len(CONTENDERS))]
    if options.json:
        told: Any = {name: [vars(result) for result in results] for name, results in found.items()}
        print(json.dumps(told))
        return
    rows = [
        (name, result.contender, shown(result, results[0]))
        for name, results in found.items()
        for result in results
    ]
    summary = [("all", result.contender, shown(result, together[0], len(found))) for result in together]
    table = Table("conversation", "way", *COLUMNS)
    for name, way, row in [*rows, *summary]:
        table.add_row(name, way, *(row[column] for column in COLUMNS))
    console.print(table)
    if options.figures:
        draw(options.figures, found, together, options.budget, markdown([*summary, *rows]))


def draw(
    folder: Path, found: dict[str, list[Played]], together: list[Played], budget: int, table: str
) -> None:
    """Write the figures and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = together[0]
    bars(
        folder / "cost.svg",
        "Cost of all calls, as a share of sending everything (lower is better)",
        [(t.contender, t.cost / everything.cost, f"{t.cost / everything.cost:.2f}") for t in together],
    )
    bars(
        folder / "cached.svg",
        "Input tokens that came from the prompt cache",
        [(t.contender, t.cached / t.tokens, f"{t.cached / t.tokens:.0%}") for t in together],
    )
    bars(
        folder / "lost.svg",
        "Messages the model can no longer read",
        [(t.contender, float(t.lost), f"{t.lost:,}") for t in together],
    )
    name, results = next(iter(found.items()))
    windows(folder / "windows.svg", f"Tokens sent in each call of “{name}”", results, budget)
    (folder / "cache.md").write_text(table, "utf-8")


if __name__ == "__main__":
    main()
