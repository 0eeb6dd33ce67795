"""The host's stored session, by reference: the tree of entries, the active branch, and its conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from context_paging.domain.entries import (
    INVALIDATING,
    Entry,
    EntryRef,
    context_message,
    context_messages,
    digest_entry,
)
from context_paging.domain.errors import InvalidEntry
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.events import BranchRefreshed
from context_paging.domain.messages import Message, MessageRef

_SEARCHED_FOR = 16
"""How many messages without a known digest are worth looking through all entries."""


class StoredSession:
    """Entries as the host stores them. Adding entries costs what is new; nothing is copied.

    A branch is read in two steps, so that a failed append to the log loses nothing: `refresh` says what
    changed since the last acknowledged one, `acknowledge` confirms it.
    """

    def __init__(self, estimator: TokenEstimator) -> None:
        self._estimator = estimator
        self._entries: dict[str, Entry] = {}
        self._path: list[EntryRef] = []
        # The digests of entries that are not on the active branch.
        self._aside: dict[str, EntryRef] = {}
        # Where each entry of the path stands; only known once an entry that is not the next became the leaf.
        self._position: dict[str, int] | None = None
        self._acknowledged = 0
        # The conversation of the first so many entries of the path.
        self._messages: list[Message] = []
        self._gathered = 0
        self._messages_valid = True
        # Digests of stored messages by object identity, as far as they were needed: of entries that were not
        # acknowledged, or of all while a host passes many others. The entries keep the objects alive.
        self._known: dict[int, MessageRef] = {}
        self._known_until = 0
        self._expected = 0
        self._knows_all = False
        self._unknown = 0

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All entries by id, in the order they were added."""
        return self._entries

    @property
    def leaf_id(self) -> str | None:
        """The newest entry of the active branch."""
        return self._path[-1].id if self._path else None

    @property
    def branch(self) -> list[Entry]:
        """The active branch from root to leaf."""
        return [self._entries[ref.id] for ref in self._path]

    def add(self, entries: Iterable[Entry]) -> None:
        """Take in stored entries; the last one becomes the leaf.

        Raises:
            InvalidEntry: an entry has no id or type, its id is taken by another entry, or its parents form a
                cycle. Entries before it were taken in.
            InvalidMessage: a message is nested too deeply to be read.
        """
        for entry in entries:
            ref = digest_entry(entry, self._estimator, self._entries.get)
            known = self._entries.get(ref.id)
            if known is not None:
                if known != entry:
                    raise InvalidEntry(f"entry id {ref.id!r} is taken by another entry; give each its own")
                self.move_to(ref.id)
                continue
            self._entries[ref.id] = entry
            if self._path and entry.get("parentId") == self._path[-1].id:
                self._step(ref)
            else:
                self._aside[ref.id] = ref
                self.move_to(ref.id)

    def move_to(self, leaf_id: str | None) -> None:
        """Make another entry the leaf; ``None`` goes back before the first one.

        Raises:
            InvalidEntry: there is no such entry, or its parents form a cycle.
        """
        if leaf_id is not None and leaf_id not in self._entries:
            raise InvalidEntry(f"there is no entry {leaf_id!r} to make the leaf")
        if leaf_id is not None and leaf_id == self.leaf_id:
            return
        position = self._position
        if position is None:
            position = {ref.id: place for place, ref in enumerate(self._path)}
        ahead: list[str] = []
        current = leaf_id
        walked: set[str] = set()
        while current is not None and current in self._entries and current not in position:
            if current in walked:
                raise InvalidEntry(f"entry {current!r} is its own ancestor; repair its parentId")
            walked.add(current)
            ahead.append(current)
            parent = self._entries[current].get("parentId")
            current = parent if isinstance(parent, str) else None
        kept = 0 if current is None else position.get(current, -1) + 1
        if kept < len(self._path):
            self._position = position
            for ref in self._path[kept:]:
                del position[ref.id]
                self._aside[ref.id] = ref
            del self._path[kept:]
            self._acknowledged = min(self._acknowledged, kept)
            self._expected = min(self._expected, kept)
            self._known_until = min(self._known_until, kept)
            self._messages_valid = False
        for entry_id in reversed(ahead):
            self._step(self._aside.pop(entry_id))

    def _step(self, ref: EntryRef) -> None:
        """Make an entry whose parent is the leaf the new leaf."""
        if self._position is not None:
            self._position[ref.id] = len(self._path)
        self._path.append(ref)
        if ref.type in INVALIDATING:
            self._messages_valid = False

    def digested(self) -> list[tuple[Entry, EntryRef]]:
        """All entries with their digests, in the order they were added."""
        refs = {ref.id: ref for ref in self._all_refs()}
        return [(entry, refs[entry_id]) for entry_id, entry in self._entries.items()]

    def branch_refs(self, start: int = 0) -> tuple[EntryRef, ...]:
        """Digests of the active branch, from a position on."""
        return tuple(self._path[start:])

    def refresh(self) -> BranchRefreshed:
        """What changed on the branch since the last acknowledged refresh."""
        return BranchRefreshed(kept=self._acknowledged, appended=self.branch_refs(self._acknowledged))

    def acknowledge(self) -> None:
        """Confirm the last `refresh`."""
        self._acknowledged = self._expected = self._known_until = len(self._path)
        self._known = {}
        self._knows_all = False
        self._unknown = 0

    def messages(self) -> list[Message]:
        """The conversation the branch makes: what goes out when nothing is paged. Must not be changed."""
        if not self._messages_valid:
            self._messages = context_messages(self.branch)
            self._messages_valid = True
        else:
            for ref in self._path[self._gathered :]:
                if ref.message is not None:
                    entry = self._entries[ref.id]
                    message = entry["message"] if ref.type == "message" else context_message(entry)
                    assert message is not None
                    self._messages.append(message)
        self._gathered = len(self._path)
        return self._messages

    def message_ref(self, entry_id: str) -> MessageRef | None:
        """The digest of the message an entry puts into the conversation by itself, if any."""
        ref = self._aside.get(entry_id) or next((r for r in reversed(self._path) if r.id == entry_id), None)
        return None if ref is None or ref.type == "context_edit" else ref.message

    def known_ref(self, message: Message) -> MessageRef | None:
        """The digest of a message that is a stored entry's own object, unless it is not worth looking for."""
        # Hosts pass messages in the order in which they are stored.
        while self._expected < len(self._path):
            ref = self._path[self._expected]
            if ref.type == "message" and ref.message is not None:
                if self._entries[ref.id]["message"] is not message:
                    break
                self._expected += 1
                return ref.message
            self._expected += 1
        if self._known_until < len(self._path):
            self._known.update(self._by_identity(self._path[self._known_until :]))
            self._known_until = len(self._path)
        known = self._known.get(id(message))
        if known is None and not self._knows_all:
            self._unknown += 1
            if self._unknown > _SEARCHED_FOR:
                self._knows_all = True
                self._known.update(self._by_identity(self._all_refs()))
                known = self._known.get(id(message))
        return known

    def _by_identity(self, refs: Iterable[EntryRef]) -> Iterator[tuple[int, MessageRef]]:
        for ref in refs:
            if ref.type == "message" and ref.message is not None:
                yield id(self._entries[ref.id]["message"]), ref.message

    def _all_refs(self) -> Iterator[EntryRef]:
        yield from self._path
        yield from self._aside.values()
