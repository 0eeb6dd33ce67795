"""The contenders: what they are called in tables and in the figure, and which script knows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """One contender.

    Attributes:
        title: in tables, Markdown.
        script: the module that has it, ``own`` or ``peers``.
        colour: of its line, with ``dashes`` as in SVG.
        holds: whether it keeps something beside the host's list, so that weighing it says something.
        replays: whether recorded sessions are played through it.
    """

    title: str
    script: str
    colour: str
    dashes: str = ""
    bold: bool = False
    holds: bool = True
    replays: bool = False

    @property
    def label(self) -> str:
        """In the figure."""
        return self.title.replace("`", "").replace("*", "")


WAYS = {
    "fed": Way("**context paging**", "own", "#2da44e", bold=True, replays=True),
    "listed": Way("**context paging, whole list**", "own", "#2da44e", "7 4", bold=True, replays=True),
    "trim_messages": Way("LangChain `trim_messages`", "peers", "#bf8700", holds=False, replays=True),
    "memory": Way("LlamaIndex `Memory`", "peers", "#8250df"),
    "buffer": Way("LlamaIndex `ChatMemoryBuffer`", "peers", "#bf3989"),
    "autogen": Way("AutoGen `TokenLimited…Context`", "peers", "#0969da"),
    "dumped": Way(
        "`json.dumps` of the list, a yardstick", "own", "#818b98", "2 3", holds=False, replays=True
    ),
}

TYPESCRIPT = {1_000: 35.0, 10_000: 372.0, 100_000: 3_755.0}
"""Milliseconds a call of the TypeScript implementation of the same specification, by length of the session.
They were measured elsewhere, on a machine like those that run this, and are for orientation only."""
TYPESCRIPT_COLOUR = "#cf222e"
