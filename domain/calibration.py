"""Correction of local estimates by what providers report (architecture, "Provider-backed usage").

A successful response is tied to the exact request it answered: the anchor. The next request is estimated from
the anchor's reported total; a positive undercount is split into resident overhead and a scale for the
messages that were measured (design, section 6, "Calibration").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .conversation import Conversation
from .cut import Notice
from .messages import MAX_NUMBER, MessageRef
from .projection import Projection
from .runs import Run
from .steps import Step


class SentMessage(NamedTuple):
    """One message of a request that went out. ``stored`` says whether the session holds it."""

    fingerprint: bytes
    tokens: int
    stored: bool


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that went out, and the resident input that went with it, in tokens."""

    messages: tuple[SentMessage, ...]
    resident_tokens: float

    @property
    def tokens(self) -> int:
        """Estimate of all messages."""
        return sum(message.tokens for message in self.messages)


@dataclass(frozen=True, slots=True)
class Correction:
    """The split of an undercount: tokens on top of resident input, and a factor for measured messages."""

    resident_overhead: float
    message_scale: float


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured request with its response."""

    request: SentRequest
    response: MessageRef
    reported_tokens: float
    correction: Correction | None


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """A request that was selected. Its messages are listed once a response measures it.

    Attributes:
        kept: positions of the messages of the conversation that went out, in order.
        replaced: estimates of references by the position of what they replace.
        stored: the context projection at that time; ``None`` while nothing is known of it.
        repaired: the order of the messages may be another than stored.
    """

    conversation: Conversation
    kept: tuple[Run, ...]
    notice: Notice | None
    replaced: dict[int, int]
    resident_tokens: float
    stored: Projection | None
    repaired: bool

    def sent(self) -> SentRequest:
        """What went out."""
        notice, stored = self.notice, self.stored
        messages = [] if notice is None else [SentMessage(b"", notice.tokens, False)]
        steps, next_slot = self.conversation.steps(self.kept), 0
        if stored is not None and not self.replaced and all(step.slot >= 0 for step in steps):
            messages += [SentMessage(step.ref.fingerprint, step.tokens, True) for step in steps]
            return SentRequest(tuple(messages), self.resident_tokens)
        for step in steps:
            if step.index in self.replaced:
                messages.append(SentMessage(b"", self.replaced[step.index], False))
                continue
            if self.repaired:
                slot = None if step.slot < 0 else step.slot
            else:
                slot = None if stored is None else stored.find(step.ref, next_slot)
                next_slot = next_slot if slot is None else slot + 1
            messages.append(SentMessage(step.ref.fingerprint, step.tokens, slot is not None))
        return SentRequest(tuple(messages), self.resident_tokens)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known from provider usage.

    Attributes:
        pending: the request that was selected last and has no response yet.
        overhead: the lowest resident overhead seen since this was cleared, in tokens.
    """

    pending: Selected | None = None
    anchor: Anchor | None = None
    overhead: float | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """What the messages of one request count, in tokens.

    Attributes:
        context_tokens: calibrated total of everything the host passed, ``None`` without an anchor.
        weights: costs of measured messages by position; any other message counts its own estimate.
    """

    resident: float
    context_tokens: float | None = None
    weights: dict[int, float] = field(default_factory=dict)

    def of(self, position: int, conversation: Conversation) -> float:
        """Tokens of a message of the conversation."""
        weight = self.weights.get(position)
        return conversation.tokens(position) if weight is None else weight

    def constant(self, conversation: Conversation) -> float:
        """What is added to every estimate of this selection, from the original input (design, section 6)."""
        if self.context_tokens is None:
            return 0
        surplus = sum(weight - conversation.tokens(index) for index, weight in self.weights.items())
        return self.context_tokens - (self.resident + conversation.input_tokens + surplus)


def with_response(calibration: Calibration, response: MessageRef) -> Calibration:
    """Calibration after a turn ended: an anchor, if a known request was answered with usable usage."""
    pending, reported = calibration.pending, response.reported_tokens
    if pending is None or reported is None:
        return Calibration(None, calibration.anchor, calibration.overhead)
    request = pending.sent()
    unstored = sum(message.tokens for message in request.messages if not message.stored)
    correction = _correction(
        request.resident_tokens, request.tokens + response.tokens, unstored, reported, calibration.overhead
    )
    overhead = 0.0 if correction is None else correction.resident_overhead
    return Calibration(None, Anchor(request, response, reported, correction), overhead)


def _correction(
    resident: float, messages: float, unstored: float, reported: float, previous: float | None
) -> Correction | None:
    measured = messages - unstored
    surplus = reported - resident - messages
    if surplus <= 0 or resident + measured == 0:
        return None
    overhead = surplus * (resident / (resident + measured)) if previous is None else min(previous, surplus)
    return Correction(overhead, 1 if measured == 0 else 1 + (surplus - overhead) / measured)


def costs_of(
    conversation: Conversation,
    stored: Projection | None,
    anchor: Anchor | None,
    usage_tokens: float | None,
    resident_tokens: float,
) -> Costs:
    """The costs of a new request. ``usage_tokens`` is the host's status total."""
    plain = Costs(resident_tokens)
    if anchor is None or stored is None or usage_tokens is None or not 0 < usage_tokens <= MAX_NUMBER:
        return plain
    newest = stored.last_measured()
    if newest is None or stored.message(newest).fingerprint != anchor.response.fingerprint:
        return plain
    response = _newest_measured(conversation)
    if response is None or response.slot < 0 or response.ref.fingerprint != anchor.response.fingerprint:
        return plain
    measured = _measured_steps(conversation, response, anchor.request)
    if measured is None:
        return plain
    reported = usage_tokens - stored.tokens_after(newest)
    context_tokens = max(
        0,
        reported
        + conversation.input_tokens
        - anchor.request.tokens
        - anchor.response.tokens
        + resident_tokens
        - anchor.request.resident_tokens,
    )
    correction = anchor.correction
    if correction is None or reported != anchor.reported_tokens:
        return Costs(resident_tokens, context_tokens)
    scale = correction.message_scale
    weights = {step.index: tokens * scale for step, tokens in measured}
    weights[response.index] = anchor.response.tokens * scale
    return Costs(resident_tokens + correction.resident_overhead, context_tokens, weights)


def _newest_measured(conversation: Conversation) -> Step | None:
    return next((step for step in conversation.backwards() if step.ref.reported_tokens is not None), None)


def _measured_steps(
    conversation: Conversation, response: Step, request: SentRequest
) -> list[tuple[Step, int]] | None:
    # From the newest on, so that of identical messages the later ones count as measured.
    measured = [message for message in reversed(request.messages) if message.stored]
    found: list[tuple[Step, int]] = []
    for step in conversation.backwards(response.index):
        if len(found) == len(measured):
            break
        message = measured[len(found)]
        if step.slot >= 0 and step.ref.fingerprint == message.fingerprint:
            found.append((step, message.tokens))
    return found if len(found) == len(measured) else None
