"""What OpenTelemetry is told: spans and metrics of sessions, ids and sizes, never content."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from context_paging.domain.recovery.errors import RecoveryRefused
from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.log import EventLog
from context_paging.service.session import Session
from context_paging.service.tracing import OpenTelemetry

SECRET = "xyzzy-secret"


class Told:
    """Providers in memory."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracer = TracerProvider()
        tracer.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = OpenTelemetry(tracer, MeterProvider([self._reader]))

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that ended."""
        return list(self._spans.get_finished_spans())

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Metrics by name: attributes, and the sum or value."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "sum", getattr(point, "value", None)))
                for point in metric.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def everything(self) -> str:
        """All that was told, as text."""
        return "".join(span.to_json() for span in self.spans) + str(self.metrics())


def entry(text: str) -> dict[str, Any]:
    """A stored user message."""
    message = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "id": "1", "parentId": None, "message": message}


def test_a_request_a_tool_and_an_abort_are_told_without_content() -> None:
    told = Told()
    session = Session("s1", telemetry=told.telemetry)
    session.start(global_settings={"contextPaging": {"tokenBudget": 40}})
    session.append([entry(SECRET)])
    reply = session.context()
    session.tool("search_history", {"query": SECRET})
    aborted = session.context(system_prompt=SECRET * 100)

    context, tool, failed = told.spans
    assert context.name == "context_paging.context"
    assert context.attributes is not None
    assert context.attributes["gen_ai.conversation.id"] == "s1"
    assert context.attributes["context_paging.call.id"] == reply.call_id
    assert context.attributes["context_paging.outcome"] == "within-budget"
    assert context.status.status_code is StatusCode.UNSET
    assert tool.name == "execute_tool search_history"
    assert (
        dict(tool.attributes or {}).items()
        >= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search_history",
            "gen_ai.tool.type": "function",
        }.items()
    )
    assert aborted.aborted is not None
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == aborted.aborted.code.value == failed.status.description
    metrics = told.metrics()
    outcomes = {
        attributes["context_paging.outcome"] for attributes, _ in metrics["context_paging.context.duration"]
    }
    assert outcomes == {"within-budget", "aborted"}
    ((_, tokens),) = metrics["context_paging.context.tokens"]
    assert tokens == reply.outcome.estimated_tokens  # type: ignore[union-attr]
    assert SECRET not in told.everything()


def test_what_a_model_made_up_is_not_told() -> None:
    told = Told()
    session = Session("s", telemetry=told.telemetry)
    session.start()
    for name, parameters in ((SECRET, {}), ("load_history", {SECRET: SECRET}), ("load_history", [SECRET])):
        with pytest.raises(RecoveryRefused):
            session.tool(name, parameters)

    assert [span.name for span in told.spans] == ["execute_tool unknown", *["execute_tool load_history"] * 2]
    assert all((span.attributes or {})["error.type"] for span in told.spans)
    assert SECRET not in told.everything()


def test_a_session_tells_nobody_unless_it_is_asked_to() -> None:
    told = Told()
    session = Session("s")
    session.start()
    session.context()
    assert told.spans == []


def test_the_service_goes_on_with_the_callers_trace() -> None:
    told = Told()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with EventLog.open() as log, TestClient(create_app(log, ServerOptions(), told.telemetry)) as http:
        events = [
            {"type": "session_start"},
            {"type": "append", "entries": [entry(SECRET)]},
            {"type": "context"},
        ]
        headers = {"Host": "localhost", "traceparent": parent, "X-Request-Id": "r-1"}
        answer = http.post(f"/v1/sessions/{SECRET[:5]}/events?label={SECRET}", json=events, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == "r-1"
        assert http.get(f"/v1/{SECRET}", headers=headers).status_code == 404
        metrics = http.get("/metrics", headers={"Host": "localhost"}).text

    context, served, missing = told.spans[:3]
    assert served.name == "POST /v1/sessions/{session_id:path}/events"
    assert served.context is not None
    assert f"{served.context.trace_id:032x}" == parent.split("-")[1]
    assert context.parent is not None
    assert context.parent.span_id == served.context.span_id
    assert (served.attributes or {})["http.response.status_code"] == 200
    assert missing.name == "GET none"
    assert SECRET not in told.everything()
    assert 'context_paging_contexts_total{code="",fallback="",outcome="within-budget"} 1.0' in metrics
    assert "context_paging_live_sessions 1.0" in metrics
    assert SECRET not in metrics
