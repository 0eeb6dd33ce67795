"""One live session: host callback → events → evolve → decide → log → answer (design, section 4).

All state is in memory. The log is written and never read: a new `Session` starts without a cut, whatever an
earlier one with the same id logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from os import PathLike
from pathlib import Path
from secrets import token_hex
from threading import Lock
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar

from context_paging.domain.decide import decide, fold, trim_target_warning
from context_paging.domain.entries import Entry, context_message
from context_paging.domain.errors import ContextPagingError, InvalidEntry
from context_paging.domain.estimation import HeuristicEstimator, TokenEstimator
from context_paging.domain.events import (
    AttemptCancelled,
    BranchNavigated,
    BranchRefreshed,
    CompactionRequested,
    CompactionSucceeded,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    ModelSelected,
    PagingToggled,
    RecoveryToolRejected,
    SessionShutDown,
    SessionStarted,
    SettingsReadFailed,
    TurnEnded,
)
from context_paging.domain.messages import Message, MessageRef, digest
from context_paging.domain.recovery.errors import RecoveryErrorCode, RecoveryRefused
from context_paging.domain.recovery.terms import Analyzer, plain_terms
from context_paging.domain.recovery.tools import RecoveryTools
from context_paging.domain.state import SessionState
from context_paging.domain.stats import SessionStatistics, session_statistics, statistics_text

from .log.records import Record
from .notifications import Notification, notifications_of
from .outgoing import OutgoingMessages
from .recovery_events import answered_event, called_event
from .replies import ContextReply, Reply, ToolReply, context_reply
from .stored_session import StoredSession
from .telemetry import SILENT, Telemetry

USAGE = "Usage: /context-paging [on|off|status|stats]"

P = ParamSpec("P")
R = TypeVar("R")


class SessionBusy(ContextPagingError):
    """A session was called while another call of it was not done; nothing has changed."""

    code = "SESSION_BUSY"


def _alone(method: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Session, P], R]:
    """A method that is refused while another one runs: in another thread, or further up in this one."""

    @wraps(method)
    def guarded(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._turn.acquire(blocking=False):
            raise SessionBusy(
                f"session {self.id!r} was called ({method.__name__}) while another call of it is not done; "
                "give each thread a session of its own, hold a lock of yours around its calls, "
                "or use AsyncSession, whose calls wait for each other"
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._turn.release()

    return guarded


class EventSink(Protocol):
    """Where a session's events go: `EventLog`, or anything that appends as it does."""

    @property
    def keeps_content(self) -> bool:
        """Whether records are to come with what the host passed."""
        ...

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """Append all records or none, and return the sequence of the last one."""
        ...


