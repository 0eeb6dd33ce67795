"""The lifecycle reducer: settings, override, warnings, seen entries, latest input."""

from __future__ import annotations

from typing import assert_never

from ..arena import GrowingSet
from ..events import (
    CompactionSucceeded,
    ContextSelected,
    Event,
    PagingToggled,
    SessionStarted,
    SettingsReadFailed,
    StructureRepaired,
    TrimTargetWarned,
    TurnEnded,
)
from ..settings import DISABLED, Settings, resolve_settings
from ..state import LatestInput, RepairKey, SessionState, repair_key
from .table import InputEffect, Override, Repairs, Seen, Warnings
from .transitions import unseen_entries


def settings_after(settings: Settings, event: Event) -> Settings:
    """Settings change only when a session starts."""
    match event:
        case SessionStarted():
            return resolve_settings(
                {"contextPaging": event.global_settings},
                {"contextPaging": event.project_settings},
                project_trusted=event.project_trusted,
            )
        case SettingsReadFailed():
            return DISABLED
        case _:
            return settings


def override_after(override: bool | None, effect: Override, event: Event) -> bool | None:
    """The user's choice after an event."""
    match effect:
        case Override.KEEP:
            return override
        case Override.CLEAR:
            return None
        case Override.SET:
            return event.enabled if isinstance(event, PagingToggled) else override
        case _:
            assert_never(effect)


def warned_after(
    warned: frozenset[tuple[int, int]], effect: Warnings, event: Event
) -> frozenset[tuple[int, int]]:
    """The pairs that were warned about after an event."""
    match effect:
        case Warnings.KEEP:
            return warned
        case Warnings.ADD:
            if not isinstance(event, TrimTargetWarned):
                return warned
            return warned | {(event.token_budget, event.trim_to_tokens)}
        case _:
            assert_never(effect)


def seen_after(state: SessionState, effect: Seen, event: Event) -> frozenset[str]:
    """The invalidating entries that have been dealt with after an event."""
    match effect:
        case Seen.KEEP:
            return state.seen
        case Seen.CLEAR:
            return frozenset()
        case Seen.ADD:
            if isinstance(event, CompactionSucceeded):
                return state.seen | ({event.entry_id} if event.entry_id is not None else set())
            return state.seen | unseen_entries(state)
        case _:
            assert_never(effect)


def latest_input_after(latest: LatestInput | None, effect: InputEffect, event: Event) -> LatestInput | None:
    """The latest input after an event."""
    match effect:
        case InputEffect.KEEP:
            return latest
        case InputEffect.CLEAR:
            return None
        case InputEffect.ESTIMATE:
            return LatestInput(event.estimated_tokens, True) if isinstance(event, ContextSelected) else latest
        case InputEffect.MEASURE:
            measured = event.response.measured_input_tokens if isinstance(event, TurnEnded) else None
            if measured is not None:
                return LatestInput(measured, False)
            # An older measurement is of another request.
            return latest if latest is not None and latest.estimated else None
        case _:
            assert_never(effect)


def repaired_after(repaired: GrowingSet[RepairKey], effect: Repairs, event: Event) -> GrowingSet[RepairKey]:
    """The repairs that have been told after an event."""
    match effect:
        case Repairs.KEEP:
            return repaired
        case Repairs.ADD:
            return repaired.with_key(repair_key(event)) if isinstance(event, StructureRepaired) else repaired
        case _:
            assert_never(effect)
