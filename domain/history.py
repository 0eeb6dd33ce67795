"""The raw branch projection: history items that recovery tools and cut keys refer to.

Reads user, assistant and tool-result entries of the branch, whatever compactions or edits did to the
conversation (architecture, "Raw branch projection"). A ``user`` item is one entry; a ``modelTurn`` item is an
assistant entry that owns its contiguous matching tool results. Where the repair policy holds, broken
exchanges are repaired as in a request, and a result that no turn owns is an item of its own (design, section
13).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

from .arena import PositionTable
from .entries import EntryRef, message_of
from .errors import HistoryErrorCode
from .messages import Message, MessageRef, tool_calls
from .repair import OnInvalidStructure, RepairKind, Stretch, repair

_FILE_ARGUMENTS = frozenset({"path", "file", "files", "filepath", "file_path"})
Kind = Literal["user", "modelTurn", "toolResult"]
_KINDS: dict[str, Kind] = {"user": "user", "assistant": "modelTurn", "toolResult": "toolResult"}
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
    kind: Kind
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
    """Closed items with their indexes; shared by views of different lengths.

    An item is a run of entries: the one it is named by, and the results it owns.
    """

    __slots__ = (
        "abandoned",
        "by_call",
        "by_fingerprint",
        "by_id",
        "by_signature",
        "call_ids",
        "callers",
        "entries",
        "indexed",
        "starts",
    )

    def __init__(self) -> None:
        entries: list[EntryRef] = []
        starts = array("i")
        self.entries = entries
        self.starts = starts
        self.abandoned: set[int] = set()
        self.by_id: PositionTable[str] = PositionTable(lambda number: entries[starts[number]].id)
        self.by_fingerprint: PositionTable[bytes] = PositionTable(
            lambda at: message_of(entries[at]).fingerprint
        )
        self.by_signature: PositionTable[Signature] = PositionTable(
            lambda number: _signature(message_of(entries[starts[number]]))
        )
        # The calls of all items, and the item that makes each.
        self.call_ids: list[str] = []
        self.callers = array("i")
        self.by_call: PositionTable[str] = PositionTable(self.call_ids.__getitem__)
        # How many items, entries and calls the indexes have.
        self.indexed = (0, 0, 0)

    def append(self, entries: Sequence[EntryRef], abandoned: bool = False) -> None:
        """Add an item; the indexes do not have it before `index` is called."""
        number = len(self.starts)
        self.starts.append(len(self.entries))
        self.entries += entries
        if abandoned:
            self.abandoned.add(number)
        for call in message_of(entries[0]).calls:
            self.call_ids.append(call.id)
            self.callers.append(number)

    def index(self) -> None:
        """Bring the indexes up to date."""
        items, entries, calls = self.indexed
        self.indexed = len(self.starts), len(self.entries), len(self.call_ids)
        firsts = list(map(self.entries.__getitem__, self.starts[items:]))
        self.by_id.extend(((entry.id, number) for number, entry in enumerate(firsts, items)), len(firsts))
        further = map(message_of, self.entries[entries:])
        self.by_fingerprint.extend(
            ((message.fingerprint, at) for at, message in enumerate(further, entries)),
            len(self.entries) - entries,
        )
        callers = [(message_of(entry), number) for number, entry in enumerate(firsts, items)]
        callers = [caller for caller in callers if caller[0].calls]
        self.by_signature.extend(((_signature(message), number) for message, number in callers), len(callers))
        call_ids = self.call_ids[calls:]
        self.by_call.extend(((call_id, at) for at, call_id in enumerate(call_ids, calls)), len(call_ids))

    def end(self, number: int) -> int:
        """Where the entries of an item end."""
        return self.starts[number + 1] if number + 1 < len(self.starts) else len(self.entries)

    def length(self, items: int) -> int:
        """How many entries the first so many items have."""
        return self.end(items - 1) if items else 0

    def of(self, number: int) -> Sequence[EntryRef]:
        """The entries of an item."""
        return self.entries[self.starts[number] : self.end(number)]

    def id_of(self, number: int) -> str:
        return self.entries[self.starts[number]].id

    def item(self, number: int) -> HistoryItem:
        return _item(self.of(number), number, number in self.abandoned)

    def holding(self, fingerprint: bytes, length: int) -> Iterator[int]:
        """Which of the first ``length`` items hold a message, in order."""
        last = -1
        for at in self.by_fingerprint.each(fingerprint, self.length(length)):
            number = bisect_right(self.starts, at) - 1
            if number != last:
                yield number
            last = number

    def copy(self, length: int) -> _Items:
        copied = _Items()
        for number in range(length):
            copied.append(self.of(number), number in self.abandoned)
        copied.index()
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
        yield from map(self._closed.item, range(position, self._length))
        yield from self._tail[max(0, position - self._length) :]

    @property
    def last(self) -> HistoryItem | None:
        """The newest visible item; a result that no turn owns counts for none."""
        for item in reversed(self._tail):
            if item.kind != "toolResult":
                return item
        for number in range(self._length - 1, -1, -1):
            if message_of(self._closed.entries[self._closed.starts[number]]).role != "toolResult":
                return self._closed.item(number)
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
        return next((n for n in range(limit) if self._ids(n) != other._ids(n)), limit)

    def appended(self, entries: Sequence[EntryRef]) -> History:
        """This history with further entries of the branch."""
        if self.error is not None:
            return self
        closed = self._closed
        if len(closed.starts) != self._length:
            closed = closed.copy(self._length)
        messages = (entry for entry in entries if entry.in_history)
        if self.on_invalid is OnInvalidStructure.REPAIR:
            return self._with_repairs(closed, messages)
        return self._strictly(closed, messages)

    def _strictly(self, closed: _Items, entries: Iterable[EntryRef]) -> History:
        opened: list[EntryRef] = []
        for entry in (*self.open, *entries):
            role = message_of(entry).role
            if role == "toolResult":
                error = _result_error(opened, entry)
                if error is not None:
                    return History(_Items(), error=error)
                opened.append(entry)
                continue
            if opened:
                if not _complete(opened):
                    return History(_Items(), error=HistoryErrorCode.INCOMPLETE_TOOL_RESULTS)
                closed.append(opened)
                opened = []
            if role == "user":
                closed.append((entry,))
            else:
                opened = [entry]
        closed.index()
        number = len(closed.starts)
        # An incomplete exchange is absent until it is complete, unless the response was interrupted.
        tail = (_item(opened, number),) if opened and _complete(opened) else ()
        return History(closed, number, tail, open=tuple(opened))

    def _with_repairs(self, closed: _Items, entries: Iterable[EntryRef]) -> History:
        opened = list(self.open)
        stretch = Stretch(message_of(entry) for entry in opened)
        repairs: list[StoredRepair] = []
        for entry in entries:
            message = message_of(entry)
            if stretch.ends_before(message):
                items, done = _repaired_items(opened, stretch.messages, newest=False)
                for owned, abandoned in items:
                    closed.append(owned, abandoned)
                repairs += done
                opened, stretch = [], Stretch()
            opened.append(entry)
            stretch.add(message)
        closed.index()
        items, done = _repaired_items(opened, stretch.messages, newest=True)
        number = len(closed.starts)
        tail = tuple(_item(owned, n, abandoned) for n, (owned, abandoned) in enumerate(items, number))
        return History(closed, number, tail, self.on_invalid, tuple(opened), repairs=(*repairs, *done))

    def item(self, history_id: str) -> HistoryItem | None:
        """The item with an id, if exactly one has it."""
        closed = self._closed
        number = self._only(closed.by_id.each(history_id, self._length), lambda item: item.id == history_id)
        return None if number is None else self._numbered(number)

    def only_id(self, message: MessageRef) -> str | None:
        """The id that tells a message's item from all others, if one does.

        It is the only item whose assistant shares timestamp and call ids with the message, or else the only
        one that exactly this message is in; and no other has its id.
        """
        closed, length = self._closed, self._length
        number = None
        if message.calls:
            signature = _signature(message)
            number = self._only(
                closed.by_signature.each(signature, length),
                lambda item: _signature(item.message) == signature,
            )
        if number is None:
            number = self._only(
                closed.holding(message.fingerprint, length),
                lambda item: _holds(item, message.fingerprint),
            )
        if number is None:
            return None
        found = closed.id_of(number) if number < length else self._numbered(number).id
        only = self._only(closed.by_id.each(found, length), lambda item: item.id == found)
        return None if only is None else found

    def owner_of_call(self, call_id: str) -> HistoryItem | None:
        """The newest item that makes a call."""
        for item in reversed(self._tail):
            if item.has_call(call_id):
                return item
        callers = self._closed.callers
        call = self._closed.by_call.last(call_id, bisect_left(callers, self._length))
        return None if call is None else self._closed.item(callers[call])

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
        closed = self._closed
        at = closed.by_fingerprint.first(message.fingerprint, 0, closed.length(self._length))
        if at is not None:
            return closed.id_of(bisect_right(closed.starts, at) - 1)
        for item in self._tail:
            if _holds(item, message.fingerprint):
                return item.id
        turn = self.turn_of(message)
        return None if turn is None else turn.id

    def _only(self, closed: Iterator[int], is_it: Callable[[HistoryItem], bool]) -> int | None:
        """The number of the only item among some closed ones and those of the tail that fit, if it is one."""
        further = (number for number, item in enumerate(self._tail, self._length) if is_it(item))
        found = list(islice(chain(closed, further), 2))
        return found[0] if len(found) == 1 else None

    def _numbered(self, number: int) -> HistoryItem:
        return self._closed.item(number) if number < self._length else self._tail[number - self._length]

    def _ids(self, number: int) -> list[str]:
        return [entry.id for entry in self._closed.of(number)]


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


def _item(entries: Sequence[EntryRef], sequence: int, abandoned: bool = False) -> HistoryItem:
    message = message_of(entries[0])
    results = entries[1:]
    return HistoryItem(
        entries[0].id,
        _KINDS[message.role],
        sequence,
        message,
        tuple(map(message_of, results)),
        tuple(entry.id for entry in results),
        abandoned,
    )


def _repaired_items(
    stretch: Sequence[EntryRef], messages: Sequence[MessageRef], *, newest: bool
) -> tuple[list[tuple[list[EntryRef], bool]], list[StoredRepair]]:
    """The entries of each item of a stretch, and whether it is abandoned; what was repaired.

    Of the newest stretch, an incomplete exchange is absent.
    """
    if not stretch:
        return [], []
    repaired = repair(messages)
    # Messages are moved in requests only: a history has items.
    repairs = [
        StoredRepair(r.kind, tuple(stretch[p] for p in r.positions))
        for r in repaired.repairs
        if r.kind is not RepairKind.MESSAGES_MOVED
    ]
    items: list[tuple[list[EntryRef], bool]] = []
    others = range(len(stretch))
    if messages[0].role == "assistant":
        absent = newest and any(r.kind is RepairKind.INCOMPLETE_EXCHANGE for r in repaired.repairs)
        if absent:
            repairs = [r for r in repairs if r.kind is not RepairKind.INCOMPLETE_EXCHANGE]
        else:
            items.append(([stretch[0], *(stretch[p] for p in repaired.results)], repaired.exchange == 0))
        others = range(1, len(stretch))
    owned = set(repaired.results)
    items += [([stretch[position]], False) for position in others if position not in owned]
    return items, repairs


def _signature(message: MessageRef) -> Signature:
    return (message.timestamp, tuple(call.id for call in message.calls))


def _holds(item: HistoryItem, fingerprint: bytes) -> bool:
    return item.message.fingerprint == fingerprint or any(r.fingerprint == fingerprint for r in item.results)


def _complete(exchange: Sequence[EntryRef]) -> bool:
    """Whether every call has a result, or none is to come."""
    message = message_of(exchange[0])
    if message.interrupted or not message.calls:
        return True
    return {call.id for call in message.calls} <= {message_of(entry).call_id for entry in exchange[1:]}


def _result_error(exchange: Sequence[EntryRef], result: EntryRef) -> HistoryErrorCode | None:
    if not exchange:
        return HistoryErrorCode.ORPHAN_TOOL_RESULT
    call_id = message_of(result).call_id or ""
    if all(call.id != call_id for call in message_of(exchange[0]).calls):
        return HistoryErrorCode.MISMATCHED_TOOL_RESULT
    if any(message_of(entry).call_id == call_id for entry in exchange[1:]):
        return HistoryErrorCode.DUPLICATE_TOOL_RESULT
    return None
