"""Conversations to play: recorded sessions, and made-up ones of several kinds."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from context_paging.domain.estimation import HeuristicEstimator
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file

DEFAULT_PAUSE = 20.0
"""Seconds between calls where a recording does not tell."""
LONGEST_PAUSE = 86_400.0
"""No cache outlives a day, so that longer pauses need not be told apart."""
_ESTIMATOR = HeuristicEstimator()


@dataclass(frozen=True)
class Conversation:
    """A valid conversation.

    Attributes:
        messages: all of them, in the form of `domain.messages`.
        tokens: estimates, the same for everybody.
        times: when each was there, in seconds.
    """

    name: str
    messages: list[Any]
    tokens: list[int]
    times: list[float]

    @property
    def calls(self) -> list[int]:
        """Where the provider is called: how many messages there are before each response."""
        return [n for n, message in enumerate(self.messages) if n and message["role"] == "assistant"]


def conversation(name: str, messages: list[Any], times: list[float]) -> Conversation:
    """A conversation with its estimates."""
    return Conversation(name, messages, [_ESTIMATOR.message_tokens(m) for m in messages], times)


def recorded(path: Path | str) -> Conversation:
    """The conversation of a session file: what a repaired request of all of its branch would hold.

    Compactions and edits are passed over, as if they had never been made.
    """
    file = read_session_file(path)
    plain = list[Any]()
    for entry in file.branch():
        if entry.get("type") not in ("compaction", "context_edit"):
            plain.append({**entry, "parentId": plain[-1]["id"] if plain else None})
    session = Session("bench")
    settings = {"tokenBudget": 2**53 - 1, "onInvalidStructure": "repair"}
    session.start(global_settings={"contextPaging": settings})
    session.append(plain)
    messages = [
        message
        for message in session.context().messages
        if message["role"] in ("user", "assistant", "toolResult")
    ]
    stamps = {id(entry.get("message")): _seconds(entry.get("timestamp")) for entry in plain}
    times = [0.0]
    for before, after in pairwise(stamps.get(id(message)) for message in messages):
        pause = DEFAULT_PAUSE if before is None or after is None or after < before else after - before
        times.append(times[-1] + min(pause, LONGEST_PAUSE))
    return conversation(Path(file.name).name.removesuffix(".gz").removesuffix(".jsonl"), messages, times)


def corpus() -> list[Path]:
    """The recorded sessions, if they are there: in the folder of the environment, or beside the checkout."""
    folder = os.environ.get("CONTEXT_PAGING_CORPUS")
    beside = Path(__file__).resolve().parents[4] / "shared" / "corpus"
    return sorted((Path(folder) if folder else beside).glob("*.jsonl.gz"))


def made_up(seed: int = 7) -> Iterator[Conversation]:
    """Made-up conversations, the same for the same seed."""
    yield _made("one long tool loop", seed, [_turn(220, 1, 300, 2_400)])
    yield _made("parallel calls", seed, [_turn(25, 4, 400, 1_600)] * 3)
    yield _made("many short turns", seed, [_turn(1, 0, 0, 0)] * 500)
    yield _made("huge results", seed, [_turn(12, 1, 200, 4_000, huge=True)] * 6)
    yield _made("pictures", seed, [_turn(6, 1, 100, 600, picture=True)] * 20)
    yield _made("pauses of ten minutes", seed, [_turn(8, 1, 400, 4_000)] * 20, pause=600.0)


Turn = Callable[[random.Random, list[Any]], None]


def _turn(
    loops: int, calls: int, least: int, most: int, *, huge: bool = False, picture: bool = False
) -> Turn:
    def add(draw: random.Random, messages: list[Any]) -> None:
        number = len(messages)
        content: Any = [{"type": "text", "text": f"Request {number}: " + "please look into this. " * 12}]
        if picture:
            content.append({"type": "image", "data": f"picture {number}", "mimeType": "image/png"})
        messages.append({"role": "user", "content": content})
        for loop in range(loops if calls else 0):
            ids = [f"call_{len(messages)}_{n}" for n in range(calls)]
            blocks: list[Any] = [{"type": "text", "text": f"Step {loop}. " + "I will look at it. " * 6}]
            blocks += [{"type": "toolCall", "id": c, "name": "read", "arguments": {"path": c}} for c in ids]
            messages.append({"role": "assistant", "content": blocks, "stopReason": "toolUse"})
            for call in ids:
                characters = draw.randint(least, most) * 4
                if huge and loop == loops // 2:
                    characters *= 20
                text = (f"{call}: a line of output. " * (characters // 20 + 1))[:characters]
                messages.append(
                    {
                        "role": "toolResult",
                        "toolCallId": call,
                        "toolName": "read",
                        "content": [{"type": "text", "text": text}],
                        "isError": False,
                    }
                )
        text = f"Answer {number}. " + "This is what I found out. " * draw.randint(10, 60)
        said = [{"type": "text", "text": text}]
        messages.append({"role": "assistant", "content": said, "stopReason": "stop"})

    return add


def _made(name: str, seed: int, turns: list[Turn], pause: float = 90.0) -> Conversation:
    draw, messages = random.Random(seed), list[Any]()
    for turn in turns:
        turn(draw, messages)
    times: list[float] = []
    for message in messages:
        wait = pause if message["role"] == "user" else 8.0
        times.append((times[-1] if times else 0.0) + wait)
    for number, message in enumerate(messages):
        message["timestamp"] = number
    return conversation(name, messages, times)


def _seconds(stamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
