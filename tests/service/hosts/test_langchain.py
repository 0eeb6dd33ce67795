"""LangChain's agent with the middleware: a real graph, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import PrivateAttr

from context_paging.service.hosts.langchain import ContextPagingMiddleware, LangChainConverter
from context_paging.service.log import EventLog
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .agents import BUDGET, QUESTION, Call, Script, as_json, check, file_text
from .forms import check_chat
from .histories import check_history
from .scripts import Model, Results, Step, User, conversations


class ScriptedModel(BaseChatModel):
    """A chat model that follows a script."""

    _script: Script = PrivateAttr()

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The script calls what it likes."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        sent: Any = convert_to_openai_messages(messages)
        check_chat(sent)
        step = self._script.next([as_json(message) for message in sent])
        tokens = self._script.input_tokens
        usage: Any = {"input_tokens": tokens, "output_tokens": 20, "total_tokens": tokens + 20}
        if isinstance(step, Call):
            calls: Any = [{"name": step.name, "args": step.arguments, "id": f"call_{self._script.turn}"}]
            message = AIMessage("", tool_calls=calls, usage_metadata=usage)
        else:
            message = AIMessage(step, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_file(number: int) -> str:
    """Read a file."""
    return file_text(number)


@pytest.fixture
def log() -> Iterator[EventLog]:
    """A log in memory."""
    with EventLog.open() as opened:
        yield opened


def _paging(log: EventLog | None = None, budget: int = BUDGET) -> ContextPaging:
    return ContextPaging(log, settings=PagingSettings(token_budget=budget))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_reads_again_what_left_its_window(log: EventLog, asynchronous: bool) -> None:
    script = Script()
    middleware = ContextPagingMiddleware(_paging(log))
    agent: Any = create_agent(
        ScriptedModel(script),
        [read_file],
        system_prompt="Look things up.",
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )
    question: Any = {"messages": [HumanMessage(QUESTION)]}
    thread: Any = {"configurable": {"thread_id": "t1"}, "recursion_limit": 200}

    asked = (question, thread)
    result = asyncio.run(agent.ainvoke(*asked)) if asynchronous else agent.invoke(*asked)

    check(script)
    assert result["messages"][-1].content == "Harbour 2."
    # The host's own state is whole.
    assert sum(isinstance(message, ToolMessage) for message in result["messages"]) == script.turn - 1
    middleware.close()
    (session,) = log.find_sessions().rows
    assert (session.session_id, session.host, session.calls) == ("t1", "langchain", script.turn)


def test_what_the_provider_counted_is_used() -> None:
    script = Script()
    middleware = ContextPagingMiddleware(_paging(), session_id="mine")
    agent: Any = create_agent(ScriptedModel(script), [read_file], middleware=[middleware])

    agent.invoke({"messages": [HumanMessage(QUESTION)]}, {"recursion_limit": 200})

    conversation = middleware._conversations.of("mine")
    anchor = conversation.session.state.calibration.anchor
    assert anchor is not None
    assert anchor.reported_tokens == script.input_tokens + 20


def test_a_call_that_cannot_be_made_to_fit_raises_and_says_what_to_do() -> None:
    script = Script()
    agent: Any = create_agent(
        ScriptedModel(script), [read_file], middleware=[ContextPagingMiddleware(_paging(budget=50))]
    )

    with pytest.raises(ContextAbortedError, match="token"):
        agent.invoke({"messages": [HumanMessage("x" * 4_000, id="m")]})
    assert not script.requests


def write(step: Step) -> list[BaseMessage]:
    """A step as LangChain messages."""
    match step:
        case User(text, image):
            url = {"url": "data:image/png;base64,iVBORw0KGgo="}
            parts: Any = [{"type": "text", "text": text}, {"type": "image_url", "image_url": url}]
            return [HumanMessage(parts if image else text)]
        case Model(text, thought, calls):
            content: Any = [
                *([{"type": "thinking", "thinking": thought, "signature": "c2ln"}] if thought else []),
                *([{"type": "text", "text": text}] if text else []),
            ]
            made: Any = [{"name": "read", "args": {"path": call}, "id": call} for call in calls]
            return [AIMessage(content, tool_calls=made)]
        case Results(answers):
            return [ToolMessage(text, tool_call_id=call) for call, text in answers]


def _history(steps: list[Step]) -> list[BaseMessage]:
    return [SystemMessage("Be brief."), *(message for step in steps for message in write(step))]


def _check(messages: list[BaseMessage]) -> None:
    sent: Any = convert_to_openai_messages(messages)
    assert sent[0]["role"] == "system"
    check_chat(sent)


def _wire(messages: list[BaseMessage]) -> list[str]:
    return [message.model_dump_json(exclude={"id"}) for message in messages]


@given(steps=conversations(), broken=conversations(broken=True))
@settings(deadline=None)
def test_any_history_goes_out_valid_and_stable(steps: list[Step], broken: list[Step]) -> None:
    for script, policy in ((steps, "abort"), (broken, "repair")):
        check_history(LangChainConverter(), script, policy, write=_history, check=_check, wire=_wire)


def test_thoughts_are_private_in_every_form_they_come_in() -> None:
    content: Any = [
        {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "c2ln"}},
        {"type": "non_standard", "value": {"type": "redacted_thinking", "data": "c2VjcmV0"}},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
        {"type": "text", "text": "yes"},
    ]

    (made,) = LangChainConverter().convert([AIMessage(content)], {})

    assert [block["type"] for block in made["content"]] == ["thinking", "thinking", "thinking", "text"]
