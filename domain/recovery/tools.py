"""The recovery tools: their schemas, and what a call of them answers (design, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ..errors import InvalidMessage
from ..history import History
from ..messages import MAX_SAFE_INTEGER
from .errors import RecoveryErrorCode, RecoveryRefused
from .navigator import SEARCH_LOADS, Navigator
from .pages import PAGE_LIMIT, OutputReader
from .public_view import Content
from .reply import reply_text
from .terms import Analyzer, plain_terms

SEARCH_LIMIT = 5
BROWSE_COUNT = 5
BROWSE_STRIDE = 1
_CLOSED = with_config(ConfigDict(extra="forbid", strict=True))

HistoryId = Annotated[str, Field(max_length=128)]
Filter = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=10)]


@_CLOSED
class SearchHistory(TypedDict):
    """Parameters of ``search_history``."""

    query: Annotated[str, Field(max_length=200)]
    files: NotRequired[Filter]
    tools: NotRequired[Filter]
    failed: NotRequired[bool]
    limit: NotRequired[Annotated[int, Field(ge=1, le=10, json_schema_extra={"default": SEARCH_LIMIT})]]
    load: NotRequired[bool]


@_CLOSED
class BrowseHistory(TypedDict):
    """Parameters of ``browse_history``."""

    historyId: NotRequired[HistoryId]
    sequence: NotRequired[Annotated[int, Field(ge=0, le=1_000_000)]]
    direction: Literal["backward", "forward", "around"]
    count: NotRequired[Annotated[int, Field(ge=1, le=10, json_schema_extra={"default": BROWSE_COUNT})]]
    stride: NotRequired[Annotated[int, Field(ge=1, le=10, json_schema_extra={"default": BROWSE_STRIDE})]]


@_CLOSED
class LoadHistory(TypedDict):
    """Parameters of ``load_history``."""

    historyIds: Annotated[list[HistoryId], Field(min_length=1, max_length=3)]


@_CLOSED
class ReadContextOutput(TypedDict):
    """Parameters of ``read_context_output``."""

    historyId: str
    source: Literal["assistant", "toolResult"]
    contentIndex: NotRequired[Annotated[int, Field(ge=0)]]
    toolCallId: NotRequired[str]
    offset: NotRequired[Annotated[int, Field(ge=0)]]
    limit: NotRequired[Annotated[int, Field(ge=1, le=PAGE_LIMIT, json_schema_extra={"default": PAGE_LIMIT})]]


_PARAMETERS: dict[str, type] = {
    "search_history": SearchHistory,
    "browse_history": BrowseHistory,
    "load_history": LoadHistory,
    "read_context_output": ReadContextOutput,
}
_DESCRIPTIONS = {
    "search_history": "Search this session's stored history, including everything outside the window. "
    "Returns short references to the best matches; an empty query lists by the filters alone. "
    "With load, the best three are loaded too.",
    "browse_history": "Step through this session's stored history from an item or an end. "
    "Returns short references.",
    "load_history": "Load up to three history items exactly as they are stored. "
    "What is too long for one reply is named with the read_context_output call that reads it.",
    "read_context_output": "Read one stored output exactly, a page at a time: a tool result by its "
    "toolCallId, or with source assistant a block of the item's own message by its contentIndex. "
    "Go on with offset set to nextOffset until that is null.",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call of a recovery tool answers.

    Attributes:
        result: the exact result, as JSON values. Its objects may be the host's own: not to be changed.
        text: what the model is given, at most 8,000 characters: the result, or a compact form of it.
    """

    result: dict[str, Any]
    text: str


def tool_definitions() -> list[dict[str, Any]]:
    """The tools as hosts offer them to a model: ``name``, ``description``, ``parameters`` (JSON Schema)."""
    return [
        {"name": name, "description": _DESCRIPTIONS[name], "parameters": parameter_schema(name)}
        for name in _PARAMETERS
    ]


