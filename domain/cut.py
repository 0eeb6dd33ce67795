"""The cut: the remembered frontier with its frozen notice (architecture, "Stable cut state").

A frontier names the last evicted unit by ids of the stored history, never by positions or objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .history import History
from .messages import MessageRef


class FrontierKind(StrEnum):
    """Which kind of unit a frontier ends at."""

    PREFIX = "prefix"
    COMPLETED_TURN = "completedTurn"
    PARTIAL_TURN = "partialTurn"


class Fallback(StrEnum):
    """Why a call was selected without a frontier (architecture, "Stable cut state")."""

    RAW_HISTORY_UNAVAILABLE = "raw-history-unavailable"
    CUT_KEY_UNRESOLVED = "cut-key-unresolved"
    KEYLESS_NO_KEY = "keyless-no-key"
    KEYLESS_SNAP_OVER_BUDGET = "keyless-snap-over-budget"
    FRONTIER_NOT_IN_GROUPS = "frontier-not-in-groups"


@dataclass(frozen=True, slots=True)
class CutKey:
    """What identifies an evicted message: its history item, and its first tool call if it makes any."""

    history_id: str
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Frontier:
    """Where the cut is. ``user_history_id`` names the request of a partial turn, if it has a stored one."""

    kind: FrontierKind
    last_evicted: CutKey
    user_history_id: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A transient message sent before everything else; ``tokens`` is its estimate."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A frontier with the notice that stays unchanged as long as it does."""

    frontier: Frontier
    notice: Notice


def cut_key(message: MessageRef, history: History) -> CutKey | None:
    """The key of an outgoing message, or none where it has none or an ambiguous one (design, section 6).

    Unlike a recovery id, a key is never guessed from a call id that was used again.
    """
    if message.role not in ("user", "assistant"):
        return None
    item_id = history.only_id(message)
    return None if item_id is None else CutKey(item_id, message.calls[0].id if message.calls else None)


def matches(message: MessageRef, key: CutKey, history: History) -> bool:
    """Whether an outgoing message is the one a key was made from."""
    own = cut_key(message, history)
    if own is None or own.history_id != key.history_id:
        return False
    return key.tool_call_id is None or any(call.id == key.tool_call_id for call in message.calls)


def resolves(frontier: Frontier, history: History) -> bool:
    """Whether the stored history still has what a frontier names."""
    if history.error is not None:
        return False
    key = frontier.last_evicted
    anchor = history.item(key.history_id)
    if anchor is None or (key.tool_call_id is not None and not anchor.has_call(key.tool_call_id)):
        return False
    if frontier.kind is not FrontierKind.PARTIAL_TURN:
        return True
    if anchor.kind != "modelTurn":
        return False
    if frontier.user_history_id is None:
        return True
    user = history.item(frontier.user_history_id)
    return user is not None and user.kind == "user"
