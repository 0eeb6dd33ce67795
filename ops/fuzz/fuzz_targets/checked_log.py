"""A log that keeps nothing, and sees that whatever it is given could be kept and read again as it was."""

from __future__ import annotations

from collections.abc import Sequence

from context_paging.domain.errors import InvalidEvent
from context_paging.service.log.codec import Encoder
from context_paging.service.log.errors import SessionConflict
from context_paging.service.log.prepared import Append
from context_paging.service.log.records import Record

ENCODE = Encoder()


class CheckedLog:
    """Takes events as `EventLog` does, with the same errors."""

    keeps_content = False

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def last_sequence(self, session_id: str) -> int:
        """Where a session ends."""
        return self._last.get(session_id, 0)

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """Take events.

        Raises:
            InvalidEvent: what the log, too, refuses at once.
            AssertionError: what it would take, and then not be able to store or read.
        """
        if expected_sequence != self.last_sequence(session_id):
            raise SessionConflict(session_id, expected_sequence, self.last_sequence(session_id))
        append = Append(session_id, expected_sequence, label, records, ENCODE)
        try:
            again = Append.from_bytes(append.to_bytes(), ENCODE)
            events = list(again.events)
        except InvalidEvent as error:
            raise AssertionError(f"an event that was taken cannot be stored: {error}") from error
        assert events == [record.event for record in records], "events read back otherwise than they were"
        assert (again.session_id, again.label) == (session_id, label)
        self._last[session_id] = append.last
        return append.last
