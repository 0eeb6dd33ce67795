"""The selector: state and a context request to an outcome, as a pure function."""

from __future__ import annotations

from ..calibration import Costs, costs_of
from ..conversation import Conversation
from ..cut import Cut, Fallback
from ..errors import SelectionErrorCode
from ..estimation import TokenEstimator
from ..events import ContextAborted, ContextRequested, ContextSelected, Mode, Parts, Rule
from ..settings import Limits, limits_of
from ..state import SessionState
from ..steps import Step
from .eviction import Eviction, Evictor, Refused
from .frontier import window_behind
from .notices import Notices
from .window import Window, answered_by_stored, whole_window

Outcome = ContextSelected | ContextAborted

_INVALID_LIMITS = {
    SelectionErrorCode.INVALID_MODEL_CONTEXT: "The active model's context window must be a positive number.",
    SelectionErrorCode.INVALID_TOKEN_BUDGET: "The token budget must be a positive safe integer.",
    SelectionErrorCode.INVALID_TRIM_TARGET: "The trim target must be a positive safe integer.",
}


def select(state: SessionState, request: ContextRequested, estimator: TokenEstimator) -> Outcome:
    """Decide a context request that ``state`` has already taken in.

    Pure: the same arguments give the same outcome. Checks come in the order of the design, section 6.
    """
    limits = limits_of(state.settings, request.context_window)
    if isinstance(limits, SelectionErrorCode):
        return ContextAborted(
            code=limits,
            rule=Rule.INVALID_LIMITS,
            message=_INVALID_LIMITS[limits],
            estimated_tokens=0,
            budget_tokens=0,
            resident_tokens=0,
            frontier_before=state.frontier,
        )
    # Under the repair policy a stored result may answer a call that only this request carries.
    if not (state.conversation.valid if state.request is None else state.conversation.paired):
        return _invalid_structure(state)
    stored, anchor = state.stored, state.calibration.anchor
    costs = costs_of(state.conversation, stored, anchor, request.usage_tokens, request.resident_tokens)
    run = _Run(state, request, costs, limits, Notices(estimator, limits.budget))
    if costs.context_tokens is None and costs.resident > limits.budget:
        return run.resident_too_large()
    return run.outcome()


