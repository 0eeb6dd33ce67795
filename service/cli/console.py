"""Where commands print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

WIDTH_OF_PIPES = 160
"""Columns where nobody looks at a terminal: whoever reads a pipe wants whole lines."""


def output() -> Console:
    """Standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_PIPES)


def messages() -> Console:
    """Standard error, for progress and problems."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, and what to tell it: how many of how many are done."""
    from rich.progress import Progress

    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def counter(description: str) -> Iterator[Callable[[int], None]]:
    """A count on standard error, for work of unknown size, and what to tell it: how many more are done."""
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
    console = messages()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda more: bar.advance(task, more)
