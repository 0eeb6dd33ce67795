"""What the active branch makes: the conversation, and the history (architecture, "Raw branch projection")."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .texts import Message, calls, failed

Entry = dict[str, Any]


@dataclass
class Item:
    """A history item: a user message, or a model turn with its contiguous results."""

    id: str
    kind: str
    sequence: int
    timestamp: Any
    message: Message
    results: list[Message] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Interrupted, or with a failed result."""
        return self.kind == "modelTurn" and (self.interrupted or any(r.get("isError") for r in self.results))

    @property
    def interrupted(self) -> bool:
        """Whether the host stopped the response."""
        return failed(self.message)


class Unreadable(Exception):
    """The history cannot be read; the code says why."""


def branch_of(entries: dict[str, Entry], leaf: str | None) -> list[Entry]:
    """From root to leaf."""
    branch: list[Entry] = []
    while leaf is not None and leaf in entries:
        branch.insert(0, entries[leaf])
        leaf = entries[leaf].get("parentId")
    return branch


def conversation(branch: list[Entry]) -> list[tuple[str, Message]]:
    """The messages that go out when nothing is paged, each with its entry's id."""
    compactions = [index for index, entry in enumerate(branch) if entry["type"] == "compaction"]
    projected = branch
    if compactions:
        at = compactions[-1]
        first = [i for i, entry in enumerate(branch[:at]) if entry["id"] == branch[at]["firstKeptEntryId"]]
        projected = [branch[at], *(branch[first[0] : at] if first else []), *branch[at + 1 :]]
    edits = {entry["targetId"]: entry["replacement"] for entry in branch if entry["type"] == "context_edit"}
    made: list[tuple[str, Message]] = []
    for entry in projected:
        if entry["type"] == "compaction" and compactions and entry is not branch[compactions[-1]]:
            continue
        message = message_of(entry)
        if message is None:
            continue
        if entry["id"] in edits:
            replacement = edits[entry["id"]]
            if replacement is None:
                continue
            message = {**message, "content": _content_for(message["role"], replacement["content"])}
        made.append((entry["id"], message))
    return made


def _content_for(role: str, content: Any) -> Any:
    """Assistants and tool results hold blocks only."""
    bare = isinstance(content, str) and role in ("assistant", "toolResult")
    return [{"type": "text", "text": content}] if bare else content


def message_of(entry: Entry) -> Message | None:
    """The message that an entry puts into the conversation."""
    match entry["type"]:
        case "message":
            stored: Message = entry["message"]
            return stored
        case "custom_message":
            message = {
                "role": "custom",
                "customType": entry["customType"],
                "content": entry["content"],
                "display": entry.get("display"),
                "timestamp": milliseconds(entry["timestamp"]),
            }
            return {**message, "details": entry["details"]} if "details" in entry else message
        case "branch_summary":
            return {
                "role": "branchSummary",
                "summary": entry["summary"],
                "fromId": entry["fromId"],
                "timestamp": milliseconds(entry["timestamp"]),
            }
        case "compaction":
            return {
                "role": "compactionSummary",
                "summary": entry["summary"],
                "tokensBefore": entry["tokensBefore"],
                "timestamp": milliseconds(entry["timestamp"]),
            }
        case _:
            return None


def milliseconds(timestamp: str) -> int:
    """An entry's time as a message's time."""
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


def history(branch: list[Entry]) -> list[Item]:
    """The history items of a branch.

    Raises:
        Unreadable: a result belongs to no exchange, or an older exchange lacks results.
    """
    items: list[Item] = []
    turn: Item | None = None

    def close() -> None:
        if turn is not None and not turn.interrupted and not _complete(turn):
            raise Unreadable("INCOMPLETE_TOOL_RESULTS")

    for entry in branch:
        message = message_of(entry)
        if message is None:
            continue
        role = message["role"]
        if role == "toolResult":
            if turn is None:
                raise Unreadable("ORPHAN_TOOL_RESULT")
            called = message["toolCallId"]
            if called not in calls(turn.message) or called in [r["toolCallId"] for r in turn.results]:
                raise Unreadable("MISMATCHED_TOOL_RESULT")
            turn.results.append(message)
            continue
        if role in ("user", "assistant"):
            close()
            kind = "user" if role == "user" else "modelTurn"
            item = Item(entry["id"], kind, len(items), entry.get("timestamp"), message)
            items.append(item)
            turn = item if role == "assistant" else None
    if turn is not None and not turn.interrupted and not _complete(turn):
        items.pop()
    return items


def _complete(turn: Item) -> bool:
    return len(turn.results) == len(calls(turn.message))
