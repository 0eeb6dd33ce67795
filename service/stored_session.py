"""The host's stored session, by reference: the tree of entries, the active branch, and its conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


class StoredSession:
    """Entries as the host stores them. Adding entries costs what is new; nothing is copied.

    A branch is read in two steps, so that a failed append to the log loses nothing: `refresh` says what
    changed since the last acknowledged one, `acknowledge` confirms it.
    """

    def __init__(self, estimator: TokenEstimator) -> None:
        self._estimator = estimator
        self._entries: dict[str, Entry] = {}
        self._refs: dict[str, EntryRef] = {}
        self._path: list[str] = []
        self._position: dict[str, int] = {}
        self._acknowledged = 0
        self._messages: list[Message] = []
        self._messages_valid = True
        # Digests of stored messages by object identity; the entries keep the objects alive.
        self._known: dict[int, MessageRef] = {}

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All entries by id, in the order they were added."""
        return self._entries

    @property
    def leaf_id(self) -> str | None:
        """The newest entry of the active branch."""
        return self._path[-1] if self._path else None

    @property
    def branch(self) -> list[Entry]:
        """The active branch from root to leaf."""
        return [self._entries[entry_id] for entry_id in self._path]

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
            self._refs[ref.id] = ref
            if ref.type == "message" and ref.message is not None:
                self._known[id(entry["message"])] = ref.message
            self.move_to(ref.id)

    def move_to(self, leaf_id: str | None) -> None:
        """Make another entry the leaf; ``None`` goes back before the first one.

        Raises:
            InvalidEntry: there is no such entry, or its parents form a cycle.
        """
        if leaf_id is not None and leaf_id not in self._position and self._continues(leaf_id):
            self._step(leaf_id)
            return
        ahead: list[str] = []
        current = leaf_id
        if current is not None and current not in self._entries:
            raise InvalidEntry(f"there is no entry {current!r} to make the leaf")
        walked: set[str] = set()
        while current is not None and current in self._entries and current not in self._position:
            if current in walked:
                raise InvalidEntry(f"entry {current!r} is its own ancestor; repair its parentId")
            walked.add(current)
            ahead.append(current)
            parent = self._entries[current].get("parentId")
            current = parent if isinstance(parent, str) else None
        kept = self._position[current] + 1 if current in self._position and current is not None else 0
        if kept < len(self._path):
            for entry_id in self._path[kept:]:
                del self._position[entry_id]
            del self._path[kept:]
            self._acknowledged = min(self._acknowledged, kept)
            self._messages_valid = False
        for entry_id in reversed(ahead):
            self._step(entry_id)

    def _continues(self, entry_id: str) -> bool:
        """Whether an entry's parent is the leaf."""
        entry = self._entries.get(entry_id)
        return bool(self._path) and entry is not None and entry.get("parentId") == self._path[-1]

    def _step(self, entry_id: str) -> None:
        """Make an entry whose parent is the leaf the new leaf."""
        self._position[entry_id] = len(self._path)
        self._path.append(entry_id)
        self._extend_messages(entry_id)

    def digested(self) -> list[tuple[Entry, EntryRef]]:
        """All entries with their digests, in the order they were added."""
        return [(entry, self._refs[entry_id]) for entry_id, entry in self._entries.items()]

    def branch_refs(self, start: int = 0) -> tuple[EntryRef, ...]:
        """Digests of the active branch, from a position on."""
        return tuple(self._refs[entry_id] for entry_id in self._path[start:])

    def refresh(self) -> BranchRefreshed:
        """What changed on the branch since the last acknowledged refresh."""
        return BranchRefreshed(kept=self._acknowledged, appended=self.branch_refs(self._acknowledged))

    def acknowledge(self) -> None:
        """Confirm the last `refresh`."""
        self._acknowledged = len(self._path)

    def messages(self) -> list[Message]:
        """The conversation the branch makes: what goes out when nothing is paged. Must not be changed."""
        if not self._messages_valid:
            self._messages = context_messages(self.branch)
            self._messages_valid = True
        return self._messages

    def known_ref(self, message: Message) -> MessageRef | None:
        """The digest of a message that is a stored entry's own object."""
        return self._known.get(id(message))

    def _extend_messages(self, entry_id: str) -> None:
        entry = self._entries[entry_id]
        if entry.get("type") in INVALIDATING:
            self._messages_valid = False
        elif self._messages_valid:
            message = context_message(entry)
            if message is not None:
                self._messages.append(message)
