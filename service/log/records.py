"""What goes into the log and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, Self

from context_paging.domain.events import Event


def period_of(moment: datetime) -> int:
    """The month of a moment, as in 202612, in UTC."""
    utc = moment.astimezone(UTC)
    return utc.year * 100 + utc.month


class Record(NamedTuple):
    """One event to append.

    Attributes:
        recorded_at: has a time zone.
        call_id: names the event's provider call.
        content: what the host passed with the event, as JSON; stored, encrypted, only by a log that keeps
            contents.
    """

    event: Event
    event_id: str
    recorded_at: datetime
    call_id: str | None = None
    content: Any = None


@dataclass(frozen=True)
class StoredEvent:
    """An event in the log, its fields in the order of the table's columns.

    Attributes:
        position: global; ``sequence`` counts from 1 within the session.
        period: the month in which the session began, as in 202612.
        content_hash: SHA-256 of the encrypted content, if content was kept.
        key_id: names the key that sealed the record.
        previous_hash: the hash of the record before it. Records of before the chain have no hashes.
        seal: shows that the key's holder wrote the record.
    """

    position: int
    session_id: str
    sequence: int
    event_id: str
    type: str
    schema_version: int
    recorded_at: datetime
    call_id: str | None
    payload: str
    period: int
    content_hash: bytes | None
    key_id: str | None
    previous_hash: bytes | None
    hash: bytes | None
    seal: bytes | None

    @classmethod
    def make(cls, columns: Iterable[Any]) -> Self:
        """An event from a row of the table."""
        return cls(*columns)

    @cached_property
    def event(self) -> Event:
        """The event itself.

        Raises:
            InvalidEvent: the stored payload is not a known event.
        """
        from .codec import decode

        return decode(self.type, self.schema_version, self.payload)


class StoredSession(NamedTuple):
    """A session as the log knows it; times are UTC. ``last_hash`` is the head of its chain."""

    session_id: str
    label: str | None
    started_at: datetime
    last_at: datetime
    last_sequence: int
    events: int
    calls: int
    aborted_calls: int
    cuts: int
    model: str | None
    host: str | None
    last_hash: bytes | None


class StoredCall(NamedTuple):
    """A provider call as the log knows it; sizes in tokens.

    Attributes:
        number: counts from 1 within the session.
        sequence: the event that requested it.
        last_sequence: the newest event of the call.
        model: the session's model when the call was requested.
        advanced: whether it moved the cut.
        response_tokens: total the provider reported with the response.
    """

    call_id: str
    session_id: str
    number: int
    sequence: int
    requested_at: datetime
    outcome: str
    rule: str | None
    code: str | None
    fallback: str | None
    estimated_tokens: float | None
    budget_tokens: float | None
    target_tokens: float | None
    resident_tokens: float | None
    context_window: float | None
    evicted_units: int
    advanced: bool
    response_tokens: float | None
    last_sequence: int
    host: str | None
    model: str | None
