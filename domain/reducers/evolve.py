"""`evolve`: the next state. Pure and total: older states stay valid, and no valid event raises."""

from __future__ import annotations

from dataclasses import replace

from ..events import Event
from ..state import SessionState
from .calibration import calibration_after
from .cut import cut_after
from .lifecycle import (
    latest_input_after,
    override_after,
    repaired_after,
    seen_after,
    settings_after,
    warned_after,
)
from .projection import project
from .table import TABLE
from .transitions import transition_of


def evolve(state: SessionState, event: Event) -> SessionState:
    """The state after an event."""
    state = project(state, event)
    transition = transition_of(state, event)
    if transition is None:
        return state
    effects = TABLE[transition]
    return replace(
        state,
        settings=settings_after(state.settings, event),
        override=override_after(state.override, effects.override, event),
        seen=seen_after(state, effects.seen, event),
        warned=warned_after(state.warned, effects.warnings, event),
        cut=cut_after(state.cut, effects.cut, event),
        calibration=calibration_after(state, effects.calibration, event),
        latest_input=latest_input_after(state.latest_input, effects.latest_input, event),
        repaired=repaired_after(state.repaired, effects.repairs, event),
    )
