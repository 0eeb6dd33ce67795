"""The calibration reducer: the request that awaits its response, and the newest measured one."""

from __future__ import annotations

from typing import assert_never

from ..calibration import Calibration, Selected, with_response
from ..events import ContextSelected, Event, TurnEnded
from ..state import SessionState
from .table import CalibrationEffect


def calibration_after(state: SessionState, effect: CalibrationEffect, event: Event) -> Calibration:
    """Calibration after an event."""
    calibration = state.calibration
    match effect:
        case CalibrationEffect.KEEP:
            return calibration
        case CalibrationEffect.CLEAR:
            return Calibration()
        case CalibrationEffect.PENDING:
            return _with_pending(state, event) if isinstance(event, ContextSelected) else calibration
        case CalibrationEffect.ANCHOR:
            return with_response(calibration, event.response) if isinstance(event, TurnEnded) else calibration
        case _:
            assert_never(effect)


def _with_pending(state: SessionState, event: ContextSelected) -> Calibration:
    pending = Selected(
        state.conversation,
        event.kept,
        event.notice,
        {item.index: item.tokens for item in event.replaced},
        event.resident_tokens,
        state.stored,
        repaired=state.request is not None,
    )
    return Calibration(pending, state.calibration.anchor, state.calibration.overhead)
