"""First in, first out: units leave the window until the estimate is at the target (design, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from ..calibration import Costs
from ..conversation import Conversation
from ..cut import Cut, Fallback, Frontier, FrontierKind, Notice, cut_key
from ..errors import SelectionErrorCode
from ..events import Mode, Parts, Replacement, Rule, UnitSize
from ..history import History
from ..messages import MessageRef
from ..runs import Run, positions_of
from ..settings import Limits
from .notices import Notices, ToolReference
from .window import Unit, Window

LARGEST_UNITS = 8
"""How many units an outcome names."""
_SHORTEN = "Shorten the request or the resident input, or raise the token budget."


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place where the cut can be: behind ``count`` evicted units, named by a key.

    ``retained`` is the estimate of everything behind it, in tokens, without notice and calibration.
    """

    count: int
    frontier: Frontier
    notice: Notice
    retained: float


@dataclass(frozen=True, slots=True)
class Eviction:
    """What a run of evictions came to.

    Attributes:
        count: units that left.
        retained: estimate of what goes out, references in place of what they replace, without the notice.
        boundary: the newest place that a key names; of the remembered cut if nothing later has one.
        ends_keyless: whether the last evicted unit has no key.
        failure: why no cut can be made of this run.
    """

    mode: Mode
    count: int
    retained: float
    notice: Notice | None
    replaced: tuple[Replacement, ...] = ()
    boundary: Boundary | None = None
    ends_keyless: bool = False
    failure: Fallback | None = None


class _Named(NamedTuple):
    """What a notice names."""

    newest_id: str | None
    reference: ToolReference | None = None


class _Reached(NamedTuple):
    """A boundary whose notice is not written."""

    evicted: int
    frontier: Frontier
    named: _Named
    retained: float


class Refused(Exception):
    """A run that cannot end below its limits; ``count`` units had left by then."""

    def __init__(self, code: SelectionErrorCode, rule: Rule, message: str, parts: Parts, count: int) -> None:
        super().__init__(message)
        self.code = code
        self.rule = rule
        self.message = message
        self.parts = parts
        self.count = count


