"""The outgoing conversation of the host's last request, folded message by message.

Every message is a `Step` that points to the one before it, so that requests share the steps of their common
beginning: a request costs what is new in it, an older request stays valid, and a selection walks back from
the end only as far as the window reaches (design, section 12). Grouping and structure checks follow the
design, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .messages import MessageRef
from .projection import Projection

NO_SLOT = -1


class Step:
    """One outgoing message, and the fold of everything up to it.

    Attributes:
        index: position in the host's list of outgoing messages.
        slot: the slot of the context projection it matches, or `NO_SLOT`.
        outgoing_only: the host added it to this request; it is not stored.
        dropped: it belongs to an interrupted exchange and never goes out.
        request: the step that started the request it belongs to, if any did.
        in_envelope: it belongs to that request's envelope.
        envelope_end: index of the last message of that envelope.
        exchange: the assistant step whose tool results may still follow.
        broken: the first message up to here that makes an exchange invalid, whatever follows.
        unowned_result: a stored tool result of the request belongs to an outgoing-only assistant; not valid
            while the request is the active one.
        jump: an earlier step, so placed that any step is reached in a logarithmic number of jumps (Myers,
            "An applicative random-access stack", 1983).
        input_tokens: all messages up to here, in tokens; system messages count nothing.
        kept_tokens: the same without dropped messages.
        unusual: the last step up to here that is outgoing-only or whose stored content was edited.
        unstored: the last step up to here that is outgoing-only.
    """

    __slots__ = (
        "answered",
        "broken",
        "dropped",
        "envelope_end",
        "exchange",
        "follows_user",
        "in_envelope",
        "index",
        "input_tokens",
        "jump",
        "kept_tokens",
        "next_slot",
        "outgoing_only",
        "previous",
        "ref",
        "request",
        "slot",
        "unowned_result",
        "unstored",
        "unusual",
    )

    previous: Step | None
    index: int
    ref: MessageRef
    slot: int
    next_slot: int
    outgoing_only: bool
    dropped: bool
    request: Step | None
    in_envelope: bool
    follows_user: bool
    exchange: Step | None
    answered: int
    broken: Step | None
    unowned_result: bool
    jump: Step | None
    envelope_end: int
    input_tokens: int
    kept_tokens: int
    unusual: Step | None
    unstored: Step | None

    @property
    def tokens(self) -> int:
        """Estimate of the message inside a request."""
        return self.input_tokens - (0 if self.previous is None else self.previous.input_tokens)

    @property
    def exchange_complete(self) -> bool:
        """Whether the exchange that is open here needs no further result."""
        owner = self.exchange
        if owner is None or owner.ref.interrupted:
            return True
        return self.answered == (1 << len(owner.ref.calls)) - 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Conversation:
    """The outgoing messages of one request.

    Attributes:
        last: the newest message, ``None`` for an empty request.
        stored: the context projection the messages were matched against; ``None`` while it is unknown, when
            no message counts as outgoing-only.
        shared: leading messages whose steps are those of the request before.
    """

    last: Step | None = None
    stored: Projection | None = None
    shared: int = 0

    @property
    def length(self) -> int:
        """Number of messages."""
        return 0 if self.last is None else self.last.index + 1

    @property
    def active_request(self) -> Step | None:
        """Where the newest request starts, if any does."""
        return None if self.last is None else self.last.request

    @property
    def paired(self) -> bool:
        """Whether every exchange is complete, in place and free of strays."""
        return self.last is None or (self.last.broken is None and self.last.exchange_complete)

    @property
    def valid(self) -> bool:
        """The same, and stored results of the active request answer stored calls (design, section 6)."""
        return self.paired and (self.last is None or not self.last.unowned_result)

    def at(self, index: int) -> Step:
        """The step at a position, in logarithmic time.

        Raises:
            IndexError: there is no such position.
        """
        step = self.last
        while step is not None and step.index > index:
            step = step.jump if step.jump is not None and step.jump.index >= index else step.previous
        if step is None or step.index != index:
            raise IndexError(index)
        return step

    def between(self, first: int, last: int) -> list[Step]:
        """The steps from one position to another, both included."""
        steps = []
        step: Step | None = self.at(last)
        while step is not None and step.index >= first:
            steps.append(step)
            step = step.previous
        steps.reverse()
        return steps

    def backwards(self) -> Iterator[Step]:
        """The steps, newest first."""
        step = self.last
        while step is not None:
            yield step
            step = step.previous

    def followed_by(
        self, reused: int, appended: Iterable[MessageRef], stored: Projection | None, stable_slots: int
    ) -> Conversation:
        """The next request: the first ``reused`` messages of this one and then others.

        ``stable_slots`` leading slots of ``stored`` are as they were when this request was matched.

        Raises:
            IndexError: this request has fewer than ``reused`` messages.
        """
        last = self.at(reused - 1) if reused else None
        again: list[MessageRef] = []
        start = _first_to_match_again(last, self.stored, stored, stable_slots)
        while last is not None and last.index >= start:
            again.append(last.ref)
            last = last.previous
        shared = 0 if last is None else last.index + 1
        for ref in reversed(again):
            last = _follow(last, ref, stored)
        for ref in appended:
            last = _follow(last, ref, stored)
        return Conversation(last, stored, shared)

    def continued(
        self, kept: int, further: Iterable[tuple[MessageRef, Step]], stored: Projection | None
    ) -> Conversation:
        """The first ``kept`` messages of this request, and then others, each stored where a step is."""
        last = self.at(kept - 1) if kept else None
        for ref, matched in further:
            last = _follow(last, ref, stored, matched)
        return Conversation(last, stored, kept)


def runs_of(positions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Positions as runs of their first and last, in the same order."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return tuple((first, last) for first, last in runs)


def _first_to_match_again(
    last: Step | None, before: Projection | None, stored: Projection | None, stable_slots: int
) -> int:
    if last is None:
        return 0
    if before is None or stored is None:
        return 0 if before is not stored else last.index + 1
    start = last.index + 1
    step: Step | None = last
    while step is not None and step.next_slot > stable_slots:
        start = step.index
        step = step.previous
    # What was not stored then may be stored now.
    step = last.unstored
    while step is not None:
        first_slot = 0 if step.previous is None else step.previous.next_slot
        if stored.find(step.ref, first_slot) is not None:
            start = min(start, step.index)
        step = None if step.previous is None else step.previous.unstored
    return start


def _follow(
    previous: Step | None, ref: MessageRef, stored: Projection | None, matched: Step | None = None
) -> Step:
    step = Step()
    step.previous = previous
    step.ref = ref
    step.index = 0 if previous is None else previous.index + 1
    step.jump = _jump(previous)
    _match(step, previous, stored, matched)
    _check_exchange(step, previous)
    _join_request(step, previous)
    tokens = 0 if ref.role == "system" else ref.tokens
    step.input_tokens = tokens + (0 if previous is None else previous.input_tokens)
    step.kept_tokens = (0 if step.dropped else tokens) + (0 if previous is None else previous.kept_tokens)
    return step


def _jump(previous: Step | None) -> Step | None:
    if previous is None or previous.jump is None:
        return previous
    nearer, farther = previous.jump, previous.jump.jump
    if farther is not None and previous.index - nearer.index == nearer.index - farther.index:
        return farther
    return previous


def _match(step: Step, previous: Step | None, stored: Projection | None, matched: Step | None) -> None:
    next_slot = 0 if previous is None else previous.next_slot
    if matched is None:
        slot = None if stored is None else stored.find(step.ref, next_slot)
    else:
        slot = None if matched.slot == NO_SLOT else matched.slot
    step.outgoing_only = stored is not None and slot is None
    step.slot = NO_SLOT if slot is None else slot
    step.next_slot = next_slot if slot is None else max(next_slot, slot + 1)
    step.unstored = step if step.outgoing_only else (None if previous is None else previous.unstored)
    unusual = step.outgoing_only or (stored is not None and slot is not None and stored.is_edited(slot))
    step.unusual = step if unusual else (None if previous is None else previous.unusual)


def _check_exchange(step: Step, previous: Step | None) -> None:
    ref = step.ref
    step.broken = None if previous is None else previous.broken
    step.answered = 0
    step.exchange = None
    step.dropped = False
    if ref.role == "toolResult":
        owner = None if previous is None else previous.exchange
        bit = 0 if owner is None else _bit_of(owner.ref, ref.call_id)
        if owner is None or previous is None or not bit or previous.answered & bit:
            step.broken = step.broken or step
            return
        step.exchange = owner
        step.answered = previous.answered | bit
        step.dropped = owner.dropped
        return
    if previous is not None and not previous.exchange_complete:
        step.broken = step.broken or previous.exchange
    if ref.role == "assistant":
        step.exchange = step
        step.dropped = ref.interrupted
        ids = [call.id for call in ref.calls]
        if len(set(ids)) != len(ids):
            step.broken = step.broken or step


def _bit_of(assistant: MessageRef, call_id: str | None) -> int:
    for position, call in enumerate(assistant.calls):
        if call.id == call_id:
            return 1 << position
    return 0


def _join_request(step: Step, previous: Step | None) -> None:
    # What is dropped is as if it were not there.
    role = step.ref.role
    follows_user = previous is not None and previous.follows_user
    starts = (
        not step.dropped
        and not step.outgoing_only
        and (role == "user" or (role == "custom" and not follows_user))
    )
    if starts:
        step.request = step
        step.in_envelope = True
        step.envelope_end = step.index
        step.follows_user = role == "user"
        step.unowned_result = False
        return
    request = None if previous is None else previous.request
    step.request = request
    step.unowned_result = previous is not None and previous.unowned_result
    step.envelope_end = NO_SLOT if previous is None else previous.envelope_end
    if step.dropped:
        step.in_envelope = previous is not None and previous.in_envelope
        step.follows_user = follows_user
        return
    extends = request is not None and request.ref.role == "user" and (role == "custom" or step.outgoing_only)
    step.in_envelope = previous is not None and previous.in_envelope and extends
    if step.in_envelope:
        step.envelope_end = step.index
    step.follows_user = follows_user and (step.outgoing_only or role == "custom")
    owner = step.exchange
    if request is not None and role == "toolResult" and not step.outgoing_only and owner is not None:
        step.unowned_result = step.unowned_result or owner.outgoing_only