class _Run:
    """A selection whose input is valid."""

    def __init__(
        self,
        state: SessionState,
        request: ContextRequested,
        costs: Costs,
        limits: Limits,
        notices: Notices,
    ) -> None:
        self._state = state
        self._request = request
        self._costs = costs
        self._limits = limits
        self._conversation = state.conversation
        self._evictor = Evictor(state.conversation, state.branch.history, costs, limits, notices)

    def resident_too_large(self) -> ContextAborted:
        resident, budget = self._costs.resident, self._limits.budget
        return ContextAborted(
            code=SelectionErrorCode.RESIDENT_INPUT_TOO_LARGE,
            rule=Rule.RESIDENT_OVER_BUDGET,
            message=f"Resident input estimate {resident:.15g} exceeds budget estimate {budget:.15g}. "
            "Shorten the system prompt, turn tools off, or raise the token budget.",
            estimated_tokens=resident,
            budget_tokens=budget,
            target_tokens=self._limits.target,
            resident_tokens=resident,
            parts=Parts(resident, 0, 0, 0, 0),
            frontier_before=self._state.frontier,
        )

    def outcome(self) -> Outcome:
        cut, branch = self._state.cut, self._state.branch
        if cut is None and self._whole_input_fits():
            window = whole_window(self._conversation)
            evicted = Eviction(Mode.WITHIN_BUDGET, 0, self._evictor.retained_tokens(window), None)
            return self._selected(window, evicted, Rule.FITS, None)
        if not branch.available:
            return self._stateless(Fallback.RAW_HISTORY_UNAVAILABLE)
        if cut is None:
            return self._advance(whole_window(self._conversation), None)
        behind = window_behind(self._conversation, branch.projection, branch.history, cut.frontier)
        if behind is None:
            return self._stateless(Fallback.FRONTIER_NOT_IN_GROUPS)
        return self._advance(behind, cut)

    def _whole_input_fits(self) -> bool:
        total = self._costs.resident + self._conversation.kept_tokens
        for index, weight in self._costs.weights.items():
            step = self._conversation.at(index)
            total += 0 if step.dropped else weight - step.tokens
        return self._evictor.calibrated(total) <= self._limits.budget

    def _advance(self, window: Window, cut: Cut | None) -> Outcome:
        try:
            evicted = self._evictor.run(window, self._limits.target, cut, keyed=True)
        except Refused as refused:
            return self._aborted(refused, window, None)
        if evicted.failure is not None:
            return self._stateless(evicted.failure)
        if evicted.count == 0:
            return self._selected(window, evicted, _rule_of(evicted.mode, Rule.CUT_HOLDS), cut)
        boundary = evicted.boundary
        if boundary is None:
            return self._stateless(Fallback.KEYLESS_NO_KEY)
        kept = cut if boundary.count == 0 and cut else Cut(boundary.frontier, boundary.notice)
        if not evicted.ends_keyless:
            return self._selected(window, evicted, _rule_of(evicted.mode, Rule.ADVANCE), kept)
        # Units without a key stay in the request, so that the cut can be found again next time.
        estimate = self._evictor.calibrated(boundary.retained + boundary.notice.tokens)
        if estimate > self._limits.budget:
            return self._stateless(Fallback.KEYLESS_SNAP_OVER_BUDGET)
        snapped = Eviction(Mode.PAGED, boundary.count, boundary.retained, boundary.notice)
        return self._selected(window, snapped, Rule.ADVANCE_SNAPPED, kept)

    def _stateless(self, fallback: Fallback) -> Outcome:
        window = whole_window(self._conversation)
        try:
            evicted = self._evictor.run(window, self._limits.budget, None, keyed=False)
        except Refused as refused:
            return self._aborted(refused, window, fallback)
        return self._selected(window, evicted, _rule_of(evicted.mode, Rule.STATELESS), None, fallback)

    def _selected(
        self,
        window: Window,
        evicted: Eviction,
        rule: Rule,
        cut: Cut | None,
        fallback: Fallback | None = None,
    ) -> ContextSelected:
        notice_tokens = evicted.notice.tokens if evicted.notice else 0
        return ContextSelected(
            mode=evicted.mode,
            rule=rule,
            kept=window.sent(evicted.count),
            notice=evicted.notice,
            replaced=evicted.replaced,
            cut=cut,
            fallback=fallback,
            estimated_tokens=self._evictor.shown(evicted.retained + notice_tokens),
            budget_tokens=self._limits.budget,
            target_tokens=self._limits.target,
            resident_tokens=self._request.resident_tokens,
            context_tokens=self._costs.context_tokens,
            parts=self._evictor.parts(window, evicted.retained, notice_tokens),
            frontier_before=self._state.frontier,
            evicted_units=evicted.count,
            largest=() if rule is Rule.FITS else self._evictor.largest(window, evicted.count),
        )

    def _aborted(self, refused: Refused, window: Window, fallback: Fallback | None) -> ContextAborted:
        parts = refused.parts
        estimate = parts.resident + parts.request + parts.units + parts.notice
        return ContextAborted(
            code=refused.code,
            rule=refused.rule,
            message=refused.message,
            estimated_tokens=self._evictor.shown(estimate),
            budget_tokens=self._limits.budget,
            target_tokens=self._limits.target,
            resident_tokens=self._costs.resident,
            parts=parts,
            frontier_before=self._state.frontier,
            fallback=fallback,
            evicted_units=refused.count,
            largest=self._evictor.largest(window, refused.count),
        )


def _invalid_structure(state: SessionState) -> ContextAborted:
    step = _what_breaks(state.conversation)
    slot = state.branch.projection.find(step.ref, 0)
    where = "only in this request" if slot is None else f"entry {state.branch.projection.entry_id(slot)}"
    return ContextAborted(
        code=SelectionErrorCode.INVALID_MESSAGE_STRUCTURE,
        rule=Rule.STRUCTURE,
        message=f"{_what_is_wrong(state.conversation)} (outgoing message {step.index}, {where}). Every tool "
        "call needs exactly one result right behind its assistant message; repair the stored conversation, "
        'or set onInvalidStructure to "repair" to leave out what breaks it.',
        frontier_before=state.frontier,
    )


def _rule_of(mode: Mode, normal: Rule) -> Rule:
    match mode:
        case Mode.PROTECTED_OVERFLOW:
            return Rule.UNREAD_RESULTS_OVER_BUDGET
        case Mode.RECOVERY:
            return Rule.UNREAD_RESULTS_OVER_WINDOW
        case _:
            return normal


def _what_breaks(conversation: Conversation) -> Step:
    last, broken = conversation.last, conversation.broken
    assert last is not None
    if broken is not None:
        return broken
    return conversation.at(min(answered_by_stored(conversation, last), default=last.exchange))


def _what_is_wrong(conversation: Conversation) -> str:
    last, broken = conversation.last, conversation.broken
    if broken is None:
        return (
            "A stored tool result follows a tool call that only this request carries"
            if last is not None and last.unowned_result
            else "A tool call has no result yet"
        )
    if broken.ref.role == "toolResult":
        return "A tool result answers no open tool call"
    return "A tool call has no result, or shares its id with another"
