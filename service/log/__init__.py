"""The persistent log: for audit, never read to restore a session (design, section 8)."""

from .errors import ForeignLog, LogUnavailable, SessionConflict, UnknownCall, UnknownSession
from .records import Record, StoredCall, StoredEvent, StoredSession
from .store import EventLog

__all__ = [
    "EventLog",
    "ForeignLog",
    "LogUnavailable",
    "Record",
    "SessionConflict",
    "StoredCall",
    "StoredEvent",
    "StoredSession",
    "UnknownCall",
    "UnknownSession",
]
