"""What people use instead of context paging.

``python -m call_costs.peers WHAT NAME …``, see `measuring.answer`; or ``versions``. Runs in an environment of
its own and imports nothing of context paging. Each gets the same budget and counts four characters a token,
in the cheapest way its interface has room for: a tokenizer would only make it slower.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from .measuring import Contender, Shape, answer, tell
from .messages import calls_of, text_of

BUDGET = 32_000
PACKAGES = ("langchain-core", "llama-index-core", "autogen-core")


def tokens(text: str) -> int:
    """Four characters each."""
    return (len(text) + 3) // 4


class TrimMessages:
    """LangChain's ``trim_messages``, as its documentation advises for the hot path of an agent.

    It is a function of the whole list and keeps nothing from call to call.
    """

    def __init__(self) -> None:
        from langchain_core import messages

        self._library: Any = messages
        self._list: list[Any] = []

    def native(self, message: dict[str, Any], number: int) -> Any:
        """One message is one message."""
        match message["role"]:
            case "user":
                return self._library.HumanMessage(text_of(message))
            case "assistant":
                calls = [
                    {"name": call["name"], "args": call["arguments"], "id": call["id"]}
                    for call in calls_of(message)
                ]
                return self._library.AIMessage(text_of(message), tool_calls=calls)
            case _:
                return self._library.ToolMessage(text_of(message), tool_call_id=message["toolCallId"])

    def begin(self, messages: list[Any]) -> None:
        """The host's list."""
        self._list = list(messages)

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Trim all of it."""
        self._list += new
        kept: Sequence[Any] = self._library.trim_messages(
            self._list,
            max_tokens=BUDGET,
            token_counter="approximate",
            strategy="last",
            start_on="human",
            include_system=True,
        )
        return kept

    def shape(self, sent: Any) -> Shape:
        """By type."""
        calls = [call["id"] for call in getattr(sent, "tool_calls", [])]
        results = [sent.tool_call_id] if sent.type == "tool" else []
        return {"human": "user", "ai": "assistant"}.get(sent.type, sent.type), calls, results


class _LlamaIndex:
    def __init__(self) -> None:
        from llama_index.core.base.llms import types

        self._library: Any = types

    def native(self, message: dict[str, Any], number: int) -> Any:
        """One message is one message."""
        blocks: list[Any] = [self._library.TextBlock(text=text_of(message))]
        blocks += [
            self._library.ToolCallBlock(
                tool_call_id=call["id"], tool_name=call["name"], tool_kwargs=call["arguments"]
            )
            for call in calls_of(message)
        ]
        if message["role"] == "toolResult":
            about = {"tool_call_id": message["toolCallId"]}
            return self._library.ChatMessage(role="tool", blocks=blocks, additional_kwargs=about)
        return self._library.ChatMessage(role=message["role"], blocks=blocks)

    def shape(self, sent: Any) -> Shape:
        """By its blocks."""
        calls = [block.tool_call_id for block in sent.blocks if block.block_type == "tool_call"]
        result = sent.additional_kwargs.get("tool_call_id")
        return sent.role.value, calls, [result] if result else []

    @staticmethod
    def counted(text: str) -> Any:
        """A list of tokens is asked for, and only its length is looked at."""
        return range(tokens(text))


class Memory(_LlamaIndex):
    """LlamaIndex's ``Memory`` without memory blocks, the whole budget for the chat.

    Its store is the default one, SQLite in memory. What it would have moved out of its queue while the
    conversation grew is put into the store as such; putting it through the queue would take hours.
    """

    chunk = 500

    def __init__(self) -> None:
        from llama_index.core.memory import Memory

        super().__init__()
        self._runner = asyncio.Runner()
        self._memory = Memory.from_defaults(
            session_id="bench",
            token_limit=BUDGET,
            chat_history_token_ratio=1.0,
            token_flush_size=BUDGET // 10,
            tokenizer_fn=self.counted,
        )

    def begin(self, messages: list[Any]) -> None:
        """The newest messages, a budget of them, are in the queue; older ones are archived."""
        self._runner.run(self._begin(messages))

    async def _begin(self, messages: list[Any]) -> None:
        from llama_index.core.storage.chat_store.sql import MessageStatus

        start, room = len(messages), BUDGET
        while start and room > 0:
            start -= 1
            room -= self._memory._estimate_token_count(messages[start])
        for place in range(0, start, self.chunk):
            old = messages[place : min(start, place + self.chunk)]
            await self._memory.sql_store.add_messages("bench", old, status=MessageStatus.ARCHIVED)
        await self._memory.aput_messages(messages[start:])

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Put them, and get what is in the queue."""
        return self._runner.run(self._call(new))

    async def _call(self, new: list[Any]) -> Sequence[Any]:
        if new:
            await self._memory.aput_messages(new)
        return await self._memory.aget()


