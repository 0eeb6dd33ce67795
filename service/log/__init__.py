"""The persistent log: for audit, never read to restore a session (design, section 8)."""

from .aio import AsyncEventLog
from .errors import (
    ContentErased,
    ForeignLog,
    InvalidAnchor,
    InvalidImport,
    InvalidKey,
    InvalidOption,
    InvalidQuery,
    LogUnavailable,
    SchemaMismatch,
    SessionConflict,
    UnknownCall,
    UnknownEvent,
    UnknownSession,
)
from .keys import LogKey
from .options import Audit, Durability, LogOptions, Payloads
from .queries import CallQuery, Page, SessionQuery
from .records import Record, StoredCall, StoredEvent, StoredSession
from .store import EventLog
from .verify import Fault, Finding, Verified

__all__ = [
    "AsyncEventLog",
    "Audit",
    "CallQuery",
    "ContentErased",
    "Durability",
    "EventLog",
    "Fault",
    "Finding",
    "ForeignLog",
    "InvalidAnchor",
    "InvalidImport",
    "InvalidKey",
    "InvalidOption",
    "InvalidQuery",
    "LogKey",
    "LogOptions",
    "LogUnavailable",
    "Page",
    "Payloads",
    "Record",
    "SchemaMismatch",
    "SessionConflict",
    "SessionQuery",
    "StoredCall",
    "StoredEvent",
    "StoredSession",
    "UnknownCall",
    "UnknownEvent",
    "UnknownSession",
    "Verified",
]
