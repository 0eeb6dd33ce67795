"""A provider's prompt cache: which part of a request was sent before, and what a request costs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """One message of a request.

    Attributes:
        identity: equal for two messages that are the same bytes.
        index: its place in the conversation; ``None`` for what is made up: a notice, a summary.
        whole: whether all of it is there.
    """

    identity: Hashable
    tokens: int
    index: int | None = None
    whole: bool = True


@dataclass(frozen=True)
class Prices:
    """Prices of a token, as multiples of an input token's, and what a cache asks for.

    Attributes:
        write: an input token that goes to the cache.
        read: one that comes from it.
        output: an output token.
        life: seconds an entry of the cache lives after its last use.
        least: tokens of the shortest prefix that is cached.
    """

    write: float = 1.25
    read: float = 0.1
    output: float = 5.0
    life: float = 300.0
    least: int = 1_024


class PromptCache:
    """The longest prefix of a request that is the prefix of an earlier one is read from the cache.

    Prefixes end where messages do. Reading renews the life of what is read.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._used: dict[int, float] = {}

    def send(self, resident: int, request: Sequence[Sent], at: float) -> int:
        """How many tokens of a request sent at ``at`` seconds come from the cache; it holds all of it then.

        ``resident`` are the tokens of the system prompt and the tools, which come first.
        """
        prefix = hash("resident")
        prefixes = [(prefix, resident)]
        tokens = resident
        for message in request:
            prefix = hash((prefix, message.identity))
            tokens += message.tokens
            prefixes.append((prefix, tokens))
        cached = 0
        for known, length in prefixes:
            used = self._used.get(known)
            if used is None or at - used > self._prices.life:
                break
            cached = length
        for known, _ in prefixes:
            self._used[known] = at
        return cached if cached >= self._prices.least else 0

    def cost(self, total: int, cached: int, output: int) -> float:
        """What a request costs, in input tokens."""
        prices = self._prices
        written = total - cached
        write = prices.write if total >= prices.least else 1.0
        return cached * prices.read + written * write + output * prices.output
