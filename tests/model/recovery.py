"""What the recovery tools answer (architecture, "History navigation"; design, section 7)."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from .conversation import Item
from .texts import blocks, calls, length, stringify

RECOVERY_TOOLS = ("search_history", "browse_history", "load_history", "read_context_output")
FILE_NAMES = ("path", "file", "files", "filepath", "file_path")
INVALID, NO_ANCHOR, NO_ID = "INVALID_HISTORY_NAVIGATOR_INPUT", "UNKNOWN_HISTORY_ANCHOR", "UNKNOWN_HISTORY_ID"
PREVIEW = 160
PAGE = 2_000
STRIPPED = "./:-"


class Refused(Exception):
    """A tool does not answer; navigating tools say a code."""

    def __init__(self, code: str | None = None) -> None:
        super().__init__(code)
        self.code = code


def call(history: list[Item] | None, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The result of a recovery tool.

    Raises:
        Refused: the history cannot be read, or the parameters name what is not there.
    """
    if history is None:
        raise Refused
    if name == "read_context_output":
        return read(history, parameters)
    items = visible(history)
    match name:
        case "search_history":
            return search(items, parameters)
        case "browse_history":
            return browse(items, parameters)
        case _:
            return load(items, parameters)


def tools_of(item: Item) -> list[str]:
    """Names of the tools that a turn calls."""
    called = blocks(item.message) if item.kind == "modelTurn" else []
    return [block["name"] for block in called if block.get("type") == "toolCall"]


def files_of(item: Item) -> list[str]:
    """Files that the arguments of a turn's calls name."""
    found: list[str] = []

    def collect(value: Any, named: bool) -> None:
        if isinstance(value, str):
            if named and value not in found:
                found.append(value)
        elif isinstance(value, list):
            for member in value:
                collect(member, named)
        elif isinstance(value, dict):
            for key, member in value.items():
                collect(member, key.lower() in FILE_NAMES)

    for block in blocks(item.message) if item.kind == "modelTurn" else []:
        if block.get("type") == "toolCall":
            collect(block["arguments"], False)
    return found


def visible(history: list[Item]) -> list[Item]:
    """Turns that call a recovery tool are not to be seen; sequence numbers count the others."""
    return [item for item in history if not set(tools_of(item)) & set(RECOVERY_TOOLS)]


def public_blocks(item: Item) -> list[dict[str, Any] | None]:
    """Text and calls without signatures; empty slots for the rest."""
    public: list[dict[str, Any] | None] = []
    for block in blocks(item.message):
        if block.get("type") in ("text", "toolCall"):
            public.append({key: value for key, value in block.items() if "ignature" not in key})
        else:
            public.append(None)
    return public


def public_item(items: list[Item], item: Item) -> dict[str, Any]:
    """An item as it is loaded."""
    told = {
        "id": item.id,
        "kind": item.kind,
        "sequence": items.index(item),
        "timestamp": item.timestamp,
    }
    if item.kind == "user":
        return {**told, "userMessage": item.message}
    return {
        **told,
        "assistantMessage": {**item.message, "content": public_blocks(item)},
        "toolResults": item.results,
        "metadata": {"tools": tools_of(item), "files": files_of(item), "failed": item.failed},
    }


def reference(items: list[Item], item: Item) -> dict[str, Any]:
    """An item as it is referred to."""
    at = items.index(item)
    return {
        "historyId": item.id,
        "sequence": at,
        "kind": item.kind,
        "timestamp": item.timestamp,
        "preview": cut(" ".join(pieces_of(item)), 0, PREVIEW),
        "tools": tools_of(item),
        "files": files_of(item),
        "failed": item.failed,
        "previousHistoryId": items[at - 1].id if at else None,
        "nextHistoryId": items[at + 1].id if at + 1 < len(items) else None,
    }


def pieces_of(item: Item) -> list[str]:
    """Words of an item's own text, and of its calls as JSON."""
    texts: list[str] = []
    if item.kind == "user" and isinstance(item.message["content"], str):
        texts.append(item.message["content"])
    else:
        for block in public_blocks(item) if item.kind == "modelTurn" else blocks(item.message):
            if block is not None:
                texts.append(block["text"] if block.get("type") == "text" else stringify(block))
    return "\n".join(texts).split()


def cut(text: str, start: int, end: int) -> str:
    """Part of a text, in UTF-16 code units."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")


# Search


def terms(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and some signs; each Han character alone."""
    found: list[str] = []
    run = ""
    for character in [*text.lower(), " "]:
        han = unicodedata.name(character, "").startswith("CJK ")
        if not han and (unicodedata.category(character)[0] in "LN" or character in "_./:-"):
            run += character
            continue
        if run.strip(STRIPPED):
            found.append(run.strip(STRIPPED))
        run = ""
        if han:
            found.append(character)
    return found


def document(item: Item) -> list[str]:
    """All terms of an item."""
    texts: list[str] = []
    for message in [item.message, *item.results]:
        content = message["content"]
        if isinstance(content, str):
            texts.append(content)
            continue
        for block in public_blocks(item) if message["role"] == "assistant" else content:
            if block is None:
                continue
            if block.get("type") == "text":
                texts.append(block["text"])
                continue
            texts.append(stringify(block))
            if block.get("type") == "toolCall":
                texts += [block["name"], stringify(block["arguments"])]
    for file in files_of(item):
        texts += [file, *file.split("/")]
    return terms("\n".join(texts))


