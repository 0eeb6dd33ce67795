"""Ways to keep a conversation under a budget. Each is asked for a request before every provider call."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from context_paging.domain.estimation import CHARACTERS_PER_TOKEN, HeuristicEstimator, tools_text
from context_paging.domain.recovery.errors import RecoveryRefused
from context_paging.domain.recovery.tools import tool_definitions
from context_paging.service.session import Session

from .conversations import Conversation
from .provider import Sent

PI_WINDOW = 128_000
PI_RESERVE, PI_KEEP = 16_384, 20_000
"""Pi's defaults, in tokens, of a window of the default budget; for another budget they are scaled with it."""
PI_RESULT_CHARACTERS = 2_000
"""What Pi's request for a summary shows of a tool result."""
_ESTIMATOR = HeuristicEstimator()


@dataclass(frozen=True)
class Limits:
    """What is the same for everybody, in tokens.

    Attributes:
        budget: the most a request may hold.
        resident: the host's system prompt and tools, in every request.
        window: the model's context window.
    """

    budget: int
    resident: int
    window: int


class Contender(Protocol):
    """One way.

    Attributes:
        resident: tokens of the system prompt and the tools, those it brings itself among them.
        extra_input: tokens of calls of its own that it made so far, and their answers (``extra_output``).
    """

    name: str
    resident: int
    extra_input: int
    extra_output: int

    def request(self, count: int) -> list[Sent] | None:
        """What goes out of the first ``count`` messages; ``None`` if the call is not made."""
        ...

    def readable(self, index: int) -> bool:
        """Whether the model can still read a message exactly that is not in the window."""
        ...


class _Plain:
    name = ""
    extra_input = extra_output = 0

    def __init__(self, played: Conversation, limits: Limits) -> None:
        self.played = played
        self.limits = limits
        self.resident = limits.resident
        self.room = limits.budget - limits.resident

    def sent(self, index: int) -> Sent:
        """A message as it is."""
        return Sent(("m", index), self.played.tokens[index], index)

    def readable(self, index: int) -> bool:
        """Nothing brings it back."""
        return False


class Everything(_Plain):
    """No limit at all: what the others are compared with."""

    name = "everything"

    def request(self, count: int) -> list[Sent] | None:
        """All of it."""
        return [self.sent(index) for index in range(count)]


class Paging(_Plain):
    """Context paging, as a host has it that stores its conversation and offers the recovery tools.

    What the model would read again with them is not played.
    """

    name = "context paging"

    def __init__(self, played: Conversation, limits: Limits) -> None:
        super().__init__(played, limits)
        self._session = Session("bench")
        self._session.start(global_settings={"contextPaging": self._settings()})
        # The host's own part, without the two characters of an empty list that are counted anyway.
        self._prompt = "x" * (limits.resident * CHARACTERS_PER_TOKEN - len(tools_text([])))
        self._tools = tool_definitions()
        self.resident = _ESTIMATOR.resident_tokens(self._prompt, self._tools)
        self._count = 0

    def _settings(self) -> dict[str, int]:
        return {"tokenBudget": self.limits.budget}

    def request(self, count: int) -> list[Sent] | None:
        """The window. Unread results go above the budget once, if the model's window has room for them."""
        self._append(count)
        reply = self._session.context(
            system_prompt=self._prompt, tools=self._tools, context_window=self.limits.window
        )
        if reply.aborted is not None:
            return None
        sent: list[Sent] = []
        for part in reply.sent:
            if isinstance(part, tuple):
                sent += [self.sent(index) for index in range(part[0], part[1] + 1)]
                continue
            tokens = _ESTIMATOR.message_tokens(part)
            if part["role"] == "toolResult":
                index = next(n for n in range(count - 1, -1, -1) if self._is_call(n, part["toolCallId"]))
                sent.append(Sent(("reference", index), tokens, index, whole=False))
            else:
                sent.append(Sent(("notice", part["content"]), tokens))
        return sent

    def readable(self, index: int) -> bool:
        """Ask the tool."""
        self._append(len(self.played.messages))
        owner = index
        while self.played.messages[owner]["role"] == "toolResult":
            owner -= 1
        try:
            self._session.tool("load_history", {"historyIds": [str(owner)]})
        except RecoveryRefused:
            return False
        return True

    def _append(self, count: int) -> None:
        for index in range(self._count, count):
            parent = str(index - 1) if index else None
            message = self.played.messages[index]
            entry = {"type": "message", "id": str(index), "parentId": parent, "message": message}
            self._session.append([entry])
        self._count = max(self._count, count)

    def _is_call(self, index: int, call_id: str) -> bool:
        return bool(self.played.messages[index].get("toolCallId") == call_id)


