"""The public view of history items: what recovery shows of them (architecture, "History navigation").

Of an assistant message, text and tool calls are public, without the provider's signatures. Every other block
is an empty slot, so that positions stay those of the stored message. All else is shown as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..entries import Entry
from ..history import HistoryItem, files_in
from ..json_text import stringify
from ..messages import Message, text, tool_calls

RECOVERY_TOOLS = frozenset({"search_history", "browse_history", "load_history", "read_context_output"})
"""Names of the tools that read history."""

_SIGNATURES = {"text": "textSignature", "toolCall": "thoughtSignature"}
"""The provider's signature on each kind of public block."""

_SEARCHED_PICTURE = 1_000
"""Characters of image data up to which a search looks at it like at everything else."""

Content = Callable[[str], Entry]
"""Finds the stored entry with an id."""


class PublicItem:
    """A history item with its content, as recovery shows it."""

    __slots__ = ("_entry", "_results", "item")

    def __init__(self, item: HistoryItem, content: Content) -> None:
        self.item = item
        self._entry = content(item.id)
        self._results = [content(entry_id)["message"] for entry_id in item.result_ids]

    @property
    def message(self) -> Message:
        """The item's own message, with private blocks left out."""
        message: Message = self._entry["message"]
        return public_message(message)

    @property
    def results(self) -> list[Message]:
        """The tool results of a model turn."""
        return self._results

    @property
    def timestamp(self) -> Any:
        """When the item was stored."""
        return self._entry.get("timestamp")

    @property
    def files(self) -> list[str]:
        """Paths its tool calls name."""
        return files_in(self._entry["message"])

    def loaded(self, sequence: int) -> dict[str, Any]:
        """The item as ``load_history`` gives it."""
        item = self.item
        loaded: dict[str, Any] = {
            "id": item.id,
            "kind": item.kind,
            "sequence": sequence,
            "timestamp": self.timestamp,
        }
        match item.kind:
            case "user":
                return {**loaded, "userMessage": self.message}
            case "toolResult":
                return {**loaded, "toolResult": self.message}
            case "modelTurn":
                return {
                    **loaded,
                    "assistantMessage": self.message,
                    "toolResults": self._results,
                    "metadata": {"tools": item.tools, "files": self.files, "failed": item.failed},
                }

    def own_texts(self) -> Iterator[str]:
        """Texts of the item's own message, block by block: what a preview shows."""
        yield from _block_texts(self.message.get("content"))

    def search_texts(self) -> Iterator[str]:
        """Everything a search looks at, in order (design, section 7)."""
        yield from _block_texts(_without_pictures(self.message.get("content")))
        if self.item.kind == "modelTurn":
            for call in tool_calls(self._entry["message"]):
                yield call["name"]
                yield stringify(call.get("arguments", {}))
        for result in self._results:
            yield from _block_texts(_without_pictures(result.get("content")))
        for path in self.files:
            yield path
            yield from path.split("/")


def public_message(message: Message) -> Message:
    """A message without what only its provider may read."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list | tuple):
        return message
    return {**message, "content": [public_block(block) for block in content]}


def public_block(block: Any) -> Mapping[str, Any] | None:
    """A block of an assistant message, or none where it is not public."""
    if not isinstance(block, Mapping):
        return None
    signature = _SIGNATURES.get(text(block.get("type")))
    if signature is None:
        return None
    return {key: value for key, value in block.items() if key != signature} if signature in block else block


def calls_recovery_tool(item: HistoryItem) -> bool:
    """Whether a turn reads history itself, or is what a recovery tool answered: recovery shows neither."""
    names = [call.name for call in item.message.calls]
    names += [result.tool_name or "" for result in (item.message, *item.results)]
    return not RECOVERY_TOOLS.isdisjoint(names)


def _without_pictures(content: Any) -> Any:
    # The data of a picture holds no words; tens of thousands of chance terms would bury those beside it.
    if not isinstance(content, list | tuple):
        return content
    return [
        {key: value for key, value in block.items() if key != "data"} if _is_picture(block) else block
        for block in content
    ]


def _is_picture(block: Any) -> bool:
    return (
        isinstance(block, Mapping)
        and block.get("type") == "image"
        and len(text(block.get("data"))) > _SEARCHED_PICTURE
    )


def _block_texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for block in content:
            if block is None:
                continue
            if isinstance(block, Mapping) and block.get("type") == "text":
                yield text(block.get("text"))
            else:
                yield stringify(block)
