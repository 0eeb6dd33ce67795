"""Checking the chains: is every record the one that was written, where it was, by whom it was?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from sqlalchemy import Connection, select

from .chain import GENESIS, record_hash
from .keys import LogKey
from .records import StoredEvent, StoredSession
from .tables import event_contents, events, log_identity, log_keys, sessions

READ_AT_ONCE = 1_000


class Fault(StrEnum):
    """What is wrong with a record."""

    ALTERED = "altered"
    MISSING = "missing"
    REORDERED = "reordered"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Finding:
    """The first record of a session that is not as it was written.

    Attributes:
        sequence: where it is, or where it should be.
        position: of the record; ``None`` when it is missing.
        detail: what was seen, in one sentence.
    """

    session_id: str
    sequence: int
    position: int | None
    fault: Fault
    detail: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked of a session.

    Attributes:
        records: how many records were read.
        unchained: how many of them were written before records were hashed.
        unchecked_seals: how many were sealed with a key that is not here, but that the log knows.
        finding: what is wrong, if anything.
    """

    session_id: str
    records: int
    unchained: int
    unchecked_seals: int
    finding: Finding | None


class Verifier:
    """Checks sessions of a log, with the keys that are at hand."""

    def __init__(self, connection: Connection, keys: Iterable[LogKey]) -> None:
        self._connection = connection
        self._keys: Mapping[str, LogKey] = {key.id: key for key in keys}
        self._known_keys = set(connection.scalars(select(log_keys.c.key_id)))
        self._unsealed_until = connection.scalar(select(log_identity.c.unsealed_until)) or 0

    def session_ids(self) -> list[str]:
        """All sessions that have records or a row, in order."""
        with_events = self._connection.scalars(select(events.c.session_id).distinct()).all()
        with_rows = self._connection.scalars(select(sessions.c.session_id)).all()
        return sorted({*with_events, *with_rows})

    def verify(self, session_id: str) -> Verified:
        """Check one session up to the first record that is not as it was written."""
        row = self._connection.execute(select(sessions).where(sessions.c.session_id == session_id)).first()
        head = None if row is None else StoredSession._make(row)
        check = _Check(session_id, self._keys, self._known_keys, self._unsealed_until)
        finding = None
        for event in self._records(session_id):
            finding = check.take(event) or self._content_fault(event)
            if finding is not None:
                finding = self._named(finding, event, check)
                break
        else:
            finding = check.end(head)
        return Verified(session_id, check.records, check.unchained, check.unchecked_seals, finding)

    def _records(self, session_id: str) -> Iterator[StoredEvent]:
        query = (
            select(events)
            .where(events.c.session_id == session_id)
            .order_by(events.c.sequence, events.c.position)
        )
        with self._connection.execute(query.execution_options(yield_per=READ_AT_ONCE)) as rows:
            for row in rows:
                yield StoredEvent.make(row)

    def _content_fault(self, event: StoredEvent) -> Finding | None:
        if event.content_hash is None:
            return None
        content = self._connection.scalar(
            select(event_contents.c.ciphertext).where(
                event_contents.c.session_id == event.session_id, event_contents.c.sequence == event.sequence
            )
        )
        # Without content it was erased, which leaves the chain whole.
        if content is None or sha256(content).digest() == event.content_hash:
            return None
        return _finding(event, Fault.ALTERED, "the encrypted content stored with it is another one")

    def _named(self, finding: Finding, event: StoredEvent, check: _Check) -> Finding:
        """Tell a record that stands elsewhere than it was written from one that was changed."""
        if finding.fault is not Fault.ALTERED or event.hash is None or event.previous_hash is None:
            return finding
        for sequence in self._sequences_after(event, check):
            if (
                sequence != event.sequence
                and record_hash(event, event.previous_hash, sequence=sequence) == event.hash
            ):
                detail = f"it was written as number {sequence}"
                return _finding(event, Fault.REORDERED, detail)
        return finding

    def _sequences_after(self, event: StoredEvent, check: _Check) -> list[int]:
        before = self._connection.scalars(
            select(events.c.sequence).where(
                events.c.session_id == event.session_id, events.c.hash == event.previous_hash
            )
        )
        # The record before it may have been moved as well: then its neighbours' old places are tried.
        return sorted({sequence + 1 for sequence in before} | set(range(1, check.records + 3)))[:10_000]


class _Check:
    """Follows one chain."""

    def __init__(
        self, session_id: str, keys: Mapping[str, LogKey], known_keys: set[str], unsealed_until: int
    ) -> None:
        self.records = self.unchained = self.unchecked_seals = 0
        self._session_id = session_id
        self._keys = keys
        self._known_keys = known_keys
        self._unsealed_until = unsealed_until
        self._previous = GENESIS
        self._position = 0

    def take(self, event: StoredEvent) -> Finding | None:
        expected = self.records + 1
        if event.sequence != expected:
            if event.sequence < expected:
                return _finding(event, Fault.FOREIGN, f"there are two records number {event.sequence}")
            detail = f"after number {self.records} comes number {event.sequence}"
            return Finding(self._session_id, expected, None, Fault.MISSING, detail)
        if event.hash is None or event.previous_hash is None:
            return self._take_unchained(event)
        if record_hash(event, event.previous_hash) != event.hash:
            return _finding(event, Fault.ALTERED, "it does not have the hash that was stored with it")
        if event.previous_hash != self._previous:
            return _finding(event, Fault.FOREIGN, "it does not continue the record before it")
        if event.position < self._position:
            return _finding(event, Fault.REORDERED, "it was written before the record in front of it")
        fault = self._seal_fault(event)
        if fault is not None:
            return _finding(event, Fault.FOREIGN, fault)
        self._previous = event.hash
        self._position = event.position
        self.records += 1
        return None

    def end(self, head: StoredSession | None) -> Finding | None:
        if head is None:
            if self.records == 0:
                return None
            return Finding(
                self._session_id,
                self.records,
                None,
                Fault.FOREIGN,
                "the log does not list the session at all",
            )
        if head.last_sequence > self.records:
            detail = f"the session had {head.last_sequence} records, and {self.records} are left"
            return Finding(self._session_id, self.records + 1, None, Fault.MISSING, detail)
        if head.last_sequence < self.records:
            detail = f"the session had {head.last_sequence} records when the log last wrote to it"
            return Finding(self._session_id, head.last_sequence + 1, None, Fault.FOREIGN, detail)
        if head.last_hash is not None and head.last_hash != self._previous:
            detail = "it is not the record that the log wrote last"
            return Finding(self._session_id, self.records, None, Fault.ALTERED, detail)
        return None

    def _take_unchained(self, event: StoredEvent) -> Finding | None:
        if event.position > self._unsealed_until or self._previous != GENESIS:
            return _finding(event, Fault.FOREIGN, "it has no hash, as no record of this log's own")
        self.records += 1
        self.unchained += 1
        return None

    def _seal_fault(self, event: StoredEvent) -> str | None:
        if event.seal is None or event.key_id is None or event.hash is None:
            return "it has no seal, as no record of this log's own"
        key = self._keys.get(event.key_id)
        if key is not None:
            return (
                None if key.sealed(event.hash, event.seal) else "whoever wrote it did not have the log's key"
            )
        if event.key_id not in self._known_keys:
            return f"it was sealed with a key {event.key_id} that the log does not know"
        self.unchecked_seals += 1
        return None


def _finding(event: StoredEvent, fault: Fault, detail: str) -> Finding:
    return Finding(event.session_id, event.sequence, event.position, fault, detail)
