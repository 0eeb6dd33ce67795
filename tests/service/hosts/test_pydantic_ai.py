"""Pydantic AI with the capability: real agents, a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from context_paging.service.hosts.pydantic_ai import ContextPagingCapability, PydanticAIConverter
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .agents import BUDGET, FILES, QUESTION, Call, Script, as_json, check, check_goes_on, file_text
from .histories import check_history
from .scripts import Model, Results, Step, User, conversations


def wire(messages: list[ModelMessage]) -> list[str]:
    """Messages as they are stored, without what is not sent."""
    dumped: Any = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [as_json([_sent(part) for part in message["parts"]]) for message in dumped]


def _sent(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "timestamp"}


def check_messages(messages: list[ModelMessage]) -> None:
    """Refuse calls without a return in the next request, and returns without a call."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            assert not open_calls
            open_calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                open_calls.remove(part.tool_call_id)
            elif isinstance(part, UserPromptPart):
                assert not open_calls
    assert not open_calls
    assert isinstance(messages[0], ModelRequest)


def _agent(script: Script, budget: int = BUDGET) -> tuple[Agent[None, str], ContextPagingCapability]:
    paging = ContextPagingCapability(ContextPaging(settings=PagingSettings(token_budget=budget)))

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        check_messages(messages)
        step = script.next(wire(messages))
        part = (
            ToolCallPart(step.name, step.arguments, f"call_{script.turn}")
            if isinstance(step, Call)
            else TextPart(step)
        )
        usage = RequestUsage(input_tokens=script.input_tokens, output_tokens=20)
        return ModelResponse(parts=[part], usage=usage)

    agent = Agent(FunctionModel(answer), system_prompt="Look things up.", capabilities=[paging])

    @agent.tool_plain
    def read_file(number: int) -> str:
        return file_text(number)

    return agent, paging


def test_an_agent_reads_again_what_left_its_window() -> None:
    script = Script()
    agent, paging = _agent(script)

    result = asyncio.run(agent.run(QUESTION, usage_limits=UsageLimits(request_limit=None)))

    check(script)
    assert result.output == "Harbour 2."
    # The run's own messages are whole, and none of them is the notice.
    kept = wire(result.all_messages())
    assert len(kept) == 2 * (FILES + 3)
    assert not any("token window" in message for message in kept)
    # The system prompt stays when the request it came in has left the window.
    assert all("Look things up." in request[0] for request in script.requests)
    (conversation,) = paging._conversations._live.values()
    anchor = conversation.session.state.calibration.anchor
    assert anchor is not None


def test_a_second_run_goes_on_in_the_same_window() -> None:
    script = Script()
    agent, _ = _agent(script)
    unlimited = UsageLimits(request_limit=None)
    first = asyncio.run(agent.run(QUESTION, usage_limits=unlimited))

    asyncio.run(agent.run("And then?", message_history=first.all_messages(), usage_limits=unlimited))

    check_goes_on(script)


def test_a_request_that_cannot_be_made_to_fit_raises_and_says_what_to_do() -> None:
    script = Script()
    agent, _ = _agent(script, 50)

    with pytest.raises(ContextAbortedError, match="token"):
        asyncio.run(agent.run("x" * 4_000))
    assert not script.requests


def write(steps: list[Step]) -> list[ModelMessage]:
    """Steps as Pydantic AI keeps them: what comes between two responses is one request."""
    messages: list[ModelMessage] = []
    parts: list[Any] = [SystemPromptPart("Be brief.")]
    for step in steps:
        match step:
            case User(text, image):
                parts.append(UserPromptPart([text, ImageUrl("https://example.org/a.png")] if image else text))
            case Results(answers):
                parts += [ToolReturnPart("read", text, call) for call, text in answers]
            case Model(text, thought, calls):
                if parts:
                    messages.append(ModelRequest(parts=parts))
                parts = []
                made: list[Any] = [ThinkingPart(thought, signature="c2ln")] if thought else []
                made += [TextPart(text)] if text else []
                made += [ToolCallPart("read", {"path": call}, call) for call in calls]
                messages.append(ModelResponse(parts=made))
    return [*messages, ModelRequest(parts=parts)] if parts else messages


def _check(messages: list[ModelMessage]) -> None:
    check_messages(messages)
    assert any("Be brief." in message for message in wire(messages)[:2])


@given(steps=conversations(), broken=conversations(broken=True))
@settings(deadline=None)
def test_any_history_goes_out_valid_and_stable(steps: list[Step], broken: list[Step]) -> None:
    for script, policy in ((steps, "abort"), (broken, "repair")):
        check_history(PydanticAIConverter(), script, policy, write=write, check=_check, wire=wire)


def test_what_a_providers_own_tool_said_is_kept_without_what_is_the_providers_alone() -> None:
    details = {"thought_signature": "c2VjcmV0"}
    call = NativeToolCallPart("web_search", {"query": "tides"}, "srv_1", provider_details=details)
    found = NativeToolReturnPart("web_search", {"height": 14.25}, "srv_1", provider_details=details)

    (made,) = PydanticAIConverter().convert([ModelResponse(parts=[call, found])], {})

    shown = as_json(made)
    assert "14.25" in shown
    assert "tides" in shown
    assert "c2VjcmV0" not in shown
