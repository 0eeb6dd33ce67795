"""BM25 over documents in order (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009)."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable

K1 = 1.2
B = 0.75


class Index:
    """Documents by number, with the terms they hold. Documents are added and removed at the end only."""

    def __init__(self) -> None:
        # Of each term, document and frequency in turn.
        self._postings: dict[str, array[int]] = {}
        self._lengths: array[int] = array("L")
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, terms: Iterable[str]) -> Counter[str]:
        """Add a document, and return its terms with their frequencies."""
        counts = Counter(terms)
        number = len(self._lengths)
        postings = self._postings
        for term, count in counts.items():
            known = postings.get(term)
            if known is None:
                known = postings[term] = array("L")
            known.append(number)
            known.append(count)
        length = counts.total()
        self._lengths.append(length)
        self._total += length
        return counts

    def remove_last(self, counts: Counter[str]) -> None:
        """Remove the last document, whose terms are ``counts``."""
        for term in counts:
            known = self._postings[term]
            del known[-2:]
            if not known:
                del self._postings[term]
        self._total -= self._lengths.pop()

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` documents. Costs as much as there are terms."""
        emptied = []
        for term, known in self._postings.items():
            while known and known[-2] >= length:
                del known[-2:]
            if not known:
                emptied.append(term)
        for term in emptied:
            del self._postings[term]
        while len(self._lengths) > length:
            self._total -= self._lengths.pop()

    def scores(self, terms: Iterable[str]) -> dict[int, float]:
        """The score of every document that holds any of the terms; a term that repeats counts once."""
        count = len(self._lengths)
        scores: dict[int, float] = {}
        if not self._total:
            return scores
        average = self._total / count
        lengths = self._lengths
        for term in dict.fromkeys(terms):
            known = self._postings.get(term)
            if known is None:
                continue
            holding = len(known) // 2
            weight = math.log(1 + (count - holding + 0.5) / (holding + 0.5))
            for at in range(0, len(known), 2):
                document, frequency = known[at], known[at + 1]
                norm = frequency + K1 * (1 - B + B * lengths[document] / average)
                scores[document] = scores.get(document, 0.0) + weight * frequency * (K1 + 1) / norm
        return scores
