"""The reset and dedup table: what each transition does to each part of the state (design, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Transition(Enum):
    """What an event amounts to, given the state it meets. The values are the table's row names."""

    SESSION_STARTED = "session start"
    BRANCH_NAVIGATED = "branch navigated"
    MODEL_SELECTED = "model selected"
    COMPACTION_UNSEEN = "compaction succeeded, entry id not seen"
    COMPACTION_SEEN = "compaction succeeded, entry id already seen"
    INVALIDATING_ENTRY = "new compaction or context edit in the projection"
    RETRY_EDIT = "new retry edit that omits a failed assistant"
    COMPACTION_ATTEMPTED = "manual compaction attempted"
    COMPACTION_REFUSED = "automatic compaction attempted while enabled"
    ATTEMPT_CANCELLED = "attempt cancelled by the host"
    PAGING_CHANGED = "paging toggled, effective state changes"
    PAGING_UNCHANGED = "paging toggled, same effective state"
    FRONTIER_MISSING = "raw frontier key missing"
    HISTORY_UNAVAILABLE = "history unavailable"
    TURN_ENDED = "turn ended"
    SELECTED = "selection succeeded"
    SELECTED_BY_FALLBACK = "selection succeeded by fallback"
    ABORTED = "selection aborted"
    WARNED = "trim-target warning shown"
    REPAIRED = "structure repaired"


class Override(Enum):
    """What happens to the user's choice of on or off."""

    KEEP = "keep"
    CLEAR = "cleared"
    SET = "set"


class CutEffect(Enum):
    """What happens to frontier and frozen notice."""

    KEEP = "keep"
    RESET = "reset"
    COMMIT = "commit"


class CalibrationEffect(Enum):
    """What happens to provider-backed usage."""

    KEEP = "keep"
    CLEAR = "cleared"
    PENDING = "pending request"
    ANCHOR = "anchor"


class InputEffect(Enum):
    """What happens to the latest input."""

    KEEP = "keep"
    CLEAR = "cleared"
    ESTIMATE = "estimate"
    MEASURE = "measured"


class Warnings(Enum):
    """What happens to the pairs that were warned about."""

    KEEP = "keep"
    ADD = "+ pair"


class Seen(Enum):
    """What happens to the ids of invalidating entries."""

    KEEP = "keep"
    CLEAR = "cleared"
    ADD = "+ id"


class Repairs(Enum):
    """What happens to the repairs that have been told."""

    KEEP = "keep"
    ADD = "+ repair"


@dataclass(frozen=True, slots=True)
class Effects:
    """One row of the table."""

    override: Override = Override.KEEP
    cut: CutEffect = CutEffect.KEEP
    calibration: CalibrationEffect = CalibrationEffect.KEEP
    latest_input: InputEffect = InputEffect.KEEP
    warnings: Warnings = Warnings.KEEP
    seen: Seen = Seen.KEEP
    repairs: Repairs = Repairs.KEEP


def _reset(override: Override = Override.KEEP, seen: Seen = Seen.KEEP) -> Effects:
    return Effects(override, CutEffect.RESET, CalibrationEffect.CLEAR, InputEffect.CLEAR, seen=seen)


TABLE: dict[Transition, Effects] = {
    Transition.SESSION_STARTED: _reset(Override.CLEAR, Seen.CLEAR),
    Transition.BRANCH_NAVIGATED: _reset(seen=Seen.CLEAR),
    Transition.MODEL_SELECTED: _reset(),
    Transition.COMPACTION_UNSEEN: _reset(seen=Seen.ADD),
    Transition.COMPACTION_SEEN: Effects(),
    Transition.INVALIDATING_ENTRY: _reset(seen=Seen.ADD),
    Transition.RETRY_EDIT: Effects(calibration=CalibrationEffect.CLEAR, seen=Seen.ADD),
    Transition.COMPACTION_ATTEMPTED: Effects(calibration=CalibrationEffect.CLEAR),
    Transition.COMPACTION_REFUSED: Effects(),
    Transition.ATTEMPT_CANCELLED: Effects(),
    Transition.PAGING_CHANGED: _reset(Override.SET),
    Transition.PAGING_UNCHANGED: Effects(Override.SET),
    Transition.FRONTIER_MISSING: Effects(cut=CutEffect.RESET),
    Transition.HISTORY_UNAVAILABLE: Effects(calibration=CalibrationEffect.CLEAR),
    Transition.TURN_ENDED: Effects(calibration=CalibrationEffect.ANCHOR, latest_input=InputEffect.MEASURE),
    Transition.SELECTED: Effects(
        cut=CutEffect.COMMIT, calibration=CalibrationEffect.PENDING, latest_input=InputEffect.ESTIMATE
    ),
    Transition.SELECTED_BY_FALLBACK: Effects(
        cut=CutEffect.RESET, calibration=CalibrationEffect.PENDING, latest_input=InputEffect.ESTIMATE
    ),
    Transition.ABORTED: Effects(),
    Transition.WARNED: Effects(warnings=Warnings.ADD),
    Transition.REPAIRED: Effects(repairs=Repairs.ADD),
}
"""Every row is complete: an effect that is not named keeps its part as it is."""
