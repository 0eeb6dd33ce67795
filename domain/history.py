"""The raw branch projection: history items that recovery tools and cut keys refer to.

Reads user, assistant and tool-result entries of the branch, whatever compactions or edits did to the
conversation (architecture, "Raw branch projection"). A ``user`` item is one entry; a ``modelTurn`` item is an
assistant entry that owns its contiguous matching tool results. Where the repair policy holds, broken
exchanges are repaired as in a request, and a result that no turn owns is an item of its own (design, section
13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .arena import K, Positions
from .entries import EntryRef
from .errors import HistoryErrorCode
from .messages import Message, MessageRef, tool_calls
from .repair import OnInvalidStructure, RepairKind, Stretch, repair

_FILE_ARGUMENTS = frozenset({"path", "file", "files", "filepath", "file_path"})
Signature = tuple[object, tuple[str, ...]]
"""What identifies an assistant message with tool calls without its content: timestamp, ordered call ids."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One item of the history; ``id`` is the id of the entry of its ``message``.

    Attributes:
        results: tool results the turn owns; ``result_ids`` are their entries' ids.
        abandoned: an older turn that lacks a result, or cannot tell its results apart.
    """

    id: str
    kind: Literal["user", "modelTurn", "toolResult"]
    sequence: int
    message: MessageRef
    results: tuple[MessageRef, ...] = ()
    result_ids: tuple[str, ...] = ()
    abandoned: bool = False

    @property
    def tools(self) -> list[str]:
        """Names of the tools called, in call order."""
        return [call.name for call in self.message.calls]

    @property
    def failed(self) -> bool:
        """Whether the turn was aborted or failed, or one of its tool results is an error."""
        if self.abandoned or self.message.interrupted or self.message.failed:
            return True
        return any(result.failed for result in self.results)

    def has_result(self, call_id: str) -> bool:
        """Whether the item owns a result for a call."""
        return any(result.call_id == call_id for result in self.results)

    def has_call(self, call_id: str) -> bool:
        """Whether the item's assistant message makes a call."""
        return any(call.id == call_id for call in self.message.calls)


class _Items:
    """Closed items with their indexes; shared by views of different lengths."""

    __slots__ = ("by_call", "by_fingerprint", "by_id", "by_signature", "items")

    def __init__(self) -> None:
        self.items: list[HistoryItem] = []
        self.by_id: Positions[str] = Positions()
        self.by_fingerprint: Positions[bytes] = Positions()
        self.by_call: Positions[str] = Positions()
        self.by_signature: Positions[Signature] = Positions()

    def append(self, item: HistoryItem) -> None:
        position = len(self.items)
        self.items.append(item)
        self.by_id.add(item.id, position)
        self.by_fingerprint.add(item.message.fingerprint, position)
        if item.message.calls:
            self.by_signature.add(_signature(item.message), position)
        for call in item.message.calls:
            self.by_call.add(call.id, position)
        for result in item.results:
            self.by_fingerprint.add(result.fingerprint, position)

    def copy(self, length: int) -> _Items:
        copied = _Items()
        copied.items = self.items[:length]
        copied.by_id = self.by_id.copy(length)
        copied.by_fingerprint = self.by_fingerprint.copy(length)
        copied.by_call = self.by_call.copy(length)
        copied.by_signature = self.by_signature.copy(length)
        return copied


