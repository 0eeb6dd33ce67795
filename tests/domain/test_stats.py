"""Statistics: what counts, what is unavailable, and how it reads."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.entries import digest_entry
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.settings import Settings
from context_paging.domain.state import LatestInput
from context_paging.domain.stats import SessionStatistics, session_statistics, statistics_text

ESTIMATOR = HeuristicEstimator()
MEASURED = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2, "totalTokens": 20}


def statistics(*entries: dict[str, Any], **options: Any) -> SessionStatistics:
    """Statistics of entries, all on the active branch."""
    stored: list[Any] = []
    by_id: dict[str, Any] = {}
    for number, given_entry in enumerate(entries):
        entry = {"id": f"e{number}", "type": "message", **given_entry}
        by_id[entry["id"]] = entry
        stored.append((entry, digest_entry(entry, ESTIMATOR, by_id.get)))
    chosen = {"settings": Settings(), "enabled": True, "latest": None, "estimator": ESTIMATOR, **options}
    return session_statistics(stored, [ref for _, ref in stored], **chosen)


def assistant(usage: Any = None, **fields: Any) -> dict[str, Any]:
    """An assistant entry."""
    message = {"role": "assistant", "content": [], "stopReason": "stop", "usage": usage, **fields}
    return {"message": message}


def test_every_saved_text_counts_with_edits_and_their_replacements() -> None:
    found = statistics(
        {"message": {"role": "user", "content": "x" * 40}},
        {"type": "custom_message", "content": "x" * 20},
        {"type": "compaction", "summary": "x" * 12},
        {"type": "branch_summary", "summary": "x" * 8},
        {"type": "context_edit", "targetId": "e0", "replacement": {"content": "x" * 4}},
        {"type": "context_edit", "targetId": "e0", "replacement": None},
        {"type": "custom", "data": "x" * 999},
        {"message": {"role": "bashExecution", "command": "x" * 4, "output": "x" * 4}},
    )

    assert found.history_tokens == 10 + 5 + 3 + 2 + 1 + 2


def test_cache_totals_add_every_kind_of_saved_record() -> None:
    found = statistics(
        assistant(MEASURED),
        {"message": {"role": "toolResult", "content": [], "usage": MEASURED}},
        {"type": "usage", "usage": MEASURED},
        {"type": "compaction", "summary": "", "usage": MEASURED},
        {"type": "branch_summary", "summary": "s", "usage": MEASURED},
    )

    assert (found.cache_read, found.cache_write) == (15, 10)


@pytest.mark.parametrize(
    ("usage", "totals"),
    [
        (None, (3, 2)),
        ({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, (3, 2)),
        ({"input": 7, "cacheRead": 0, "cacheWrite": 0}, (3, 2)),
        ({"input": 7, "cacheRead": 1}, (4, None)),
        ({"input": 7, "cacheRead": -1, "cacheWrite": 1}, (None, 3)),
        ({"input": 7, "cacheRead": 2**60, "cacheWrite": 1.5}, (None, None)),
        ({"input": 7, "cacheRead": "8", "cacheWrite": True}, (None, None)),
        ({"input": math.nan, "cacheRead": math.inf, "cacheWrite": 0}, (None, 2)),
        ({"input": 7, "cacheRead": 2**53 - 1, "cacheWrite": 0}, (None, 2)),
        ({"input": 10**400, "output": 0.5, "cacheRead": -(10**400), "cacheWrite": 0}, (None, 2)),
    ],
    ids=[
        "none",
        "zeros",
        "explicit zero",
        "missing",
        "negative",
        "unsafe",
        "no number",
        "not finite",
        "sum",
        "beyond numbers",
    ],
)
def test_what_makes_a_total_unavailable(usage: Any, totals: tuple[int | None, int | None]) -> None:
    found = statistics(assistant(MEASURED), assistant(usage))

    assert (found.cache_read, found.cache_write) == totals


@pytest.mark.parametrize(
    ("entries", "tokens"),
    [
        ([assistant(MEASURED)], 15),
        ([assistant(MEASURED), {"message": {"role": "user", "content": "next"}}], 15),
        ([assistant(MEASURED), assistant(MEASURED, stopReason="error")], None),
        ([assistant(MEASURED), assistant()], None),
        ([assistant(MEASURED), {"type": "compaction", "summary": ""}], None),
        ([assistant(MEASURED), {"type": "branch_summary", "summary": "s"}], None),
        ([assistant(MEASURED), {"type": "model_change"}], None),
        ([], None),
    ],
)
def test_the_latest_saved_response_measures_input_unless_something_changed_since(
    entries: list[dict[str, Any]], tokens: int | None
) -> None:
    found = statistics(*entries)

    assert found.input_tokens == tokens
    assert not found.input_estimated


def test_the_latest_request_of_this_session_outranks_the_saved_one() -> None:
    found = statistics(assistant(MEASURED), latest=LatestInput(64_000.12349, True))

    assert found.input_tokens == 64_000.123
    assert found.input_estimated
    assert found.used_percent == 50


@pytest.mark.parametrize(
    ("window", "shown", "budget"),
    [
        (None, None, 128_000),
        (9_000, 9_000, 9_000),
        (math.inf, None, 128_000),
        (0, None, 128_000),
        (-1, None, 128_000),
        (10**400, None, 128_000),
        (5e-324, 5e-324, 5e-324),
    ],
)
def test_the_budget_is_capped_by_a_window_that_is_one(window: Any, shown: Any, budget: int) -> None:
    found = statistics(model_window=window)

    assert (found.model_window, found.budget_tokens) == (shown, budget)


def test_the_text_says_what_is_measured_estimated_inactive_and_unavailable() -> None:
    measured = statistics_text(statistics(assistant(MEASURED), stored_bytes=1_234, model_window=200_000))
    assert measured.splitlines() == [
        "Context paging: on",
        "Stored session: 1,234 bytes",
        "Stored history: about 0 tokens on all branches",
        "Latest request: 15 tokens (measured, 0.0 % of the budget)",
        "Budget: 128,000 tokens",
        "Model window: 200,000 tokens",
        "Cache reads: 3 tokens",
        "Cache writes: 2 tokens",
    ]
    off = statistics_text(statistics(latest=LatestInput(10, True), enabled=False))
    assert "Latest request: about 10 tokens (estimated)" in off
    assert "Budget: inactive" in off
    assert "Stored session: unavailable" in off


NUMBER = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())
)


@given(st.lists(st.dictionaries(st.sampled_from([*MEASURED, "cost"]), NUMBER), max_size=4), NUMBER)
def test_no_record_however_odd_is_an_error(records: list[dict[str, Any]], window: Any) -> None:
    found = statistics(*map(assistant, records), {"type": "usage", "usage": window}, model_window=window)

    assert found.cache_read is None or found.cache_read >= 0
    assert statistics_text(found)
