"""Plays a conversation through a contender, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .contenders import Contender, Limits
from .conversations import Conversation
from .provider import Prices, PromptCache, Sent


@dataclass
class Played:
    """What came of it.

    Attributes:
        calls: provider calls that were due.
        refused: of them, those that were not made, or that a provider would refuse: with no message.
        tokens: input tokens of the requests, ``cached`` those that came from the cache.
        cost: of all requests and answers, and of the contender's own calls, in input tokens.
        prefixes: requests that begin with the one before.
        unread: results of the newest exchange that were not shown whole.
        dropped: requests without the message of the user that they are about.
        broken: calls without all their results, and results without their call.
        lost: messages that are not in the last request, and that the model cannot read any more.
        above: requests above the budget.
        beyond: requests above the model's window. A provider refuses them; they are played as if it did not.
        sizes: input tokens and cached ones of each request.
    """

    contender: str
    conversation: str
    calls: int = 0
    refused: int = 0
    tokens: int = 0
    cached: int = 0
    cost: float = 0.0
    prefixes: int = 0
    unread: int = 0
    dropped: int = 0
    broken: int = 0
    lost: int = 0
    above: int = 0
    beyond: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Requests that went out."""
        return self.calls - self.refused


def play(contender: Contender, played: Conversation, limits: Limits, prices: Prices) -> Played:
    """Play a conversation."""
    cache = PromptCache(prices)
    result = Played(contender.name, played.name)
    before: list[Sent] | None = None
    last: list[Sent] = []
    for count in played.calls:
        result.calls += 1
        request = contender.request(count)
        if not request:
            result.refused += 1
            continue
        total = contender.resident + sum(sent.tokens for sent in request)
        cached = cache.send(contender.resident, request, played.times[count - 1])
        result.tokens += total
        result.cached += cached
        result.cost += cache.cost(total, cached, played.tokens[count])
        result.sizes.append((total, cached))
        result.above += total > limits.budget
        result.beyond += total > limits.window
        shown = {sent.index for sent in request if sent.whole}
        _count_faults(result, played.messages, count, request, shown)
        if before is not None:
            identities = [sent.identity for sent in before]
            result.prefixes += [sent.identity for sent in request[: len(before)]] == identities
        before = last = request
    result.cost += contender.extra_input + contender.extra_output * prices.output
    result.tokens += contender.extra_input
    kept = {sent.index for sent in last if sent.whole}
    end = played.calls[-1] if played.calls else 0
    result.lost = sum(index not in kept and not contender.readable(index) for index in range(end))
    return result


def _count_faults(
    result: Played, messages: list[Any], count: int, request: list[Sent], shown: set[int | None]
) -> None:
    newest = count - 1
    while newest >= 0 and messages[newest]["role"] == "toolResult":
        result.unread += newest not in shown
        newest -= 1
    asked = next((n for n in range(count - 1, -1, -1) if messages[n]["role"] == "user"), None)
    result.dropped += asked is not None and asked not in shown
    result.broken += broken_pairs([messages[sent.index] for sent in request if sent.index is not None])


def broken_pairs(messages: list[Any]) -> int:
    """Calls without all their results behind them, and results without their call."""
    broken = 0
    waiting: set[str] = set()
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "toolResult":
            if message["toolCallId"] in waiting:
                waiting.remove(message["toolCallId"])
            else:
                broken += 1
            continue
        broken += len(waiting)
        blocks = message.get("content") if message["role"] == "assistant" else ()
        waiting = {b["id"] for b in blocks or () if isinstance(b, dict) and b.get("type") == "toolCall"}
    return broken


def totals(results: list[Played]) -> Played:
    """Several conversations of one contender together."""
    whole = Played(results[0].contender, "all")
    numbers = ("calls", "refused", "tokens", "cached", "cost", "prefixes", "unread", "dropped", "broken")
    for one in results:
        for name in (*numbers, "lost", "above", "beyond"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
    return whole


def followers(result: Played, conversations: int = 1) -> int:
    """How many requests have a predecessor."""
    return max(0, result.made - conversations)
