"""What the user of a host is told (architecture, "Lifecycle" and "Failure behavior")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from context_paging.domain.events import ContextAborted, Event, HistoryUnavailable, TrimTargetWarned

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Notification:
    """A message for the user; it never enters the conversation."""

    level: Level
    text: str


def notifications_of(events: Iterable[Event]) -> tuple[Notification, ...]:
    """The notifications that events call for, in order."""
    return tuple(note for event in events if (note := _notification_of(event)) is not None)


def _notification_of(event: Event) -> Notification | None:
    match event:
        case TrimTargetWarned():
            return Notification(
                "warning",
                f"Context paging: trimToTokens={event.trim_to_tokens} is not below "
                f"tokenBudget={event.token_budget}, so cuts leave no room. Choose a smaller trimToTokens.",
            )
        case HistoryUnavailable():
            return Notification(
                "error",
                f"Context paging: the stored history cannot be read ({event.code}); "
                "recovery tools and stable cuts are unavailable on this branch. "
                'Set onInvalidStructure to "repair" to go on.',
            )
        case ContextAborted():
            return Notification(
                "error", f"Context paging aborted this provider call ({event.code}). {event.message}"
            )
        case _:
            return None
