"""Microsoft Agent Framework with the context provider: real agents, a scripted client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    UsageDetails,
    tool,
)
from hypothesis import given, settings

from context_paging.service.hosts.agent_framework import AgentFrameworkConverter, ContextPagingProvider
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .agents import BUDGET, QUESTION, Call, Script, as_json, check, check_goes_on, file_text
from .histories import check_history
from .scripts import Model, Results, Step, User, conversations


def wire(messages: list[Message]) -> list[str]:
    """Messages as they are sent."""
    return [
        as_json([str(message.role), [content.to_dict() for content in message.contents]])
        for message in messages
    ]


def check_messages(messages: list[Message]) -> None:
    """Refuse calls without a result, and results without a call."""
    open_calls: list[str] = []
    for message in messages:
        assert message.contents
        if message.role != "tool":
            assert not open_calls
        for content in message.contents:
            if content.type == "function_call":
                open_calls.append(str(content.call_id))
            elif content.type == "function_result":
                open_calls.remove(str(content.call_id))
    assert not open_calls


class _Client(BaseChatClient[Any]):
    script: Script

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        check_messages(messages)
        step = self.script.next(wire(messages))
        content = (
            Content.from_function_call(f"call_{self.script.turn}", step.name, arguments=step.arguments)
            if isinstance(step, Call)
            else Content.from_text(step)
        )
        tokens = self.script.input_tokens
        usage: UsageDetails = {"input_token_count": tokens, "output_token_count": 20}

        async def whole() -> ChatResponse[Any]:
            return ChatResponse(messages=Message("assistant", [content]), usage_details=usage)

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(contents=[content], role="assistant")
            yield ChatResponseUpdate(contents=[Content.from_usage(usage)], role="assistant")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates) if stream else whole()


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], _Client):
    """A chat client that follows a script, in the layers of the real ones."""


@tool(approval_mode="never_require")
def read_file(number: int) -> str:
    """Read a file."""
    return file_text(number)


def _agent(script: Script, budget: int = BUDGET) -> tuple[Any, ContextPagingProvider]:
    provider = ContextPagingProvider(
        ContextPaging(settings=PagingSettings(token_budget=budget)), session_id="s"
    )
    client: Any = ScriptedClient()
    client.script = script
    client.function_invocation_configuration["max_iterations"] = 50
    return Agent(client, "Look things up.", tools=[read_file], context_providers=[provider]), provider


@pytest.mark.parametrize("streaming", [False, True])
def test_an_agent_reads_again_what_left_its_window(streaming: bool) -> None:
    script = Script()
    agent, provider = _agent(script)

    async def ask(question: str, session: Any) -> str:
        if not streaming:
            return str((await agent.run(question, session=session)).text)
        stream = agent.run(question, session=session, stream=True)
        return "".join([update.text async for update in stream])

    async def both() -> str:
        session = agent.create_session()
        answer = await ask(QUESTION, session)
        check(script)
        await ask("And then?", session)
        return answer

    assert asyncio.run(both()) == "Harbour 2."
    check_goes_on(script)
    conversation = provider._conversations.of("s")
    assert conversation.session.state.calibration.anchor is not None
    # What the framework keeps is whole.
    assert not any("token window" in message for message in wire(conversation._layout.host))


def test_a_call_that_cannot_be_made_to_fit_raises_and_says_what_to_do() -> None:
    script = Script()
    agent, _ = _agent(script, 50)

    with pytest.raises(Exception, match="token") as raised:
        asyncio.run(agent.run("x" * 4_000))
    assert isinstance(raised.value.__cause__ or raised.value, ContextAbortedError)
    assert not script.requests


def write(steps: list[Step]) -> list[Message]:
    """Steps as messages of the framework."""
    messages = [Message("system", ["Be brief."])]
    for step in steps:
        match step:
            case User(text, image):
                picture = [Content.from_uri("data:image/png;base64,iVBORw0KGgo=", media_type="image/png")]
                messages.append(Message("user", [*(picture if image else []), text]))
            case Model(text, thought, calls):
                contents: list[Any] = [Content.from_text_reasoning(text=thought)] if thought else []
                contents += [Content.from_text(text)] if text else []
                contents += [Content.from_function_call(c, "read", arguments={"path": c}) for c in calls]
                messages.append(Message("assistant", contents))
            case Results(answers):
                results = [Content.from_function_result(c, result=text) for c, text in answers]
                messages.append(Message("tool", results))
    return messages


@given(steps=conversations(), broken=conversations(broken=True))
@settings(deadline=None)
def test_any_history_goes_out_valid_and_stable(steps: list[Step], broken: list[Step]) -> None:
    for script, policy in ((steps, "abort"), (broken, "repair")):
        check_history(AgentFrameworkConverter(), script, policy, write=write, check=check_messages, wire=wire)


def test_a_hosted_tool_that_is_answered_in_its_own_message_is_no_call_of_the_program() -> None:
    call = Content.from_function_call("srv_1", "web_search", arguments={"query": "tides"})
    found = Content.from_function_result("srv_1", result="14.25 metres")
    message = Message("assistant", [call, found, Content.from_text("Harbour 2.")])

    (made,) = AgentFrameworkConverter().convert([message], {})

    assert [block["type"] for block in made["content"]] == ["text", "text", "text"]
    assert "14.25 metres" in made["content"][1]["text"]
