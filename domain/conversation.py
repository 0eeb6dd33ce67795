"""The outgoing conversation of the host's last request, folded message by message.

Messages stand in columns, in chunks that requests share as far as they begin alike: a request costs what is
new in it, an older request stays valid, and a selection looks at no more than the window reaches (design,
section 12). Grouping and structure checks follow the design, section 6.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from .messages import MessageRef
from .projection import Projection
from .runs import Run, without
from .steps import (
    CHUNK,
    DROPPED,
    FOLLOWS_USER,
    IN_ENVELOPE,
    NO_SLOT,
    NO_STEP,
    OUTGOING_ONLY,
    UNOWNED_RESULT,
    Chunk,
    Marked,
    Step,
    request_tokens,
)


@dataclass(frozen=True, slots=True)
class _Broken:
    """The first thing that makes an exchange invalid, whatever follows: what it is, and where that shows."""

    index: int
    shown_at: int


@dataclass(frozen=True, slots=True)
class _Fold:
    """What all messages of a request come to.

    Attributes:
        answered: calls of the open exchange that have a result, a bit each.
        kept_tokens: all messages but the dropped ones.
        unusual: steps that are outgoing-only, whose stored content was edited, or that are out of order.
        unstored: steps that are outgoing-only.
        dropped: steps that never go out.
    """

    answered: int = 0
    kept_tokens: int = 0
    broken: _Broken | None = None
    unusual: Marked | None = None
    unstored: Marked | None = None
    dropped: Marked | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Conversation:
    """The outgoing messages of one request.

    Attributes:
        length: number of messages.
        stored: the context projection the messages were matched against; ``None`` while it is unknown, when
            no message counts as outgoing-only.
        shared: leading messages whose steps are those of the request before.
    """

    _chunks: list[Chunk] = field(default_factory=list)
    length: int = 0
    stored: Projection | None = None
    shared: int = 0
    _fold: _Fold = _Fold()

    @property
    def last(self) -> Step | None:
        """The newest message, ``None`` for an empty request."""
        return self.at(self.length - 1) if self.length else None

    @property
    def active_request(self) -> Step | None:
        """Where the newest request starts, if any does."""
        last = self.last
        return None if last is None or last.request == NO_STEP else self.at(last.request)

    @property
    def input_tokens(self) -> int:
        """Estimate of all messages."""
        return self.tokens_of(((0, self.length - 1),)) if self.length else 0

    @property
    def kept_tokens(self) -> int:
        """Estimate of all messages but the dropped ones."""
        return self._fold.kept_tokens

    @property
    def broken(self) -> Step | None:
        """The first message that makes an exchange invalid, whatever follows."""
        broken = self._fold.broken
        return None if broken is None else self.at(broken.index)

    @property
    def exchange_complete(self) -> bool:
        """Whether the exchange that is open at the end needs no further result."""
        last = self.last
        if last is None or last.exchange == NO_STEP:
            return True
        return _complete(self.ref(last.exchange), self._fold.answered)

    @property
    def paired(self) -> bool:
        """Whether every exchange is complete, in place and free of strays."""
        return self._fold.broken is None and self.exchange_complete

    @property
    def valid(self) -> bool:
        """The same, and stored results of the active request answer stored calls (design, section 6)."""
        last = self.last
        return self.paired and (last is None or not last.unowned_result)

    def at(self, index: int) -> Step:
        """The step at a position.

        Raises:
            IndexError: there is no such position.
        """
        if not 0 <= index < self.length:
            raise IndexError(index)
        chunk, at = self._chunks[index // CHUNK], index % CHUNK
        ref = chunk.refs[at]
        return Step(
            index,
            ref,
            chunk.slots[at],
            chunk.flags[at],
            chunk.requests[at],
            chunk.envelope_ends[at],
            chunk.exchanges[at],
            request_tokens(ref),
        )

    def ref(self, index: int) -> MessageRef:
        """The message at a position."""
        return self._chunks[index // CHUNK].refs[index % CHUNK]

    def tokens(self, index: int) -> int:
        """The estimate of the message at a position."""
        return request_tokens(self.ref(index))

    def tokens_of(self, runs: Iterable[Run]) -> int:
        """The estimate of the messages at some positions."""
        total, chunks = 0, self._chunks
        for first, last in runs:
            chunk = chunks[last // CHUNK]
            total += chunk.tokens_before + chunk.tokens[last % CHUNK]
            if first:
                chunk = chunks[(first - 1) // CHUNK]
                total -= chunk.tokens_before + chunk.tokens[(first - 1) % CHUNK]
        return total

    def request_of(self, index: int) -> int:
        """The step that started the request the step at a position belongs to, or `NO_STEP`."""
        return self._chunks[index // CHUNK].requests[index % CHUNK]

    def between(self, first: int, last: int) -> list[Step]:
        """The steps from one position to another, both included."""
        return self.steps(((first, last),))

    def refs(self, runs: Iterable[Run]) -> list[MessageRef]:
        """The messages at some positions."""
        refs: list[MessageRef] = []
        for chunk, _, start, end in self._pieces(runs):
            refs += chunk.refs[start:end]
        return refs

    def steps(self, runs: Iterable[Run]) -> list[Step]:
        """The steps at some positions."""
        steps: list[Step] = []
        for chunk, base, start, end in self._pieces(runs):
            steps += chunk.steps(base, start, end)
        return steps

    def exchange_of(self, index: int) -> int:
        """The assistant step whose exchange the step at a position belongs to, or `NO_STEP`."""
        return self._chunks[index // CHUNK].exchanges[index % CHUNK]

    def dropped(self, start: int) -> list[int]:
        """The positions of the dropped steps from a position on."""
        return list(takewhile(lambda index: index >= start, Marked.each(self._fold.dropped)))[::-1]

    def backwards(self, before: int | None = None) -> Iterator[Step]:
        """The steps before a position, or all, newest first."""
        end, count = self.length if before is None else before, 8
        # Often the first few are all that is asked for; else very many are.
        while end > 0:
            start = max(0, end - count)
            yield from reversed(self.between(start, end - 1))
            end, count = start, min(CHUNK, 4 * count)

    def unstored(self, before: int | None = None) -> Iterator[Step]:
        """The steps that are outgoing-only, newest first; those before a position, or all."""
        marked = self._fold.unstored
        return self._marked(marked if before is None else Marked.before(marked, before))

    def unusual(self) -> Iterator[Step]:
        """The steps that are outgoing-only, whose stored content was edited, or that are stored before a
        step in front of them, newest first."""
        return self._marked(self._fold.unusual)

    def with_slot(self, slot: int) -> Step | None:
        """The step that matches a slot, unless it stands behind one that matches a later slot."""
        index = bisect_right(range(self.length), slot, key=self._next_slot_after)
        step = self.at(index) if index < self.length else None
        return None if step is None or step.slot != slot else step

    def followed_by(
        self, reused: int, appended: Iterable[MessageRef], stored: Projection | None, stable_slots: int
    ) -> Conversation:
        """The next request: the first ``reused`` messages of this one and then others.

        ``stable_slots`` leading slots of ``stored`` are as they were when this request was matched.

        Raises:
            IndexError: this request has fewer than ``reused`` messages.
        """
        if reused > self.length:
            raise IndexError(reused)
        start = self._first_to_match_again(reused, stored, stable_slots)
        following = _Following(self, start, stored)
        for index in range(start, reused):
            following.match(self.ref(index))
        for ref in appended:
            following.match(ref)
        return following.conversation()

    def continued(
        self, kept: int, further: Iterable[tuple[MessageRef, Step]], stored: Projection | None
    ) -> Conversation:
        """The first ``kept`` messages of this request, and then others, each stored where a step is.

        Raises:
            IndexError: this request has fewer than ``kept`` messages.
        """
        if kept > self.length:
            raise IndexError(kept)
        following = _Following(self, kept, stored)
        for ref, matched in further:
            following.add(ref, matched.slot)
        return following.conversation()

    def _marked(self, marked: Marked | None) -> Iterator[Step]:
        return map(self.at, Marked.each(marked))

    def _pieces(self, runs: Iterable[Run]) -> Iterator[tuple[Chunk, int, int, int]]:
        """The chunks that hold some positions, each with where it begins and the part of it that is meant."""
        for first, last in runs:
            for number in range(first // CHUNK, last // CHUNK + 1):
                base = number * CHUNK
                yield self._chunks[number], base, max(0, first - base), min(CHUNK, last + 1 - base)

    def _next_slot(self, index: int) -> int:
        """Where the search for the message at a position begins."""
        return self._next_slot_after(index - 1) if index else 0

    def _next_slot_after(self, index: int) -> int:
        return self._chunks[index // CHUNK].next_slots[index % CHUNK]

    def _first_to_match_again(self, reused: int, stored: Projection | None, stable_slots: int) -> int:
        if self.stored is None or stored is None:
            return 0 if self.stored is not stored else reused
        start = reused
        while start and self._next_slot(start) > stable_slots:
            start -= 1
        # What was not stored then may be stored now.
        for step in self.unstored(reused):
            if stored.find(step.ref, self._next_slot(step.index)) is not None:
                start = min(start, step.index)
        return start


class _Following:
    """A request in the making: the beginning of another, and further messages."""

    def __init__(self, base: Conversation, kept: int, stored: Projection | None) -> None:
        self.stored = stored
        self.shared = self.length = kept
        self.chunks = _chunks_before(base, kept)
        fold = base._fold
        self.input_tokens = base.tokens_of(((0, kept - 1),)) if kept else 0
        left_out = without(kept, base.length - 1, base.dropped(kept))
        self.kept_tokens = fold.kept_tokens - base.tokens_of(left_out)
        self.broken = fold.broken if fold.broken is not None and fold.broken.shown_at < kept else None
        self.unusual = Marked.before(fold.unusual, kept)
        self.unstored = Marked.before(fold.unstored, kept)
        self.dropped = Marked.before(fold.dropped, kept)
        self.next_slot = base._next_slot(kept)
        self.flags, self.request, self.envelope_end, self.exchange = 0, NO_STEP, NO_STEP, NO_STEP
        self.owner: MessageRef | None = None
        self.answered = 0
        if kept:
            last = base.at(kept - 1)
            self.flags, self.request, self.envelope_end = last.flags, last.request, last.envelope_end
            self.exchange = last.exchange
        if self.exchange != NO_STEP:
            self.owner = base.ref(self.exchange)
            if kept == base.length:
                self.answered = fold.answered
            else:
                for index in range(self.exchange + 1, kept):
                    self.answered |= _bit_of(self.owner, base.ref(index).call_id)

    def conversation(self) -> Conversation:
        """The request."""
        fold = _Fold(self.answered, self.kept_tokens, self.broken, self.unusual, self.unstored, self.dropped)
        return Conversation(self.chunks, self.length, self.stored, self.shared, fold)

    def match(self, ref: MessageRef) -> None:
        """Take in a message, matched with the stored ones."""
        slot = None if self.stored is None else self.stored.find(ref, self.next_slot)
        self.add(ref, NO_SLOT if slot is None else slot)

    def add(self, ref: MessageRef, slot: int) -> None:
        """Take in a message that is stored in a slot, or in none."""
        index, stored = self.length, self.stored
        outgoing_only = False
        if slot != NO_SLOT:
            in_order = slot >= self.next_slot
            if in_order:
                self.next_slot = slot + 1
            if not in_order or (stored is not None and stored.is_edited(slot)):
                self.unusual = Marked(index, self.unusual)
        elif stored is not None:
            outgoing_only = True
            self.unstored = Marked(index, self.unstored)
            self.unusual = Marked(index, self.unusual)
        dropped = self._check_exchange(ref, index)
        flags = self._join_request(ref.role, index, outgoing_only, dropped)
        tokens = request_tokens(ref)
        if index % CHUNK == 0:
            self.chunks.append(Chunk(self.input_tokens))
        self.input_tokens += tokens
        if dropped:
            self.dropped = Marked(index, self.dropped)
        else:
            self.kept_tokens += tokens
        chunk = self.chunks[-1]
        chunk.tokens.append(self.input_tokens - chunk.tokens_before)
        chunk.refs.append(ref)
        chunk.slots.append(slot)
        chunk.next_slots.append(self.next_slot)
        chunk.flags.append(flags)
        chunk.requests.append(self.request)
        chunk.envelope_ends.append(self.envelope_end)
        chunk.exchanges.append(self.exchange)
        self.flags = flags
        self.length = index + 1

    def _check_exchange(self, ref: MessageRef, index: int) -> bool:
        """Take a message into the open exchange, or begin another; whether the message is dropped."""
        owner = self.owner
        if ref.role == "toolResult":
            bit = 0 if owner is None else _bit_of(owner, ref.call_id)
            if owner is None or not bit or self.answered & bit:
                self._breaks(index, index)
                self.exchange, self.owner, self.answered = NO_STEP, None, 0
                return False
            self.answered |= bit
            return owner.interrupted
        if owner is not None and not _complete(owner, self.answered):
            self._breaks(self.exchange, index)
        self.exchange, self.owner, self.answered = NO_STEP, None, 0
        if ref.role != "assistant":
            return False
        self.exchange, self.owner = index, ref
        if len(ref.calls) > 1 and len({call.id for call in ref.calls}) != len(ref.calls):
            self._breaks(index, index)
        return ref.interrupted

    def _breaks(self, index: int, shown_at: int) -> None:
        self.broken = self.broken or _Broken(index, shown_at)

    def _join_request(self, role: str, index: int, outgoing_only: bool, dropped: bool) -> int:
        """Begin a request, or join the one before; the flags of the message."""
        # What is dropped is as if it were not there.
        before = self.flags
        if dropped:
            kept = before & (IN_ENVELOPE | FOLLOWS_USER | UNOWNED_RESULT)
            return kept | DROPPED | (OUTGOING_ONLY if outgoing_only else 0)
        follows_user = before & FOLLOWS_USER
        if not outgoing_only and (role == "user" or (role == "custom" and not follows_user)):
            self.request = self.envelope_end = index
            return IN_ENVELOPE | (FOLLOWS_USER if role == "user" else 0)
        flags = before & UNOWNED_RESULT
        if outgoing_only:
            flags |= OUTGOING_ONLY
        if outgoing_only or role == "custom":
            flags |= follows_user
            if before & IN_ENVELOPE and self._ref(self.request).role == "user":
                flags |= IN_ENVELOPE
                self.envelope_end = index
        elif role == "toolResult" and NO_STEP not in (self.request, self.exchange):
            owner = self.chunks[self.exchange // CHUNK].flags[self.exchange % CHUNK]
            if owner & OUTGOING_ONLY:
                flags |= UNOWNED_RESULT
        return flags

    def _ref(self, index: int) -> MessageRef:
        return self.chunks[index // CHUNK].refs[index % CHUNK]


def _chunks_before(base: Conversation, kept: int) -> list[Chunk]:
    """Chunks with the first messages of a request, to be added to; the request itself may share them."""
    chunks = base._chunks
    full, rest = divmod(kept, CHUNK)
    if (
        kept == base.length
        and len(chunks) == full + (rest > 0)
        and (not rest or len(chunks[full].refs) == rest)
    ):
        return chunks
    kept_chunks = chunks[:full]
    if rest:
        kept_chunks.append(chunks[full].copy(rest))
    return kept_chunks


def _complete(owner: MessageRef, answered: int) -> bool:
    return owner.interrupted or answered == (1 << len(owner.calls)) - 1


def _bit_of(assistant: MessageRef, call_id: str | None) -> int:
    for position, call in enumerate(assistant.calls):
        if call.id == call_id:
            return 1 << position
    return 0
