"""Growing lists shared by many immutable views: appending is O(1) and older views stay valid.

A view is an arena and a length. Appending to the newest view grows the arena in place, which no older view
can see; appending to an older view copies the arena first (design, section 12).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Positions(Generic[K]):
    """From a key to the positions it was added at, in ascending order.

    One position is stored bare, for memory: nearly all keys have one.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[K, int | list[int]] = {}

    def add(self, key: K, position: int) -> None:
        """Add a position; it must not be below any added before."""
        known = self._found.setdefault(key, position)
        if isinstance(known, list):
            known.append(position)
        elif known != position:
            self._found[key] = [known, position]

    def count(self, key: K, length: int) -> int:
        """How many positions of a key are below ``length``."""
        known = self._found.get(key)
        if known is None:
            return 0
        return int(known < length) if isinstance(known, int) else bisect_left(known, length)

    def first(self, key: K, start: int, length: int) -> int | None:
        """The first position of a key from ``start`` on and below ``length``."""
        known = self._found.get(key)
        if known is None:
            return None
        if isinstance(known, int):
            return known if start <= known < length else None
        at = bisect_left(known, start)
        return known[at] if at < len(known) and known[at] < length else None

    def last(self, key: K, length: int) -> int | None:
        """The last position of a key below ``length``."""
        known = self._found.get(key)
        if known is None:
            return None
        if isinstance(known, int):
            return known if known < length else None
        at = bisect_left(known, length)
        return known[at - 1] if at else None

    def copy(self, length: int) -> Positions[K]:
        """The positions below ``length``, to be added to independently."""
        copied = Positions[K]()
        for key, known in self._found.items():
            if isinstance(known, int):
                if known < length:
                    copied._found[key] = known
            else:
                kept = [position for position in known if position < length]
                if kept:
                    copied._found[key] = kept if len(kept) > 1 else kept[0]
        return copied


class GrowingSet(Generic[K]):
    """A set that only grows. Adding makes a new one in O(1), and the old one stays as it was."""

    __slots__ = ("_length", "_positions", "_total")

    def __init__(self) -> None:
        self._positions = Positions[K]()
        # Shared by all sets made of one another: how many keys were added to the positions.
        self._total = [0]
        self._length = 0

    def __contains__(self, key: K) -> bool:
        return self._positions.count(key, self._length) > 0

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
            grown._positions, grown._total = self._positions.copy(self._length), [self._length]
        grown._positions.add(key, self._length)
        grown._length = grown._total[0] = self._length + 1
        return grown