class Session:
    """A live session. One method a host callback; not to be shared between threads.

    A call while another one is not done raises `SessionBusy` and changes nothing.

    ``host`` names the agent program in the log. ``session_file`` is where the host stores the session: its
    size is all that is read of it. ``sequence`` is where the log's session ends, if it has one
    with this id already: see `EventLog.last_sequence`. ``telemetry`` is told of requests and tools.
    """

    def __init__(
        self,
        session_id: str,
        *,
        sink: EventSink | None = None,
        estimator: TokenEstimator | None = None,
        analyzer: Analyzer = plain_terms,
        host: str = "python",
        label: str | None = None,
        session_file: str | PathLike[str] | None = None,
        sequence: int = 0,
        telemetry: Telemetry = SILENT,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: token_hex(16),
    ) -> None:
        self.id = session_id
        self.host = host
        self.label = label
        self.session_file = session_file
        self._sink = sink
        self._keeps_content = sink is not None and sink.keeps_content
        self._estimator = estimator or HeuristicEstimator()
        self._now = now
        self._telemetry = telemetry
        self._new_id = new_id
        self._sequence = sequence
        self._state = SessionState()
        self._stored = StoredSession(self._estimator)
        self._outgoing = OutgoingMessages()
        self._tools = RecoveryTools(self._stored.entries.__getitem__, analyzer)
        self._call_id: str | None = None
        self._live = False
        self._turn = Lock()
        self._resident: tuple[tuple[str, list[dict[str, Any]]], int] | None = None
        self._window: float | None = None

    @property
    def sequence(self) -> int:
        """The sequence of the session's last event in the log, as far as the session knows."""
        return self._sequence

    @property
    def live(self) -> bool:
        """Whether it was started and not shut down since."""
        return self._live

    @property
    def state(self) -> SessionState:
        """The state decisions are made from."""
        return self._state

    @property
    def stored(self) -> StoredSession:
        """The host's entries, by reference."""
        return self._stored

    @_alone
    def start(
        self,
        reason: str = "new",
        *,
        global_settings: Any = None,
        project_settings: Any = None,
        project_trusted: bool = False,
    ) -> Reply:
        """The session started, was resumed, forked or reloaded.

        Settings sources are JSON objects with a ``contextPaging`` object; the rest of them is not looked at.
        """
        started = SessionStarted(
            reason=reason,
            host=self.host,
            global_settings=_section(global_settings),
            project_settings=_section(project_settings) if project_trusted else None,
            project_trusted=project_trusted,
            estimator=self._estimator.name,
        )
        reply = self._take(started, refresh=True, unseen=True)
        self._live = True
        return reply

    @_alone
    def start_without_settings(self, reason: str, error: str) -> Reply:
        """The session started, but its settings could not be read: paging is off."""
        reply = self._take(SettingsReadFailed(reason=reason, error=error), refresh=True, unseen=True)
        self._live = True
        return reply

    @_alone
    def append(self, entries: Iterable[Entry]) -> None:
        """The host stored entries; the last one is the new leaf. They are read at the next callback.

        Raises:
            InvalidEntry, InvalidMessage: see `StoredSession.add`.
        """
        self._stored.add(entries)

    @_alone
    def context(
        self,
        messages: Sequence[Message] | None = None,
        *,
        system_prompt: str = "",
        tools: Iterable[Mapping[str, Any]] = (),
        context_window: float | None = None,
        usage_tokens: float | Literal["stored"] | None = None,
    ) -> ContextReply:
        """The host is about to call the provider.

        Args:
            messages: everything that would go out; left out, the conversation the stored branch makes.
                Messages must not be changed after they were passed.
            tools: active tool definitions: ``name``, ``description``, ``parameters``. Must not be changed
                afterwards either.
            context_window: the model's window in tokens, if known.
            usage_tokens: the host's status total in tokens, if known; ``"stored"`` for hosts without one:
                the newest total that a stored response carries, and estimates of what was stored after it.

        Raises:
            InvalidMessage: a message cannot be read; nothing has changed.
            LogUnavailable, SessionConflict: the log did not take the events; nothing has changed.
        """
        with self._telemetry.context(self.id) as tell:
            reply = self._context(messages, system_prompt, tools, context_window, usage_tokens)
            tell(reply)
        return reply

    def _context(
        self,
        messages: Sequence[Message] | None,
        system_prompt: str,
        tools: Iterable[Mapping[str, Any]],
        context_window: float | None,
        usage_tokens: float | Literal["stored"] | None,
    ) -> ContextReply:
        outgoing = self._stored.messages() if messages is None else messages
        call_id = self._new_id()
        self._window = context_window
        if not self._state.enabled:
            events = self._commit([ContextBypassed(messages=len(outgoing))], call_id, outgoing)
            self._call_id = call_id
            return context_reply(events, call_id, outgoing, None, self._state)
        reused, appended = self._outgoing.changes(outgoing, self._state.requested, self._digest)
        warning = trim_target_warning(self._state)
        state, refreshed = self._fold(self._state, [*([warning] if warning else []), *self._refreshed()])
        if usage_tokens == "stored":
            usage_tokens = None if state.stored is None else state.stored.status_total()
        request = ContextRequested(
            reused=reused,
            appended=appended,
            resident_tokens=self._resident_tokens(system_prompt, tools),
            context_window=context_window,
            usage_tokens=usage_tokens,
        )
        state, decided = self._fold(state, [request])
        events = self._store(state, [*refreshed, *decided], call_id, outgoing[reused:])
        self._outgoing.remember(outgoing, reused, append_only=messages is None)
        self._call_id = call_id
        outcome = events[-1]
        assert isinstance(outcome, ContextSelected | ContextAborted)
        return context_reply(events, call_id, outgoing, outcome, self._state)

    @_alone
    def turn_end(self, entry_id: str | None = None, *, response: Message | None = None) -> Reply:
        """The provider's response was stored as an entry, or is given itself.

        Raises:
            InvalidEntry: there is no such entry, or it holds no message.
        """
        if response is None:
            entry = self._stored.entries.get(entry_id or "")
            response = None if entry is None else context_message(entry)
            ref = self._stored.message_ref(entry_id or "")
            if response is None or ref is None:
                raise InvalidEntry(f"there is no stored message {entry_id!r} that could have ended the turn")
        else:
            ref = self._digest(response)
        ended = TurnEnded(entry_id=entry_id, response=ref)
        reply = self._take(ended, refresh=True, call_id=self._call_id, content=response)
        self._call_id = None
        return reply

    @_alone
    def navigate(self, leaf_id: str | None) -> Reply:
        """The host moved to another leaf of the session tree.

        Raises:
            InvalidEntry: there is no such entry.
        """
        self._stored.move_to(leaf_id)
        return self._take(BranchNavigated(leaf_id=leaf_id), refresh=True, unseen=True)

    @_alone
    def select_model(self, model: str | None = None, context_window: float | None = None) -> Reply:
        """The host switched models."""
        if context_window is not None:
            self._window = context_window
        return self._take(ModelSelected(model=model, context_window=context_window))

    @_alone
    def before_compaction(self, reason: str) -> Reply:
        """The host is about to compact; the reply says whether it must not."""
        return self._take(CompactionRequested(reason=reason))

    @_alone
    def compacted(self, entry_id: str | None) -> Reply:
        """A compaction was stored."""
        return self._take(CompactionSucceeded(entry_id=entry_id))

    @_alone
    def attempt_cancelled(self, attempt: Literal["branch", "fork", "switch", "compaction"]) -> Reply:
        """The host gave up something it had announced."""
        return self._take(AttemptCancelled(attempt=attempt))

    @_alone
    def command(self, arguments: str) -> Reply:
        """The session command: ``on``, ``off``, ``status``, ``stats``; nothing means ``status``."""
        match arguments.strip():
            case "on" | "off" as choice:
                reply = self._take(PagingToggled(enabled=choice == "on"))
                return Reply(reply.events, (*reply.notifications, self._status()))
            case "" | "status":
                return Reply((), (self._status(),))
            case "stats":
                return Reply((), (Notification("info", statistics_text(self._statistics())),))
            case _:
                return Reply((), (Notification("warning", USAGE),))

    @_alone
    def tool(self, name: str, parameters: Any) -> ToolReply:
        """The model called a recovery tool.

        Raises:
            RecoveryRefused: paging is off, the parameters do not fit, or name what is not there. The log has
                the refusal.
            LogUnavailable, SessionConflict: the log did not take the events; nothing has changed.
        """
        with self._telemetry.tool(self.id, str(name)) as tell:
            reply = self._tool(name, parameters)
            tell(reply)
        return reply

    def _tool(self, name: str, parameters: Any) -> ToolReply:
        called = called_event(name, parameters)
        state, events = self._state, list[Event]()
        try:
            if not state.enabled:
                raise RecoveryRefused(
                    RecoveryErrorCode.PAGING_DISABLED,
                    "context paging is off for this session, so nothing is outside of the window",
                )
            state, events = self._fold(state, self._refreshed())
            answer = self._tools.call(state.branch.history, name, parameters)
        except RecoveryRefused as refused:
            rejected = RecoveryToolRejected(tool=called.tool, code=refused.reason.value)
            state, further = self._fold(state, [called, rejected])
            self._store(state, [*events, *further], self._call_id)
            raise
        state, further = self._fold(state, [called, answered_event(name, answer)])
        events = list(self._store(state, [*events, *further], self._call_id))
        return ToolReply(tuple(events), notifications_of(events), answer.result, answer.text)

    @_alone
    def statistics(self) -> SessionStatistics:
        """What there is to know of the stored session and its latest request. Changes nothing."""
        return self._statistics()

    def _statistics(self) -> SessionStatistics:
        return session_statistics(
            self._stored.digested(),
            self._stored.branch_refs(),
            settings=self._state.settings,
            enabled=self._state.enabled,
            latest=self._state.latest_input,
            estimator=self._estimator,
            model_window=self._window,
            stored_bytes=self._stored_bytes(),
        )

    @_alone
    def shut_down(self) -> Reply:
        """The host closed the session."""
        reply = self._take(SessionShutDown())
        self._live = False
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self.shut_down()

    def _take(
        self,
        event: Event,
        *,
        refresh: bool = False,
        unseen: bool = False,
        call_id: str | None = None,
        content: Any = None,
    ) -> Reply:
        events = self._commit([event, *(self._refreshed(unseen=unseen) if refresh else ())], call_id, content)
        return Reply(events, notifications_of(events))

    def _refreshed(self, *, unseen: bool = False) -> list[Event]:
        """What a refresh of the branch leads to; with ``unseen``, after its entries were forgotten."""
        refreshed = self._stored.refresh()
        branch = self._state.branch
        if refreshed.kept != branch.length or refreshed.appended or (unseen and branch.invalidating):
            return [refreshed]
        # An unchanged branch is not logged again, but what a refresh of it says still holds.
        return list(decide(self._state, refreshed, self._estimator))

    def _commit(self, events: Iterable[Event], call_id: str | None, content: Any = None) -> tuple[Event, ...]:
        return self._store(*self._fold(self._state, events), call_id, content)

    def _fold(self, state: SessionState, events: Iterable[Event]) -> tuple[SessionState, list[Event]]:
        return fold(state, events, self._estimator)

    def _store(
        self, state: SessionState, taken: list[Event], call_id: str | None, content: Any = None
    ) -> tuple[Event, ...]:
        if self._sink is not None and taken:
            now = self._now()
            first_id = self._new_id()
            records = [
                Record(
                    event,
                    f"{first_id}-{number}",
                    now,
                    call_id,
                    self._content(event, content) if self._keeps_content else None,
                )
                for number, event in enumerate(taken)
            ]
            self._sequence = self._sink.append(self.id, self._sequence, records, label=self.label)
        self._state = state
        if any(event.type == "branch-refreshed" for event in taken):
            self._stored.acknowledge()
        return tuple(taken)

    def _content(self, event: Event, passed: Any) -> Any:
        match event:
            case ContextRequested() | ContextBypassed() | TurnEnded():
                return passed
            case BranchRefreshed():
                return [self._stored.entries[entry.id] for entry in event.appended]
            case _:
                return None

    def _resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        # Seldom other ones than in the call before.
        passed = (system_prompt, [dict(tool) for tool in tools])
        if self._resident is None or self._resident[0] != passed:
            self._resident = passed, self._estimator.resident_tokens(*passed)
        return self._resident[1]

    def _digest(self, message: Message) -> MessageRef:
        return self._stored.known_ref(message) or digest(message, self._estimator)

    def _status(self) -> Notification:
        enabled = "on" if self._state.enabled else "off"
        return Notification("info", f"Context paging is {enabled} for this session.")

    def _stored_bytes(self) -> int | None:
        if self.session_file is None:
            return None
        try:
            return Path(self.session_file).stat().st_size
        except OSError:
            return None


def _section(source: Any) -> Any:
    return source.get("contextPaging") if isinstance(source, Mapping) else None
