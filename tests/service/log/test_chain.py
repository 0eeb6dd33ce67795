"""The canonical form of a record, and what its hash covers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from context_paging.service.log import StoredEvent
from context_paging.service.log.chain import GENESIS, moment_text, record_hash

# What the table holds: lone surrogates and NUL are escaped on the way in.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
RECORDS = st.builds(
    StoredEvent,
    position=st.integers(1, 2**53),
    session_id=TEXT,
    sequence=st.integers(1, 2**53 - 1),
    event_id=TEXT,
    type=TEXT,
    schema_version=st.integers(1, 9),
    recorded_at=st.datetimes(timezones=st.just(UTC)),
    call_id=st.none() | TEXT,
    payload=TEXT,
    period=st.just(202603),
    content_hash=st.none() | st.binary(min_size=32, max_size=32),
    key_id=st.none() | TEXT,
    previous_hash=st.just(GENESIS),
    hash=st.none(),
    seal=st.none(),
)
RECORD = StoredEvent(
    7,
    "s",
    3,
    "e-3",
    "status-published",
    2,
    datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC),
    None,
    '{"text":"on"}',
    202603,
    None,
    "0123456789abcdef",
    GENESIS,
    None,
    None,
)


@given(RECORDS)
def test_the_canonical_form_is_that_of_rfc_8785(record: StoredEvent) -> None:
    value: dict[str, Any] = {
        "call_id": record.call_id,
        "content_hash": None if record.content_hash is None else record.content_hash.hex(),
        "event_id": record.event_id,
        "key_id": record.key_id,
        "payload": record.payload,
        "previous_hash": GENESIS.hex(),
        "recorded_at": moment_text(record.recorded_at),
        "schema_version": record.schema_version,
        "sequence": record.sequence,
        "session_id": record.session_id,
        "type": record.type,
    }

    assert record_hash(record, GENESIS) == sha256(rfc8785.dumps(value)).digest()


def test_the_hash_of_a_known_record_never_changes() -> None:
    assert moment_text(RECORD.recorded_at) == "2026-03-01T12:00:00.250000Z"
    assert (
        record_hash(RECORD, GENESIS).hex()
        == "5fc68792b4a143c02ae84e31bc9528c2102d0bd5e92d9bbf40b11e1ab8ba0864"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": "t"},
        {"sequence": 4},
        {"event_id": "e-4"},
        {"type": "status"},
        {"schema_version": 1},
        {"recorded_at": RECORD.recorded_at + timedelta(microseconds=1)},
        {"call_id": ""},
        {"payload": '{"text":"of"}'},
        {"content_hash": GENESIS},
        {"key_id": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_hash_covers_every_column(change: dict[str, Any]) -> None:
    assert record_hash(replace(RECORD, **change), GENESIS) != record_hash(RECORD, GENESIS)
    assert record_hash(RECORD, sha256(b"").digest()) != record_hash(RECORD, GENESIS)


@pytest.mark.parametrize("year", [1, 999, 1970, 9999])
def test_a_moment_is_written_with_all_its_digits_and_reads_back(year: int) -> None:
    moment = datetime(year, 7, 1, tzinfo=UTC)

    assert moment_text(moment) == f"{year:04}-07-01T00:00:00.000000Z"
    assert datetime.fromisoformat(moment_text(moment)) == moment


def test_a_hash_does_not_depend_on_the_zone_a_moment_is_told_in() -> None:
    elsewhere = RECORD.recorded_at.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert record_hash(replace(RECORD, recorded_at=elsewhere), GENESIS) == record_hash(RECORD, GENESIS)
