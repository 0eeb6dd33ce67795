"""The pages. Each is looked up, rendered and sent whole; the live tail alone goes on by a script."""

from __future__ import annotations

import json
import re
from typing import TypeVar
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError

from context_paging.domain.events import ContextAborted, ContextBypassed
from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.what_if import Reconsidered

from ...comparison import compared
from ...log import CallQuery
from ...outcomes import OUTCOMES
from ...replies import outcome_name
from ...what_if import differs, gathered, what_if
from ...what_if_report import savings_lines
from ...wire import first_error
from ..access import COOKIE, named
from ..audit import CallFilter, Changed, SessionFilter, explained
from ..models import Verification
from ..problems import Json
from ..service import Reader, Service, SessionId, Worker, service_of
from .charts import conversation_strip, waterfall, window_plot
from .rendering import HEADERS, page
from .views import Histories, stretches

PAGE = 50
SHOWN_DIFFERENCES = 200
FORM_BYTES = 4_096
COOKIE_SECONDS = 12 * 3600
NO_PAGES = ("/v1", "/healthz", "/readyz", "/metrics", "/openapi.json")
_NO_ZONE = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+)?", re.ASCII)
F = TypeVar("F", SessionFilter, CallFilter)
routes = APIRouter(include_in_schema=False)


def add_pages(app: FastAPI, service: Service) -> None:
    """Add the pages to an application."""
    app.state.histories = Histories(service.log)
    app.include_router(routes)
    app.mount("/static", StaticFiles(packages=[(__package__ or "", "static")]), name="static")


def error_page(request: Request, problem: Json) -> Response:
    """An error as a page, for people; who is not known is asked for a token first."""
    if request.url.path.startswith(NO_PAGES):
        return problem
    if problem.status_code == 401:
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?{urlencode({'next': target})}", 303)
    told = json.loads(bytes(problem.body))
    service = service_of(request)
    return page("error", problem.status_code, service=service, title=told["title"], detail=told["detail"])


@routes.get("/")
async def home() -> Response:
    """The list of sessions."""
    return RedirectResponse("/sessions", 303)


@routes.get("/login")
async def login(next: str = "/sessions") -> Response:
    """Asks for a token."""
    return page("login", next=_own(next), wrong=False)


