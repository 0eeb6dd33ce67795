"""The application: routes, and what they share. One process is one worker; sessions live in its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from context_paging.domain.estimation import TokenEstimator

from ..log import EventLog, LogUnavailable
from ..telemetry import Several
from ..tracing import OpenTelemetry
from . import audit, events, tail
from .access import Access, RateLimit
from .limits import BodyLimits
from .live import LiveLimits, LiveSessions
from .memory import collected
from .observing import Metrics, Observed
from .pages.routes import add_pages, error_page
from .problems import Json, Problem, add_handlers, problem
from .service import Service
from .tokens import TokenFile

READERS = 4
"""Threads that read the log for requests; sessions are fed by others."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the service is run.

    Attributes:
        tokens: who may use it; ``None``: everybody on this machine, under a name of this machine.
        body_limit: bytes of a request's body.
        body_seconds: how long a client may take to send it.
        rate: requests a second a token may make in the long run; ``burst`` of them at once.
        live: how much the worker keeps in memory.
        estimator: how the tokens of live sessions are counted.
    """

    tokens: TokenFile | None = None
    body_limit: int = 32 * 2**20
    body_seconds: float = 30.0
    rate: float = 500.0
    burst: float = 2_000.0
    live: LiveLimits = field(default_factory=LiveLimits)
    estimator: TokenEstimator | None = None


def create_app(
    log: EventLog, options: ServerOptions | None = None, telemetry: OpenTelemetry | None = None
) -> FastAPI:
    """The service over a log, which stays the caller's to close."""
    chosen, metrics = options or ServerOptions(), Metrics()
    traced = telemetry or OpenTelemetry()
    live = LiveSessions(log, chosen.live, Several(metrics, traced), chosen.estimator)
    metrics.gauge("context_paging_live_sessions", "Live sessions", lambda: len(live))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = READERS
        async with collected(live):
            yield

    app = FastAPI(
        title="context-paging",
        version=version("context-paging"),
        description="Decides which part of an agent's conversation goes out to its provider, and says why.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
    )
    app.state.service = service = Service(
        log, live, Access(chosen.tokens, RateLimit(chosen.rate, chosen.burst))
    )
    app.state.pulse = pulse = tail.Pulse(log, service.stopping)
    metrics.gauge("context_paging_streams", "Tails that are open", lambda: pulse.streams)
    add_handlers(app, error_page)
    app.include_router(events.routes)
    app.include_router(tail.routes)
    app.include_router(audit.routes)
    _add_operations(app, service, metrics)
    add_pages(app, service)
    _describe(app)
    app.add_middleware(BodyLimits, most=chosen.body_limit, seconds=chosen.body_seconds)
    app.add_middleware(Observed, metrics=metrics, telemetry=traced)
    return app


def _add_operations(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthy() -> Json:
        return Json({"status": "alive"})

    @app.get("/readyz", include_in_schema=False)
    async def ready() -> Json:
        if service.stopping.is_set():
            return problem(503, "STOPPING", "this worker is shutting down")
        try:
            await service.live.work(service.log.last_position)
        except LogUnavailable as error:
            return problem(503, error.code, "the log cannot be read")
        return Json({"status": "ready", "live_sessions": len(service.live)})

    @app.get("/metrics", include_in_schema=False)
    async def measured(request: Request) -> Response:
        if not service.access.asks:
            service.access.token_of(request)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _operation_id(route: APIRoute) -> str:
    return route.name


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI document what routes that read their body themselves cannot tell it."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = plain().setdefault("components", {}).setdefault("schemas", {})
            schemas.update(events.EVENT_SCHEMA["$defs"])
            schemas["Problem"] = Problem.model_json_schema()
        document = app.openapi_schema
        assert document is not None
        return document

    app.openapi = described  # type: ignore[method-assign]
