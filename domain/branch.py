"""The stored branch as decisions see it: its entries, the history and the context projection made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .entries import INVALIDATING, EntryRef
from .history import History
from .projection import Projection, project
from .repair import OnInvalidStructure


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Branch:
    """One version of the branch.

    Attributes:
        stable_slots: leading slots of the projection that the last change left as they were.
        invalidating: the compactions and edits among its entries, in order.
    """

    _entries: list[EntryRef]
    length: int
    history: History
    projection: Projection
    stable_slots: int = 0
    invalidating: tuple[EntryRef, ...] = ()

    @staticmethod
    def empty() -> Branch:
        """No entries."""
        return Branch([], 0, History.empty(), Projection.empty())

    @property
    def available(self) -> bool:
        """Whether there is a history; without one nothing is known of the stored conversation."""
        return self.history.error is None

    @property
    def on_invalid(self) -> OnInvalidStructure:
        """What becomes of broken exchanges."""
        return self.history.on_invalid

    def under(self, on_invalid: OnInvalidStructure) -> Branch:
        """The same branch, with its broken exchanges dealt with in this way."""
        if on_invalid is self.on_invalid:
            return self
        return _built(self._entries[: self.length], on_invalid)

    def changed(self, kept: int, appended: tuple[EntryRef, ...]) -> Branch:
        """The branch that keeps the first ``kept`` entries and continues with others."""
        if kept < self.length:
            return _built([*self._entries[:kept], *appended], self.on_invalid)
        entries = self._entries
        if len(entries) != self.length:
            entries = entries[: self.length]
        entries.extend(appended)
        projection, stable = self._projected(entries, appended)
        history = self.history.appended(appended)
        return Branch(
            entries, len(entries), history, projection, stable, self.invalidating + _invalidating(appended)
        )

    def _projected(self, entries: list[EntryRef], appended: tuple[EntryRef, ...]) -> tuple[Projection, int]:
        if any(entry.type == "compaction" for entry in appended):
            return project(entries), 0
        projection, stable, start = self.projection, self.projection.length, 0
        for index, entry in enumerate(appended):
            if entry.type != "context_edit":
                continue
            projection = projection.appended(appended[start:index])
            start = index + 1
            if entry.target_id is None or projection.slot_of(entry.target_id) is None:
                if any(
                    e.type == "context_edit" and e.target_id == entry.target_id
                    for e in entries
                    if e is not entry
                ):
                    # It may bring back what an earlier edit left out.
                    return project(entries), 0
                continue
            projection, unchanged = projection.edited(entry)
            stable = min(stable, unchanged)
        return projection.appended(appended[start:]), stable


def _built(entries: list[EntryRef], on_invalid: OnInvalidStructure) -> Branch:
    history = History.empty(on_invalid).appended(entries)
    return Branch(entries, len(entries), history, project(entries), 0, _invalidating(entries))


def _invalidating(entries: Iterable[EntryRef]) -> tuple[EntryRef, ...]:
    return tuple(entry for entry in entries if entry.type in INVALIDATING)
