"""`ContextPaging`: what an embedder opens once, and its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.messages import MAX_SAFE_INTEGER
from context_paging.domain.recovery.terms import Analyzer, plain_terms
from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.settings import DEFAULT_TOKEN_BUDGET

from .config import log_location, log_options, token_estimator
from .log import EventLog, LogOptions, SessionConflict
from .session import Session, SessionBusy
from .telemetry import SILENT, Telemetry


class InvalidSetting(ContextPagingError):
    """An embedder set something to a value it cannot have."""

    code = "INVALID_SETTING"


@dataclass(frozen=True, slots=True)
class PagingSettings:
    """How a session is paged (architecture, "Settings and limits").

    Attributes:
        token_budget: the most a request may hold, in tokens; capped by the model's window.
        trim_to_tokens: where an advance of the cut stops, in tokens; five eighths of the budget if not given.
        on_invalid_structure: ``abort`` a call whose tool calls and results do not pair, or ``repair`` it.

    Raises:
        InvalidSetting: a value cannot be used.
    """

    token_budget: int = DEFAULT_TOKEN_BUDGET
    trim_to_tokens: int | None = None
    on_invalid_structure: OnInvalidStructure | str = OnInvalidStructure.ABORT
    enabled: bool = True

    def __post_init__(self) -> None:
        for name in ("token_budget", "trim_to_tokens"):
            value = getattr(self, name)
            given = value is not None or name == "token_budget"
            whole = isinstance(value, int) and not isinstance(value, bool)
            if given and not (whole and 0 < value <= MAX_SAFE_INTEGER):
                raise InvalidSetting(f"{name} is {value!r}; it must be a whole number of tokens above 0")
        if self.on_invalid_structure not in tuple(OnInvalidStructure):
            raise InvalidSetting(
                f"on_invalid_structure is {self.on_invalid_structure!r}; "
                f"it may be {', '.join(OnInvalidStructure)}"
            )

    def source(self) -> dict[str, Any]:
        """The settings in the form in which hosts keep them."""
        section: dict[str, Any] = {
            "enabled": self.enabled,
            "tokenBudget": self.token_budget,
            "onInvalidStructure": str(self.on_invalid_structure),
        }
        if self.trim_to_tokens is not None:
            section["trimToTokens"] = self.trim_to_tokens
        return {"contextPaging": section}


class ContextPaging:
    """Sessions over one log. Open it once in a program, and close it at the end.

    It may be shared between threads; a session may not: see `SessionBusy`.

    Args:
        log: where the sessions' events go; ``None`` keeps no log.
        settings: those of sessions that are given none.
        estimator: how tokens are counted; four UTF-16 code units each unless given.
        analyzer: how recovery tools read words.
        telemetry: what is told of requests and tools.
    """

    def __init__(
        self,
        log: EventLog | None = None,
        *,
        settings: PagingSettings | None = None,
        estimator: TokenEstimator | None = None,
        analyzer: Analyzer = plain_terms,
        telemetry: Telemetry = SILENT,
    ) -> None:
        self.log = log
        self.settings = settings or PagingSettings()
        self._estimator = estimator
        self._analyzer = analyzer
        self._telemetry = telemetry
        self._sessions: WeakSet[Session] = WeakSet()
        self._listing = Lock()

    @classmethod
    def open(
        cls,
        location: str | Path | None = None,
        *,
        options: LogOptions | None = None,
        settings: PagingSettings | None = None,
        estimator: TokenEstimator | str | None = None,
        analyzer: Analyzer = plain_terms,
        telemetry: Telemetry = SILENT,
    ) -> Self:
        """Open a log and page sessions over it.

        Args:
            location: the path of a SQLite file or a SQLAlchemy URL; without one, the place that
                ``CONTEXT_PAGING_LOG`` names, or a file among the user's data.
            estimator: also by name, a model's or an encoding's; without one, the one that
                ``CONTEXT_PAGING_ESTIMATOR`` names, or four UTF-16 code units a token.

        Raises:
            LogUnavailable, ForeignLog: see `EventLog.open`.
            UnknownEstimator, VocabularyMissing: see `tokenizers.estimator`.
            InvalidConfiguration: a variable holds something else than it may.
        """
        if estimator is None or isinstance(estimator, str):
            estimator = token_estimator(estimator)
        log = EventLog.open(
            log_location(None if location is None else str(location)), options or log_options()
        )
        return cls(log, settings=settings, estimator=estimator, analyzer=analyzer, telemetry=telemetry)

    def session(
        self,
        session_id: str,
        *,
        reason: str | None = None,
        settings: PagingSettings | Mapping[str, Any] | None = None,
        host: str = "python",
        label: str | None = None,
        session_file: str | PathLike[str] | None = None,
    ) -> Session:
        """A started session, to be used as a context manager or shut down at the end.

        A session that the log knows already goes on in it, with an empty cut. The one of this program that
        has the same id, if there is one, can no longer be written to.

        Args:
            reason: why it starts; ``new`` or ``resume`` unless given.
            settings: also as the host keeps them: a JSON object with a ``contextPaging`` object.

        Raises:
            LogUnavailable: the log did not take the event.
        """
        sequence = 0 if self.log is None else self.log.last_sequence(session_id)
        session = Session(
            session_id,
            sink=self.log,
            estimator=self._estimator,
            analyzer=self._analyzer,
            host=host,
            label=label,
            session_file=session_file,
            sequence=sequence,
            telemetry=self._telemetry,
        )
        chosen = self.settings if settings is None else settings
        source = chosen.source() if isinstance(chosen, PagingSettings) else chosen
        session.start(reason or ("resume" if sequence else "new"), global_settings=source)
        with self._listing:
            self._sessions.add(session)
        return session

    def close(self) -> None:
        """Shut down the sessions that are live, bring everything to the log, and close it.

        A session that another thread is just calling is left alone, as one that another writer took over.
        """
        try:
            with self._listing:
                live = [session for session in self._sessions if session.live]
            for session in live:
                with suppress(SessionBusy, SessionConflict):
                    session.shut_down()
        finally:
            if self.log is not None:
                self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
