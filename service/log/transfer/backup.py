"""A copy of a SQLite log while it is in use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..engine import file_of
from ..errors import LogUnavailable
from ..store import EventLog

ALL_PAGES = -1
"""In pieces, the copy would begin anew whenever another process commits. Writers go on all the same."""


def backup(log: EventLog, target: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Write a consistent copy; writers go on meanwhile. ``progress`` is told how many pages of how many.

    The key file is not in it: keep a copy of that elsewhere.

    Raises:
        LogUnavailable: the target is there already or cannot be written, the copy is damaged, or the log is
            not
            a SQLite file.
    """
    source = file_of(log.engine)
    if source is None:
        raise LogUnavailable(
            f"the log {log.name} is not a SQLite file; back up PostgreSQL with its own tools, as pg_dump"
        )
    if target.exists():
        raise LogUnavailable(f"{target} is there already; give the backup a new name")
    log.settle()
    draft = target.with_name(f".{target.name}.draft")
    try:
        draft.unlink(missing_ok=True)
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(draft)) as copy:
            origin.backup(copy, pages=ALL_PAGES, progress=lambda _, left, of: progress(of - left, of))
            (answer,) = copy.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise LogUnavailable(f"the copy is damaged, and so is the log: {answer}")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    except (OSError, sqlite3.Error) as error:
        raise LogUnavailable(f"{target} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
