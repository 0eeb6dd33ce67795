"""What a session answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.events import (
    CompactionCancelled,
    ContextAborted,
    ContextBypassed,
    ContextSelected,
    Event,
    StatusPublished,
    StructureRepaired,
)
from context_paging.domain.messages import Message, text_content
from context_paging.domain.runs import positions_of, runs_of
from context_paging.domain.selection.notices import notice_message
from context_paging.domain.state import SessionState

from .notifications import Notification, notifications_of


class ContextAbortedError(ContextPagingError):
    """The provider must not be called: the selection was aborted."""

    def __init__(self, aborted: ContextAborted) -> None:
        super().__init__(aborted.message)
        self.aborted = aborted


@dataclass(frozen=True, slots=True)
class Reply:
    """What a callback led to: the events, and what the user is told."""

    events: tuple[Event, ...]
    notifications: tuple[Notification, ...] = ()

    @property
    def status(self) -> str | None:
        """The text for the host's status line, where it is to be set."""
        texts = [event.text for event in self.events if isinstance(event, StatusPublished)]
        return texts[-1] if texts else None

    @property
    def repairs(self) -> tuple[StructureRepaired, ...]:
        """Repairs of broken exchanges that were met for the first time."""
        return tuple(event for event in self.events if isinstance(event, StructureRepaired))

    @property
    def cancelled(self) -> bool:
        """Whether the host must cancel the compaction it announced."""
        return any(isinstance(event, CompactionCancelled) for event in self.events)


@dataclass(frozen=True, slots=True)
class ContextReply(Reply):
    """The answer to a context request.

    Attributes:
        call_id: names the provider call in the log.
        outcome: the decision; ``None`` while paging is off.
    """

    call_id: str = ""
    outcome: ContextSelected | ContextAborted | None = None
    _messages: list[Message] = field(default_factory=list)
    _sent: tuple[tuple[int, int] | Message, ...] = ()

    @property
    def aborted(self) -> ContextAborted | None:
        """The abort, if the provider must not be called."""
        return self.outcome if isinstance(self.outcome, ContextAborted) else None

    @property
    def messages(self) -> list[Message]:
        """What to send, in order. Host messages are the host's own objects.

        Raises:
            ContextAbortedError: the selection was aborted.
        """
        if isinstance(self.outcome, ContextAborted):
            raise ContextAbortedError(self.outcome)
        return self._messages

    @property
    def sent(self) -> tuple[tuple[int, int] | Message, ...]:
        """The same, with the host's messages as runs of their first and last position.

        Raises:
            ContextAbortedError: the selection was aborted.
        """
        if isinstance(self.outcome, ContextAborted):
            raise ContextAbortedError(self.outcome)
        return self._sent


@dataclass(frozen=True, slots=True)
class ToolReply(Reply):
    """The answer of a recovery tool.

    Attributes:
        result: the exact result, as JSON values. Its objects may be the host's own: not to be changed.
        text: what the model is given, at most 8,000 characters.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


def context_reply(
    events: tuple[Event, ...],
    call_id: str,
    outgoing: Sequence[Message],
    outcome: ContextSelected | ContextAborted | None,
    state: SessionState,
) -> ContextReply:
    """The answer to a request for ``outgoing``, which ``state`` has taken in."""
    notes = notifications_of(events)
    if isinstance(outcome, ContextAborted):
        return ContextReply(events, notes, call_id, outcome)
    sent = _whole(outgoing) if outcome is None else tuple(_sent(outcome, outgoing, state))
    messages: list[Message] = []
    for part in sent:
        if isinstance(part, tuple):
            messages += outgoing[part[0] : part[1] + 1]
        else:
            messages.append(part)
    return ContextReply(events, notes, call_id, outcome, messages, sent)


def outcome_name(outcome: ContextSelected | ContextAborted | ContextBypassed | None) -> str:
    """An outcome in a word; paging was off where there is none."""
    match outcome:
        case ContextAborted():
            return f"aborted ({outcome.code.value})"
        case ContextSelected():
            return outcome.mode.value
        case _:
            return "inactive"


def _whole(outgoing: Sequence[Message]) -> tuple[tuple[int, int], ...]:
    return ((0, len(outgoing) - 1),) if outgoing else ()


def _sent(
    selected: ContextSelected, outgoing: Sequence[Message], state: SessionState
) -> Iterator[tuple[int, int] | Message]:
    """What goes out, in the order sent: runs of the host's messages, and messages that are not the host's."""
    if selected.notice is not None:
        yield notice_message(selected.notice.text)
    texts = {state.host_position(item.index): item.text for item in selected.replaced}
    for first, last in selected.kept if state.request is None else _host_runs(selected, state):
        start = first
        for position in sorted(position for position in texts if first <= position <= last):
            if start < position:
                yield start, position - 1
            yield {**outgoing[position], "content": text_content(texts[position])}
            start = position + 1
        if start <= last:
            yield start, last


def _host_runs(selected: ContextSelected, state: SessionState) -> tuple[tuple[int, int], ...]:
    """What goes out of a repaired request, as runs of positions in the host's list."""
    return runs_of(map(state.host_position, positions_of(selected.kept)))
