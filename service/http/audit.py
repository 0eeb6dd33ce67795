"""What the log says, over HTTP: sessions, calls, timelines, postmortems, what-if, and checks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.what_if import Change

from ..comparison import compared
from ..log import CallQuery, EventLog, SessionQuery, UnknownCall
from ..log.queries import Page, prefix_within
from ..log.records import StoredSession
from ..outcomes import CallOutcome
from ..postmortem import Postmortem, explain
from ..postmortem_report import postmortem_json
from ..what_if import call_json, differs, gathered, what_if
from .access import named
from .models import (
    CallPage,
    CallRecord,
    EventPage,
    EventRecord,
    Moment,
    SessionPage,
    SessionRecord,
    Verification,
    WhatIf,
)
from .problems import PROBLEMS, Json
from .service import Administrator, Reader, SessionId, Worker
from .tokens import Token

routes = APIRouter(prefix="/v1", tags=["log"], responses=PROBLEMS)


def _whole(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdecimal()):
        raise ValueError("this is no whole number")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A number as digits: pydantic would take ``1.0``, too."""
Limit = Annotated[Whole, Query(ge=1, le=1_000)]
Cursor = Annotated[str | None, Query(max_length=1_000, description="The `next` of the page before.")]
Text = Annotated[str | None, Query(max_length=256, pattern=r"^[^\x00]*$")]
Position = Annotated[Whole, Query(ge=0, le=2**63 - 1)]
_Tokens = Annotated[Whole | None, Field(default=None, ge=1, le=2**53 - 1)]


class SessionFilter(BaseModel):
    """Which sessions. Times are those of the session's beginning, inclusive at the beginning only."""

    model_config = ConfigDict(extra="forbid")
    prefix: Text = None
    host: Text = None
    model: Text = None
    since: Moment | None = None
    before: Moment | None = None
    aborted: bool | None = Field(default=None, description="Only those with, or without, an aborted call.")
    newest_first: bool = True
    search: Text = Field(
        default=None, description="What the id or the label holds, in small or capital letters."
    )
    cursor: Cursor = None
    limit: Limit = 100

    def found(self, log: EventLog, token: Token, most: int = 1_000) -> Page[StoredSession]:
        """A page of those that a token may name; at ``most`` so many."""
        prefix = prefix_within(token.prefix, self.prefix)
        if prefix is None:
            return Page([], None)
        query = SessionQuery(
            prefix,
            self.host,
            self.model,
            self.since,
            self.before,
            self.aborted,
            self.newest_first,
            self.search,
        )
        return log.find_sessions(query, cursor=self.cursor, limit=min(self.limit, most))


class CallFilter(BaseModel):
    """Which provider calls."""

    model_config = ConfigDict(extra="forbid")
    outcome: CallOutcome | None = None
    code: Text = None
    host: Text = None
    model: Text = None
    since: Moment | None = None
    before: Moment | None = None
    newest_first: bool = True
    cursor: Cursor = None
    limit: Limit = 100


class Changed(BaseModel):
    """What is to be otherwise; token settings in tokens."""

    model_config = ConfigDict(extra="forbid")
    token_budget: _Tokens = None
    trim_to_tokens: _Tokens = None
    context_window: _Tokens = None
    on_invalid_structure: OnInvalidStructure | None = None
    all_calls: bool = Field(default=False, description="Those that stay as they were, too.")

    def change(self) -> Change:
        """The same for the domain."""
        return Change(self.token_budget, self.trim_to_tokens, self.on_invalid_structure, self.context_window)


@routes.get("/sessions")
def sessions(service: Worker, token: Reader, wanted: Annotated[SessionFilter, Query()]) -> SessionPage:
    """Sessions by when they started."""
    page = wanted.found(service.log, token)
    return SessionPage(rows=[SessionRecord.model_validate(row) for row in page.rows], next=page.next)


@routes.get("/calls")
def calls(service: Worker, token: Reader, wanted: Annotated[CallFilter, Query()]) -> CallPage:
    """Provider calls of all sessions, by when they were requested."""
    return _calls(service.log, wanted, None, token.prefix)


