"""Where a host's messages went: the units of its list, and the stored messages each of them made."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

from context_paging.domain.messages import text

from .conversion import Converter, H

Part = tuple[int, int] | Mapping[str, Any]
"""A run of stored messages by their first and last position, or a message that is not stored."""


class Layout(Generic[H]):
    """A host's list of messages in units.

    Attributes:
        host: the list.
        ends: for each unit, where it ends in the list.
        lasts: for each unit, where the messages it made end among all of them.
        residents: the units with something that always goes out (`Converter.residue`).
    """

    def __init__(self, host: list[H], ends: list[int], lasts: list[int], residents: list[int]) -> None:
        self.host = host
        self.ends, self.lasts, self.residents = ends, lasts, residents

    def start(self, unit: int) -> int:
        """Where a unit begins in the host's list."""
        return self.ends[unit - 1] if unit else 0

    def first(self, unit: int) -> int:
        """Where the messages of a unit begin."""
        return self.lasts[unit - 1] if unit else 0

    def messages(self, unit: int) -> list[H]:
        """The host's messages of a unit."""
        return self.host[self.start(unit) : self.ends[unit]]

    def add(self, unit: Sequence[H], made: int, *, resident: bool) -> None:
        """Take in a further unit, which made so many messages."""
        if resident:
            self.residents.append(len(self.ends))
        self.host += unit
        self.ends.append(len(self.host))
        self.lasts.append((self.lasts[-1] if self.lasts else 0) + made)

    def grow(self, unit: Sequence[H], made: int) -> None:
        """Let the newest unit be this one, which made further messages behind those of before."""
        self.host[self.start(len(self.ends) - 1) :] = unit
        self.ends[-1] = len(self.host)
        self.lasts[-1] += made

    def truncate(self, units: int) -> None:
        """Leave only the first ``units`` units."""
        if units < len(self.ends):
            del self.host[self.start(units) :]
            del self.ends[units:], self.lasts[units:]
            del self.residents[bisect_left(self.residents, units) :]

    def copy(self) -> Layout[H]:
        """Another layout that says the same."""
        return Layout(self.host.copy(), self.ends.copy(), self.lasts.copy(), self.residents.copy())


class Assembly(Generic[H]):
    """Puts together what goes out, in the host's messages, with all that always does, each in its place."""

    def __init__(self, layout: Layout[H], converter: Converter[H]) -> None:
        self._layout = layout
        self._converter = converter
        self._sent: list[H] = []
        self._notice: str | None = None
        self._unit = -1
        self._parts: list[tuple[int, str | None]] = []
        # Units with something resident, up to which all of it is out.
        self._passed = 0

    def assemble(self, parts: Iterable[tuple[int, int, str | None] | str]) -> list[H]:
        """The host's messages for runs of stored ones, each with what replaces it; text alone is a notice."""
        for part in parts:
            if isinstance(part, str):
                self._notice = part
            else:
                self._take(*part)
        self._flush()
        self._reach(len(self._layout.ends))
        return self._sent

    def _take(self, first: int, last: int, replacement: str | None) -> None:
        layout = self._layout
        unit = bisect_right(layout.lasts, first)
        end = layout.lasts[unit] - 1
        if first > layout.first(unit) or last < end or replacement is not None:
            self._collect(unit, first, min(last, end), replacement)
            if end < last:
                self._take(end + 1, last, None)
            return
        self._flush()
        behind = bisect_right(layout.lasts, last)
        # What the run holds of its newest unit may not be all of it.
        whole = behind + 1 if last == layout.lasts[behind] - 1 else behind
        self._emit(unit, whole)
        if whole == behind:
            self._collect(behind, layout.first(behind), last, None)

    def _collect(self, unit: int, first: int, last: int, replacement: str | None) -> None:
        if unit != self._unit:
            self._flush()
            self._unit = unit
        start = self._layout.first(unit)
        self._parts += [(position - start, replacement) for position in range(first, last + 1)]

    def _flush(self) -> None:
        if not self._parts:
            return
        unit, parts = self._unit, self._parts
        self._unit, self._parts = -1, []
        if parts == [(part, None) for part in range(self._layout.lasts[unit] - self._layout.first(unit))]:
            self._emit(unit, unit + 1)
            return
        self._reach(unit)
        self._sent += self._converter.rebuild(self._layout.messages(unit), parts)
        self._pass(unit + 1)

    def _emit(self, first: int, end: int) -> None:
        """Whole units from ``first`` up to ``end``."""
        layout = self._layout
        self._reach(first)
        residents = layout.residents
        # Units that make nothing and are out already stand in the way only where repair moved messages.
        for place in range(bisect_left(residents, first), bisect_left(residents, end)):
            unit = residents[place]
            if place < self._passed and layout.first(unit) == layout.lasts[unit]:
                self._sent += layout.host[layout.start(first) : layout.start(unit)]
                first = unit + 1
        self._sent += layout.host[layout.start(first) : layout.start(end)]
        self._pass(end)

    def _reach(self, unit: int) -> None:
        """What always goes out of the units before one, and then a notice that waits for its place."""
        layout = self._layout
        while self._passed < len(layout.residents) and layout.residents[self._passed] < unit:
            self._sent += self._converter.residue(layout.messages(layout.residents[self._passed]))
            self._passed += 1
        if self._notice is not None:
            self._sent.append(self._converter.notice(self._notice))
            self._notice = None

    def _pass(self, unit: int) -> None:
        self._passed = max(self._passed, bisect_left(self._layout.residents, unit))


def assembly_parts(
    sent: Iterable[Part], position_of: Callable[[Any], int]
) -> Iterator[tuple[int, int, str | None] | str]:
    """What a session answered, for an `Assembly`. ``position_of`` finds a message by its timestamp."""
    for part in sent:
        if isinstance(part, tuple):
            yield (*part, None)
        elif part["role"] == "toolResult":
            position = position_of(part["timestamp"])
            yield position, position, _text(part["content"])
        else:
            yield _text(part["content"])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(text(block.get("text")) for block in content)
