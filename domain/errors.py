"""One exception hierarchy. Every error has a stable ``code`` and a message that says what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class SelectionErrorCode(StrEnum):
    """Why a context request was aborted (architecture, "Failure behavior")."""

    INVALID_MODEL_CONTEXT = "INVALID_MODEL_CONTEXT"
    INVALID_TOKEN_BUDGET = "INVALID_TOKEN_BUDGET"
    INVALID_TRIM_TARGET = "INVALID_TRIM_TARGET"
    INVALID_MESSAGE_STRUCTURE = "INVALID_MESSAGE_STRUCTURE"
    RESIDENT_INPUT_TOO_LARGE = "RESIDENT_INPUT_TOO_LARGE"
    ACTIVE_REQUEST_TOO_LARGE = "ACTIVE_REQUEST_TOO_LARGE"


class HistoryErrorCode(StrEnum):
    """Why the raw branch cannot be projected (architecture, "Raw branch projection")."""

    INCOMPLETE_TOOL_RESULTS = "INCOMPLETE_TOOL_RESULTS"
    MISMATCHED_TOOL_RESULT = "MISMATCHED_TOOL_RESULT"
    ORPHAN_TOOL_RESULT = "ORPHAN_TOOL_RESULT"
    DUPLICATE_TOOL_RESULT = "DUPLICATE_TOOL_RESULT"


class ContextPagingError(Exception):
    """Root of all errors raised by this package."""

    code: ClassVar[str] = "CONTEXT_PAGING_ERROR"

    @property
    def told_code(self) -> str:
        """The code that other programs are told: the most specific one there is."""
        return self.code


class InvalidMessage(ContextPagingError):
    """A host message cannot be read: it is not a JSON object, or is nested too deeply."""

    code = "INVALID_MESSAGE"


class InvalidEntry(ContextPagingError):
    """A session entry cannot be read: it has no usable id or type, or names its own parent."""

    code = "INVALID_ENTRY"


class InvalidEvent(ContextPagingError):
    """A stored event has an unknown type or schema version, or fields that do not fit them."""

    code = "INVALID_EVENT"