class SlidingWindow(_Plain):
    """The newest messages that fit; results without their call are left out."""

    name = "sliding window"

    def request(self, count: int) -> list[Sent] | None:
        """The newest messages."""
        start, room = count, self.room
        while start and self.played.tokens[start - 1] <= room:
            start -= 1
            room -= self.played.tokens[start]
        while start < count and self.played.messages[start]["role"] == "toolResult":
            start += 1
        return [self.sent(index) for index in range(start, count)]


class Compaction(_Plain):
    """A summary takes the place of what is older than the newest messages, as in Pi.

    The summary has a fixed size. Making one is a call of its own, which reads what is summarised as Pi shows
    it, without thinking and pictures and with the beginnings of tool results. It writes nothing to the cache.
    """

    name = "compaction, Pi-like"
    summary_tokens = 1_200

    def __init__(self, played: Conversation, limits: Limits) -> None:
        super().__init__(played, limits)
        self._kept = self._summaries = 0
        self._reserve = PI_RESERVE * limits.budget // PI_WINDOW
        self._keep = PI_KEEP * limits.budget // PI_WINDOW

    def request(self, count: int) -> list[Sent] | None:
        """The summary and what was kept."""
        if self._tokens(count) > self.room - self._reserve:
            self._compact(count)
        summary = [Sent(("summary", self._summaries), self.summary_tokens)] if self._summaries else []
        return [*summary, *(self.sent(index) for index in range(self._kept, count))]

    def _tokens(self, count: int) -> int:
        own = self.summary_tokens if self._summaries else 0
        return own + sum(self.played.tokens[self._kept : count])

    def _compact(self, count: int) -> None:
        start = self._cut(count)
        if start == self._kept:
            return
        self.extra_input += sum(map(summarised_tokens, self.played.messages[self._kept : start]))
        self.extra_input += self.summary_tokens if self._summaries else 0
        self.extra_output += self.summary_tokens
        self._kept = start
        self._summaries += 1

    def _cut(self, count: int) -> int:
        """Where a message that is no result stands, at or behind the one that fills what is kept."""
        places = [n for n in range(self._kept, count) if self.played.messages[n]["role"] != "toolResult"]
        kept = 0
        for index in range(count - 1, self._kept - 1, -1):
            kept += self.played.tokens[index]
            if kept >= self._keep:
                return next((place for place in places if place >= index), places[-1])
        return places[0]


