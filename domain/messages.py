"""Host messages, and `MessageRef`: the digest of a message that every decision is made from.

A host message is a JSON object with a ``role``, a ``timestamp`` and content blocks, in the form Pi stores
(design, section 4). Decisions, state and the log hold references only; the content stays with the host.
A long session has many references, and none is part of a cycle: the garbage collector does not look at them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct

from .errors import InvalidMessage
from .json_text import canonical

if TYPE_CHECKING:
    from .estimation import TokenEstimator

Message = Mapping[str, Any]
"""A host message: a JSON object. Never changed, never copied."""

INTERRUPTED = frozenset({"aborted", "error"})
"""Stop reasons of an assistant that did not finish (architecture, "Raw branch projection")."""

MAX_SAFE_INTEGER = 2**53 - 1
MAX_NUMBER = sys.float_info.max
"""The largest finite number."""


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A tool call of an assistant message."""

    id: str
    name: str


class Usage(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Token counters a provider reported with a response, as given; ``None`` where there is no number.

    ``total`` is the reported total, or the sum of the others where that is zero or absent.
    """

    input: int | float | None = None
    output: int | float | None = None
    cache_read: int | float | None = None
    cache_write: int | float | None = None
    total: int | float | None = None


class MessageRef(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What decisions know of a message (design, section 4).

    Attributes:
        fingerprint: SHA-256 of the message's canonical JSON; 32 bytes.
        tokens: estimate of the message by itself, in tokens.
        calls: tool calls of an assistant message, in order; empty for others.
        call_id: the call a tool result answers; ``None`` for other roles.
    """

    role: str
    timestamp: int | float | str | None
    fingerprint: bytes
    tokens: int
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    tool_name: str | None = None
    failed: bool = False
    stop_reason: str | None = None
    usage: Usage | None = None

    @property
    def interrupted(self) -> bool:
        """Whether this is an assistant message that was aborted or failed."""
        return self.role == "assistant" and self.stop_reason in INTERRUPTED

    @property
    def reported_tokens(self) -> float | None:
        """The provider's total for the request and this response, if it is a positive number."""
        if self.usage is None or self.interrupted:
            return None
        total = self.usage.total
        return total if total is not None and 0 < total < float("inf") else None

    @property
    def measured_input_tokens(self) -> int | None:
        """Input the provider counted for this response, cached input included, output excluded."""
        if self.usage is None or self.interrupted:
            return None
        counters = [
            token_counter(value)
            for value in (self.usage.input, self.usage.cache_read, self.usage.cache_write, self.usage.output)
        ]
        if not any(counters):
            return None
        parts = [counter for counter in counters[:3] if counter is not None]
        return sum(parts) if len(parts) == 3 and sum(parts) <= MAX_SAFE_INTEGER else None


def digest(message: Message, estimator: TokenEstimator) -> MessageRef:
    """The reference of a host message.

    Raises:
        InvalidMessage: it is not a JSON object, or is nested too deeply.
    """
    if not is_object(message):
        raise InvalidMessage(f"a message must be a JSON object, not {type(message).__name__}")
    role = text(message.get("role"))
    timestamp = message.get("timestamp")
    fingerprint = fingerprint_of(message)
    tokens = estimator.message_tokens(message, fingerprint)
    stamp = timestamp if isinstance(timestamp, str) or is_number(timestamp) else None
    if role == "assistant":
        return MessageRef(
            role,
            stamp,
            fingerprint,
            tokens,
            calls=tuple(ToolCall(block["id"], block["name"]) for block in tool_calls(message)),
            stop_reason=optional_text(message.get("stopReason")),
            usage=_usage(message.get("usage")),
        )
    if role == "toolResult":
        return MessageRef(
            role,
            stamp,
            fingerprint,
            tokens,
            call_id=text(message.get("toolCallId")),
            tool_name=text(message.get("toolName")),
            failed=bool(message.get("isError")),
        )
    return MessageRef(role, stamp, fingerprint, tokens)


def fingerprint_of(message: Message) -> bytes:
    """SHA-256 of a message's canonical JSON; 32 bytes.

    Raises:
        InvalidMessage: it is not JSON, or is nested too deeply.
    """
    return sha256(canonical(message)).digest()


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a JSON value is an object."""
    # The check against an abstract class is slow, and nearly all objects are dictionaries.
    return type(value) is dict or isinstance(value, Mapping)


def content_blocks(content: Any) -> list[Mapping[str, Any]]:
    """The blocks of a message's content that are objects. Text, null or anything else has none."""
    return list(filter(is_object, content)) if isinstance(content, list | tuple) else []


def text_content(text: str) -> list[dict[str, str]]:
    """Content that is one block of text."""
    return [{"type": "text", "text": text}]


def tool_calls(message: Message) -> list[Mapping[str, Any]]:
    """The tool-call blocks of an assistant message that have an id and a name."""
    return [
        block
        for block in content_blocks(message.get("content"))
        if block.get("type") == "toolCall"
        and isinstance(block.get("id"), str)
        and isinstance(block.get("name"), str)
    ]


def text(value: Any) -> str:
    """``value`` if it is text, else the empty text."""
    return value if isinstance(value, str) else ""


def optional_text(value: Any) -> str | None:
    """``value`` if it is text, else none."""
    return value if isinstance(value, str) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; ``true`` and ``false`` are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _usage(value: Any) -> Usage | None:
    if not is_object(value):
        return None
    names = ("input", "output", "cacheRead", "cacheWrite")
    parts = [_in_range(value.get(name)) for name in names]
    total = _in_range(value.get("totalTokens"))
    if not total:
        # A counter that is null counts nothing; one that is absent makes the sum unknown.
        known = all(name in value and (is_number(value[name]) or value[name] is None) for name in names)
        total = sum(part or 0 for part in parts) if known else None
    return Usage(parts[0], parts[1], parts[2], parts[3], total)


def _in_range(value: Any) -> int | float | None:
    """A number as JavaScript reads it: beyond the largest one, infinite."""
    if not is_number(value):
        return None
    number: int | float = value
    return number if abs(number) <= MAX_NUMBER else math.copysign(math.inf, number > 0 or -1)


def token_counter(value: Any) -> int | None:
    """A whole number of tokens that is safe to add, or none where ``value`` is no such number."""
    if not is_number(value) or not 0 <= value <= MAX_SAFE_INTEGER or value != int(value):
        return None
    return int(value)
