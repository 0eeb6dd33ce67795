"""The conformance files line by line: a change shows in a fraction of the time that a whole file takes."""

from __future__ import annotations

from typing import Any

import pytest

from . import DATA
from .answers import answers, expected, questions
from .compare import differences

LINES = {
    "bugs-strict": 52,
    "sessions-events": 12,
    "sessions-odd": 16,
    "sessions-plain": 8,
    "sessions-usage": 10,
}
"""How many of the lines of which files."""
QUESTIONS = [
    question
    for name, count in LINES.items()
    for question, _ in zip(questions(DATA / f"{name}.jsonl.gz"), range(count), strict=False)
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question["name"]))
def test_the_answers_equal_the_expected_ones(question: Any) -> None:
    assert not list(differences(answers(question), expected(question)))
