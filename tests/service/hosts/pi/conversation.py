"""A conversation that grows: requests that each make the model read a file of its own."""

from __future__ import annotations

from .agent import Home, Rpc
from .provider import Provider, Text, call

FILE_TOKENS = 1_700
"""What one file counts, about."""


def work(rpc: Rpc, provider: Provider, home: Home, topics: int, first: int = 0) -> None:
    """Say something ``topics`` times; the model reads a file and answers, which are two provider calls."""
    for number in range(first, first + topics):
        (home.project / f"{number}.txt").write_text(f"secret-{number} is here\n" + "alpha beta gamma\n" * 400)
        provider.script += [call("read", path=f"{number}.txt"), Text(f"I read file {number}")]
        rpc.prompt(f"request {number}")
