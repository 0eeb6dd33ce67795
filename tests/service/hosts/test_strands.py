"""Strands with the conversation manager: real agents, a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from strands import Agent, tool
from strands.models import Model as StrandsModel
from strands.types.content import Message

from context_paging.service.hosts.strands import ContextPagingConversationManager, StrandsConverter
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .agents import BUDGET, FILES, QUESTION, Call, Script, as_json, check, check_goes_on, file_text
from .histories import check_history
from .scripts import Model, Results, Step, User, conversations


def wire(messages: list[Message]) -> list[str]:
    """Messages as they are sent."""
    return [as_json({"role": message["role"], "content": message["content"]}) for message in messages]


def check_messages(messages: list[Message]) -> None:
    """Refuse what Bedrock refuses: each call has one result, in the next message."""
    open_calls: list[str] = []
    role = ""
    assert messages[0]["role"] == "user"
    for message in messages:
        blocks: Any = message["content"]
        assert blocks
        if message["role"] == "assistant":
            assert not open_calls
            open_calls = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        for block in blocks:
            if "toolResult" in block:
                open_calls.remove(block["toolResult"]["toolUseId"])
        role = message["role"]
    assert role == "user"
    assert not open_calls


class ScriptedModel(StrandsModel):
    """A model that follows a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def update_config(self, **_: Any) -> None:
        """There is none."""

    def get_config(self) -> Any:
        """There is none."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Not used here."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """What the script says next, as events."""
        check_messages(messages)
        step = self.script.next(wire(messages))
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(step, Call):
            use = {"name": step.name, "toolUseId": f"call_{self.script.turn}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": as_json(step.arguments)}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": step}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if isinstance(step, Call) else "end_turn"}}
        tokens = self.script.input_tokens
        usage = {"inputTokens": tokens, "outputTokens": 20, "totalTokens": tokens + 20}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool
def read_file(number: int) -> str:
    """Read a file."""
    return file_text(number)


def _agent(script: Script, budget: int = BUDGET) -> tuple[Any, ContextPagingConversationManager]:
    manager = ContextPagingConversationManager(
        ContextPaging(settings=PagingSettings(token_budget=budget)), session_id="s"
    )
    agent = Agent(
        ScriptedModel(script), tools=[read_file], conversation_manager=manager, callback_handler=None
    )
    return agent, manager


def test_an_agent_reads_again_what_left_its_window() -> None:
    script = Script()
    agent, manager = _agent(script)

    result = agent(QUESTION)

    check(script)
    assert "Harbour 2." in str(result)
    assert len(agent.messages) == 2 * (FILES + 3)
    assert not any("token window" in message for message in wire(agent.messages))
    agent("And then?")
    check_goes_on(script)
    anchor = manager._conversations.of("s").session.state.calibration.anchor
    assert anchor is not None


def test_a_call_that_cannot_be_made_to_fit_raises_and_says_what_to_do() -> None:
    script = Script()
    agent, _ = _agent(script, 50)

    with pytest.raises(Exception, match="token") as raised:
        agent("x" * 4_000)
    assert isinstance(raised.value.__cause__ or raised.value, ContextAbortedError)
    assert not script.requests


def write(steps: list[Step]) -> list[Message]:
    """Steps as messages of Strands."""
    messages: list[Any] = []
    for step in steps:
        match step:
            case User(text, image):
                picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
                messages.append({"role": "user", "content": [*([picture] if image else []), {"text": text}]})
            case Model(text, thought, calls):
                reasoning = {"reasoningContent": {"reasoningText": {"text": thought, "signature": "c2ln"}}}
                blocks: list[Any] = [*([reasoning] if thought else []), *([{"text": text}] if text else [])]
                blocks += [{"toolUse": {"toolUseId": c, "name": "read", "input": {"path": c}}} for c in calls]
                messages.append({"role": "assistant", "content": blocks})
            case Results(answers):
                blocks = [
                    {"toolResult": {"toolUseId": c, "status": "success", "content": [{"text": text}]}}
                    for c, text in answers
                ]
                messages.append({"role": "user", "content": blocks})
    return messages


@given(steps=conversations(), broken=conversations(broken=True))
@settings(deadline=None)
def test_any_history_goes_out_valid_and_stable(steps: list[Step], broken: list[Step]) -> None:
    for script, policy in ((steps, "abort"), (broken, "repair")):
        check_history(StrandsConverter(), script, policy, write=write, check=check_messages, wire=wire)


def test_agents_without_a_name_do_not_read_each_others_history() -> None:
    manager = ContextPagingConversationManager(ContextPaging(settings=PagingSettings(token_budget=BUDGET)))
    agents: list[Any] = [
        Agent(ScriptedModel(Script()), tools=[read_file], conversation_manager=manager, callback_handler=None)
        for _ in range(2)
    ]
    agents[0](QUESTION)

    one, other = (
        manager._conversation(agent).tool("search_history", {"query": "harbour"}) for agent in agents
    )

    assert '"historyId"' in one
    assert '"historyId"' not in other
