"""The raw branch projection: history items that recovery tools and cut keys refer to.

Reads user, assistant and tool-result entries of the branch, whatever compactions or edits did to the
conversation (architecture, "Raw branch projection"). A ``user`` item is one entry; a ``modelTurn`` item is an
assistant entry that owns its contiguous matching tool results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .arena import K, Positions
from .entries import EntryRef
from .errors import HistoryErrorCode
from .messages import Message, MessageRef, tool_calls

_FILE_ARGUMENTS = frozenset({"path", "file", "files", "filepath", "file_path"})
Signature = tuple[object, tuple[str, ...]]
"""What identifies an assistant message with tool calls without its content: timestamp, ordered call ids."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One item of the history; ``id`` is the id of its user or assistant entry."""

    id: str
    kind: Literal["user", "modelTurn"]
    sequence: int
    message: MessageRef
    results: tuple[MessageRef, ...] = ()

    @property
    def tools(self) -> list[str]:
        """Names of the tools called, in call order."""
        return [call.name for call in self.message.calls]

    @property
    def failed(self) -> bool:
        """Whether the turn was aborted or failed, or one of its tool results is an error."""
        return self.message.interrupted or any(result.failed for result in self.results)

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class History:
    """The history items of a branch, in order.

    Attributes:
        open: the newest model turn, while further results may still belong to it.
        error: why the branch has no history, and so no items; sticky until the branch changes.
    """

    _closed: _Items
    _length: int = 0
    open: HistoryItem | None = None
    error: HistoryErrorCode | None = None

    @staticmethod
    def empty() -> History:
        """No items."""
        return History(_Items())

    @property
    def items(self) -> Iterator[HistoryItem]:
        """All visible items, oldest first."""
        yield from self._closed.items[: self._length]
        if self._open_visible:
            assert self.open is not None
            yield self.open

    @property
    def last(self) -> HistoryItem | None:
        """The newest visible item."""
        if self._open_visible:
            return self.open
        return self._closed.items[self._length - 1] if self._length else None

    @property
    def length(self) -> int:
        """Number of visible items."""
        return self._length + self._open_visible

    @property
    def _open_visible(self) -> bool:
        # An incomplete exchange is absent until it is complete, unless the response was interrupted.
        item = self.open
        return item is not None and (item.message.interrupted or not _open_calls(item))

    def appended(self, entries: Iterable[EntryRef]) -> History:
        """This history with further entries of the branch."""
        if self.error is not None:
            return self
        closed, current = self._closed, self.open
        if len(closed.items) != self._length:
            closed = closed.copy(self._length)
        for entry in entries:
            if not entry.in_history:
                continue
            message = entry.message
            assert message is not None
            if message.role == "toolResult":
                error = _result_error(current, message)
                if error is not None:
                    return History(_Items(), error=error)
                assert current is not None
                current = replace(current, results=(*current.results, message))
                continue
            if current is not None:
                if _open_calls(current) and not current.message.interrupted:
                    return History(_Items(), error=HistoryErrorCode.INCOMPLETE_TOOL_RESULTS)
                closed.append(current)
                current = None
            if message.role == "user":
                closed.append(HistoryItem(entry.id, "user", len(closed.items), message))
            else:
                current = HistoryItem(entry.id, "modelTurn", len(closed.items), message)
        return History(closed, len(closed.items), current)

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
        if self._open_visible and self.open is not None and self.open.has_call(call_id):
            return self.open
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
        if self._open_visible and self.open is not None and _holds(self.open, message.fingerprint):
            return self.open.id
        turn = self.turn_of(message)
        return None if turn is None else turn.id

    def _only(self, index: Positions[K], key: K, is_it: Callable[[HistoryItem], bool]) -> HistoryItem | None:
        current = self.open if self._open_visible else None
        also = current is not None and is_it(current)
        if index.count(key, self._length) + also != 1:
            return None
        position = index.first(key, 0, self._length)
        return current if position is None else self._closed.items[position]


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
