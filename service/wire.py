"""Host events as other programs send them: JSON values with snake_case names.

One shape for every transport. A context request names how many leading messages are those of the session's
request before, and brings the others; the answer names the host's messages to send by their positions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from context_paging.domain.errors import ContextPagingError

from .session_file import refuse_constant

Object = dict[str, Any]


class InvalidHostEvent(ContextPagingError):
    """What a host sent is no host event: a wrong type, a missing or an unknown field."""

    code = "INVALID_HOST_EVENT"


class _HostEvent(BaseModel):
    """What all host events have.

    Attributes:
        event_id: an event that comes again with its id is answered again, not done again.
    """

    # Strict: a number is not to be made of a truth value or a text.
    model_config = ConfigDict(extra="forbid", strict=True)
    event_id: str | None = Field(default=None, min_length=1, max_length=128)


class SessionStart(_HostEvent):
    """The session started, was resumed, forked or reloaded; or its settings could not be read (``error``)."""

    type: Literal["session_start"]
    reason: str = "new"
    global_settings: Any = None
    project_settings: Any = None
    project_trusted: bool = False
    error: str | None = None


class Append(_HostEvent):
    """The host stored entries; the last one is the new leaf."""

    type: Literal["append"]
    entries: list[Object]


class Context(_HostEvent):
    """The host is about to call the provider.

    Attributes:
        messages: all outgoing messages behind the first ``unchanged`` ones; left out, what the stored branch
            makes.
        usage_tokens: the host's status total; ``stored`` to have it reckoned (see `Session.context`).
    """

    type: Literal["context"]
    messages: list[Object] | None = None
    unchanged: int = Field(default=0, ge=0)
    system_prompt: str = ""
    tools: list[Object] = []
    context_window: float | None = None
    usage_tokens: float | Literal["stored"] | None = None


class TurnEnd(_HostEvent):
    """The provider's response was stored as an entry, or is given itself."""

    type: Literal["turn_end"]
    entry_id: str | None = None
    response: Object | None = None


class Navigate(_HostEvent):
    """The host moved to another leaf."""

    type: Literal["navigate"]
    leaf_id: str | None


class SelectModel(_HostEvent):
    """The host switched models."""

    type: Literal["select_model"]
    model: str | None = None
    context_window: float | None = None


class BeforeCompaction(_HostEvent):
    """The host is about to compact: ``threshold`` or ``overflow`` by itself, ``manual`` when told to."""

    type: Literal["before_compaction"]
    reason: str


class Compacted(_HostEvent):
    """A compaction was stored as an entry."""

    type: Literal["compacted"]
    entry_id: str | None = None


class Cancelled(_HostEvent):
    """The host gave up something it had announced."""

    type: Literal["attempt_cancelled"]
    attempt: Literal["branch", "fork", "switch", "compaction"]


class Command(_HostEvent):
    """The session command: ``on``, ``off``, ``status``, ``stats``."""

    type: Literal["command"]
    arguments: str = ""


class ToolCall(_HostEvent):
    """The model called a recovery tool."""

    type: Literal["tool"]
    name: str
    parameters: Any = None


class ShutDown(_HostEvent):
    """The host closed the session."""

    type: Literal["shut_down"]


HostEvent = (
    SessionStart
    | Append
    | Context
    | TurnEnd
    | Navigate
    | SelectModel
    | BeforeCompaction
    | Compacted
    | Cancelled
    | Command
    | ToolCall
    | ShutDown
)


def host_event(value: Any) -> HostEvent:
    """A host event from JSON values.

    Raises:
        InvalidHostEvent: it is none.
    """
    try:
        event: HostEvent = _adapter().validate_python(value)
    except ValidationError as error:
        told = first_error(error.errors(include_url=False, include_context=False, include_input=False))
        raise InvalidHostEvent(f"this is no host event: {told}") from None
    return event


def first_error(errors: Sequence[Any]) -> str:
    """The first of pydantic's errors in words: where it is, and what is wrong."""
    where = ".".join(map(str, errors[0]["loc"]))
    return f"{where + ': ' if where else ''}{errors[0]['msg']}"


def parsed(data: bytes | str) -> Any:
    """The JSON value that another program sent.

    Raises:
        ValueError: it is not JSON, or holds a number beyond all that can be answered with.
        RecursionError: it is nested too deeply.
    """
    return json.loads(data, parse_constant=refuse_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def kept_characters(event: HostEvent) -> int:
    """How much of an event a live session keeps, in characters of its text, about."""
    match event:
        case Append():
            kept: Any = event.entries
        case Context():
            kept = event.messages
        case TurnEnd():
            kept = event.response
        case _:
            return 0
    try:
        return 0 if kept is None else len(repr(kept))
    except RecursionError:
        raise InvalidHostEvent("the event is nested too deeply") from None


def event_schema(ref_template: str) -> dict[str, Any]:
    """The JSON Schema of a host event; what it refers to by the template is under ``$defs``."""
    schema: dict[str, Any] = _adapter().json_schema(ref_template=ref_template)
    return schema


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[HostEvent, Field(discriminator="type")])
