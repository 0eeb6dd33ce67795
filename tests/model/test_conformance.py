"""The model gives the answers of the independent implementation: that is how it is known to be right."""

from __future__ import annotations

from typing import Any

import pytest

from ..conformance import DATA
from ..conformance.answers import expected, questions
from ..conformance.compare import differences
from .answers import model_answers

FILES = (
    "bugs-strict",
    "estimates",
    "history",
    "sessions-events",
    "sessions-odd",
    "sessions-plain",
    "sessions-usage",
    "settings",
    "stats",
    "tools",
)
"""All but the replays, which are about session files outside the project."""


@pytest.mark.parametrize("name", FILES)
def test_the_model_gives_every_expected_answer(name: str) -> None:
    for question in questions(DATA / f"{name}.jsonl.gz"):
        given, wanted = model_answers(question), expected(question)
        for step, pair in enumerate(zip(given, wanted, strict=True)):
            found = list(differences(*pair))
            assert not found, f"{_name(question)}, answer {step}: {found[:5]}"


def _name(question: dict[str, Any]) -> str:
    return str(question.get("name", "a question"))
