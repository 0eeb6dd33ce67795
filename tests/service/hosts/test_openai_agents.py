"""The OpenAI Agents SDK with a paged session: the real runner, a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from context_paging.service.hosts.openai_agents import PagedSession
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .agents import BUDGET, FILES, QUESTION, Call, Script, as_json, check, check_goes_on, file_text
from .forms import check_items


class ScriptedModel(Model):
    """A model that follows a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """What the script says next."""
        assert system_instructions == "Look things up."
        check_items(input)
        step = self.script.next([as_json(item) for item in input])
        turn = self.script.turn
        output: Any
        if isinstance(step, Call):
            output = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{turn}",
                name=step.name,
                arguments=as_json(step.arguments),
            )
        else:
            text = ResponseOutputText(type="output_text", text=step, annotations=[])
            output = ResponseOutputMessage(
                id=f"msg_{turn}", type="message", role="assistant", status="completed", content=[text]
            )
        tokens = self.script.input_tokens
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=20, total_tokens=tokens + 20)
        return ModelResponse(output=[output], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Not used here."""
        raise NotImplementedError


@function_tool
def read_file(number: int) -> str:
    """Read a file."""
    return file_text(number)


def _session(budget: int = BUDGET) -> PagedSession:
    return PagedSession(ContextPaging(settings=PagingSettings(token_budget=budget)), "s")


def _run(session: PagedSession, script: Script, question: str, config: RunConfig | None = None) -> Any:
    agent = Agent(
        name="reader",
        instructions="Look things up.",
        model=ScriptedModel(script),
        tools=[read_file, *session.tools],
    )
    given = config or RunConfig(tracing_disabled=True)
    running = Runner.run(
        agent,
        question,
        session=session,
        run_config=session.run_config(given),
        hooks=session.hooks,
        max_turns=50,
    )
    return asyncio.run(running)


def test_an_agent_reads_again_what_left_its_window() -> None:
    session, script = _session(), Script()

    result = _run(session, script, QUESTION)

    check(script)
    assert result.final_output == "Harbour 2."
    items = asyncio.run(session.get_items())
    assert sum(item.get("type") == "function_call_output" for item in items) == FILES + 2
    anchor = session.conversation.session.state.calibration.anchor
    assert anchor is not None
    assert anchor.reported_tokens == script.input_tokens + 20


def test_the_next_run_goes_on_in_the_same_window() -> None:
    session, script = _session(), Script()
    _run(session, script, QUESTION)

    _run(session, script, "And then?")

    check_goes_on(script)


def test_a_filter_of_the_program_comes_first() -> None:
    session, script = _session(), Script()

    def shout(data: Any) -> Any:
        data.model_data.input = [
            {**item, "content": item["content"].upper()} if item.get("role") == "user" else item
            for item in data.model_data.input
        ]
        return data.model_data

    _run(session, script, "hello", RunConfig(tracing_disabled=True, call_model_input_filter=shout))

    assert all(any("HELLO" in item for item in request) for request in script.requests)


def test_a_call_that_cannot_be_made_to_fit_raises_and_says_what_to_do() -> None:
    script = Script()

    with pytest.raises(ContextAbortedError, match="token"):
        _run(_session(50), script, "x" * 4_000)
    assert not script.requests
