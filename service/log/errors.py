"""What can go wrong with the log."""

from __future__ import annotations

from context_paging.domain.errors import ContextPagingError


class LogUnavailable(ContextPagingError):
    """The database cannot be opened, read or written."""

    code = "LOG_UNAVAILABLE"


class ForeignLog(ContextPagingError):
    """The database is not a log, or a log of a newer version."""

    code = "FOREIGN_LOG"


class SessionConflict(ContextPagingError):
    """Another writer appended to the session, or an id of the append is taken.

    Attributes:
        expected: the last sequence the writer knew.
        found: the last sequence in the log; equal to ``expected`` when an id is taken.
    """

    code = "SESSION_CONFLICT"

    def __init__(self, session_id: str, expected: int, found: int) -> None:
        if expected == found:
            reason = (
                f"session {session_id!r} cannot take these events: the log has other events or a provider "
                "call with an id of theirs. Give every event and every call a new id."
            )
        elif found == 0 and expected > 0:
            reason = (
                f"the log does not have session {session_id!r}, which was at event {expected}: it was "
                "retired. Begin it anew, with sequence 0."
            )
        else:
            reason = (
                f"session {session_id!r} is at event {found} in the log, not at {expected}: another writer "
                "appends to it. Give every live session its own id."
            )
        super().__init__(reason)
        self.session_id = session_id
        self.expected = expected
        self.found = found


class UnknownSession(ContextPagingError):
    """The log has no such session."""

    code = "UNKNOWN_SESSION"


class UnknownCall(ContextPagingError):
    """The log has no such provider call."""

    code = "UNKNOWN_CALL"


class InvalidKey(ContextPagingError):
    """A key file is missing, is no key file, or is not the one that is needed."""

    code = "INVALID_KEY"


class ContentErased(ContextPagingError):
    """The content of the session was erased."""

    code = "CONTENT_ERASED"


class InvalidQuery(ContextPagingError):
    """A page has no rows, or a cursor is not one that a page of the same query gave."""

    code = "INVALID_QUERY"


class InvalidImport(ContextPagingError):
    """An export cannot be read, or does not fit the log it is imported into."""

    code = "INVALID_IMPORT"


class InvalidAnchor(ContextPagingError):
    """A file is no anchor, no key for anchors, or an anchor of something else."""

    code = "INVALID_ANCHOR"


class UnknownEvent(ContextPagingError):
    """The log has no such event."""

    code = "UNKNOWN_EVENT"


class SchemaMismatch(ContextPagingError):
    """A database has another schema than the one that is needed."""

    code = "SCHEMA_MISMATCH"


class InvalidOption(ContextPagingError):
    """An option of a log has a value that it cannot have."""

    code = "INVALID_OPTION"