def search(items: list[Item], parameters: dict[str, Any]) -> dict[str, Any]:
    """The best items for a query."""
    query = checked(parameters, "query", str)
    limit = parameters.get("limit", 5)
    if length(query) > 200 or not 1 <= limit <= 10:
        raise Refused(INVALID)
    found = [
        item
        for item in items
        if set(parameters.get("files", ())) <= set(files_of(item))
        and set(parameters.get("tools", ())) <= set(tools_of(item))
        and parameters.get("failed", item.failed) == item.failed
    ]
    if query:
        wanted = list(dict.fromkeys(terms(query)))
        documents = {item.id: document(item) for item in items}
        scores = {item.id: score(list(documents.values()), documents[item.id], wanted) for item in found}
        found = sorted((i for i in found if scores[i.id] > 0), key=lambda i: -scores[i.id])
    chosen = found[:limit]
    result: dict[str, Any] = {"references": [reference(items, item) for item in chosen]}
    if parameters.get("load"):
        result["items"] = [public_item(items, item) for item in chosen[:3]]
        result["unloadedHistoryIds"] = [item.id for item in chosen[3:]]
    return result


def score(documents: list[list[str]], own: list[str], wanted: list[str]) -> float:
    """BM25 of one document."""
    average = sum(map(len, documents)) / len(documents)
    total = 0.0
    for term in wanted:
        containing = sum(term in document for document in documents)
        frequency = own.count(term)
        if frequency:
            weight = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            total += weight * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * len(own) / average))
    return total


def checked(parameters: dict[str, Any], name: str, kind: type) -> Any:
    """A parameter that must be there."""
    if not isinstance(parameters.get(name), kind):
        raise Refused(INVALID)
    return parameters[name]


# Browsing, loading, and pages


def browse(items: list[Item], parameters: dict[str, Any]) -> dict[str, Any]:
    """Steps from an anchor, or from an end."""
    direction, count = parameters["direction"], parameters.get("count", 5)
    stride = parameters.get("stride", 1)
    if direction not in ("backward", "forward", "around"):
        raise Refused(INVALID)
    at: int | None = None
    if "historyId" in parameters and "sequence" in parameters:
        raise Refused(NO_ANCHOR)
    if "historyId" in parameters:
        at = next((i for i, item in enumerate(items) if item.id == parameters["historyId"]), None)
        if at is None:
            raise Refused(NO_ANCHOR)
    if "sequence" in parameters:
        at = parameters["sequence"]
        if at >= len(items):
            raise Refused(NO_ANCHOR)
    if direction == "around":
        at = len(items) - 1 if at is None else at
        steps = [place for place in range(len(items)) if (place - at) % stride == 0]
        first = max(0, min(steps.index(at) - (count - 1) // 2, len(steps) - count)) if steps else 0
        places = steps[first : first + count]
    elif direction == "backward":
        first = len(items) - 1 if at is None else at - stride
        places = [first - number * stride for number in range(count)]
    else:
        first = 0 if at is None else at + stride
        places = [first + number * stride for number in range(count)]
    chosen = [items[place] for place in places if 0 <= place < len(items)]
    return {"references": [reference(items, item) for item in chosen]}


def load(items: list[Item], parameters: dict[str, Any]) -> dict[str, Any]:
    """Items, whole."""
    wanted = parameters["historyIds"]
    if not 1 <= len(wanted) <= 3:
        raise Refused(INVALID)
    by_id = {item.id: item for item in items}
    if not set(wanted) <= set(by_id):
        raise Refused(NO_ID)
    return {"items": [public_item(items, by_id[history_id]) for history_id in wanted]}


def read(history: list[Item], parameters: dict[str, Any]) -> dict[str, Any]:
    """A page of an output."""
    item = next((item for item in history if item.id == parameters["historyId"]), None)
    if item is None:
        raise Refused
    match parameters["source"]:
        case "assistant":
            if "toolCallId" in parameters or "contentIndex" not in parameters:
                raise Refused
            # A user message can be read, too: it would else be out of reach where it is longer than a reply.
            content, index = item.message["content"], parameters["contentIndex"]
            public = [content] if isinstance(content, str) else content
            public = public_blocks(item) if item.kind == "modelTurn" else public
            if index >= len(public) or public[index] is None:
                raise Refused
            text = stringify(public[index])
        case "toolResult":
            if "contentIndex" in parameters or "toolCallId" not in parameters:
                raise Refused
            if item.kind != "modelTurn":
                raise Refused
            called = dict(zip(calls(item.message), tools_of(item), strict=True)).get(parameters["toolCallId"])
            results = [r for r in item.results if r["toolCallId"] == parameters["toolCallId"]]
            if not results or called in RECOVERY_TOOLS or results[0]["toolName"] in RECOVERY_TOOLS:
                raise Refused
            text = stringify(results[0])
        case _:
            raise Refused
    offset, total = parameters.get("offset", 0), length(text)
    if offset >= total:
        raise Refused
    limit = parameters.get("limit", PAGE)
    end = min(total, offset + limit)
    if limit > 1 and end < total and "\udc00" <= cut(text, end, end + 1) < "\ue000":
        end -= 1
    page = cut(text, offset, end)
    return {
        "offset": offset,
        "nextOffset": None if end == total else end,
        "totalCharacters": total,
        "text": page,
    }
