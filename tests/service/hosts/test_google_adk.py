"""Google ADK with the plugin: a real runner, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from hypothesis import given, settings
from pydantic import PrivateAttr

from context_paging.service.hosts.google_adk import AdkConverter, ContextPagingPlugin
from context_paging.service.paging import ContextPaging, PagingSettings

from .agents import BUDGET, FILES, QUESTION, Call, Script, as_json, check, check_goes_on, file_text
from .histories import check_history
from .scripts import Model, Results, Step, User, conversations


def wire(contents: list[types.Content]) -> list[str]:
    """Contents as they are sent."""
    return [as_json(content.model_dump(mode="json", exclude_none=True)) for content in contents]


def check_contents(contents: list[types.Content]) -> None:
    """Refuse what Gemini refuses: as many responses as calls, by name, right behind them."""
    waiting: list[str] = []
    assert contents[0].role == "user"
    for content in contents:
        assert content.parts
        calls = [part.function_call.name or "" for part in content.parts if part.function_call]
        answers = [part.function_response.name or "" for part in content.parts if part.function_response]
        if content.role == "model":
            assert not waiting
            waiting = calls
            continue
        for name in answers:
            waiting.remove(name)
        if not answers:
            assert not waiting
    assert not waiting


class ScriptedModel(BaseLlm):
    """A model that follows a script."""

    _script: Script = PrivateAttr()

    def __init__(self, script: Script) -> None:
        super().__init__(model="scripted")
        self._script = script

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """What the script says next."""
        check_contents(llm_request.contents)
        step = self._script.next(wire(llm_request.contents))
        part = (
            types.Part(function_call=types.FunctionCall(name=step.name, args=step.arguments))
            if isinstance(step, Call)
            else types.Part(text=step)
        )
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=self._script.input_tokens, candidates_token_count=20
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


def read_file(number: int) -> str:
    """Read a file."""
    return file_text(number)


async def _ask(script: Script, budget: int, *questions: str) -> tuple[list[Any], ContextPagingPlugin]:
    plugin = ContextPagingPlugin(ContextPaging(settings=PagingSettings(token_budget=budget)))
    agent = LlmAgent(
        name="reader", model=ScriptedModel(script), instruction="Look things up.", tools=[read_file]
    )
    runner = InMemoryRunner(app=App(name="harbours", root_agent=agent, plugins=[plugin]))
    await runner.session_service.create_session(app_name="harbours", user_id="u", session_id="s")
    events = []
    for question in questions:
        content = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(
            user_id="u", session_id="s", new_message=content, run_config=RunConfig(max_llm_calls=100)
        ):
            events.append(event)
    return events, plugin


def test_an_agent_reads_again_what_left_its_window() -> None:
    script = Script()

    events, plugin = asyncio.run(_ask(script, BUDGET, QUESTION))

    check(script)
    assert events[-1].content.parts[0].text == "Harbour 2."
    assert sum(bool(event.get_function_responses()) for event in events) == FILES + 2
    conversation = plugin._conversations.of("s:reader")
    assert conversation.session.state.calibration.anchor is not None


def test_the_next_question_goes_on_in_the_same_window() -> None:
    script = Script()

    asyncio.run(_ask(script, BUDGET, QUESTION, "And then?"))

    check_goes_on(script)


def test_a_request_that_cannot_be_made_to_fit_is_answered_with_the_reason() -> None:
    script = Script()

    events, _ = asyncio.run(_ask(script, 50, "x" * 4_000))

    assert not script.requests
    assert events[-1].error_code in ("ACTIVE_REQUEST_TOO_LARGE", "RESIDENT_INPUT_TOO_LARGE")
    assert "token" in events[-1].error_message


def write(steps: list[Step]) -> list[types.Content]:
    """Steps as contents."""
    contents = []
    for step in steps:
        parts: list[types.Part]
        match step:
            case User(text, image):
                blob = types.Blob(data=b"\x89PNG", mime_type="image/png")
                parts = [*([types.Part(inline_data=blob)] if image else []), types.Part(text=text)]
            case Model(text, thought, calls):
                parts = [types.Part(text=thought, thought=True)] if thought else []
                parts += [types.Part(text=text)] if text else []
                parts += [
                    types.Part(function_call=types.FunctionCall(name="read", args={"path": call}))
                    for call in calls
                ]
            case Results(answers):
                parts = [
                    types.Part(
                        function_response=types.FunctionResponse(name="read", response={"result": text})
                    )
                    for _, text in answers
                ]
        contents.append(types.Content(role="model" if isinstance(step, Model) else "user", parts=parts))
    return contents


@given(steps=conversations(), broken=conversations(broken=True))
@settings(deadline=None)
def test_any_history_goes_out_valid_and_stable(steps: list[Step], broken: list[Step]) -> None:
    for script, policy in ((steps, "abort"), (broken, "repair")):
        check_history(AdkConverter(), script, policy, write=write, check=check_contents, wire=wire)
