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
