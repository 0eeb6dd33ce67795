"""Every request as the operator sees it: a line in the log, a span, metrics. Never a header or a body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from time import perf_counter
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import anyio
from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.requests import ClientDisconnect

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.events import ContextAborted

from ..recovery_events import known_tool
from ..telemetry import logger
from .problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ..replies import ContextReply, ToolReply
    from ..tracing import OpenTelemetry

REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_TOKENS = (1_000, 4_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_log = logger(__name__)


class Metrics:
    """What Prometheus reads. Labels are routes and outcomes, never ids or content."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "context_paging_requests_total", "Requests", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "context_paging_request_seconds",
            "Time of a request",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._contexts = Counter(
            "context_paging_contexts_total",
            "Context requests",
            ["outcome", "code", "fallback"],
            registry=registry,
        )
        self._context_seconds = Histogram(
            "context_paging_context_seconds",
            "Time of a context request, its log included",
            buckets=_SECONDS,
            registry=registry,
        )
        self._tokens = Histogram(
            "context_paging_context_tokens",
            "Estimate of what goes out",
            buckets=_TOKENS,
            registry=registry,
        )
        self._advances = Counter("context_paging_advances_total", "Advances of cuts", registry=registry)
        self._repairs = Counter("context_paging_repairs_total", "Repairs", ["kind"], registry=registry)
        self._tools = Counter(
            "context_paging_tool_calls_total", "Calls of recovery tools", ["tool", "code"], registry=registry
        )

    def gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """A number that is looked up when it is asked for."""
        Gauge(name, help_text, registry=self.registry).set_function(value)

    @contextmanager
    def context(self, session_id: str) -> Iterator[Callable[[ContextReply], None]]:
        """A context request."""
        del session_id
        with self._context_seconds.time():
            yield self._decided

    @contextmanager
    def tool(self, session_id: str, name: str) -> Iterator[Callable[[ToolReply], None]]:
        """A call of a recovery tool."""
        del session_id
        known = known_tool(name)
        try:
            yield lambda _: self._tools.labels(known, "").inc()
        except ContextPagingError as error:
            self._tools.labels(known, error.told_code).inc()
            raise

    def _decided(self, reply: ContextReply) -> None:
        outcome = reply.outcome
        for repair in reply.repairs:
            self._repairs.labels(repair.kind.value).inc()
        if outcome is None:
            self._contexts.labels("inactive", "", "").inc()
            return
        fallback = "" if outcome.fallback is None else outcome.fallback.value
        if isinstance(outcome, ContextAborted):
            self._contexts.labels("aborted", outcome.code.value, fallback).inc()
            return
        self._contexts.labels(outcome.mode.value, "", fallback).inc()
        self._tokens.observe(outcome.estimated_tokens)
        if outcome.advanced:
            self._advances.inc()


class Observed:
    """ASGI middleware around everything: whatever goes wrong inside becomes one line and a 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, telemetry: OpenTelemetry) -> None:
        self._app = app
        self._metrics = metrics
        self._tracer = telemetry.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and tell what became of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else token_hex(8)
        status = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        # Metrics of made-up methods would grow without end.
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        started = perf_counter()
        failed: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            method,
            context=propagate.extract(headers),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._app(scope, receive, told)
            except Exception as error:
                failed = {} if status and _went_away(error) else _place(error)
                if not status:
                    answer = problem(
                        500, "INTERNAL_ERROR", "this is a bug of context-paging; its log has more"
                    )
                    await answer(scope, receive, told)
            route = _route(scope)
            span.update_name(f"{method} {route}")
            span.set_attribute("http.request.method", method)
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR, failed.get("error")))
        seconds = perf_counter() - started
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if route in _QUIET and status < 500:
            return
        tell = _log.error if failed else _log.info
        tell(
            "request",
            request=request_id,
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1000, 2),
            **_ids(scope),
            **failed,
        )


def _route(scope: Scope) -> str:
    # So would those of paths.
    return str(getattr(scope.get("route"), "path", "none"))


def _ids(scope: Scope) -> dict[str, Any]:
    session_id = scope.get("path_params", {}).get("session_id")
    return (
        {}
        if not isinstance(session_id, str)
        else {"session": session_id[:256], **scope["state"].get("told", {})}
    )


def _went_away(error: BaseException) -> bool:
    """Whether a client that closed its connection is all that happened."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_went_away, error.exceptions))
    return isinstance(
        error, OSError | ClientDisconnect | anyio.BrokenResourceError | anyio.ClosedResourceError
    )


def _place(error: BaseException) -> dict[str, str]:
    """What failed and where, without the message, which may quote what was sent."""
    frames = extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return {"error": type(error).__name__, "where": where}
