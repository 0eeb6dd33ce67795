"""What a database's own errors mean to the one who runs it."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from .errors import LogUnavailable

_ADVICE = {
    "locked": "Another process has been writing for too long: find out which, or try again.",
    "busy": "Another process has been writing for too long: find out which, or try again.",
    "full": "Make space on its disk.",
    "readonly": "Give this user the right to write to the file and to its folder.",
    "read-only": "Give this user the right to write.",
    "unable to open": "Check that its folder exists and that this user may write there.",
    "not a database": "The file is something else: give another path.",
    "disk I/O error": "Look after its disk.",
    "connection": "Check that the server runs and can be reached from here.",
    "timeout": "The server was too slow: look at what it is doing.",
    "malformed": "The file is damaged: restore it from a backup, or begin a new log at another path.",
}
_GENERAL_ADVICE = "Check that it exists and is a log, that there is space, and that you may write to it."


class telling_errors:
    """Turn database errors into `LogUnavailable`; ``where`` names the log, without a password."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        if isinstance(error, (SQLAlchemyError, sqlite3.Error, OSError)):
            reason = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0].rstrip(".")
            advice = next((text for sign, text in _ADVICE.items() if sign in first_line), _GENERAL_ADVICE)
            raise LogUnavailable(f"the log {self._where} cannot be used: {first_line}. {advice}") from error
