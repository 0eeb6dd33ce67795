"""A session file that can be asked for its history while its host goes on writing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from context_paging.domain.errors import InvalidEntry
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.recovery.terms import Analyzer, plain_terms
from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.session_format import Problem
from context_paging.domain.settings import settings_section

from .replies import ToolReply
from .session import Session
from .session_file import SessionFile, read_session_file


class StoredFile:
    """The recovery tools and statistics over a session file. ``-`` is standard input, read once.

    The file is read again when it has changed; what was known of it stays indexed.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        repair: bool = False,
        token_budget: int | None = None,
        analyzer: Analyzer = plain_terms,
        estimator: TokenEstimator | None = None,
    ) -> None:
        self._path = None if str(path) == "-" else Path(path)
        self._analyzer = analyzer
        self._estimator = estimator
        policy = OnInvalidStructure.REPAIR if repair else None
        self._settings = {"contextPaging": settings_section(token_budget, on_invalid_structure=policy)}
        self._session: Session | None = None
        self._stamp: object = None
        self.problems: list[Problem] = []

    def read(self) -> Session:
        """The session as the file has it now.

        Raises:
            SessionFileError: the file cannot be read.
            InvalidMessage: an entry is nested too deeply.
        """
        stamp = self._current_stamp()
        if self._session is not None and stamp == self._stamp:
            return self._session
        file = read_session_file("-" if self._path is None else self._path)
        self.problems = file.problems
        self._session = self._updated(file)
        self._stamp = stamp
        return self._session

    def tool(self, name: str, parameters: Any) -> ToolReply:
        """Call a recovery tool: see `Session.tool`."""
        return self.read().tool(name, parameters)

    def _updated(self, file: SessionFile) -> Session:
        known = self._session
        if known is not None:
            try:
                _take(known, file)
            except InvalidEntry:
                # An entry is not what it was: nothing that is known of the file holds.
                pass
            else:
                return known
        session = Session("file", estimator=self._estimator, analyzer=self._analyzer, session_file=self._path)
        session.start("resume", global_settings=self._settings)
        _take(session, file)
        return session

    def _current_stamp(self) -> object:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            # Reading it says what is wrong.
            return None if self._session is None else object()
        return (found.st_ino, found.st_size, found.st_mtime_ns)


def _take(session: Session, file: SessionFile) -> None:
    session.append(file.entries)
    session.stored.move_to(file.leaf_id)
