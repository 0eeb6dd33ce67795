"""The context projection: the messages the stored branch puts into the conversation, as digests.

It decides which outgoing messages are persistent and which the host only added to one request
(architecture, "Context selection" and "Provider-backed usage").
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from .arena import PositionTable
from .entries import INVALIDATING, EntryRef, kept_entries
from .messages import MessageRef


class _Slots:
    """Messages in order, with running sums and indexes; shared by views of different lengths."""

    __slots__ = ("by_fingerprint", "edited", "entry_ids", "measured", "messages", "tokens")

    def __init__(self) -> None:
        messages: list[MessageRef] = []
        self.messages = messages
        self.entry_ids: list[str] = []
        self.tokens = array("q", [0])
        self.measured = array("i")
        self.edited: set[int] = set()
        self.by_fingerprint: PositionTable[bytes] = PositionTable(lambda slot: messages[slot].fingerprint)

    def append(self, entry_id: str, message: MessageRef, edited: bool) -> None:
        slot = len(self.messages)
        self.messages.append(message)
        self.entry_ids.append(entry_id)
        self.tokens.append(self.tokens[-1] + message.tokens)
        if message.reported_tokens is not None:
            self.measured.append(slot)
        if edited:
            self.edited.add(slot)
        self.by_fingerprint.add(message.fingerprint, slot)

    def copy(self, length: int) -> _Slots:
        copied = _Slots()
        copied.by_fingerprint.reserve(length)
        for slot in range(length):
            copied.append(self.entry_ids[slot], self.messages[slot], slot in self.edited)
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
        return self._slots.messages[slot]

    def entry_id(self, slot: int) -> str:
        """The entry a slot comes from."""
        return self._slots.entry_ids[slot]

    def is_edited(self, slot: int) -> bool:
        """Whether an edit changed the content of a slot."""
        return slot in self._slots.edited

    def find(self, message: MessageRef, start: int) -> int | None:
        """The first slot from ``start`` on that an outgoing message matches. System messages match none."""
        if message.role == "system":
            return None
        slots, fingerprint = self._slots, message.fingerprint
        if start < self.length and slots.messages[start].fingerprint == fingerprint:
            return start
        return slots.by_fingerprint.first(fingerprint, start, self.length)

    def slot_of(self, entry_id: str) -> int | None:
        """The slot an entry fills. Looks through all of them, the newest first."""
        entry_ids = self._slots.entry_ids
        return next((slot for slot in range(self.length - 1, -1, -1) if entry_ids[slot] == entry_id), None)

    def slot_holding(self, entry_id: str, message: MessageRef) -> int | None:
        """The slot an entry fills with its own message, if it does."""
        slots = self._slots.by_fingerprint.each(message.fingerprint, self.length)
        return next((slot for slot in slots if self._slots.entry_ids[slot] == entry_id), None)

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
        if len(slots.messages) != length:
            slots = slots.copy(length)
        slots.by_fingerprint.reserve(len(entries))
        for entry in entries:
            if entry.message is not None and entry.type not in INVALIDATING:
                slots.append(entry.id, entry.message, False)
        return Projection(slots, len(slots.messages))

    def edited(self, edit: EntryRef) -> tuple[Projection, int]:
        """This projection after an edit, and how many leading slots stayed as they were."""
        slot = None if edit.target_id is None else self.slot_of(edit.target_id)
        if slot is None:
            return self, self.length
        old, slots = self._slots, self._slots.copy(slot)
        if edit.message is not None:
            slots.append(old.entry_ids[slot], edit.message, True)
        for later in range(slot + 1, self.length):
            slots.append(old.entry_ids[later], old.messages[later], later in old.edited)
        return Projection(slots, len(slots.messages)), slot


def project(branch: list[EntryRef]) -> Projection:
    """The projection of a whole branch."""
    edits = {entry.target_id: entry for entry in branch if entry.type == "context_edit"}
    slots = _Slots()
    slots.by_fingerprint.reserve(len(branch))
    for entry in kept_entries(branch, lambda e: e.type, lambda e: e.id, lambda e: e.first_kept_id):
        if entry.type == "context_edit":
            continue
        edit = edits.get(entry.id)
        message = entry.message if edit is None else edit.message
        if message is not None:
            slots.append(entry.id, message, edit is not None)
    return Projection(slots, len(slots.messages))
