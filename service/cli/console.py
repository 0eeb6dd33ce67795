"""Where commands print."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_OF_PIPES = 160
"""Columns where nobody looks at a terminal: whoever reads a pipe wants whole lines."""


def output() -> Console:
    """Standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_PIPES)


def messages() -> Console:
    """Standard error, for progress and problems."""
    return Console(stderr=True, soft_wrap=True, highlight=False)
