"""One outgoing message and what is known of it, and the columns in which many of them are kept."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .messages import MessageRef

NO_SLOT = -1
NO_STEP = -1
CHUNK = 512
"""Messages of a full chunk."""

OUTGOING_ONLY = 1
DROPPED = 2
IN_ENVELOPE = 4
FOLLOWS_USER = 8
UNOWNED_RESULT = 16


class Step(NamedTuple):
    """One outgoing message, and what the messages before it make of it. Steps are named by their position.

    Attributes:
        index: position in the host's list of outgoing messages.
        slot: the slot of the context projection it matches, or `NO_SLOT`.
        flags: yes or no, a bit each.
        request: the step that started the request it belongs to, or `NO_STEP`.
        envelope_end: the last message of that request's envelope up to here.
        exchange: the assistant step whose tool results may still follow, or `NO_STEP`.
        tokens: estimate of the message inside a request; system messages count nothing.
    """

    index: int  # type: ignore[assignment]  # hides the method of tuples, which has no use here
    ref: MessageRef
    slot: int
    flags: int
    request: int
    envelope_end: int
    exchange: int
    tokens: int

    @property
    def outgoing_only(self) -> bool:
        """Whether the host added it to this request; it is not stored."""
        return self.flags & OUTGOING_ONLY != 0

    @property
    def dropped(self) -> bool:
        """Whether it belongs to an interrupted exchange and never goes out."""
        return self.flags & DROPPED != 0

    @property
    def in_envelope(self) -> bool:
        """Whether it belongs to its request's envelope."""
        return self.flags & IN_ENVELOPE != 0

    @property
    def unowned_result(self) -> bool:
        """Whether a stored tool result of the request, up to here, belongs to an outgoing-only assistant; not
        valid while the request is the active one."""
        return self.flags & UNOWNED_RESULT != 0


class Chunk:
    """Some messages in a row: a column for each thing known of them."""

    __slots__ = (
        "envelope_ends",
        "exchanges",
        "flags",
        "next_slots",
        "refs",
        "requests",
        "slots",
        "tokens",
        "tokens_before",
    )

    def __init__(self, tokens_before: int) -> None:
        self.refs: list[MessageRef] = []
        self.slots = array("i")
        # Where the search for the next message begins.
        self.next_slots = array("i")
        self.flags = array("B")
        self.requests = array("i")
        self.envelope_ends = array("i")
        self.exchanges = array("i")
        # Estimates of the messages up to each one: of those in earlier chunks, and of those in this one.
        self.tokens_before = tokens_before
        self.tokens = array("q")

    def copy(self, length: int) -> Chunk:
        """The first messages, to be added to independently."""
        copied = Chunk(self.tokens_before)
        copied.refs = self.refs[:length]
        copied.slots = self.slots[:length]
        copied.next_slots = self.next_slots[:length]
        copied.flags = self.flags[:length]
        copied.requests = self.requests[:length]
        copied.envelope_ends = self.envelope_ends[:length]
        copied.exchanges = self.exchanges[:length]
        copied.tokens = self.tokens[:length]
        return copied

    def steps(self, base: int, start: int, end: int) -> Iterator[Step]:
        """The steps from one place to another in the chunk; ``base`` is the position of its first one."""
        refs = self.refs[start:end]
        columns = zip(
            range(base + start, base + end),
            refs,
            self.slots[start:end],
            self.flags[start:end],
            self.requests[start:end],
            self.envelope_ends[start:end],
            self.exchanges[start:end],
            map(request_tokens, refs),
            strict=True,
        )
        return map(_made, columns)


# `Step._make`, without its check of the length.
_made: Callable[[Iterable[object]], Step] = partial(tuple.__new__, Step)


@dataclass(frozen=True, slots=True)
class Marked:
    """The positions of some steps, newest first: one, and those before it."""

    index: int
    earlier: Marked | None

    @staticmethod
    def each(marked: Marked | None) -> Iterator[int]:
        """The marked positions, newest first."""
        while marked is not None:
            yield marked.index
            marked = marked.earlier

    @staticmethod
    def before(marked: Marked | None, index: int) -> Marked | None:
        """The marks below a position."""
        while marked is not None and marked.index >= index:
            marked = marked.earlier
        return marked


def request_tokens(ref: MessageRef) -> int:
    """The estimate of a message inside a request; system messages count nothing."""
    return 0 if ref.role == "system" else ref.tokens
