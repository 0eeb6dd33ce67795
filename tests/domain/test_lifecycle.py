"""What a session knows of itself between two events: settings, the latest input, what it has dealt with."""

from __future__ import annotations

from typing import Any

from context_paging.domain.state import LatestInput, SessionState

from ..golden.script import Script


def after(*steps: dict[str, Any]) -> SessionState:
    """The state that steps of a golden case lead to."""
    script = Script()
    script.play_all(steps)
    return script.state


Step = dict[str, Any]
STARTED: Step = {"started": {"tokenBudget": 400}}
ASKED: list[Step] = [STARTED, {"stored": [{"user": 30}]}, {"requested": {}}]
COMPACTED: Step = {"compacted": None}
MEASURED: list[Step] = [*ASKED, {"stored": [{"assistant": 20, "usage": 90}]}, {"ended": "e1"}]


def test_paging_stays_off_while_settings_cannot_be_read() -> None:
    assert after(STARTED).enabled
    assert not after(STARTED, {"settings unreadable": "no JSON"}).enabled
    assert after(STARTED, {"settings unreadable": "no JSON"}, STARTED).enabled


def test_a_user_can_turn_paging_on_even_so() -> None:
    assert after({"settings unreadable": "no JSON"}, {"toggled": True}).enabled


def test_an_answer_without_usage_leaves_the_estimate_of_its_request() -> None:
    asked = after(*ASKED).latest_input
    state = after(*ASKED, {"stored": [{"assistant": 20}]}, {"ended": "e1"})

    assert asked == LatestInput(40, estimated=True)
    assert state.latest_input == asked


def test_an_answer_without_usage_leaves_no_measurement_of_an_older_request() -> None:
    measured = after(*MEASURED).latest_input
    state = after(*MEASURED, {"stored": [{"user": 5}, {"assistant": 20}]}, {"ended": "e3"})

    assert measured == LatestInput(90, estimated=False)
    assert state.latest_input is None


def test_a_compaction_whose_entry_has_no_name_resets_each_time_and_is_not_remembered() -> None:
    for times in (1, 2):
        state = after(*MEASURED, *(COMPACTED for _ in range(times)))
        assert (state.calibration.anchor, state.latest_input, state.seen) == (None, None, frozenset())
