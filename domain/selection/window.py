"""The window: the part of a conversation behind the frontier, grouped into units of eviction.

Source: design, section 6, "Grouping". Steps of interrupted exchanges are left out throughout. Units name
their messages by position: a selection costs the units of the window, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..conversation import Conversation
from ..cut import FrontierKind
from ..runs import Run, joined, positions_of, runs_of, without
from ..steps import NO_STEP, Step


class Unit(NamedTuple):
    """Messages that leave the window together.

    Attributes:
        runs: positions of what is still in the window, in the order sent; never empty.
        last_index: position of the newest message of the whole unit, evicted ones included.
        first_index: position of the unit's oldest message, evicted ones included.
    """

    kind: FrontierKind
    runs: tuple[Run, ...]
    last_index: int
    first_index: int

    @property
    def first(self) -> int:
        """The position sent first."""
        return self.runs[0][0]

    @property
    def last(self) -> int:
        """The position sent last."""
        return self.runs[-1][1]

    @property
    def positions(self) -> Iterator[int]:
        """All positions, in the order sent."""
        return positions_of(self.runs)

    def key_candidates(self, conversation: Conversation) -> Iterator[Step]:
        """Messages that may name this unit, newest first."""
        if self.kind is FrontierKind.PARTIAL_TURN:
            step = conversation.at(self.first)
            if step.ref.role == "assistant":
                yield step
            return
        for index in range(self.last_index, self.first_index - 1, -1):
            step = conversation.at(index)
            if not step.dropped:
                yield step


class Window(NamedTuple):
    """What may go out: evictable units in order, and the parts of the active turn that always go out.

    Attributes:
        units: oldest first; those of the active turn come last, from ``active_start`` on.
        envelope: the active request with what was injected behind it.
        trailing: outgoing-only messages behind the envelope, sent last.
    """

    units: tuple[Unit, ...]
    active_start: int
    envelope: tuple[Run, ...] = ()
    trailing: tuple[Run, ...] = ()
    has_active_turn: bool = False

    def sent(self, evicted: int) -> tuple[Run, ...]:
        """Positions that go out after ``evicted`` units left, in order."""
        return joined(self._sent(evicted))

    def _sent(self, evicted: int) -> Iterator[Run]:
        for unit in self.units[evicted : self.active_start]:
            yield from unit.runs
        yield from self.envelope
        for unit in self.units[max(evicted, self.active_start) :]:
            yield from unit.runs
        yield from self.trailing


def whole_window(conversation: Conversation) -> Window:
    """The window before any cut."""
    return window_of(conversation, 0)


def window_of(conversation: Conversation, start: int, remainder: Unit | None = None) -> Window:
    """The window that holds the messages of a conversation from a position on.

    ``start`` must be the start of a unit. ``remainder`` is the rest of a completed turn before it.
    The active turn's envelope and trailing messages are in the window wherever they stand.
    """
    last, active = conversation.last, conversation.active_request
    units = [] if remainder is None else [remainder]
    dropped = conversation.dropped(start if active is None else min(start, active.index))
    if active is None or last is None:
        units += _units(conversation, start, conversation.length, dropped)
        return Window(tuple(units), len(units))
    units += _units(conversation, start, active.index, dropped)
    active_start = len(units)
    answered = answered_by_stored(conversation, last)
    envelope_end = _envelope_end(last, answered)
    trailing = _trailing(conversation, last, active, answered)
    behind = max(start, envelope_end + 1)
    apart = sorted((*dropped, *trailing)) if trailing else dropped
    units += _units(conversation, behind, conversation.length, apart, active=True)
    return Window(
        tuple(units),
        active_start,
        envelope=without(active.index, envelope_end, dropped),
        trailing=runs_of(trailing),
        has_active_turn=True,
    )


def rest_of_turn(conversation: Conversation, anchor: Step, start: int, end: int) -> Unit:
    """What the window holds of a completed turn that was cut behind the exchange of ``anchor``: its envelope,
    what stands from ``start`` to its ``end``, and its trailing messages."""
    request, last = conversation.at(anchor.request), conversation.at(end)
    dropped, answered = conversation.dropped(request.index), answered_by_stored(conversation, last)
    envelope_end = _envelope_end(anchor, answered)
    envelope = without(request.index, envelope_end, dropped)
    trailing = _trailing(conversation, last, request, answered)
    rest = without(start, end, sorted((*dropped, *trailing)))
    runs = (*envelope, *rest, *runs_of(trailing))
    return Unit(FrontierKind.COMPLETED_TURN, runs, end, request.index)


def _units(
    conversation: Conversation, start: int, end: int, apart: list[int], *, active: bool = False
) -> list[Unit]:
    """The units from a position up to another, without the messages that are ``apart``, which ascend.

    Units of the ``active`` turn are exchanges.
    """
    units: list[Unit] = []
    whole, parts = FrontierKind.COMPLETED_TURN, FrontierKind.PARTIAL_TURN if active else FrontierKind.PREFIX
    left = [position for position in apart if position < end]
    position = end - 1
    while position >= start:
        if left and left[-1] == position:
            left.pop()
            position -= 1
            continue
        kind, first = whole, NO_STEP if active else conversation.request_of(position)
        if first == NO_STEP:
            kind, first = parts, conversation.exchange_of(position)
            if first == NO_STEP:
                first = position
        first = max(start, first)
        within: list[int] = []
        while left and left[-1] >= first:
            within.append(left.pop())
        runs = without(first, position, within[::-1]) if within else ((first, position),)
        units.append(Unit(kind, runs, position, runs[0][0]))
        position = first - 1
    return units[::-1]


def _trailing(conversation: Conversation, last: Step, request: Step, answered: frozenset[int]) -> list[int]:
    """Positions of outgoing-only messages of a request behind its envelope, up to the step ``last``.

    The exchanges of the assistants at ``answered`` are not among them.
    """
    found = []
    for step in conversation.unstored(last.index + 1):
        if step.index <= request.index:
            break
        if not step.dropped and not step.in_envelope and _is_trailing(conversation, step, answered):
            found.append(step.index)
    return found[::-1]


def answered_by_stored(conversation: Conversation, last: Step) -> frozenset[int]:
    """Positions of outgoing-only assistants that a stored result answers, in a request up to ``last``."""
    if not last.unowned_result:
        return frozenset()
    return frozenset(
        step.exchange
        for step in conversation.between(last.request + 1, last.index)
        if not step.outgoing_only
        and step.exchange != NO_STEP
        and conversation.at(step.exchange).outgoing_only
    )


def _envelope_end(step: Step, answered: frozenset[int]) -> int:
    # A call leaves the window together with its results.
    return min((step.envelope_end, *(position - 1 for position in answered)))


def _is_trailing(conversation: Conversation, step: Step, answered: frozenset[int]) -> bool:
    # A result that only this request carries still belongs to the stored call it answers.
    if not step.outgoing_only or step.exchange in answered:
        return False
    if step.ref.role != "toolResult" or step.exchange == NO_STEP:
        return True
    return conversation.at(step.exchange).outgoing_only