class Evictor:
    """Runs evictions over windows of one request."""

    def __init__(
        self, conversation: Conversation, history: History, costs: Costs, limits: Limits, notices: Notices
    ) -> None:
        self.constant = costs.constant(conversation)
        self._conversation = conversation
        self._history = history
        self._costs = costs
        self._limits = limits
        self._notices = notices
        self._sized: tuple[Window, list[float]] | None = None

    def calibrated(self, estimate: float) -> float:
        """An estimate, resident input included, with the calibration of this selection."""
        return estimate + self.constant

    def shown(self, estimate: float) -> float:
        """The same as people and hosts see it: never negative."""
        return max(0, self.calibrated(estimate))

    def request_tokens(self, window: Window) -> float:
        """Resident input, envelope and trailing messages: what goes out whatever is evicted."""
        costs = self._costs
        return costs.resident + self._total(window.envelope) + self._total(window.trailing)

    def retained_tokens(self, window: Window) -> float:
        """What goes out as long as no unit left."""
        return self.request_tokens(window) + sum(self._sizes(window))

    def parts(self, window: Window, retained: float, notice: float) -> Parts:
        """The split of an estimate."""
        request = self.request_tokens(window) - self._costs.resident
        units = retained - request - self._costs.resident
        return Parts(self._costs.resident, request, units, notice, self.constant)

    def largest(self, window: Window, evicted: int) -> tuple[UnitSize, ...]:
        """The largest units that are still in the window."""
        units, sizes = window.units[evicted:], self._sizes(window)[evicted:]
        sized = [(-size, unit.first, at) for at, (size, unit) in enumerate(zip(sizes, units, strict=True))]
        protected = unread_exchange(self._conversation, window, self._history)
        # Ids are looked up for those that are shown, not for the whole window.
        return tuple(
            UnitSize(
                (unit := units[at]).kind,
                first,
                unit.last,
                -negative,
                unit is protected,
                next(self._known_ids(unit), None),
                tuple(dict.fromkeys(call.name for ref in self._refs(unit) for call in ref.calls)),
            )
            for negative, first, at in sorted(sized)[:LARGEST_UNITS]
        )

    def run(self, window: Window, destination: float, previous: Cut | None, *, keyed: bool) -> Eviction:
        """Evict until the calibrated estimate is at ``destination``, if it is above the budget at all.

        Without ``keyed`` no boundary is looked for. Raises:
            Refused: what must go out is above its limit.
        """
        limits = self._limits
        retained, notice = self.retained_tokens(window), previous.notice if previous else None
        if self._fits(retained, notice, limits.budget):
            return Eviction(Mode.PAGED if previous else Mode.WITHIN_BUDGET, 0, retained, notice)
        request, sizes = self.request_tokens(window), self._sizes(window)
        if window.has_active_turn and self.calibrated(request) > limits.budget:
            self._refuse_request(window, request)
        unread = unread_exchange(self._conversation, window, self._history)
        named = _Named(previous.frontier.last_evicted.history_id if previous else None)
        reached = None if previous is None else _Reached(0, previous.frontier, named, retained)
        ends_keyless, failure = False, None
        limit, count = min(destination, limits.budget), 0

        def told() -> Notice | None:
            return notice if count == 0 else self._notices.normal(named.newest_id, named.reference)

        def boundary() -> Boundary | None:
            if reached is None:
                return None
            told_there = notice if reached.evicted == 0 else self._notices.normal(*reached.named)
            assert told_there is not None
            return Boundary(reached.evicted, reached.frontier, told_there, reached.retained)

        # The notice only adds to what is retained: it is not written before it can matter.
        while self.calibrated(retained) > limit or not self._fits(retained, told(), limit):
            if count == len(window.units) or window.units[count] is unread:
                mode, retained, sent, replaced = self._protected(window, count, retained, told(), unread)
                return Eviction(mode, count, retained, sent, replaced, boundary(), ends_keyless, failure)
            unit = window.units[count]
            retained -= sizes[count]
            count += 1
            named = _Named(
                next(self._known_ids(unit), named.newest_id),
                named.reference or self._first_reference(unit),
            )
            if keyed:
                frontier, unresolved = self._frontier_of(unit, window)
                ends_keyless = frontier is None
                if unresolved:
                    failure = Fallback.CUT_KEY_UNRESOLVED
                if frontier is not None:
                    reached = _Reached(count, frontier, named, retained)
        return Eviction(Mode.PAGED, count, retained, told(), (), boundary(), ends_keyless, failure)

    def _sizes(self, window: Window) -> list[float]:
        """Tokens of the units of a window."""
        if self._sized is None or self._sized[0] is not window:
            self._sized = window, [self._total(unit.runs) for unit in window.units]
        return self._sized[1]

    def _refs(self, unit: Unit) -> list[MessageRef]:
        return self._conversation.refs(unit.runs)

    def _total(self, runs: tuple[Run, ...]) -> float:
        weights = self._costs.weights
        if not weights:
            return self._conversation.tokens_of(runs)
        return sum(self._costs.of(position, self._conversation) for position in positions_of(runs))

    def _fits(self, retained: float, notice: Notice | None, limit: float) -> bool:
        return self.calibrated(retained + (notice.tokens if notice else 0)) <= limit

    def _protected(
        self, window: Window, count: int, retained: float, notice: Notice | None, unread: Unit | None
    ) -> tuple[Mode, float, Notice | None, tuple[Replacement, ...]]:
        # Only protected content is left.
        if self._fits(retained, notice, self._limits.budget):
            return Mode.PAGED, retained, notice, ()
        if unread is None:
            self._refuse_retained(window, count, retained, notice)
        overflow = self._notices.overflow()
        if self._fits(retained, overflow, self._limits.window):
            return Mode.PROTECTED_OVERFLOW, retained, overflow, ()
        replaced, saved = self._references(unread)
        recovery = self._notices.recovery()
        if self._fits(retained - saved, recovery, self._limits.window):
            return Mode.RECOVERY, retained - saved, recovery, replaced
        self._refuse_references(window, count, retained - saved, recovery)

    def _references(self, unread: Unit) -> tuple[tuple[Replacement, ...], float]:
        replaced, saved = [], 0.0
        for position in unread.positions:
            reference = self._reference_to(position)
            if reference is None:
                continue
            text = self._notices.reference(reference.history_id, reference.call_id)
            replaced.append(Replacement(position, text.text, text.tokens))
            saved += self._costs.of(position, self._conversation) - text.tokens
        return tuple(replaced), saved

    def _known_ids(self, unit: Unit) -> Iterator[str]:
        """Where the unit's messages can be read again, the newest one's first."""
        known_ids = map(self._history.recovery_id, reversed(self._refs(unit)))
        return (known for known in known_ids if known is not None)

    def _first_reference(self, unit: Unit) -> ToolReference | None:
        return next((ref for ref in map(self._reference_to, unit.positions) if ref is not None), None)

    def _reference_to(self, position: int) -> ToolReference | None:
        ref = self._conversation.ref(position)
        if ref.role != "toolResult" or ref.call_id is None:
            return None
        owner = self._history.owner_of_call(ref.call_id)
        if owner is None or not owner.has_result(ref.call_id):
            return None
        return ToolReference(owner.id, ref.call_id, ref.tool_name or "")

    def _frontier_of(self, unit: Unit, window: Window) -> tuple[Frontier | None, bool]:
        # The second value: a stored message could not be told from others, so no cut can be remembered.
        for step in unit.key_candidates(self._conversation):
            if step.ref.role not in ("user", "assistant"):
                continue
            key = cut_key(step.ref, self._history)
            if key is not None:
                return Frontier(unit.kind, key, self._user_id(unit, window)), False
            if not step.outgoing_only:
                return None, True
        return None, False

    def _user_id(self, unit: Unit, window: Window) -> str | None:
        if unit.kind is not FrontierKind.PARTIAL_TURN:
            return None
        envelope = self._conversation.refs(window.envelope)
        owner = next((ref for ref in envelope if ref.role == "user"), None)
        key = None if owner is None else cut_key(owner, self._history)
        return None if key is None else key.history_id

    def _refuse_request(self, window: Window, request: float) -> NoReturn:
        estimate, budget = self.shown(request), self._limits.budget
        raise Refused(
            SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE,
            Rule.REQUEST_OVER_BUDGET,
            f"Resident plus active request estimate {estimate:.15g} exceeds budget estimate {budget:.15g}. "
            f"{_SHORTEN}",
            self.parts(window, request, 0),
            0,
        )

    def _refuse_retained(
        self, window: Window, count: int, retained: float, notice: Notice | None
    ) -> NoReturn:
        parts = self.parts(window, retained, notice.tokens if notice else 0)
        estimate, budget = self.shown(retained + parts.notice), self._limits.budget
        raise Refused(
            SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE
            if window.has_active_turn
            else SelectionErrorCode.RESIDENT_INPUT_TOO_LARGE,
            Rule.RETAINED_OVER_BUDGET,
            f"Resident and retained request estimate {estimate:.15g} exceeds budget estimate {budget:.15g}. "
            f"{_SHORTEN}",
            parts,
            count,
        )

    def _refuse_references(self, window: Window, count: int, retained: float, notice: Notice) -> NoReturn:
        estimate, limit = self.shown(retained + notice.tokens), self._limits.window
        raise Refused(
            SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE,
            Rule.REFERENCES_OVER_WINDOW,
            f"Protected exchange recovery estimate {estimate:.15g} exceeds the model window {limit:.15g}. "
            "Use a model with a larger context window, or shorten the request.",
            self.parts(window, retained, notice.tokens),
            count,
        )


def unread_exchange(conversation: Conversation, window: Window, history: History) -> Unit | None:
    """The newest exchange of the active turn, if the history ends with it: it is unread."""
    if len(window.units) == window.active_start:
        return None
    unit = window.units[-1]
    assistant, *answers = conversation.refs(unit.runs)
    turn = history.turn_of(assistant) if assistant.calls else None
    newest = history.last
    if turn is None or newest is None or turn.sequence != newest.sequence:
        return None
    calls = [call.id for call in assistant.calls] == [call.id for call in turn.message.calls]
    results = [ref.call_id for ref in answers] == [ref.call_id for ref in turn.results]
    return unit if calls and results else None
