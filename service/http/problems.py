"""Answers as JSON, and errors as problem details (RFC 9457): the domain's code, what is wrong, what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from context_paging.domain.errors import ContextPagingError

from ..live_session import error_answer
from ..telemetry import logger
from ..wire import first_error

_log = logger(__name__)
MEDIA_TYPE = "application/problem+json"
_STATUS = {
    "UNKNOWN_SESSION": 404,
    "UNKNOWN_CALL": 404,
    "UNKNOWN_EVENT": 404,
    "SESSION_BUSY": 409,
    "SESSION_NOT_LIVE": 409,
    "SESSION_CONFLICT": 409,
    "SESSION_TOO_LARGE": 413,
    "UNKNOWN_PREFIX": 409,
    "EVENT_ID_REUSED": 409,
    "INCOMPLETE_LOG": 409,
    "INVALID_JSON": 400,
    "TOO_MANY_SESSIONS": 503,
    "LOG_UNAVAILABLE": 503,
    "INVALID_TOKENS": 503,
}
"""Statuses of codes; any other error of this package is the client's: 422."""
_OURS = {
    "LOG_UNAVAILABLE": "the log cannot be used now; send this again later",
    "INVALID_TOKENS": "the service cannot read its tokens; its operator has to mend their file",
}
"""What clients are told of the operator's troubles, which name files and servers."""
_CODES = {
    400: "INVALID_REQUEST",
    401: "UNKNOWN_TOKEN",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "UNKNOWN_HOST",
    429: "TOO_MANY_REQUESTS",
    503: "UNAVAILABLE",
}


class NotLive(ContextPagingError):
    """The session is not live on this worker: it has not started, was let go, or went on elsewhere."""

    code = "SESSION_NOT_LIVE"


class TooManySessions(ContextPagingError):
    """This worker has as many live sessions as it may have, all of them in use."""

    code = "TOO_MANY_SESSIONS"


class InvalidJson(ContextPagingError):
    """A body is not JSON."""

    code = "INVALID_JSON"


class Problem(BaseModel):
    """What went wrong.

    Attributes:
        code: stable, for programs; ``detail`` is for people and says what to do.
        event: position of the refused event in a batch.
        answers: what the events before it led to.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str
    event: int | None = None
    answers: list[dict[str, Any]] | None = None


class Json(JSONResponse):
    """JSON in ASCII: half a character, which stored messages may hold, has no UTF-8."""

    def render(self, content: Any) -> bytes:
        """The body. Moments are in ISO 8601; infinities, which JSON does not have, are null."""
        try:
            return _dumped(content)
        except ValueError:
            return _dumped(_finite(content))


def _dumped(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"{type(value).__name__} is no JSON value")


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


def problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """A problem as a response."""
    title = code.replace("_", " ").capitalize()
    body = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    return Json({**body, **more}, status, dict(headers or {}), MEDIA_TYPE)


def error_problem(error: ContextPagingError, **more: Any) -> Json:
    """An error of this package as a response."""
    told = error_answer(error)
    detail = _OURS.get(error.code)
    if detail is not None:
        _log.warning(detail, code=error.code, reason=str(error))
    return problem(_STATUS.get(error.code, 422), told["code"], detail or told["message"], **more)


def add_handlers(app: FastAPI, page: ErrorPage) -> None:
    """Make every error that a client can cause a problem; for people, a page may take its place."""

    @app.exception_handler(ContextPagingError)
    async def of_this_package(request: Request, error: ContextPagingError) -> Response:
        return page(request, error_problem(error))

    @app.exception_handler(RequestValidationError)
    async def of_the_request(request: Request, error: RequestValidationError) -> Response:
        return page(request, problem(422, "INVALID_REQUEST", first_error(error.errors())))

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        code = _CODES.get(error.status_code, "INVALID_REQUEST")
        return page(request, problem(error.status_code, code, str(error.detail), error.headers))


ErrorPage = Callable[[Request, Json], Response]
"""What a request is answered with in place of a problem, or the problem."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in (
        (400, "The body is not JSON."),
        (401, "There is no token, or an unknown one."),
        (403, "The token does not have the scope."),
        (404, "There is no such thing, or the token may not name it."),
        (408, "The body took too long to arrive."),
        (409, "The session is not live here, or goes on elsewhere."),
        (413, "The body, or the session, is too large."),
        (415, "The body is not announced as JSON."),
        (422, "The request is not what it should be."),
        (429, "Too many requests."),
        (503, "The log or the worker cannot take it now."),
    )
}
"""What every route may answer, for OpenAPI."""