@routes.post("/login")
async def log_in(request: Request, service: Worker) -> Response:
    """Keeps a token in the browser, for looking only."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            return page("login", 413, next="/sessions", wrong=True)
    form = parse_qs(body.decode("utf-8", "replace"))
    target = _own(form.get("next", ["/sessions"])[0])
    secret = form.get("token", [""])[0].strip()
    if await run_in_threadpool(service.access.token_named, secret) is None:
        return page("login", 401, next=target, wrong=True)
    answer = RedirectResponse(target, 303, HEADERS)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, secret, COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


@routes.post("/logout")
async def log_out() -> Response:
    """Forgets the token."""
    answer = RedirectResponse("/login", 303, HEADERS)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


@routes.get("/sessions")
def sessions(request: Request, service: Worker, token: Reader) -> Response:
    """Sessions, with search and filters."""
    wanted = _filled_in(SessionFilter, request)
    found = wanted.found(service.log, token, PAGE)
    following = _further(wanted, found.next)
    return page("sessions", service=service, rows=found.rows, wanted=wanted, next=following)


@routes.get("/sessions/{session_id:path}/calls/{call}")
def call(service: Worker, token: Reader, session_id: SessionId, call: str) -> Response:
    """The postmortem of a provider call."""
    postmortem = explained(service.log, named(token, session_id), call)
    return page(
        "call",
        service=service,
        postmortem=postmortem,
        call=postmortem.call,
        session_id=session_id,
        aborted=isinstance(postmortem.outcome, ContextAborted),
        inactive=isinstance(postmortem.outcome, ContextBypassed),
        waterfall=waterfall(postmortem),
        strip=conversation_strip(postmortem.window),
        stretches=stretches(postmortem.window),
        saved=savings_lines(postmortem.saved),
    )


@routes.get("/sessions/{session_id:path}/compare")
def compare(service: Worker, token: Reader, session_id: SessionId, first: str, second: str) -> Response:
    """Two provider calls side by side."""
    named(token, session_id)
    sides = [explained(service.log, session_id, each) for each in (first, second)]
    return page(
        "compare", service=service, session_id=session_id, sides=sides, lines=compared(sides[0], sides[1])
    )


@routes.get("/sessions/{session_id:path}/timeline")
def timeline(service: Worker, token: Reader, session_id: SessionId, cursor: str | None = None) -> Response:
    """Every event of a session."""
    service.log.session(named(token, session_id))
    found = service.log.timeline(session_id, cursor=cursor, limit=PAGE * 4)
    following = None if found.next is None else "?" + urlencode({"cursor": found.next})
    return page("timeline", service=service, session_id=session_id, events=found.rows, next=following)


@routes.get("/sessions/{session_id:path}/what-if")
def what_if_page(service: Worker, token: Reader, session_id: SessionId, request: Request) -> Response:
    """Every call of a session decided again with other settings."""
    service.log.session(named(token, session_id))
    given = {name: value for name, value in request.query_params.items() if value}
    wrong = incomplete = None
    calls: list[Reconsidered] = []
    if given:
        try:
            change = Changed.model_validate(given).change()
        except ValidationError as error:
            wrong = first_error(error.errors())
        else:
            calls, incomplete = gathered(what_if(service.log, session_id, change))
    differing = [call for call in calls if differs(call)]
    return page(
        "what_if",
        service=service,
        session_id=session_id,
        given=given,
        policies=list(OnInvalidStructure),
        calls=differing[:SHOWN_DIFFERENCES],
        differing=len(differing),
        considered=len(calls),
        incomplete=incomplete,
        wrong=wrong,
        name=outcome_name,
    )


@routes.get("/sessions/{session_id:path}/verify")
def verify(service: Worker, token: Reader, session_id: SessionId) -> Response:
    """Whether a session's records are as they were written."""
    result = Verification.of(service.log.verify(named(token, session_id))[0])
    return page("verify", service=service, session_id=session_id, result=result)


@routes.get("/sessions/{session_id:path}")
def session(request: Request, service: Worker, token: Reader, session_id: SessionId) -> Response:
    """A session: its window over time, and its calls."""
    wanted = _filled_in(CallFilter, request)
    known = service.log.session(named(token, session_id))
    histories: Histories = request.app.state.histories
    history = histories.of(session_id)
    query = CallQuery(session_id, wanted.outcome, wanted.code, newest_first=wanted.newest_first)
    found = service.log.find_calls(query, cursor=wanted.cursor, limit=min(wanted.limit, PAGE))
    return page(
        "session",
        service=service,
        session=known,
        session_id=session_id,
        plot=window_plot(history),
        history=history,
        calls=found.rows,
        wanted=wanted,
        outcomes=OUTCOMES,
        next=_further(wanted, found.next),
    )


@routes.get("/tail")
def tail(service: Worker, token: Reader, session: str | None = None) -> Response:
    """Events as they come."""
    if session is not None:
        named(token, session)
    return page("tail", service=service, session_id=session or "")


def _filled_in(kind: type[F], request: Request) -> F:
    """A form that somebody filled in: empty fields were left out, times without a zone are UTC."""
    given = {name: value.strip() for name, value in request.query_params.items() if value.strip()}
    for name in ("since", "before"):
        if name in given and _NO_ZONE.fullmatch(given[name]):
            given[name] += "Z" if "T" in given[name] else "T00:00:00Z"
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _own(target: str) -> str:
    # Only a path of this service: a link must not lead from the login to somewhere else.
    fine = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if fine else "/sessions"


def _further(wanted: SessionFilter | CallFilter, cursor: str | None) -> str | None:
    """The query of the next page."""
    if cursor is None:
        return None
    kept = wanted.model_dump(mode="json", exclude_defaults=True, exclude={"cursor"})
    return "?" + urlencode({**kept, "cursor": cursor})
