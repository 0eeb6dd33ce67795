"""The context projection: the messages the stored branch puts into the conversation, as digests.

It decides which outgoing messages are persistent and which the host only added to one request
(architecture, "Context selection" and "Provider-backed usage").
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .arena import PositionTable
from .entries import INVALIDATING, EntryRef, kept_entries, message_of
from .messages import MessageRef


class _Slots:
    """Messages in order, with running sums and indexes; shared by views of different lengths."""

    __slots__ = ("by_fingerprint", "edited", "entries", "measured", "tokens")

    def __init__(self) -> None:
        entries: list[EntryRef] = []
        self.entries = entries
        self.tokens = array("q", [0])
        self.measured = array("i")
        self.edited: set[int] = set()
        self.by_fingerprint: PositionTable[bytes] = PositionTable(
            lambda slot: message_of(entries[slot]).fingerprint
        )

    def extend(self, entries: Sequence[EntryRef], edited: Iterable[int] = ()) -> None:
        """Add messages; of which of them the content is edited, by their places among ``entries``."""
        start = len(self.entries)
        self.entries += entries
        self.edited.update(start + place for place in edited)
        messages = list(map(message_of, entries))
        total = self.tokens[-1]
        for slot, message in enumerate(messages, start):
            total += message.tokens
            self.tokens.append(total)
            if message.reported_tokens is not None:
                self.measured.append(slot)
        self.by_fingerprint.extend(
            ((message.fingerprint, slot) for slot, message in enumerate(messages, start)), len(messages)
        )

    def copy(self, length: int) -> _Slots:
        copied = _Slots()
        copied.extend(self.entries[:length], (slot for slot in self.edited if slot < length))
        return copied


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Projection:
    """Messages of the stored conversation, in order; a position in it is a slot."""

    _slots: _Slots
    length: int = 0

    @staticmethod
    def empty() -> Projection:
        """No messages."""
        return Projection(_Slots())

    def message(self, slot: int) -> MessageRef:
        """The message in a slot."""
        return message_of(self._slots.entries[slot])

    def entry_id(self, slot: int) -> str:
        """The entry a slot comes from."""
        return self._slots.entries[slot].id

    def is_edited(self, slot: int) -> bool:
        """Whether an edit changed the content of a slot."""
        return slot in self._slots.edited

    def find(self, message: MessageRef, start: int) -> int | None:
        """The first slot from ``start`` on that an outgoing message matches. System messages match none."""
        if message.role == "system":
            return None
        slots, fingerprint = self._slots, message.fingerprint
        if start < self.length and message_of(slots.entries[start]).fingerprint == fingerprint:
            return start
        return slots.by_fingerprint.first(fingerprint, start, self.length)

    def slot_of(self, entry_id: str) -> int | None:
        """The slot an entry fills. Looks through all of them, the newest first."""
        entries = self._slots.entries
        return next((slot for slot in range(self.length - 1, -1, -1) if entries[slot].id == entry_id), None)

    def slot_holding(self, entry_id: str, message: MessageRef) -> int | None:
        """The slot an entry fills with its own message, if it does."""
        slots = self._slots.by_fingerprint.each(message.fingerprint, self.length)
        return next((slot for slot in slots if self._slots.entries[slot].id == entry_id), None)

    def last_measured(self) -> int | None:
        """The last slot whose message carries a usable provider total."""
        return next((slot for slot in reversed(self._slots.measured) if slot < self.length), None)

    def tokens_after(self, slot: int) -> int:
        """Estimated tokens of the messages behind a slot."""
        return self._slots.tokens[self.length] - self._slots.tokens[slot + 1]

    def status_total(self) -> float | None:
        """What a host's status line counts: the newest provider total, and estimates of what came after it.

        ``None`` while no message carries such a total.
        """
        newest = self.last_measured()
        if newest is None:
            return None
        return (self.message(newest).reported_tokens or 0) + self.tokens_after(newest)

    def appended(self, entries: Sequence[EntryRef]) -> Projection:
        """This projection with the messages of further entries, none of which changes an earlier one."""
        slots, length = self._slots, self.length
        if len(slots.entries) != length:
            slots = slots.copy(length)
        slots.extend([e for e in entries if e.message is not None and e.type not in INVALIDATING])
        return Projection(slots, len(slots.entries))

    def edited(self, edit: EntryRef) -> tuple[Projection, int]:
        """This projection after an edit, and how many leading slots stayed as they were."""
        slot = None if edit.target_id is None else self.slot_of(edit.target_id)
        if slot is None:
            return self, self.length
        old, slots = self._slots, self._slots.copy(slot)
        if edit.message is not None:
            slots.extend([_with_message(old.entries[slot], edit.message)], [0])
        later = [place - slot - 1 for place in old.edited if slot < place < self.length]
        slots.extend(old.entries[slot + 1 : self.length], later)
        return Projection(slots, len(slots.entries)), slot


def project(branch: list[EntryRef]) -> Projection:
    """The projection of a whole branch."""
    edits = {entry.target_id: entry for entry in branch if entry.type == "context_edit"}
    kept: list[EntryRef] = []
    edited: list[int] = []
    for entry in kept_entries(branch, lambda e: e.type, lambda e: e.id, lambda e: e.first_kept_id):
        if entry.type == "context_edit":
            continue
        edit = edits.get(entry.id)
        message = entry.message if edit is None else edit.message
        if message is None:
            continue
        if edit is not None:
            edited.append(len(kept))
        kept.append(entry if edit is None else _with_message(entry, message))
    slots = _Slots()
    slots.extend(kept, edited)
    return Projection(slots, len(kept))


def _with_message(entry: EntryRef, message: MessageRef) -> EntryRef:
    return EntryRef(entry.id, entry.type, message)