class ChatMemoryBuffer(_LlamaIndex):
    """LlamaIndex's ``ChatMemoryBuffer``, deprecated in favour of ``Memory`` and still widely used."""

    def begin(self, messages: list[Any]) -> None:
        """Its store takes the list."""
        from llama_index.core.memory import ChatMemoryBuffer

        self._memory = ChatMemoryBuffer.from_defaults(
            chat_history=messages, token_limit=BUDGET, tokenizer_fn=self.counted
        )

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Put each, and get what fits."""
        for message in new:
            self._memory.put(message)
        return self._memory.get()


class TokenLimited:
    """AutoGen's ``TokenLimitedChatCompletionContext``, which takes messages out of the middle, one by one.

    It asks a model client to count all that is left after each. The client here remembers what each message
    counts; one that runs a tokenizer over all of them, as clients do, is slower by far.
    """

    def __init__(self) -> None:
        from autogen_core import FunctionCall, models

        self._library: Any = models
        self._function_call: Any = FunctionCall
        self._counts: dict[int, int] = {}
        self._runner = asyncio.Runner()

    def native(self, message: dict[str, Any], number: int) -> Any:
        """One message is one message."""
        text = text_of(message)
        match message["role"]:
            case "user":
                return self._library.UserMessage(content=text, source="user")
            case "assistant":
                calls = [
                    self._function_call(id=call["id"], name=call["name"], arguments=str(call["arguments"]))
                    for call in calls_of(message)
                ]
                said: Any = {"content": calls, "thought": text} if calls else {"content": text}
                return self._library.AssistantMessage(source="assistant", **said)
            case _:
                result = self._library.FunctionExecutionResult(
                    content=text,
                    name=message["toolName"],
                    call_id=message["toolCallId"],
                    is_error=bool(message["isError"]),
                )
                return self._library.FunctionExecutionResultMessage(content=[result])

    def begin(self, messages: list[Any]) -> None:
        """A context that has had them from the start."""
        from autogen_core.model_context import TokenLimitedChatCompletionContext

        self._context = TokenLimitedChatCompletionContext(
            self._client(), token_limit=BUDGET, initial_messages=messages
        )

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Add each, and get what fits."""
        return self._runner.run(self._call(new))

    async def _call(self, new: list[Any]) -> Sequence[Any]:
        for message in new:
            await self._context.add_message(message)
        return await self._context.get_messages()

    def shape(self, sent: Any) -> Shape:
        """By type."""
        role = {"UserMessage": "user", "AssistantMessage": "assistant"}.get(sent.type, "tool")
        content = sent.content if isinstance(sent.content, list) else []
        calls = [call.id for call in content] if role == "assistant" else []
        return role, calls, [result.call_id for result in content] if role == "tool" else []

    def _client(self) -> Any:
        counts = self._counts

        class Client(self._library.ChatCompletionClient):  # type: ignore[misc, name-defined]
            """Counts, and can do nothing else."""

            def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
                """Of all messages, those counted before from memory."""
                try:
                    return sum([counts[id(message)] for message in messages])
                except KeyError:
                    for message in messages:
                        counts.setdefault(id(message), _counted(message))
                    return sum([counts[id(message)] for message in messages])

            def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
                """What is left of the budget."""
                return BUDGET - self.count_tokens(messages)

            def _nothing(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

            create = create_stream = close = actual_usage = total_usage = _nothing
            capabilities = model_info = property(_nothing)

        return Client()


def _counted(message: Any) -> int:
    if isinstance(message.content, str):
        return tokens(message.content)
    thought = getattr(message, "thought", None) or ""
    parts = [getattr(part, "arguments", None) or getattr(part, "content", "") for part in message.content]
    return tokens(thought + "".join(parts))


CONTENDERS: dict[str, Callable[[], Contender]] = {
    "trim_messages": TrimMessages,
    "memory": Memory,
    "buffer": ChatMemoryBuffer,
    "autogen": TokenLimited,
}


if __name__ == "__main__":
    if sys.argv[1] == "versions":
        tell({name: version(name) for name in PACKAGES})
    tell(answer(CONTENDERS, sys.argv[1:]))
