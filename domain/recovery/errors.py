"""Why a recovery tool refuses a call."""

from __future__ import annotations

from enum import StrEnum

from ..errors import ContextPagingError, HistoryErrorCode


class RecoveryErrorCode(StrEnum):
    """What is wrong with a call of a recovery tool."""

    PAGING_DISABLED = "PAGING_DISABLED"
    UNKNOWN_RECOVERY_TOOL = "UNKNOWN_RECOVERY_TOOL"
    INVALID_HISTORY_NAVIGATOR_INPUT = "INVALID_HISTORY_NAVIGATOR_INPUT"
    UNKNOWN_HISTORY_ANCHOR = "UNKNOWN_HISTORY_ANCHOR"
    UNKNOWN_HISTORY_ID = "UNKNOWN_HISTORY_ID"
    INVALID_OUTPUT_REQUEST = "INVALID_OUTPUT_REQUEST"
    UNKNOWN_OUTPUT = "UNKNOWN_OUTPUT"
    OUTPUT_NOT_PUBLIC = "OUTPUT_NOT_PUBLIC"
    RECOVERY_OUTPUT = "RECOVERY_OUTPUT"
    UNREADABLE_OUTPUT = "UNREADABLE_OUTPUT"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


class RecoveryRefused(ContextPagingError):
    """A recovery tool refuses a call; nothing was read.

    Attributes:
        reason: the code; that of the history where the branch has none.
    """

    code = "RECOVERY_REFUSED"

    def __init__(self, reason: RecoveryErrorCode | HistoryErrorCode, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def told_code(self) -> str:
        """The code of the reason."""
        return self.reason.value
