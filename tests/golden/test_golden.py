"""Golden files agree with the reducers, cover the whole table, and would notice any change of it."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from context_paging.domain.reducers import transition_of
from context_paging.domain.reducers.table import (
    TABLE,
    CalibrationEffect,
    CutEffect,
    Effects,
    InputEffect,
    Override,
    Repairs,
    Seen,
    Transition,
    Warnings,
)
from context_paging.domain.state import SessionState

from . import ROOT
from .__main__ import text
from .script import cases, outcome, run

FURTHER = {"process restart", "history unavailable in a context request"}
"""Rows of the design that are not a transition of their own."""
NEEDS_ITS_EVENT = {
    Override.SET: {Transition.PAGING_CHANGED, Transition.PAGING_UNCHANGED},
    CutEffect.COMMIT: {Transition.SELECTED},
    CalibrationEffect.PENDING: {Transition.SELECTED, Transition.SELECTED_BY_FALLBACK},
    CalibrationEffect.ANCHOR: {Transition.TURN_ENDED},
    InputEffect.ESTIMATE: {Transition.SELECTED, Transition.SELECTED_BY_FALLBACK},
    InputEffect.MEASURE: {Transition.TURN_ENDED},
    Warnings.ADD: {Transition.WARNED},
    Repairs.ADD: {Transition.REPAIRED},
    Seen.ADD: {Transition.COMPACTION_UNSEEN, Transition.INVALIDATING_ENTRY, Transition.RETRY_EDIT},
}
"""Effects that take something from their event; with any other event they keep what is there."""


def folder_of(transition: Transition) -> Path:
    """The case of a row."""
    return Path(__file__).parent / transition.value


@pytest.mark.parametrize("folder", cases(), ids=lambda folder: folder.name)
def test_the_golden_files_are_what_comes_out(folder: Path) -> None:
    for name, value in run(folder).items():
        wanted = (folder / name).read_text("utf-8")
        assert text(value) == wanted, "if the change is meant: python -m tests.golden --write"


OUTCOMES: dict[str, dict[str, Any]] = json.loads((ROOT / "outcomes.json").read_text("utf-8"))


@pytest.mark.parametrize("case", OUTCOMES.values(), ids=OUTCOMES)
def test_an_outcome_says_all_that_it_should(case: dict[str, Any]) -> None:
    assert text(outcome(case["steps"])) == text(case["outcome"]), (
        "if it is meant: python -m tests.golden --write"
    )


def test_every_row_of_the_table_has_a_case() -> None:
    assert {folder.name for folder in cases()} == {row.value for row in Transition} | FURTHER
    assert set(TABLE) == set(Transition)


def mutations() -> list[tuple[Transition, str, Enum]]:
    """Every cell of the table with every other value it could have."""
    found = []
    for transition, effects in TABLE.items():
        for field in dataclasses.fields(effects):
            own: Enum = getattr(effects, field.name)
            for other in type(own):
                applies = transition in NEEDS_ITS_EVENT.get(other, {transition})
                if other is not own and applies:
                    found.append((transition, field.name, other))
    return found


@pytest.mark.parametrize(
    ("transition", "field", "effect"), mutations(), ids=lambda value: getattr(value, "name", str(value))
)
def test_a_changed_cell_of_the_table_moves_its_golden_file(
    monkeypatch: pytest.MonkeyPatch, transition: Transition, field: str, effect: Enum
) -> None:
    changed: dict[str, Any] = {field: effect}
    monkeypatch.setitem(TABLE, transition, dataclasses.replace(TABLE[transition], **changed))

    state = run(folder_of(transition))["state.json"]

    assert state != json.loads((folder_of(transition) / "state.json").read_text("utf-8"))


def misplaced() -> list[tuple[Transition, str, Enum]]:
    """Cells with an effect that takes something from an event which the row does not have."""
    columns = {type(field.default): field.name for field in dataclasses.fields(Effects)}
    found = []
    for effect, rows in NEEDS_ITS_EVENT.items():
        # These two have something to do even so; and a fallback has a cut to commit: none.
        if effect not in (Seen.ADD, InputEffect.MEASURE):
            own = rows | ({Transition.SELECTED_BY_FALLBACK} if effect is CutEffect.COMMIT else set())
            found += [(row, columns[type(effect)], effect) for row in Transition if row not in own]
    return found


@pytest.mark.parametrize(
    ("transition", "field", "effect"), misplaced(), ids=lambda value: getattr(value, "name", str(value))
)
def test_an_effect_keeps_what_is_there_if_the_event_has_nothing_for_it(
    monkeypatch: pytest.MonkeyPatch, transition: Transition, field: str, effect: Enum
) -> None:
    states = []
    for value in (effect, type(effect)["KEEP"]):
        changed: dict[str, Any] = {field: value}
        monkeypatch.setitem(TABLE, transition, dataclasses.replace(TABLE[transition], **changed))
        states.append(run(folder_of(transition))["state.json"])

    assert states[0] == states[1]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Effects)])
def test_a_cell_with_an_effect_of_no_such_column_is_refused_and_named(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    changed: dict[str, Any] = {field: Transition.WARNED}
    monkeypatch.setitem(TABLE, Transition.WARNED, dataclasses.replace(TABLE[Transition.WARNED], **changed))

    with pytest.raises(AssertionError, match=r"Transition\.WARNED"):
        run(folder_of(Transition.WARNED))


def test_an_event_that_is_in_no_row_is_refused_and_named() -> None:
    unknown: Any = "session-renamed"

    with pytest.raises(AssertionError, match="session-renamed"):
        transition_of(SessionState(), unknown)