def parameter_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters."""
    schema = _without_titles(_adapter(name).json_schema())
    assert isinstance(schema, dict)
    schema.pop("description", None)
    return schema


class RecoveryTools:
    """The recovery tools over one session's stored entries."""

    def __init__(self, content: Content, analyzer: Analyzer = plain_terms) -> None:
        self._navigator = Navigator(content, analyzer)
        self._reader = OutputReader(content)

    def call(self, history: History, name: object, parameters: object) -> Answer:
        """Answer a call about a branch's history.

        Raises:
            RecoveryRefused: there is no such tool, the parameters do not fit it, or name what is not there;
                or the branch has no valid history.
        """
        if not isinstance(name, str) or name not in _PARAMETERS:
            raise RecoveryRefused(
                RecoveryErrorCode.UNKNOWN_RECOVERY_TOOL,
                f"there is no such recovery tool; there are {', '.join(_PARAMETERS)}",
            )
        given = _checked(name, parameters)
        if history.error is not None:
            raise RecoveryRefused(
                history.error,
                f"the stored history of this branch cannot be read ({history.error}); "
                'set onInvalidStructure to "repair" to read it',
            )
        try:
            result = self._result(history, name, given)
            return Answer(result, reply_text(result))
        except InvalidMessage as unreadable:
            raise RecoveryRefused(RecoveryErrorCode.UNREADABLE_OUTPUT, str(unreadable)) from None

    def _result(self, history: History, name: str, given: Any) -> dict[str, Any]:
        match name:
            case "search_history":
                return self._search(history, given)
            case "browse_history":
                references = self._navigator.browse(
                    history,
                    given["direction"],
                    history_id=given.get("historyId"),
                    sequence=given.get("sequence"),
                    count=given.get("count", BROWSE_COUNT),
                    stride=given.get("stride", BROWSE_STRIDE),
                )
                return {"references": references}
            case "load_history":
                return {"items": self._navigator.load(history, given["historyIds"])}
            case _:
                return self._read(history, given)

    def _search(self, history: History, given: SearchHistory) -> dict[str, Any]:
        references = self._navigator.search(
            history,
            given["query"],
            files=given.get("files", ()),
            tools=given.get("tools", ()),
            failed=given.get("failed"),
            limit=given.get("limit", SEARCH_LIMIT),
        )
        result: dict[str, Any] = {"references": references}
        if given.get("load"):
            ids = [reference["historyId"] for reference in references]
            result["items"] = self._navigator.load(history, ids[:SEARCH_LOADS])
            result["unloadedHistoryIds"] = ids[SEARCH_LOADS:]
        return result

    def _read(self, history: History, given: ReadContextOutput) -> dict[str, Any]:
        history_id, offset = given["historyId"], min(given.get("offset", 0), MAX_SAFE_INTEGER)
        limit = given.get("limit", PAGE_LIMIT)
        block, call_id = given.get("contentIndex"), given.get("toolCallId")
        block = None if block is None else min(block, MAX_SAFE_INTEGER)
        if given["source"] == "assistant" and block is not None and call_id is None:
            return self._reader.page_of_block(history, history_id, block, offset, limit)
        if given["source"] == "toolResult" and call_id is not None and block is None:
            return self._reader.page_of_result(history, history_id, call_id, offset, limit)
        raise RecoveryRefused(
            RecoveryErrorCode.INVALID_OUTPUT_REQUEST,
            "source assistant needs contentIndex alone, source toolResult needs toolCallId alone",
        )


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_PARAMETERS[name])


def _checked(name: str, parameters: object) -> Any:
    try:
        return _adapter(name).validate_python(parameters)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the parameters"
        reading = name == "read_context_output"
        raise RecoveryRefused(
            RecoveryErrorCode.INVALID_OUTPUT_REQUEST
            if reading
            else RecoveryErrorCode.INVALID_HISTORY_NAVIGATOR_INPUT,
            f"{name} cannot be called like this: {where}: {first['msg']}",
        ) from None


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, dict):
        left_out = {"title", "type"} if "enum" in schema else {"title"}
        return {key: _without_titles(value) for key, value in schema.items() if key not in left_out}
    return schema
