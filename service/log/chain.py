"""The hash chain of a session: each record's hash covers the record and the hash of the one before it.

A record's hash is SHA-256 over its canonical JSON (RFC 8785), so that anybody can compute it again from the
columns of the table. The format can never change: old records must verify for ever.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, Protocol

from .column_types import storable

GENESIS = bytes(32)
"""What the first record of a session has for the hash of the one before it."""


class Hashed(Protocol):
    """The columns of a record that its hash covers."""

    @property
    def session_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def event_id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def schema_version(self) -> int: ...
    @property
    def recorded_at(self) -> datetime: ...
    @property
    def call_id(self) -> str | None: ...
    @property
    def payload(self) -> str: ...
    @property
    def content_hash(self) -> bytes | None: ...
    @property
    def key_id(self) -> str | None: ...


def record_hash(record: Hashed, previous: bytes, *, sequence: int | None = None) -> bytes:
    """A record's hash, 32 bytes; with a sequence, as if it stood there."""
    return hash_columns(
        record.session_id,
        record.sequence if sequence is None else sequence,
        record.event_id,
        record.type,
        record.schema_version,
        record.recorded_at,
        record.call_id,
        record.payload,
        record.content_hash,
        record.key_id,
        previous,
    )


def hash_columns(
    session_id: str,
    sequence: int,
    event_id: str,
    event_type: str,
    schema_version: int,
    recorded_at: datetime,
    call_id: str | None,
    payload: str,
    content_hash: bytes | None,
    key_id: str | None,
    previous: bytes,
) -> bytes:
    """SHA-256 of the canonical JSON, in UTF-8, of a record with these columns, as the table has them."""
    # Keys in order, only texts and whole numbers: what a general encoder would print, in a tenth of its time.
    text = (
        f'{{"call_id":{_known_text(call_id)},"content_hash":{_hex(content_hash)},"event_id":{_text(event_id)},'
        f'"key_id":{_known_text(key_id)},"payload":{encode_basestring(payload)},'
        f'"previous_hash":"{previous.hex()}","recorded_at":"{moment_text(recorded_at)}",'
        f'"schema_version":{schema_version},"sequence":{sequence},"session_id":{_known_text(session_id)},'
        f'"type":{_known_text(event_type)}}}'
    )
    return sha256(text.encode()).digest()


@lru_cache(maxsize=64)
def moment_text(moment: datetime) -> str:
    """A moment as ISO 8601 in UTC with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _text(value: str | None) -> str:
    encoded: Any = "null" if value is None else encode_basestring(storable(value))
    return str(encoded)


# Texts that come again with the next record.
_known_text = lru_cache(maxsize=1_024)(_text)


def _hex(value: bytes | None) -> str:
    return "null" if value is None else f'"{value.hex()}"'
