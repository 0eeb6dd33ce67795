"""Replies to the model: a result as JSON text, or a compact form of one that is too long (design, section 7).

Nothing is lost by the compact form: a part that it leaves out is named with its size and with the parameters
that read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..json_text import stringify, utf16_length
from ..messages import text

REPLY_CHARACTERS = 8_000
"""The most characters a reply has, in UTF-16 code units."""
_SHOWN_NAMES = 5
_SHORT_PREVIEW = 40
_LONG_NAME = 100


def reply_text(result: Mapping[str, Any]) -> str:
    """The text a model is given for a result of a recovery tool."""
    for form in _forms(result):
        reply = stringify(form)
        if utf16_length(reply) <= REPLY_CHARACTERS:
            return reply
    return stringify({"omitted": "the reply is too long even in its shortest form; ask for less at once"})


def _forms(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The result, and ever shorter forms of it."""
    yield result
    references, items = result.get("references"), result.get("items")
    if references is None and items is None:
        return
    form = dict(result)
    if items is not None:
        room = REPLY_CHARACTERS - _size({**form, "items": []})
        form["items"] = _with_outputs_named(items, room)
        yield form
        for shorter in (_outline, _counted):
            form["items"] = [shorter(item) for item in items]
            yield form
    if references is not None:
        form["references"] = [_shortened(reference) for reference in references]
        yield form
        form["references"] = [
            {**reference, "preview": reference["preview"][:_SHORT_PREVIEW]}
            for reference in form["references"]
        ]
        yield form
    for name in ("items", "references"):
        while form.get(name):
            *rest, last = form[name]
            form = {**form, name: rest}
            if name == "items":
                left = form.get("unloadedHistoryIds", [])
                form["unloadedHistoryIds"] = [_name(last["id"]), *left]
            else:
                form["omittedReferences"] = form.get("omittedReferences", 0) + 1
            yield form


def _shortened(reference: Mapping[str, Any]) -> dict[str, Any]:
    short = dict(reference)
    for name, more in (("tools", "moreTools"), ("files", "moreFiles")):
        names = reference[name]
        short[name] = [_name(name) for name in names[:_SHOWN_NAMES]]
        if len(names) > _SHOWN_NAMES:
            short[more] = len(names) - _SHOWN_NAMES
    return short


def _with_outputs_named(items: Sequence[Mapping[str, Any]], room: int) -> list[Mapping[str, Any]]:
    """Items of which the longest outputs are named instead of shown, as many as it takes."""
    sizes = {place: _size(output) for place, output in _outputs(items)}
    total = _size(items)
    named: set[_Place] = set()
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        if total <= room:
            break
        saved = sizes[place] - _size(_named(items, place, sizes[place]))
        if saved <= 0:
            break
        named.add(place)
        total -= saved
    return [_with_named(items, number, named, sizes) for number in range(len(items))]


_Place = tuple[int, str, int]
"""An output: the item it is in, ``assistant`` or ``toolResult``, and its position there."""


def _outputs(items: Sequence[Mapping[str, Any]]) -> Iterator[tuple[_Place, Any]]:
    for number, item in enumerate(items):
        for position, block in enumerate(_blocks(item)):
            if block is not None:
                yield (number, "assistant", position), block
        for position, result in enumerate(_results(item)):
            yield (number, "toolResult", position), result


def _blocks(item: Mapping[str, Any]) -> Sequence[Any]:
    message = item.get("assistantMessage") or item.get("userMessage") or {}
    content = message.get("content")
    if isinstance(content, list | tuple):
        return content
    return [] if content is None else [content]


def _results(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [item["toolResult"]] if "toolResult" in item else item.get("toolResults", [])


def _named(items: Sequence[Mapping[str, Any]], place: _Place, size: int) -> dict[str, Any]:
    number, source, position = place
    item = items[number]
    read: dict[str, Any] = {"historyId": item["id"], "source": source}
    if source == "assistant":
        block = _blocks(item)[position]
        known = {"type": block.get("type")} if isinstance(block, Mapping) else {}
        read["contentIndex"] = position
    else:
        result = _results(item)[position]
        known = {name: result.get(name) for name in ("role", "toolName", "isError")}
        read["toolCallId"] = text(result.get("toolCallId"))
    return {**known, "characters": size, "read_context_output": read}


def _with_named(
    items: Sequence[Mapping[str, Any]], number: int, named: set[_Place], sizes: Mapping[_Place, int]
) -> Mapping[str, Any]:
    def shown(source: str, outputs: Sequence[Any]) -> list[Any]:
        places = [(number, source, position) for position in range(len(outputs))]
        return [
            _named(items, place, sizes[place]) if place in named else output
            for place, output in zip(places, outputs, strict=True)
        ]

    item = dict(items[number])
    for name in ("assistantMessage", "userMessage"):
        if name in item and any(place[:2] == (number, "assistant") for place in named):
            item[name] = {**item[name], "content": shown("assistant", _blocks(item))}
    if "toolResult" in item:
        item["toolResult"] = shown("toolResult", _results(item))[0]
    elif "toolResults" in item:
        item["toolResults"] = shown("toolResult", _results(item))
    return item


def _outline(item: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to read of an item, with sizes."""
    outputs = [
        {"contentIndex": position, "characters": _size(block)}
        for position, block in enumerate(_blocks(item))
        if block is not None
    ]
    results = [
        {"toolCallId": text(result.get("toolCallId")), "characters": _size(result)}
        for result in _results(item)
    ]
    shown = {name: item[name] for name in ("id", "kind", "sequence", "timestamp")}
    return {**shown, "assistant": outputs, "toolResult": results, "readWith": "read_context_output"}


def _counted(item: Mapping[str, Any]) -> dict[str, Any]:
    """How much there is to read of an item: its blocks, whose tool calls have the ids of its results."""
    shown = {name: item[name] for name in ("id", "kind", "sequence")}
    return {
        **shown,
        "assistantBlocks": len(_blocks(item)),
        "toolResults": len(_results(item)),
        "readWith": "read_context_output",
    }


def _size(value: Any) -> int:
    return utf16_length(stringify(value))


def _name(name: str) -> str:
    return name if len(name) <= _LONG_NAME else name[:_LONG_NAME] + "…"
