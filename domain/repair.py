"""The repair policy: a valid order for messages whose exchanges are broken (design, section 13).

Messages are cut into stretches, each an exchange with everything before the next one; `repair` looks at one
stretch at a time. So what it makes of a stretch never depends on what comes later, and a repaired request
begins like the one before it. Nothing is made up: messages are left out or come later, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .messages import MessageRef


class OnInvalidStructure(StrEnum):
    """What becomes of a request whose exchanges are broken."""

    ABORT = "abort"
    REPAIR = "repair"


class RepairKind(StrEnum):
    """What a repair did."""

    ORPHAN_RESULT = "orphan-result"
    """Left out a tool result that answers no call of its exchange."""
    SUPERSEDED_RESULT = "superseded-result"
    """Left out a tool result in favour of a later one for the same call."""
    INCOMPLETE_EXCHANGE = "incomplete-exchange"
    """Left out an exchange that lacks a result."""
    REPEATED_CALL_ID = "repeated-call-id"
    """Left out an exchange that calls twice by one id, so that its results cannot be told apart."""
    RESULTS_REORDERED = "results-reordered"
    """Put tool results in the order of their calls."""
    MESSAGES_MOVED = "messages-moved"
    """Put messages that stood between a call and its results behind the results."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair of a stretch, and the positions in it of the messages that were left out or moved."""

    kind: RepairKind
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A stretch after repair.

    Attributes:
        order: positions in the stretch that stay, in their new order.
        exchange: of these, how many leading ones are the exchange: the assistant and its results.
        results: positions of the results that answer calls, each call's last one; in the order of the calls
            where no call lacks one, else in stored order.
        repairs: what was done.
    """

    order: tuple[int, ...]
    exchange: int
    results: tuple[int, ...]
    repairs: tuple[Repair, ...]


class Stretch:
    """The messages of a stretch, as they come."""

    __slots__ = ("_unanswered", "messages")

    def __init__(self, messages: Iterable[MessageRef] = ()) -> None:
        self.messages: list[MessageRef] = []
        self._unanswered: set[str] = set()
        for message in messages:
            self.add(message)

    def ends_before(self, message: MessageRef) -> bool:
        """Whether a message is of another stretch.

        An exchange ends at the next assistant message, and once it needs no result, at a user message.
        Outside of exchanges every message stands alone.
        """
        if not self.messages:
            return False
        if message.role == "assistant" or self.messages[0].role != "assistant":
            return True
        return message.role == "user" and not self._unanswered

    def add(self, message: MessageRef) -> None:
        """Take in the next message."""
        if not self.messages and not message.interrupted:
            self._unanswered = {call.id for call in message.calls}
        elif message.role == "toolResult":
            self._unanswered.discard(message.call_id or "")
        self.messages.append(message)


def repair(stretch: Sequence[MessageRef]) -> Repaired:
    """What stays of a stretch, in which order."""
    first = stretch[0]
    calls = [call.id for call in first.calls] if first.role == "assistant" else []
    known = set(calls)
    orphans: list[int] = []
    superseded: list[int] = []
    answers: dict[str, int] = {}
    places: dict[str, int] = {}
    others: list[int] = []
    for position, message in enumerate(stretch):
        if message.role != "toolResult":
            if position or first.role != "assistant":
                others.append(position)
            continue
        call_id = message.call_id or ""
        if call_id not in known:
            orphans.append(position)
            continue
        if call_id in answers:
            superseded.append(answers[call_id])
        places.setdefault(call_id, position)
        answers[call_id] = position
    repairs = [
        Repair(kind, (position,))
        for kind, positions in (
            (RepairKind.ORPHAN_RESULT, orphans),
            (RepairKind.SUPERSEDED_RESULT, superseded),
        )
        for position in positions
    ]
    if first.role != "assistant":
        return Repaired(tuple(others), 0, (), tuple(repairs))
    in_place = sorted(answers, key=places.__getitem__)
    stored = tuple(answers[call_id] for call_id in in_place)
    refused = _refused(first, calls, answers)
    if refused is not None:
        repairs.append(Repair(refused, (0,)))
        return Repaired(tuple(others), 0, stored, tuple(repairs))
    complete = all(call_id in answers for call_id in calls)
    results = tuple(answers[call_id] for call_id in calls) if complete else stored
    if [call_id for call_id in calls if call_id in answers] != in_place and complete:
        repairs.append(Repair(RepairKind.RESULTS_REORDERED, results))
    last_place = max(places.values(), default=0)
    moved = tuple(position for position in others if position < last_place)
    if moved:
        repairs.append(Repair(RepairKind.MESSAGES_MOVED, moved))
    return Repaired((0, *results, *others), 1 + len(results), results, tuple(repairs))


def _refused(first: MessageRef, calls: list[str], answers: dict[str, int]) -> RepairKind | None:
    # An interrupted exchange never goes out, whatever it is like.
    if len(set(calls)) != len(calls):
        return RepairKind.REPEATED_CALL_ID
    if not first.interrupted and any(call_id not in answers for call_id in calls):
        return RepairKind.INCOMPLETE_EXCHANGE
    return None
