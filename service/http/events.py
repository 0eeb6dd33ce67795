"""Host events over HTTP: one or a batch, each answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import HTTPException
from pydantic import BaseModel, ConfigDict

from context_paging.domain.recovery.tools import tool_definitions

from ..live_session import error_answer
from ..wire import HostEvent, InvalidHostEvent, ToolCall, event_schema, host_event, parsed
from .access import named
from .live import Taken
from .problems import PROBLEMS, InvalidJson, Json, error_problem
from .service import SessionId, Worker, Writer

BATCH = 1_000
"""How many events a request may bring."""
EVENT_SCHEMA: dict[str, Any] = event_schema("#/components/schemas/{model}")
"""The JSON Schema of a host event, and of all that it refers to under ``$defs``."""
_EVENT = {key: value for key, value in EVENT_SCHEMA.items() if key != "$defs"}
_RESERVED = re.compile(
    r"/(calls(/[^/]*(/compare/[^/]*)?)?|compare|events|statistics|timeline|tools/[^/]*|verify|what-if)\Z"
)
routes = APIRouter(prefix="/v1", tags=["sessions"], responses=PROBLEMS)
HostName = Annotated[
    str,
    Query(
        min_length=1,
        max_length=64,
        pattern=r"^[\x20-\x7e]+$",
        description="What the agent program calls itself.",
    ),
]
Label = Annotated[str | None, Query(max_length=256, description="Names a new session for people.")]


class Answer(BaseModel):
    """What an event led to. More fields depend on the event: those of a context request are listed here.

    Attributes:
        sequence: of the session's last event in the log.
        notifications: what the user is to be told; ``status`` is for the host's status line.
        call_id: names the provider call in the log.
        send: what to send, in order: runs of the host's messages by their first and last position, and whole
            messages. Missing where the provider must not be called; ``code`` and ``message`` say why.
    """

    model_config = ConfigDict(extra="allow")
    sequence: int
    call_id: str | None = None
    outcome: str | None = None
    code: str | None = None
    message: str | None = None
    send: list[dict[str, Any]] | None = None


class Answers(BaseModel):
    """The answers to a batch, in order."""

    answers: list[Answer]


@routes.post(
    "/sessions/{session_id:path}/events",
    response_model=Answer | Answers,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            _EVENT,
                            {"type": "array", "items": _EVENT, "minItems": 1, "maxItems": BATCH},
                        ]
                    }
                }
            },
        }
    },
)
async def take_events(
    request: Request,
    service: Worker,
    token: Writer,
    session_id: SessionId,
    host: HostName = "http",
    label: Label = None,
) -> Json:
    """Take one host event, or several in order, and answer each.

    A batch with an event that is none is refused whole. One that is refused for what it says ends the batch:
    the problem has its position and the answers before it.
    """
    if _RESERVED.search(named(token, session_id)):
        raise HTTPException(422, "over HTTP the id of a session may not end as the routes below it do")
    body = await _body(request)
    events, respond = await service.live.work(_events, body)
    taken, response = await service.live.take(session_id, events, respond, host, label)
    request.state.told = _told(taken)
    return response


@routes.post(
    "/sessions/{session_id:path}/tools/{name}",
    response_model=Answer,
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    },
)
async def call_tool(
    request: Request, service: Worker, token: Writer, session_id: SessionId, name: str
) -> Json:
    """Call a recovery tool of a live session; the body is the tool's parameters."""
    named(token, session_id)
    body = await _body(request)
    event = ToolCall(type="tool", name=name, parameters=await service.live.work(_parsed, body))
    taken, response = await service.live.take(session_id, [event], _single)
    request.state.told = _told(taken)
    return response


@routes.get("/sessions/{session_id:path}/events", include_in_schema=False)
@routes.get("/sessions/{session_id:path}/tools/{name}", include_in_schema=False)
async def sent_only(session_id: str) -> Json:
    """What is sent, not looked at: else the ending would count as a part of the session's id."""
    del session_id
    raise HTTPException(405, "send this with POST", {"Allow": "POST"})


@routes.get("/sessions/{session_id:path}/statistics", response_model=dict[str, Any])
async def statistics(service: Worker, token: Writer, session_id: SessionId) -> Json:
    """The statistics of a live session: sizes of what is stored, and of the latest request."""
    named(token, session_id)
    return Json(asdict(await service.live.statistics(session_id)))


@routes.get("/tools", response_model=list[dict[str, Any]])
async def tools(token: Writer) -> Json:
    """The recovery tools as a host offers them to its model."""
    return Json(tool_definitions())


def _told(taken: Taken) -> dict[str, Any]:
    """What the operator's log says of events: ids and codes."""
    calls = [answer["call_id"] for answer in taken.answers if "call_id" in answer]
    codes = [answer["code"] for answer in taken.answers if "code" in answer]
    if taken.refused is not None:
        codes.append(error_answer(taken.refused)["code"])
    told: dict[str, Any] = {"events": len(taken.answers)}
    return {**told, **({"calls": calls} if calls else {}), **({"codes": codes} if codes else {})}


def _single(taken: Taken) -> Json:
    return Json(taken.answers[0]) if taken.refused is None else error_problem(taken.refused)


def _batch(taken: Taken) -> Json:
    if taken.refused is not None:
        return error_problem(taken.refused, event=len(taken.answers), answers=taken.answers)
    return Json({"answers": taken.answers})


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON with Content-Type: application/json")
    return await request.body()


def _parsed(body: bytes) -> Any:
    try:
        return parsed(body)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    except ValueError:
        raise InvalidJson("the body is not JSON") from None


def _events(body: bytes) -> tuple[list[HostEvent], Callable[[Taken], Json]]:
    """The events of a body, and how they are answered."""
    value = _parsed(body)
    if not isinstance(value, list):
        return [host_event(value)], _single
    if not 0 < len(value) <= BATCH:
        raise InvalidHostEvent(f"a batch has 1 to {BATCH:,} events, not {len(value):,}")
    events = []
    for number, one in enumerate(value):
        try:
            events.append(host_event(one))
        except InvalidHostEvent as error:
            raise InvalidHostEvent(f"event {number}: {error}; nothing was done") from None
    return events, _batch
