"""Finding and loading history items (architecture, "History navigation"; design, section 7)."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from ..errors import InvalidMessage
from ..history import History, HistoryItem
from ..json_text import UTF16_UNIT, from_utf16, to_utf16, utf16_length
from .bm25 import Index
from .errors import RecoveryErrorCode, RecoveryRefused
from .public_view import Content, PublicItem, calls_recovery_tool
from .terms import Analyzer, plain_terms

PREVIEW_CHARACTERS = 160
_PREVIEWED = 8_000
"""How much of a text is looked at for a preview: white space collapses."""
SEARCH_LOADS = 3
"""How many of the items it finds a search loads."""

Direction = Literal["backward", "forward", "around"]


class Navigator:
    """The visible items of a branch, and the index that searches them.

    Both are brought up to date when they are asked for: an appended turn costs what it holds, and another
    branch costs what it does not share with the one before. What is visible are the history's items without
    the turns that call a recovery tool; sequence numbers count these.
    """

    def __init__(self, content: Content, analyzer: Analyzer = plain_terms) -> None:
        self._content = content
        self._analyzer = analyzer
        self._history = History.empty()
        self._items: list[HistoryItem] = []
        # Where each visible item stands in the history.
        self._positions: list[int] = []
        self._sequence: dict[str, int] = {}
        self._index = Index()
        # How many documents are those of the visible items, and the newest ones that may yet change.
        self._indexed = 0
        self._tentative: list[Counter[str]] = []

    def search(
        self,
        history: History,
        query: str,
        *,
        files: Sequence[str] = (),
        tools: Sequence[str] = (),
        failed: bool | None = None,
        limit: int = 5,
    ) -> list[dict[str, Any]]:
        """References to the items that match best; ties in their order.

        An empty query asks for the filters alone, in order. A query without terms finds nothing.
        """
        self._show(history)
        if not query:
            found: Iterable[int] = range(len(self._items))
        else:
            terms = list(self._analyzer(query))
            self._extend_index()
            scores = self._index.scores(terms)
            if not (files or tools or failed is not None):
                best = heapq.nsmallest(limit, scores, key=lambda n: (-scores[n], n))
                return [self.reference(number) for number in best]
            found = sorted(scores, key=lambda n: (-scores[n], n))
        references: list[dict[str, Any]] = []
        for number in found:
            if len(references) == limit:
                break
            if self._matches(self._items[number], files, tools, failed):
                references.append(self.reference(number))
        return references

    def browse(
        self,
        history: History,
        direction: Direction,
        *,
        history_id: str | None = None,
        sequence: int | None = None,
        count: int = 5,
        stride: int = 1,
    ) -> list[dict[str, Any]]:
        """References to every ``stride``-th item from an anchor on, oldest first where it looks around.

        Raises:
            RecoveryRefused: the anchor is not visible, or both kinds of anchor are given.
        """
        self._show(history)
        anchor = self._anchor(history_id, sequence)
        length = len(self._items)
        if direction == "around":
            numbers = _around(length, length - 1 if anchor is None else anchor, count, stride)
        elif direction == "backward":
            numbers = range(length - 1 if anchor is None else anchor - stride, -1, -stride)[:count]
        else:
            numbers = range(0 if anchor is None else anchor + stride, length, stride)[:count]
        return [self.reference(number) for number in numbers]

    def load(self, history: History, history_ids: Sequence[str]) -> list[dict[str, Any]]:
        """The items with the given ids, whole and exact; all of them or none.

        Raises:
            RecoveryRefused: one of them is not visible.
        """
        self._show(history)
        numbers = []
        for history_id in history_ids:
            number = self._sequence.get(history_id)
            if number is None:
                raise RecoveryRefused(
                    RecoveryErrorCode.UNKNOWN_HISTORY_ID,
                    f"there is no history item {history_id!r} to load on this branch; nothing was loaded. "
                    "search_history and browse_history give the ids",
                )
            numbers.append(number)
        return [PublicItem(self._items[n], self._content).loaded(n) for n in numbers]

    def reference(self, number: int) -> dict[str, Any]:
        """What the item with a sequence number is, in short."""
        item = self._items[number]
        public = PublicItem(item, self._content)
        return {
            "historyId": item.id,
            "sequence": number,
            "kind": item.kind,
            "timestamp": public.timestamp,
            "preview": _preview(public),
            "tools": item.tools,
            "files": public.files,
            "failed": item.failed,
            "previousHistoryId": self._items[number - 1].id if number else None,
            "nextHistoryId": self._items[number + 1].id if number + 1 < len(self._items) else None,
        }

    def _show(self, history: History) -> None:
        if history is self._history:
            return
        settled = history.settled_with(self._history)
        kept = bisect_left(self._positions, settled)
        for item in self._items[kept:]:
            del self._sequence[item.id]
        del self._items[kept:], self._positions[kept:]
        for position, item in enumerate(history.items_from(settled), settled):
            if not calls_recovery_tool(item):
                self._sequence[item.id] = len(self._items)
                self._items.append(item)
                self._positions.append(position)
        self._indexed = min(self._indexed, kept)
        self._history = history

    def _extend_index(self) -> None:
        index = self._index
        while len(index) > self._indexed and self._tentative:
            index.remove_last(self._tentative.pop())
        if len(index) > self._indexed:
            index.truncate(self._indexed)
        settled = self._history.settled
        for number in range(len(index), len(self._items)):
            public = PublicItem(self._items[number], self._content)
            terms: list[str] = []
            # What is nested too deeply to be printed is not searched; all else of the item is.
            with suppress(InvalidMessage):
                for text in public.search_texts():
                    terms += self._analyzer(text)
            counts = index.add(terms)
            if self._positions[number] >= settled:
                self._tentative.append(counts)
        self._indexed = len(index)

    def _anchor(self, history_id: str | None, sequence: int | None) -> int | None:
        if history_id is None and sequence is None:
            return None
        if history_id is not None and sequence is not None:
            raise RecoveryRefused(
                RecoveryErrorCode.UNKNOWN_HISTORY_ANCHOR, "give historyId or sequence as the anchor, not both"
            )
        anchor = self._sequence.get(history_id) if history_id is not None else sequence
        if anchor is None or anchor >= len(self._items):
            named = repr(history_id) if history_id is not None else f"number {sequence}"
            raise RecoveryRefused(
                RecoveryErrorCode.UNKNOWN_HISTORY_ANCHOR,
                f"there is no history item {named} to start from: this branch shows {len(self._items)} "
                "items; leave the anchor out to start at an end",
            )
        return anchor

    def _matches(
        self, item: HistoryItem, files: Sequence[str], tools: Sequence[str], failed: bool | None
    ) -> bool:
        if failed is not None and item.failed is not failed:
            return False
        if not set(tools) <= set(item.tools):
            return False
        return not files or set(files) <= set(PublicItem(item, self._content).files)


def _around(length: int, anchor: int, count: int, stride: int) -> range:
    # As many on both sides, unless there are not enough on one.
    numbers = range(anchor % stride, length, stride) if length else range(0)
    first = max(0, min(anchor // stride - (count - 1) // 2, len(numbers) - count))
    return numbers[first : first + count]


def _preview(public: PublicItem) -> str:
    pieces: list[str] = []
    length = 0
    with suppress(InvalidMessage):
        for text in public.own_texts():
            words = text[:_PREVIEWED].split()
            pieces += words
            length += sum(len(word) + 1 for word in words)
            if length > PREVIEW_CHARACTERS:
                break
    preview = " ".join(pieces)
    if utf16_length(preview) <= PREVIEW_CHARACTERS:
        return preview
    return from_utf16(to_utf16(preview[:PREVIEW_CHARACTERS])[: PREVIEW_CHARACTERS * UTF16_UNIT])
