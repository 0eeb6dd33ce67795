"""Session entries, and what each puts into the conversation.

An entry is a JSON object with ``id``, ``parentId``, ``type`` and ``timestamp``, as Pi stores it from version
3 of its session format on. `EntryRef` is its digest, which the context projection and the history fold.
Unknown entry types put nothing into the conversation; messages of unknown roles are kept and count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec import Struct

from .errors import InvalidEntry
from .estimation import TokenEstimator
from .messages import INTERRUPTED, Message, MessageRef, digest, is_object, optional_text, text, text_content

E = TypeVar("E")
Entry = Mapping[str, Any]
"""A stored session entry: a JSON object. Never changed, never copied."""

INVALIDATING = frozenset({"compaction", "context_edit"})
"""Entry types that change what earlier entries put into the conversation."""
EDITABLE_ROLES = frozenset({"user", "assistant", "toolResult"})


class EntryRef(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What decisions know of an entry.

    Attributes:
        message: digest of the message the entry puts into the conversation; of a ``context_edit``, of the
            message its target becomes.
        target_id: of a ``context_edit``, the entry it edits.
        first_kept_id: of a ``compaction``, the first entry that stays in the conversation.
        omits_failed: a ``context_edit`` that leaves out an assistant message that was aborted or failed: the
            host's retry edit (architecture, "Lifecycle").
    """

    id: str
    type: str
    message: MessageRef | None = None
    target_id: str | None = None
    first_kept_id: str | None = None
    omits_failed: bool = False

    @property
    def in_history(self) -> bool:
        """Whether the raw branch projection reads this entry."""
        return self.type == "message" and self.message is not None and self.message.role in EDITABLE_ROLES


def message_of(entry: EntryRef) -> MessageRef:
    """The message of an entry that has one."""
    assert entry.message is not None
    return entry.message


def context_message(entry: Entry) -> Message | None:
    """The message an entry puts into the conversation by itself, if any."""
    match entry.get("type"):
        case "message":
            message = entry.get("message")
            return message if is_object(message) else None
        case "custom_message":
            # The host's own message lacks what the entry lacks, and has to be known again by its fingerprint.
            given = {name: entry[name] for name in ("customType", "display", "details") if name in entry}
            return {
                "role": "custom",
                "content": entry.get("content"),
                **given,
                "timestamp": milliseconds(entry.get("timestamp")),
            }
        case "branch_summary":
            if not entry.get("summary"):
                return None
            return {
                "role": "branchSummary",
                "summary": entry["summary"],
                "fromId": entry.get("fromId"),
                "timestamp": milliseconds(entry.get("timestamp")),
            }
        case "compaction":
            return {
                "role": "compactionSummary",
                "summary": entry.get("summary"),
                "tokensBefore": entry.get("tokensBefore"),
                "timestamp": milliseconds(entry.get("timestamp")),
            }
        case _:
            return None


def edited_message(edit: Entry, target: Entry) -> Message | None:
    """The message a ``context_edit`` makes of its target, or none where it leaves the target out.

    An edit of anything but a user, assistant, tool result or custom message changes nothing.
    """
    message = context_message(target)
    if message is None or not _editable(target, message):
        return message
    replacement = edit.get("replacement")
    if not is_object(replacement):
        return None
    content = replacement.get("content")
    if isinstance(content, str) and message.get("role") in ("assistant", "toolResult"):
        content = text_content(content)
    return {**message, "content": content}


def digest_entry(
    entry: Entry, estimator: TokenEstimator, find: Callable[[str], Entry | None] = lambda _: None
) -> EntryRef:
    """The reference of an entry. ``find`` looks up the target of a ``context_edit``.

    Raises:
        InvalidEntry: it is not a JSON object with a text ``id`` and ``type``.
        InvalidMessage: its message is nested too deeply.
    """
    if not is_object(entry):
        raise InvalidEntry(f"an entry must be a JSON object, not {type(entry).__name__}")
    entry_id, kind = entry.get("id"), entry.get("type")
    if not isinstance(entry_id, str) or not entry_id or not isinstance(kind, str):
        raise InvalidEntry("an entry needs a text id and a text type")
    if kind == "context_edit":
        return _digest_edit(entry, entry_id, estimator, find)
    message = context_message(entry)
    return EntryRef(
        entry_id,
        kind,
        message=None if message is None else digest(message, estimator),
        first_kept_id=optional_text(entry.get("firstKeptEntryId")) if kind == "compaction" else None,
    )


