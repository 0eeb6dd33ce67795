"""Message lists of the providers: what goes out is valid, stable between cuts, and the program's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.events import ContextSelected, Mode
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .forms import FORMS, Form, wire
from .scripts import Step, User, calls_of, conversations

each_form = pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
TOO_LARGE = SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE
BUDGETS = st.sampled_from([700, 1_500, 4_000, 100_000])


def _opened(form: Form, budget: int, policy: str = "abort") -> Any:
    settings = PagingSettings(token_budget=budget, on_invalid_structure=policy)
    return form.open(ContextPaging(settings=settings), "s", recovery_tools=False)


def _written(form: Form, steps: list[Step]) -> list[list[Any]]:
    return [form.write(step) for step in steps]


def _page(paging: Any, messages: list[Any], *allowed: SelectionErrorCode) -> Any:
    """The request, or nothing where the call was aborted for a reason that is allowed."""
    untouched = copy.deepcopy(messages)
    try:
        return paging.page(messages)
    except ContextAbortedError as error:
        if error.aborted.code not in allowed:
            raise
        return None
    finally:
        assert messages == untouched


def _flat(parts: list[list[Any]]) -> list[Any]:
    return [message for part in parts for message in part]


@each_form
@given(steps=conversations(), budget=BUDGETS, fresh=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_goes_out_is_valid_and_a_prefix_of_the_next_until_the_cut_moves(
    form: Form, steps: list[Step], budget: int, fresh: bool
) -> None:
    paging = _opened(form, budget)
    written = _written(form, steps)
    before: list[str] = []
    notice: Any = None
    for count in calls_of(steps):
        messages = _flat(written[:count])
        if fresh:
            messages = copy.deepcopy(messages)
        request = _page(paging, messages, TOO_LARGE)
        if request is None:
            continue
        sent, outcome = form.sent(request), request.reply.outcome
        form.check(sent)
        assert isinstance(outcome, ContextSelected)
        shown = wire(sent)
        (active,) = wire(form.write([s for s in steps[:count] if isinstance(s, User)][-1]))
        assert active in shown
        if outcome.mode is Mode.PAGED or outcome.mode is Mode.WITHIN_BUDGET:
            if notice == outcome.notice:
                assert shown[: len(before)] == before
            before, notice = shown, outcome.notice
            assert set(shown) <= {*wire(messages), *wire([sent[0]])}


@each_form
@given(steps=conversations(broken=True), budget=BUDGETS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_broken_history_is_repaired_or_the_call_is_aborted(
    form: Form, steps: list[Step], budget: int
) -> None:
    written = _written(form, steps)
    for policy, allowed in (("repair", ()), ("abort", (SelectionErrorCode.INVALID_MESSAGE_STRUCTURE,))):
        paging = _opened(form, budget, policy)
        for count in calls_of(steps):
            request = _page(paging, _flat(written[:count]), TOO_LARGE, *allowed)
            if request is not None:
                form.check(form.sent(request))


@each_form
@given(data=st.data(), steps=conversations(turns=4), budget=BUDGETS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_list_that_is_cut_short_or_rewritten_goes_out_valid(
    form: Form, data: Any, steps: list[Step], budget: int
) -> None:
    paging = _opened(form, budget)
    other = data.draw(conversations(turns=3))
    for _ in range(4):
        kept = data.draw(st.sampled_from([0, *calls_of(steps)]))
        script = [*steps[:kept], *data.draw(st.sampled_from([[], other]))]
        counts = list(calls_of(script)) if script else []
        if not counts:
            continue
        messages = _flat(_written(form, script[: data.draw(st.sampled_from(counts))]))
        request = _page(paging, messages, TOO_LARGE)
        if request is not None:
            form.check(form.sent(request))
