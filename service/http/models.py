"""The shapes of what is read from the log, as JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict

from ..log import StoredEvent, Verified
from ..log.column_types import storable
from ..log.transfer.export import line_of

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time is out of range") from None


def _written(value: Any) -> Any:
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("write a time as 2026-03-01T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_in_utc)]
"""A time with its zone, in UTC; not a number of seconds."""
Text = Annotated[str, BeforeValidator(lambda value: storable(value) if isinstance(value, str) else value)]
"""What a host wrote; half characters as the log stores them."""


class _Record(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class SessionRecord(_Record):
    """A session as the log knows it; times are UTC."""

    session_id: Text
    label: Text | None
    started_at: datetime
    last_at: datetime
    last_sequence: int
    events: int
    calls: int
    aborted_calls: int
    cuts: int
    model: Text | None
    host: Text | None


class CallRecord(_Record):
    """A provider call as the log knows it; sizes in tokens."""

    call_id: Text
    session_id: Text
    number: int
    sequence: int
    requested_at: datetime
    outcome: Text
    rule: Text | None
    code: Text | None
    fallback: Text | None
    estimated_tokens: float | None
    budget_tokens: float | None
    target_tokens: float | None
    resident_tokens: float | None
    context_window: float | None
    evicted_units: int
    advanced: bool
    response_tokens: float | None
    last_sequence: int
    host: Text | None
    model: Text | None


class EventRecord(BaseModel):
    """An event in the log: see ``line_of`` of the export for its fields."""

    model_config = ConfigDict(extra="allow")
    position: int
    session_id: Text
    sequence: int
    event_id: Text
    type: Text
    schema_version: int
    recorded_at: Text
    call_id: Text | None
    payload: Text

    @classmethod
    def of(cls, event: StoredEvent) -> EventRecord:
        """An event of the log."""
        return cls(**line_of(event))


class SessionPage(BaseModel):
    """Sessions, and the cursor of the page after them."""

    rows: list[SessionRecord]
    next: str | None


class CallPage(BaseModel):
    """Provider calls, and the cursor of the page after them."""

    rows: list[CallRecord]
    next: str | None


class EventPage(BaseModel):
    """Events, and the cursor of the page after them."""

    rows: list[EventRecord]
    next: str | None


class WhatIf(BaseModel):
    """Every call decided again, or those that differ. ``incomplete``: why the rest cannot be."""

    calls: list[dict[str, Any]]
    considered: int
    differing: int
    incomplete: str | None


class Verification(BaseModel):
    """What was checked of a session. ``fault`` is what is wrong, at a ``sequence``."""

    session_id: Text
    records: int
    unchained: int
    unchecked_seals: int
    fault: str | None
    sequence: int | None

    @classmethod
    def of(cls, verified: Verified) -> Verification:
        """The result of a check."""
        finding = verified.finding
        return cls(
            session_id=verified.session_id,
            records=verified.records,
            unchained=verified.unchained,
            unchecked_seals=verified.unchecked_seals,
            fault=None if finding is None else finding.fault.value,
            sequence=None if finding is None else finding.sequence,
        )
