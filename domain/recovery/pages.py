"""Exact pages of stored output (architecture, "Exact output paging").

Offsets and limits are UTF-16 code units of the output's JSON text. A page ends between the two halves of a
character only if its limit is a single unit; joined pages are the text in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..history import History, HistoryItem
from ..json_text import UTF16_UNIT, from_utf16, stringify, to_utf16
from ..messages import text
from .errors import RecoveryErrorCode, RecoveryRefused
from .public_view import RECOVERY_TOOLS, Content, public_block

PAGE_LIMIT = 2_000
"""The most characters a page holds."""
_LOW_SURROGATES = range(0xDC00, 0xE000)


class OutputReader:
    """Reads pages of stored output. Keeps the text of the last output, since its next page comes next."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._read: tuple[object, bytes] | None = None

    def page_of_block(
        self, history: History, history_id: str, block: int, offset: int, limit: int
    ) -> dict[str, Any]:
        """A page of a block of an item's own message, counted as it is stored.

        A user message can be read like this, too: it would else be out of reach where it is longer than a
        reply. Plain text counts as one block.

        Raises:
            RecoveryRefused: there is no such block, it is not public, or it ends before the offset.
        """
        item = _item(history, history_id)
        message = self._content(item.id)["message"]
        blocks = message.get("content") if item.kind != "toolResult" else []
        in_blocks = isinstance(blocks, list | tuple)
        if not in_blocks:
            blocks = [blocks]
        if block >= len(blocks):
            raise RecoveryRefused(
                RecoveryErrorCode.UNKNOWN_OUTPUT,
                f"item {history_id!r} has no block {block}; load_history shows its blocks",
            )
        shown = blocks[block]
        if item.kind == "modelTurn" and in_blocks and (shown := public_block(shown)) is None:
            raise RecoveryRefused(
                RecoveryErrorCode.OUTPUT_NOT_PUBLIC,
                f"block {block} of item {history_id!r} is not public; only text and tool calls are",
            )
        return self._page((message, block), shown, offset, limit)

    def page_of_result(
        self, history: History, history_id: str, call_id: str, offset: int, limit: int
    ) -> dict[str, Any]:
        """A page of a tool result, as it is stored.

        Raises:
            RecoveryRefused: there is no such result, it is a recovery tool's, or it ends before the offset.
        """
        item = _item(history, history_id)
        result = self._result(item, call_id)
        if result is None:
            raise RecoveryRefused(
                RecoveryErrorCode.UNKNOWN_OUTPUT,
                f"item {history_id!r} has no result for tool call {call_id!r}; load_history shows its calls",
            )
        called = {call.name for call in item.message.calls if call.id == call_id}
        if (called | {text(result.get("toolName"))}) & RECOVERY_TOOLS:
            raise RecoveryRefused(
                RecoveryErrorCode.RECOVERY_OUTPUT,
                f"the result for tool call {call_id!r} is what a recovery tool answered; "
                "call that tool again instead",
            )
        return self._page((result, None), result, offset, limit)

    def _result(self, item: HistoryItem, call_id: str) -> Any:
        if item.kind == "toolResult":
            return self._content(item.id)["message"] if item.message.call_id == call_id else None
        for result, entry_id in zip(item.results, item.result_ids, strict=True):
            if result.call_id == call_id:
                return self._content(entry_id)["message"]
        return None

    def _page(self, key: tuple[Any, int | None], value: Any, offset: int, limit: int) -> dict[str, Any]:
        message, block = key
        known = (id(message), block)
        if self._read is None or self._read[0] != known:
            self._read = (known, to_utf16(stringify(value)))
        data = self._read[1]
        total = len(data) // UTF16_UNIT
        if offset >= total:
            raise RecoveryRefused(
                RecoveryErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is behind the end: the output has {total} characters",
            )
        end = min(offset + limit, total)
        if limit > 1 and end < total and _unit_at(data, end) in _LOW_SURROGATES:
            end -= 1
        return {
            "offset": offset,
            "nextOffset": end if end < total else None,
            "totalCharacters": total,
            "text": from_utf16(data[offset * UTF16_UNIT : end * UTF16_UNIT]),
        }


def joined(pages: Iterable[str]) -> str:
    """The text that pages were cut from."""
    return from_utf16(b"".join(map(to_utf16, pages)))


def _item(history: History, history_id: str) -> HistoryItem:
    item = history.item(history_id)
    if item is None:
        raise RecoveryRefused(
            RecoveryErrorCode.UNKNOWN_HISTORY_ID,
            f"there is no history item {history_id!r} on this branch; search_history and browse_history "
            "give the ids",
        )
    return item


def _unit_at(data: bytes, position: int) -> int:
    return int.from_bytes(data[position * UTF16_UNIT : (position + 1) * UTF16_UNIT], "little")
