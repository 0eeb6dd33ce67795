"""OpenTelemetry (extra ``telemetry``): spans and metrics of sessions; GenAI conventions where they apply.

Only the API is used: which SDK and exporter there is, if any, is the host's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, Status, StatusCode

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.events import ContextAborted

from .recovery_events import known_tool

if TYPE_CHECKING:
    from .replies import ContextReply, ToolReply

SCOPE = "context_paging"


class OpenTelemetry:
    """Tells OpenTelemetry what sessions do.

    Spans: ``context_paging.context`` a context request, ``execute_tool NAME`` a recovery tool.
    Metrics: ``context_paging.context.duration`` (s), ``context_paging.context.tokens`` of what goes out,
    ``context_paging.context.advances`` of the cut, ``context_paging.tool.duration`` (s).

    Without providers it uses the global ones.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        own = version("context-paging")
        self.tracer = trace.get_tracer(SCOPE, own, tracer_provider)
        meter = metrics.get_meter(SCOPE, own, meter_provider)
        self._seconds = meter.create_histogram(
            "context_paging.context.duration", "s", "Time of a context request"
        )
        self._tokens = meter.create_histogram(
            "context_paging.context.tokens", "{token}", "Estimate of what goes out to the provider"
        )
        self._advances = meter.create_counter(
            "context_paging.context.advances", "{advance}", "Advances of the cut"
        )
        self._tool_seconds = meter.create_histogram(
            "context_paging.tool.duration", "s", "Time of a call of a recovery tool"
        )

    @contextmanager
    def context(self, session_id: str) -> Iterator[Callable[[ContextReply], None]]:
        """A context request."""
        told: dict[str, str] = {}
        attributes = {"gen_ai.conversation.id": session_id}
        started = perf_counter()
        with self._span("context_paging.context", attributes) as span:

            def decided(reply: ContextReply) -> None:
                told.update(_outcome(reply))
                self._decided(span, reply, told)

            try:
                yield decided
            except ContextPagingError as error:
                told["error.type"] = error.code
                raise
            finally:
                self._seconds.record(perf_counter() - started, told)

    @contextmanager
    def tool(self, session_id: str, name: str) -> Iterator[Callable[[ToolReply], None]]:
        """A call of a recovery tool."""
        known = known_tool(name)
        told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": known}
        attributes = {**told, "gen_ai.tool.type": "function", "gen_ai.conversation.id": session_id}
        started = perf_counter()
        with self._span(f"execute_tool {known}", attributes) as span:

            def answered(reply: ToolReply) -> None:
                span.set_attribute("context_paging.answer.characters", len(reply.text))

            try:
                yield answered
            except ContextPagingError as error:
                told["error.type"] = error.told_code
                raise
            finally:
                self._tool_seconds.record(perf_counter() - started, told)

    @contextmanager
    def _span(self, name: str, attributes: dict[str, str]) -> Iterator[Span]:
        # Messages of errors may quote what the model or the host sent: only their codes are told.
        with self.tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except ContextPagingError as error:
                _fail(span, error.told_code)
                raise
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    def _decided(self, span: Span, reply: ContextReply, told: dict[str, str]) -> None:
        outcome = reply.outcome
        attributes: dict[str, Any] = {**told, "context_paging.call.id": reply.call_id}
        if outcome is not None:
            attributes["context_paging.rule"] = outcome.rule.value
            if outcome.estimated_tokens is not None:
                attributes["context_paging.tokens.estimated"] = outcome.estimated_tokens
            if outcome.budget_tokens is not None:
                attributes["context_paging.tokens.budget"] = outcome.budget_tokens
            attributes["context_paging.units.evicted"] = outcome.evicted_units
            if outcome.fallback is not None:
                attributes["context_paging.fallback"] = outcome.fallback.value
        span.set_attributes(attributes)
        if isinstance(outcome, ContextAborted):
            _fail(span, outcome.code.value)
        elif outcome is not None:
            self._tokens.record(outcome.estimated_tokens, told)
            if outcome.advanced:
                self._advances.add(1)


def _outcome(reply: ContextReply) -> dict[str, str]:
    match reply.outcome:
        case None:
            return {"context_paging.outcome": "inactive"}
        case ContextAborted(code=code):
            return {"context_paging.outcome": "aborted", "error.type": code.value}
        case selected:
            return {"context_paging.outcome": selected.mode.value}


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, code))