@routes.get("/sessions/{session_id:path}/calls")
def session_calls(
    service: Worker, token: Reader, session_id: SessionId, wanted: Annotated[CallFilter, Query()]
) -> CallPage:
    """The provider calls of a session, by their numbers."""
    service.log.session(named(token, session_id))
    return _calls(service.log, wanted, session_id, "")


@routes.get("/sessions/{session_id:path}/calls/{call}", response_model=dict[str, Any])
def postmortem(service: Worker, token: Reader, session_id: SessionId, call: str) -> Json:
    """The postmortem of a provider call, by its number or id."""
    return Json(postmortem_json(explained(service.log, named(token, session_id), call)))


@routes.get("/sessions/{session_id:path}/calls/{call}/compare/{other}", response_model=list[dict[str, Any]])
def comparison(service: Worker, token: Reader, session_id: SessionId, call: str, other: str) -> Json:
    """Two provider calls of a session side by side, line by line."""
    named(token, session_id)
    sides = [explained(service.log, session_id, each) for each in (call, other)]
    return Json([asdict(line) for line in compared(sides[0], sides[1])])


@routes.get("/sessions/{session_id:path}/timeline")
def timeline(
    service: Worker, token: Reader, session_id: SessionId, cursor: Cursor = None, limit: Limit = 100
) -> EventPage:
    """The events of a session, the oldest first."""
    service.log.session(named(token, session_id))
    page = service.log.timeline(session_id, cursor=cursor, limit=limit)
    return EventPage(rows=[EventRecord.of(event) for event in page.rows], next=page.next)


@routes.get("/sessions/{session_id:path}/what-if", response_model=WhatIf)
def what_if_session(
    service: Worker, token: Reader, session_id: SessionId, changed: Annotated[Changed, Query()]
) -> Json:
    """Every provider call of a session decided again with other settings; those that differ are listed."""
    calls, incomplete = gathered(what_if(service.log, named(token, session_id), changed.change()))
    differing = [call for call in calls if differs(call)]
    told = WhatIf(
        calls=[call_json(call) for call in (calls if changed.all_calls else differing)],
        considered=len(calls),
        differing=len(differing),
        incomplete=incomplete,
    )
    return Json(told.model_dump())


@routes.get("/sessions/{session_id:path}/verify")
def verify(service: Worker, token: Reader, session_id: SessionId) -> Verification:
    """Check every record of a session against its hash, its seal and the record before it."""
    return Verification.of(service.log.verify(named(token, session_id))[0])


@routes.get("/verify")
def verify_all(service: Worker, token: Administrator) -> list[Verification]:
    """Check all sessions; what is sound is left out."""
    wrong = [each for each in service.log.verify() if each.finding is not None]
    return [Verification.of(each) for each in wrong if each.session_id.startswith(token.prefix)]


@routes.get("/sessions/{session_id:path}")
def session(service: Worker, token: Reader, session_id: SessionId) -> SessionRecord:
    """One session."""
    return SessionRecord.model_validate(service.log.session(named(token, session_id)))


def explained(log: EventLog, session_id: str, call: str) -> Postmortem:
    """The postmortem of a session's call, by its number or id.

    Raises:
        UnknownSession, UnknownCall: there is none.
    """
    log.session(session_id)
    found = None
    with suppress(UnknownCall):
        found = log.call_named(session_id, call)
    # A call of another session is told of as one that there is not.
    if found is None or found.session_id != session_id:
        raise UnknownCall(f"session {session_id!r} has no provider call {call[:80]!r}")
    return explain(log, found)


def _calls(log: EventLog, wanted: CallFilter, session_id: str | None, prefix: str) -> CallPage:
    query = CallQuery(
        session_id,
        wanted.outcome,
        wanted.code,
        wanted.host,
        wanted.model,
        wanted.since,
        wanted.before,
        wanted.newest_first,
        prefix or None,
    )
    page = log.find_calls(query, cursor=wanted.cursor, limit=wanted.limit)
    return CallPage(rows=[CallRecord.model_validate(row) for row in page.rows], next=page.next)
