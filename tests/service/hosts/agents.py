"""The same long task for every agent framework: read many files, lose them, find one of them again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

FILES = 14
BUDGET = 2_000
QUESTION = "Which harbour has the highest tide?"
WANTED = "The highest tide is in harbour 2: 14.25 metres, measured on a Tuesday."


def file_text(number: int) -> str:
    """What a file says; about 350 tokens."""
    fact = WANTED if number == 2 else f"Harbour {number} has a tide of {number}.5 metres."
    return f"{fact} " + f"Line about harbour {number}. " * 50


@dataclass(frozen=True)
class Call:
    """What the scripted model wants to call."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Script:
    """A model that reads every file, then searches for what it read first, then answers.

    ``requests`` holds what it was sent, as the framework's own wire format has it; ``answers`` what the
    recovery tools said.
    """

    requests: list[list[str]] = field(default_factory=list)
    turn: int = 0

    def next(self, request: list[str]) -> Call | str:
        """What the model does on a request."""
        self.requests.append(request)
        self.turn += 1
        if self.turn <= FILES:
            return Call("read_file", {"number": self.turn})
        if self.turn == FILES + 1:
            return Call("search_history", {"query": "highest tide Tuesday", "limit": 3})
        if self.turn == FILES + 2:
            (found,) = re.findall(r'historyId\\*":\s*\\*"(m\d+)', request[-1])[:1]
            return Call("load_history", {"historyIds": [found]})
        return "Harbour 2." if "14.25 metres" in request[-1] else "I could not find it."

    @property
    def input_tokens(self) -> int:
        """What the provider counts for the newest request: half as much again as four characters a token."""
        return sum(map(len, self.requests[-1])) * 3 // 8


def stable_requests(requests: list[list[str]]) -> Iterator[bool]:
    """For each request but the first, whether the one before it is its prefix."""
    for before, request in pairwise(requests):
        yield request[: len(before)] == before


def check(script: Script, *, cuts: int = 1) -> None:
    """What must hold of a run: the window was cut, seldom, and the model read again what had left it."""
    requests = script.requests
    assert len(requests) == FILES + 3
    stable = list(stable_requests(requests))
    assert cuts <= stable.count(False) <= FILES // 2
    # The file that the model looks for was out of the window when it looked.
    assert not any("14.25 metres" in message for message in requests[FILES])
    # The notice comes first, or behind the instructions.
    assert any("outside this 2,000-token window" in message for message in requests[FILES][:2])
    assert "14.25 metres" in requests[-1][-1]
    for request in requests:
        assert any(QUESTION in message for message in request)


def check_goes_on(script: Script) -> None:
    """What must hold of a further question: it is asked in the window of the one before."""
    before, request = script.requests[-2:]
    # The turn before may have left the window as a whole.
    assert before[-1] in request or not any("14.25 metres" in message for message in request)
    assert any("outside this 2,000-token window" in message for message in request[:2])
    assert len(request) <= len(before) + 2


def as_json(value: Any) -> str:
    """A message as it is sent."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