def summarised_tokens(message: Any) -> int:
    """What a message counts in the request for a summary."""
    if message["role"] == "toolResult":
        return min(_ESTIMATOR.message_tokens(_texts(message)), PI_RESULT_CHARACTERS // CHARACTERS_PER_TOKEN)
    return _ESTIMATOR.message_tokens(_texts(message))


def _texts(message: Any) -> Any:
    if not isinstance(message["content"], list):
        return message
    shown = [block for block in message["content"] if block.get("type") not in ("thinking", "image")]
    return {**message, "content": shown}


class LeanPaging(Paging):
    """Context paging with a target as low as what compaction leaves: what it keeps, behind a summary."""

    name = "context paging, low target"

    def _settings(self) -> dict[str, int]:
        kept = PI_KEEP * self.limits.budget // PI_WINDOW
        return {
            **super()._settings(),
            "trimToTokens": self.limits.resident + Compaction.summary_tokens + kept,
        }


class TrimMessages(_Plain):
    """LangChain's ``trim_messages``: the newest messages that fit, beginning with one of the user."""

    name = "LangChain trim_messages"

    def __init__(self, played: Conversation, limits: Limits) -> None:
        super().__init__(played, limits)
        self._messages = langchain_messages(played)

    def request(self, count: int) -> list[Sent] | None:
        """What it leaves."""
        from langchain_core.messages import trim_messages

        left = trim_messages(
            self._messages[:count],
            max_tokens=self.room,
            token_counter=self._count,
            strategy="last",
            start_on="human",
            end_on=("human", "tool"),
            allow_partial=False,
        )
        return [self.sent(int(str(message.id))) for message in left]

    def _count(self, messages: Sequence[Any]) -> int:
        return sum(self.played.tokens[int(message.id)] for message in messages)


class ClearToolUses(_Plain):
    """LangChain's ``ClearToolUsesEdit``: above the budget all but the newest three results are cleared."""

    name = "LangChain ClearToolUsesEdit"

    def __init__(self, played: Conversation, limits: Limits) -> None:
        super().__init__(played, limits)
        self._messages = langchain_messages(played)

    def request(self, count: int) -> list[Sent] | None:
        """What it leaves of a fresh copy, as its middleware has it."""
        from langchain.agents.middleware import ClearToolUsesEdit

        edit = ClearToolUsesEdit(trigger=self.room)
        messages = copy.copy(self._messages[:count])
        edit.apply(messages, count_tokens=self._count)
        return [
            Sent(("cleared", int(message.id)), 3, int(message.id), whole=False)
            if message is not self._messages[int(message.id)]
            else self.sent(int(message.id))
            for message in messages
        ]

    def _count(self, messages: Sequence[Any]) -> int:
        return sum(
            self.played.tokens[int(message.id)] if message is self._messages[int(message.id)] else 3
            for message in messages
        )


class Truncation(_Plain):
    """Microsoft Agent Framework's ``TruncationStrategy``, with context paging's budget and target."""

    name = "Agent Framework TruncationStrategy"

    def __init__(self, played: Conversation, limits: Limits) -> None:
        from agent_framework import TruncationStrategy

        super().__init__(played, limits)
        self._strategy = TruncationStrategy(
            max_n=self.room,
            compact_to=max(1, limits.budget * 5 // 8 - limits.resident),
            tokenizer=_Counted(),
        )
        self._all = agent_framework_messages(played)
        self._list: list[Any] = []

    def request(self, count: int) -> list[Sent] | None:
        """What it does not exclude."""
        from agent_framework import annotate_message_groups, included_messages

        self._list += self._all[len(self._list) : count]
        annotate_message_groups(self._list, tokenizer=_Counted())
        asyncio.run(self._strategy(self._list))
        return [self.sent(int(str(message.message_id))) for message in included_messages(self._list)]


class _Counted:
    """The same counts as everybody's: a message's text says how many tokens it has."""

    def count_tokens(self, text: str) -> int:
        """What the text says."""
        marked = text.partition("tokens=")[2]
        digits = marked[: next((n for n, c in enumerate(marked) if not c.isdigit()), len(marked))]
        return int(digits or 0)


def langchain_messages(played: Conversation) -> list[Any]:
    """The conversation for LangChain; contents are names, ids are places."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    made: list[Any] = []
    for index, message in enumerate(played.messages):
        match message["role"]:
            case "user":
                made.append(HumanMessage("user", id=str(index)))
            case "assistant":
                calls = [
                    {"name": block["name"], "args": {}, "id": block["id"]}
                    for block in message["content"]
                    if block.get("type") == "toolCall"
                ]
                made.append(AIMessage("assistant", tool_calls=calls, id=str(index)))
            case _:
                made.append(ToolMessage("result", tool_call_id=message["toolCallId"], id=str(index)))
    return made


def agent_framework_messages(played: Conversation) -> list[Any]:
    """The conversation for the Agent Framework."""
    from agent_framework import Content, Message

    made: list[Any] = []
    for index, message in enumerate(played.messages):
        said = f"tokens={played.tokens[index]}"
        match message["role"]:
            case "user":
                made.append(Message("user", [said], message_id=str(index)))
            case "assistant":
                calls = [
                    Content.from_function_call(block["id"], block["name"], arguments={})
                    for block in message["content"]
                    if block.get("type") == "toolCall"
                ]
                made.append(Message("assistant", [said, *calls], message_id=str(index)))
            case _:
                result = Content.from_function_result(message["toolCallId"], result=said)
                made.append(Message("tool", [result], message_id=str(index)))
    return made


CONTENDERS: list[type[Any]] = [
    Everything,
    Paging,
    LeanPaging,
    Compaction,
    Truncation,
    TrimMessages,
    ClearToolUses,
    SlidingWindow,
]
"""All of them."""
