"""Calls and answers of recovery tools as events: sizes and ids, no content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_paging.domain.events import RecoveryToolAnswered, RecoveryToolCalled
from context_paging.domain.json_text import utf16_length
from context_paging.domain.recovery.public_view import RECOVERY_TOOLS
from context_paging.domain.recovery.tools import Answer

ID_CHARACTERS = 128
"""What is kept of an id that a model made up."""
_IDS = 10
_UNKNOWN = "unknown"


def called_event(name: object, parameters: object) -> RecoveryToolCalled:
    """The event of a call, whatever the parameters are."""
    given = parameters if isinstance(parameters, Mapping) else {}
    ids = given.get("historyIds")
    candidates = ids if isinstance(ids, list | tuple) else [given.get("historyId")]
    query = given.get("query")
    return RecoveryToolCalled(
        tool=known_tool(name),
        history_ids=tuple(known for value in candidates[:_IDS] if (known := _id(value)) is not None),
        call_id=_id(given.get("toolCallId")),
        query_characters=utf16_length(query) if isinstance(query, str) else None,
        offset=_count(given.get("offset")),
        limit=_count(given.get("limit")),
    )


def known_tool(name: object) -> str:
    """A tool's name as it may be told: what a model made up is no name, and may be content."""
    return name if isinstance(name, str) and name in RECOVERY_TOOLS else _UNKNOWN


def answered_event(name: str, answer: Answer) -> RecoveryToolAnswered:
    """The event of an answer."""
    result = answer.result
    ids = [reference["historyId"] for reference in result.get("references", ())]
    ids += [item["id"] for item in result.get("items", ())]
    return RecoveryToolAnswered(
        tool=name,
        characters=utf16_length(answer.text),
        history_ids=tuple(dict.fromkeys(ids)),
        total_characters=result.get("totalCharacters"),
        next_offset=result.get("nextOffset"),
    )


def _id(value: Any) -> str | None:
    return value[:ID_CHARACTERS] if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else None
