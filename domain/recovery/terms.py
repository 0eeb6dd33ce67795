"""Search terms (design, section 7), and analyzers that find more than exact terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

# A Han character is a letter, but stands alone; the others run together with what joins paths and names.
_HAN = (
    "\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_RUN = re.compile(r"[\w./:-]+")
_HAN_CHARACTER = re.compile(f"([{_HAN}])")
_ASCII_TERM = re.compile(r"\w(?:[\w./:-]*\w)?", re.ASCII)
_EDGES = "./:-"

Analyzer = Callable[[str], Iterable[str]]
"""Splits a text into terms."""


def plain_terms(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and ``_./:-``, without ``./:-`` at their edges; Han one by one."""
    return _runs(text.lower())


_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_ENDINGS = ("ations", "ation", "ings", "ing", "edly", "ers", "er", "ies", "ied", "es", "ed", "ly", "s", "e")
_STEM = 3
"""Characters a word keeps at least."""


def expanded_terms(text: str) -> Iterator[str]:
    """The plain terms, and the words that names and paths are made of, without their endings.

    ``getUserNames`` is found by ``user name``, and ``src/history_index.py`` by ``indexing``.
    """
    for run in _runs(text):
        yield run.lower()
        for part in _PART.findall(run):
            yield "~" + _stem(part.lower())


def _runs(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_TERM.findall(text)
    pieces: list[str] = []
    for run in _RUN.findall(text):
        pieces += [run] if run.isascii() else _HAN_CHARACTER.split(run)
    return [term for piece in pieces if (term := piece.strip(_EDGES))]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word[: -len(ending)]
    return word