@dataclass(frozen=True, slots=True)
class StoredRepair:
    """A repair of stored messages: what was done, and the entries it concerns."""

    kind: RepairKind
    entries: tuple[EntryRef, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class History:
    """The history items of a branch, in order.

    Attributes:
        on_invalid: what becomes of broken exchanges: no history at all, or a repair.
        open: the newest entries that further results may still belong to; a stretch (`repair`).
        error: why the branch has no history, and so no items; sticky until the branch changes.
        repairs: repairs of the newest entries, and of those that the last change closed.
    """

    _closed: _Items
    _length: int = 0
    _tail: tuple[HistoryItem, ...] = ()
    on_invalid: OnInvalidStructure = OnInvalidStructure.ABORT
    open: tuple[EntryRef, ...] = ()
    error: HistoryErrorCode | None = None
    repairs: tuple[StoredRepair, ...] = ()

    @staticmethod
    def empty(on_invalid: OnInvalidStructure = OnInvalidStructure.ABORT) -> History:
        """No items."""
        return History(_Items(), on_invalid=on_invalid)

    @property
    def items(self) -> Iterator[HistoryItem]:
        """All visible items, oldest first."""
        yield from self.items_from(0)

    def items_from(self, position: int) -> Iterator[HistoryItem]:
        """The visible items from a position on."""
        yield from self._closed.items[position : self._length]
        yield from self._tail[max(0, position - self._length) :]

    @property
    def last(self) -> HistoryItem | None:
        """The newest visible item; a result that no turn owns counts for none."""
        for item in reversed(self._tail):
            if item.kind != "toolResult":
                return item
        for position in range(self._length - 1, -1, -1):
            if self._closed.items[position].kind != "toolResult":
                return self._closed.items[position]
        return None

    @property
    def length(self) -> int:
        """Number of visible items."""
        return self._length + len(self._tail)

    @property
    def settled(self) -> int:
        """How many leading items are final."""
        return self._length

    def settled_with(self, other: History) -> int:
        """How many leading items are final, and the same in another history."""
        limit = min(self._length, other._length)
        if self._closed is other._closed:
            return limit
        pairs = zip(self._closed.items[:limit], other._closed.items[:limit], strict=True)
        return next((n for n, (mine, others) in enumerate(pairs) if not _same(mine, others)), limit)

    def appended(self, entries: Iterable[EntryRef]) -> History:
        """This history with further entries of the branch."""
        if self.error is not None:
            return self
        closed = self._closed
        if len(closed.items) != self._length:
            closed = closed.copy(self._length)
        messages = (entry for entry in entries if entry.in_history)
        if self.on_invalid is OnInvalidStructure.REPAIR:
            return self._with_repairs(closed, messages)
        return self._strictly(closed, messages)

    def _strictly(self, closed: _Items, entries: Iterable[EntryRef]) -> History:
        current: HistoryItem | None = None
        opened: list[EntryRef] = []
        for entry in (*self.open, *entries):
            message = entry.message
            assert message is not None
            if message.role == "toolResult":
                error = _result_error(current, message)
                if error is not None:
                    return History(_Items(), error=error)
                assert current is not None
                current = _with_result(current, entry)
                opened.append(entry)
                continue
            if current is not None:
                if _open_calls(current) and not current.message.interrupted:
                    return History(_Items(), error=HistoryErrorCode.INCOMPLETE_TOOL_RESULTS)
                closed.append(current)
                current, opened = None, []
            if message.role == "user":
                closed.append(HistoryItem(entry.id, "user", len(closed.items), message))
            else:
                current, opened = HistoryItem(entry.id, "modelTurn", len(closed.items), message), [entry]
        # An incomplete exchange is absent until it is complete, unless the response was interrupted.
        visible = current is not None and (current.message.interrupted or not _open_calls(current))
        tail = (current,) if visible and current is not None else ()
        return History(closed, len(closed.items), tail, open=tuple(opened))

    def _with_repairs(self, closed: _Items, entries: Iterable[EntryRef]) -> History:
        opened = list(self.open)
        stretch = Stretch(entry.message for entry in opened if entry.message is not None)
        repairs: list[StoredRepair] = []
        for entry in entries:
            assert entry.message is not None
            if stretch.ends_before(entry.message):
                items, done = _repaired_items(opened, stretch.messages, len(closed.items), newest=False)
                for item in items:
                    closed.append(item)
                repairs += done
                opened, stretch = [], Stretch()
            opened.append(entry)
            stretch.add(entry.message)
        tail, done = _repaired_items(opened, stretch.messages, len(closed.items), newest=True)
        return History(
            closed,
            len(closed.items),
            tuple(tail),
            self.on_invalid,
            tuple(opened),
            repairs=(*repairs, *done),
        )

    def item(self, history_id: str) -> HistoryItem | None:
        """The item with an id, if exactly one has it."""
        return self._only(self._closed.by_id, history_id, lambda item: item.id == history_id)

    def item_holding(self, message: MessageRef) -> HistoryItem | None:
        """The item that exactly this message is in, if exactly one is."""
        fingerprint = message.fingerprint
        return self._only(self._closed.by_fingerprint, fingerprint, lambda item: _holds(item, fingerprint))

    def item_with_calls(self, message: MessageRef) -> HistoryItem | None:
        """The item whose assistant shares timestamp and call ids with a message, if exactly one does."""
        signature = _signature(message)
        return self._only(
            self._closed.by_signature, signature, lambda item: _signature(item.message) == signature
        )

    def owner_of_call(self, call_id: str) -> HistoryItem | None:
        """The newest item that makes a call."""
        for item in reversed(self._tail):
            if item.has_call(call_id):
                return item
        position = self._closed.by_call.last(call_id, self._length)
        return None if position is None else self._closed.items[position]

    def turn_of(self, message: MessageRef) -> HistoryItem | None:
        """The model turn a tool result or an assistant message belongs to, going by its call ids."""
        if message.role == "toolResult":
            return self.owner_of_call(message.call_id or "")
        for call in message.calls:
            item = self.owner_of_call(call.id)
            if item is not None:
                return item
        return None

    def recovery_id(self, message: MessageRef) -> str | None:
        """Where to read a message again: the first item that holds it, else the newest owner of its call."""
        position = self._closed.by_fingerprint.first(message.fingerprint, 0, self._length)
        if position is not None:
            return self._closed.items[position].id
        for item in self._tail:
            if _holds(item, message.fingerprint):
                return item.id
        turn = self.turn_of(message)
        return None if turn is None else turn.id

    def _only(self, index: Positions[K], key: K, is_it: Callable[[HistoryItem], bool]) -> HistoryItem | None:
        found = [item for item in self._tail if is_it(item)]
        if index.count(key, self._length) + len(found) != 1:
            return None
        position = index.first(key, 0, self._length)
        return found[0] if position is None else self._closed.items[position]


def files_in(message: Message) -> list[str]:
    """Paths named by the arguments of a message's tool calls, at any depth, once each, in order."""
    files: dict[str, None] = {}
    stack: list[Any] = [block.get("arguments") for block in tool_calls(message)][::-1]
    while stack:
        value = stack.pop()
        if isinstance(value, list | tuple):
            stack.extend(reversed(value))
        elif isinstance(value, Mapping):
            # Paths of a key come before what is nested below it, and both before the next key.
            for key, child in list(value.items())[::-1]:
                stack.append(child)
                if str(key).lower() in _FILE_ARGUMENTS:
                    stack.append(_Paths(child))
        elif isinstance(value, _Paths):
            files.update(dict.fromkeys(value.paths))
    return list(files)


class _Paths:
    """Paths found at one key, waiting for their turn."""

    __slots__ = ("paths",)

    def __init__(self, value: Any) -> None:
        candidates = value if isinstance(value, list | tuple) else [value]
        self.paths = [path for path in candidates if isinstance(path, str)]


def _same(one: HistoryItem, other: HistoryItem) -> bool:
    return one is other or (one.id == other.id and one.result_ids == other.result_ids)


def _with_result(item: HistoryItem, entry: EntryRef) -> HistoryItem:
    assert entry.message is not None
    return replace(item, results=(*item.results, entry.message), result_ids=(*item.result_ids, entry.id))


def _repaired_items(
    stretch: Sequence[EntryRef], messages: Sequence[MessageRef], sequence: int, *, newest: bool
) -> tuple[list[HistoryItem], list[StoredRepair]]:
    """The items of a stretch of entries. Of the newest one, an incomplete exchange is absent."""
    if not stretch:
        return [], []
    repaired = repair(messages)
    # Messages are moved in requests only: a history has items.
    repairs = [
        StoredRepair(r.kind, tuple(stretch[p] for p in r.positions))
        for r in repaired.repairs
        if r.kind is not RepairKind.MESSAGES_MOVED
    ]
    items: list[HistoryItem] = []
    others = range(len(stretch))
    if messages[0].role == "assistant":
        absent = newest and any(r.kind is RepairKind.INCOMPLETE_EXCHANGE for r in repaired.repairs)
        if absent:
            repairs = [r for r in repairs if r.kind is not RepairKind.INCOMPLETE_EXCHANGE]
        else:
            results = repaired.results
            items.append(
                HistoryItem(
                    stretch[0].id,
                    "modelTurn",
                    sequence,
                    messages[0],
                    tuple(messages[p] for p in results),
                    tuple(stretch[p].id for p in results),
                    abandoned=repaired.exchange == 0,
                )
            )
        others = range(1, len(stretch))
    owned = set(repaired.results)
    for position in others:
        if position in owned:
            continue
        message = messages[position]
        kind: Literal["user", "toolResult"] = "user" if message.role == "user" else "toolResult"
        items.append(HistoryItem(stretch[position].id, kind, sequence + len(items), message))
    return items, repairs


def _signature(message: MessageRef) -> Signature:
    return (message.timestamp, tuple(call.id for call in message.calls))


def _holds(item: HistoryItem, fingerprint: bytes) -> bool:
    return item.message.fingerprint == fingerprint or any(r.fingerprint == fingerprint for r in item.results)


def _open_calls(item: HistoryItem) -> set[str]:
    return {call.id for call in item.message.calls} - {result.call_id or "" for result in item.results}


def _result_error(current: HistoryItem | None, result: MessageRef) -> HistoryErrorCode | None:
    if current is None:
        return HistoryErrorCode.ORPHAN_TOOL_RESULT
    if not current.has_call(result.call_id or ""):
        return HistoryErrorCode.MISMATCHED_TOOL_RESULT
    if current.has_result(result.call_id or ""):
        return HistoryErrorCode.DUPLICATE_TOOL_RESULT
    return None
