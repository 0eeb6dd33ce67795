"""Appends on their way to the log: as events, as rows, and as bytes in the spool."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from context_paging.domain.errors import InvalidEvent
from context_paging.domain.events import (
    SCHEMA_VERSION,
    AttemptCancelled,
    BranchNavigated,
    CompactionRequested,
    CompactionSucceeded,
    ContextAborted,
    Event,
    ModelSelected,
    PagingToggled,
    SessionShutDown,
    SessionStarted,
    SettingsReadFailed,
)

from .codec import decode
from .records import Record

Encode = Callable[[Event], str]
T = TypeVar("T")
_OF_HOSTS = frozenset(
    {
        SessionStarted,
        SettingsReadFailed,
        ModelSelected,
        BranchNavigated,
        CompactionRequested,
        CompactionSucceeded,
        AttemptCancelled,
        PagingToggled,
    }
)
LONGEST_ID = 500
"""Characters of an id: PostgreSQL's indexes hold no more than some kilobytes."""
_LARGEST = 2**63 - 1
"""What a database's integer holds."""


class PreparedEvent(NamedTuple):
    """One event as it will be stored; ``content`` is encrypted under the append's content key."""

    event_id: str
    type: str
    schema_version: int
    recorded_at: datetime
    call_id: str | None
    payload: str
    content: bytes | None = None

    @property
    def content_hash(self) -> bytes | None:
        """SHA-256 of the encrypted content: the chain covers it, and it stays when the key is destroyed."""
        return None if self.content is None else sha256(self.content).digest()


class ContentKey(NamedTuple):
    """The key contents of a session are encrypted with, wrapped by the log's key."""

    id: str
    wrapped: bytes


class Append:
    """Events that follow the sequence ``expected`` of a session: all of them or none.

    Events are made into rows when a row is needed, which is not in the provider call that led to them.

    Attributes:
        urgent: whether somebody may look at it in a moment: an abort, or the end of the session.
    """

    urgent = False
    content_key: ContentKey | None = None

    def __init__(
        self,
        session_id: str,
        expected: int,
        label: str | None,
        records: Sequence[Record],
        encode: Encode,
        prepared: Sequence[PreparedEvent] | None = None,
        content_key: ContentKey | None = None,
    ) -> None:
        self.session_id = session_id
        self.expected = expected
        self.label = label
        self._records = tuple(records)
        self._encode = encode
        self._prepared = prepared
        self._events: Sequence[Event] | None = [record.event for record in records] if records else None
        if content_key is not None:
            self.content_key = content_key
        for record in self._records:
            if type(record.event_id) is not str or len(record.event_id) > LONGEST_ID:
                _check_id("event", record.event_id)
            kind = type(record.event)
            if kind in _OF_HOSTS:
                # What a host passed may be anything, and may change: whether it can be stored is told now.
                _ = self.prepared
            elif kind is ContextAborted or kind is SessionShutDown:
                self.urgent = True

    @property
    def types(self) -> list[str]:
        """The types of its events."""
        return [record.event.type for record in self._records] or [event.type for event in self.prepared]

    @property
    def last(self) -> int:
        """The sequence of its last event."""
        return self.expected + len(self._records or self.prepared)

    def __len__(self) -> int:
        return len(self._records or self.prepared)

    @property
    def events(self) -> Sequence[Event]:
        """The events themselves.

        Raises:
            InvalidEvent: one of them cannot be read.
        """
        if self._events is None:
            self._events = [decode(row.type, row.schema_version, row.payload) for row in self.prepared]
        return self._events

    @property
    def prepared(self) -> Sequence[PreparedEvent]:
        """The events as rows.

        Raises:
            InvalidEvent: one of them cannot be stored.
        """
        if self._prepared is None:
            _check_id("session", self.session_id)
            self._prepared = [self._prepare(record) for record in self._records]
        return self._prepared

    def _prepare(self, record: Record) -> PreparedEvent:
        event, event_id, moment, call_id, _ = record
        _check_id("event", event_id)
        if call_id is not None:
            _check_id("call", call_id)
        payload = self._encode(event)
        if type(event) in _OF_HOSTS:
            # Whatever a host passed has to read back.
            decode(event.type, SCHEMA_VERSION, payload)
        return PreparedEvent(event_id, event.type, SCHEMA_VERSION, _in_utc(moment), call_id, payload)

    def after(self, record: Record) -> Append:
        """The same with a record before it."""
        (first,) = Append(self.session_id, self.expected, self.label, [record], self._encode).prepared
        return Append(
            self.session_id,
            self.expected,
            self.label,
            [record, *self._records] if self._records else [],
            self._encode,
            [first, *self.prepared],
            self.content_key,
        )

    def to_bytes(self) -> bytes:
        """For the spool: a line of JSON, and a line for each payload.

        Raises:
            InvalidEvent: an event cannot be stored.
        """
        key = self.content_key
        head = [
            self.session_id,
            self.expected,
            self.label,
            None if key is None else [key.id, _text(key.wrapped)],
            [
                [
                    event_id,
                    event_type,
                    version,
                    _moment_text(moment),
                    call_id,
                    None if content is None else _text(content),
                ]
                for event_id, event_type, version, moment, call_id, _, content in self.prepared
            ],
        ]
        return "\n".join([_json.encode(head), *[event.payload for event in self.prepared]]).encode("ascii")

    @classmethod
    def from_bytes(cls, text: bytes, encode: Encode) -> Append:
        """What `to_bytes` wrote.

        Raises:
            ValueError: it is something else.
        """
        head, *payloads = text.decode("ascii").split("\n")
        try:
            session_id, expected, label, key, rows = json.loads(head)
            content_key = None if key is None else _key(*key)
            prepared = [_row(row, payload) for row, payload in zip(rows, payloads, strict=True)]
        except (TypeError, RecursionError) as error:
            raise ValueError(f"this is no append: {error}") from None
        if not prepared or (content_key is None and any(row.content is not None for row in prepared)):
            raise ValueError("an append has events, and contents have a key")
        label = _optional(_str, label)
        return cls(_id(session_id), _whole(expected), label, [], encode, prepared, content_key)


def _check_id(whose: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_ID:
        shown = f"{value[:20]!r}…" if isinstance(value, str) else repr(value)
        raise InvalidEvent(f"the {whose} id {shown} must be text of {LONGEST_ID} characters at most")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except (AttributeError, OverflowError, ValueError) as error:
        raise InvalidEvent(f"an event cannot have been recorded at {moment!r}: {error}") from None


def _row(row: Any, payload: str) -> PreparedEvent:
    event_id, event_type, version, moment, call_id, content = row
    recorded_at = datetime.fromisoformat(moment)
    if recorded_at.utcoffset() != timedelta(0):
        raise ValueError(f"{moment} is not in UTC")
    return PreparedEvent(
        _id(event_id),
        _str(event_type),
        _whole(version),
        recorded_at,
        _optional(_id, call_id),
        payload,
        _optional(_bytes, content),
    )


def _key(key_id: Any, wrapped: Any) -> ContentKey:
    return ContentKey(_str(key_id), _bytes(wrapped))


def _str(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{type(value).__name__} is no text")
    return value


def _id(value: Any) -> str:
    if len(_str(value)) > LONGEST_ID:
        raise ValueError("an id is too long")
    return _str(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError("this is no number of events")
    return value


def _bytes(value: Any) -> bytes:
    return b64decode(_str(value), validate=True)


def _optional(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


_json = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_moment_text = lru_cache(maxsize=64)(datetime.isoformat)


def _text(value: Any) -> str:
    return b64encode(value).decode()
