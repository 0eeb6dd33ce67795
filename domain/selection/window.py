"""The window: the part of a conversation behind the frontier, grouped into units of eviction.

Source: design, section 6, "Grouping". Steps of interrupted exchanges are left out throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..conversation import Conversation
from ..cut import FrontierKind
from ..steps import NO_STEP, Step


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Messages that leave the window together.

    Attributes:
        steps: what is still in the window, in the order sent.
        last_index: position of the newest message of the whole unit, evicted ones included.
        first_index: position of the unit's oldest message, evicted ones included.
    """

    kind: FrontierKind
    steps: tuple[Step, ...]
    last_index: int
    first_index: int

    def key_candidates(self, conversation: Conversation) -> Iterator[Step]:
        """Messages that may name this unit, newest first."""
        if self.kind is FrontierKind.PARTIAL_TURN:
            if self.steps[0].ref.role == "assistant":
                yield self.steps[0]
            return
        for index in range(self.last_index, self.first_index - 1, -1):
            step = conversation.at(index)
            if not step.dropped:
                yield step


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What may go out: evictable units in order, and the parts of the active turn that always go out.

    Attributes:
        units: oldest first; those of the active turn come last, from ``active_start`` on.
        envelope: the active request with what was injected behind it.
        trailing: outgoing-only messages behind the envelope, sent last.
    """

    units: tuple[Unit, ...]
    active_start: int
    envelope: tuple[Step, ...] = ()
    trailing: tuple[Step, ...] = ()
    has_active_turn: bool = False

    def sent(self, evicted: int) -> Iterator[Step]:
        """Messages that go out after ``evicted`` units left, in order."""
        for unit in self.units[evicted : self.active_start]:
            yield from unit.steps
        yield from self.envelope
        for unit in self.units[max(evicted, self.active_start) :]:
            yield from unit.steps
        yield from self.trailing


def whole_window(conversation: Conversation) -> Window:
    """The window before any cut."""
    return window_of(conversation, conversation.behind(-1))


def window_of(conversation: Conversation, steps: Iterable[Step], remainder: Unit | None = None) -> Window:
    """The window that holds some of a conversation's last steps.

    ``steps`` must begin at the start of a unit. ``remainder`` is the rest of a completed turn before them.
    The active turn's envelope and trailing messages are in the window wherever they stand.
    """
    last, active = conversation.last, conversation.active_request
    answered = _answered_by_stored(conversation, active)
    before: list[Step] = []
    behind: list[Step] = []
    for step in steps:
        if active is None or step.request != active.index:
            before.append(step)
        elif not step.in_envelope and not _is_trailing(conversation, step, answered):
            behind.append(step)
    units = [] if remainder is None else [remainder]
    for group in _grouped(before, _same_unit):
        kind = FrontierKind.PREFIX if group[0].request == NO_STEP else FrontierKind.COMPLETED_TURN
        units.append(_unit(kind, group))
    active_start = len(units)
    if active is None or last is None:
        return Window(tuple(units), active_start)
    units += [_unit(FrontierKind.PARTIAL_TURN, group) for group in _grouped(behind, _same_exchange)]
    return Window(
        tuple(units),
        active_start,
        envelope=envelope_of(conversation, active, last.envelope_end),
        trailing=trailing_of(conversation, last, active, answered),
        has_active_turn=True,
    )


def envelope_of(conversation: Conversation, request: Step, end: int) -> tuple[Step, ...]:
    """The messages of a request up to the end of its envelope."""
    return tuple(step for step in conversation.between(request.index, end) if not step.dropped)


def trailing_of(
    conversation: Conversation, last: Step, request: Step, answered: frozenset[int] = frozenset()
) -> tuple[Step, ...]:
    """Outgoing-only messages of a request behind its envelope, up to the step ``last``.

    The exchanges of the assistants at ``answered`` are not among them.
    """
    found = []
    for step in conversation.unstored(last.index + 1):
        if step.index <= request.index:
            break
        if not step.dropped and not step.in_envelope and _is_trailing(conversation, step, answered):
            found.append(step)
    return tuple(reversed(found))


def _answered_by_stored(conversation: Conversation, active: Step | None) -> frozenset[int]:
    """Positions of outgoing-only assistants of the active request that a stored result answers."""
    last = conversation.last
    if last is None or active is None or not last.unowned_result:
        return frozenset()
    return frozenset(
        step.exchange
        for step in conversation.between(active.index + 1, last.index)
        if not step.outgoing_only
        and step.exchange != NO_STEP
        and conversation.at(step.exchange).outgoing_only
    )


def _is_trailing(conversation: Conversation, step: Step, answered: frozenset[int]) -> bool:
    # A result that only this request carries still belongs to the stored call it answers.
    if not step.outgoing_only or step.exchange in answered:
        return False
    if step.ref.role != "toolResult" or step.exchange == NO_STEP:
        return True
    return conversation.at(step.exchange).outgoing_only


def _grouped(steps: list[Step], together: Callable[[Step, Step], bool]) -> list[list[Step]]:
    groups: list[list[Step]] = []
    for step in steps:
        if groups and together(groups[-1][-1], step):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _same_unit(before: Step, step: Step) -> bool:
    return before.request == step.request and (step.request != NO_STEP or _same_exchange(before, step))


def _same_exchange(before: Step, step: Step) -> bool:
    return step.exchange != NO_STEP and step.exchange == before.exchange


def _unit(kind: FrontierKind, steps: list[Step]) -> Unit:
    return Unit(kind, tuple(steps), steps[-1].index, steps[0].index)