def branch_to(leaf_id: str | None, entries: Mapping[str, Entry]) -> list[Entry]:
    """The entries from the root to a leaf. A missing parent begins the branch; no leaf, an empty branch.

    Raises:
        InvalidEntry: the leaf is unknown, or the parents form a cycle.
    """
    if leaf_id is None:
        return []
    if leaf_id not in entries:
        raise InvalidEntry(f"there is no entry {leaf_id!r} to walk the branch from")
    path: list[Entry] = []
    seen: set[str] = set()
    current: str | None = leaf_id
    while current is not None and current in entries:
        if current in seen:
            raise InvalidEntry(f"entry {current!r} is its own ancestor; repair its parentId")
        seen.add(current)
        entry = entries[current]
        path.append(entry)
        current = optional_text(entry.get("parentId"))
    path.reverse()
    return path


def context_messages(branch: Iterable[Entry]) -> list[Message]:
    """The conversation a branch makes, with the content: what a host sends when nothing is paged.

    The last compaction puts its summary first and keeps the entries from its ``firstKeptEntryId`` on; the
    last edit of each entry holds.
    """
    entries = list(branch)
    edits = {text(entry.get("targetId")): entry for entry in entries if entry.get("type") == "context_edit"}
    messages = []
    for entry in kept_entries(entries, _type_of, _id_of, lambda e: optional_text(e.get("firstKeptEntryId"))):
        edit = edits.get(text(entry.get("id")))
        message = context_message(entry) if edit is None else edited_message(edit, entry)
        if message is not None:
            messages.append(message)
    return messages


def kept_entries(
    branch: list[E],
    type_of: Callable[[E], Any],
    id_of: Callable[[E], Any],
    first_kept: Callable[[E], str | None],
) -> list[E]:
    """The entries of a branch that are in the conversation, in its order."""
    last = next((i for i in range(len(branch) - 1, -1, -1) if type_of(branch[i]) == "compaction"), None)
    if last is None:
        return branch
    first_id = first_kept(branch[last])
    first = next((i for i in range(last) if id_of(branch[i]) == first_id), last)
    kept = [entry for entry in branch[first:last] if type_of(entry) != "compaction"]
    return [branch[last], *kept, *branch[last + 1 :]]


def milliseconds(timestamp: Any) -> int | None:
    """A stored time in milliseconds since 1970, or none where it is not an ISO 8601 time."""
    if not isinstance(timestamp, str):
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000 + elapsed.microseconds // 1_000


def _digest_edit(
    entry: Entry, entry_id: str, estimator: TokenEstimator, find: Callable[[str], Entry | None]
) -> EntryRef:
    target_id = text(entry.get("targetId"))
    target = find(target_id)
    if target is None:
        return EntryRef(entry_id, "context_edit", target_id=target_id)
    message = edited_message(entry, target)
    original = context_message(target)
    return EntryRef(
        entry_id,
        "context_edit",
        message=None if message is None else digest(message, estimator),
        target_id=target_id,
        omits_failed=(
            message is None
            and original is not None
            and original.get("role") == "assistant"
            and text(original.get("stopReason")) in INTERRUPTED
        ),
    )


def _editable(target: Entry, message: Message) -> bool:
    if target.get("type") == "custom_message":
        return True
    return target.get("type") == "message" and text(message.get("role")) in EDITABLE_ROLES


def _type_of(entry: Entry) -> Any:
    return entry.get("type")


def _id_of(entry: Entry) -> Any:
    return entry.get("id")
