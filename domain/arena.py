"""Growing lists shared by many immutable views: appending is O(1) and older views stay valid.

A view is an arena and a length. Appending to the newest view grows the arena in place, which no older view
can see; appending to an older view copies the arena first (design, section 12).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class PositionTable(Generic[K]):
    """From a key to the positions of a growing list that hold it: a hash table of nothing but positions.

    ``key_at`` gives the key at a position; a dictionary would take ten times the memory.
    """

    __slots__ = ("_count", "_further", "_key_at", "_mask", "_table")

    def __init__(self, key_at: Callable[[int], K]) -> None:
        self._key_at = key_at
        self._count = 0
        self._mask = 7
        self._table = array("i", [-1]) * 8
        # The later positions of keys that are there more than once, by the first one.
        self._further: dict[int, list[int]] = {}

    def _reserve(self, further: int) -> None:
        """Make room for so many positions."""
        size = self._mask + 1
        while 2 * (self._count + further) > size:
            size *= 2
        if size <= self._mask + 1:
            return
        known, mask, key_at = self._table, size - 1, self._key_at
        table = array("i", [-1]) * size
        for position in known:
            if position >= 0:
                place = hash(key_at(position)) & mask
                while table[place] >= 0:
                    place = (place + 1) & mask
                table[place] = position
        self._mask, self._table = mask, table

    def extend(self, keyed: Iterable[tuple[K, int]], count: int) -> None:
        """Add at most ``count`` positions with their keys, ascending and above any added before."""
        self._reserve(count)
        table, mask, key_at = self._table, self._mask, self._key_at
        added = 0
        for key, position in keyed:
            place = hash(key) & mask
            while (known := table[place]) >= 0:
                if key_at(known) == key:
                    self._further.setdefault(known, []).append(position)
                    break
                place = (place + 1) & mask
            else:
                table[place] = position
                added += 1
        self._count += added

    def first(self, key: K, start: int, length: int) -> int | None:
        """The first position of a key from ``start`` on and below ``length``."""
        known = self._first(key)
        if known >= start:
            return known if known < length else None
        further = self._further.get(known)
        if further is None:
            return None
        at = bisect_left(further, start)
        return further[at] if at < len(further) and further[at] < length else None

    def last(self, key: K, length: int) -> int | None:
        """The last position of a key below ``length``."""
        known = self._first(key)
        if not 0 <= known < length:
            return None
        further = self._further.get(known)
        at = bisect_left(further, length) if further else 0
        return further[at - 1] if further and at else known

    def each(self, key: K, length: int) -> Iterator[int]:
        """The positions of a key below ``length``, in ascending order."""
        known = self._first(key)
        if not 0 <= known < length:
            return
        yield known
        for position in self._further.get(known, ()):
            if position >= length:
                return
            yield position

    def _first(self, key: K) -> int:
        table, mask = self._table, self._mask
        place = hash(key) & mask
        while (known := table[place]) >= 0 and self._key_at(known) != key:
            place = (place + 1) & mask
        return known


class GrowingSet(Generic[K]):
    """A set that only grows. Adding makes a new one in O(1), and the old one stays as it was."""

    __slots__ = ("_length", "_positions", "_total")

    def __init__(self) -> None:
        self._positions: dict[K, int] = {}
        # Shared by all sets made of one another: how many keys were added to the positions.
        self._total = [0]
        self._length = 0

    def __contains__(self, key: K) -> bool:
        return self._positions.get(key, self._length) < self._length

    def __len__(self) -> int:
        return self._length

    def with_key(self, key: K) -> GrowingSet[K]:
        """This set and a key."""
        if key in self:
            return self
        grown = GrowingSet[K]()
        if self._total[0] == self._length:
            grown._positions, grown._total = self._positions, self._total
        else:
            length = self._length
            grown._positions = {known: at for known, at in self._positions.items() if at < length}
            grown._total = [length]
        grown._positions[key] = self._length
        grown._length = grown._total[0] = self._length + 1
        return grown
