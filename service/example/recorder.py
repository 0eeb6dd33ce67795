"""Writes a session the way Pi stores one: a tree of entries, with a clock, token usage and a prompt cache.

The clock is a number that the story moves; nothing here asks the machine for the time.
"""

import base64
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from context_paging.service.example.checkout import Call

Entry = dict[str, Any]

RESIDENT_TOKENS = 3_140
"""System prompt and tool definitions of the pretend host."""
TOKENS_PER_CHARACTER = 1.17 / 4
"""The provider's tokenizer counts a little more than four characters a token suggests."""
IMAGE_CHARACTERS = 4_800
CACHE_MILLISECONDS = 5 * 60 * 1000
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789"


@dataclass(frozen=True)
class Model:
    """A model and its prices, in dollars a million tokens."""

    id: str
    input: float
    output: float
    cache_read: float
    cache_write: float


SONNET = Model("claude-sonnet-4-5", 3.0, 15.0, 0.3, 3.75)
OPUS = Model("claude-opus-4-5", 5.0, 25.0, 0.5, 6.25)


@dataclass
class _Cache:
    """What the provider keeps of the last request: the entries it held, in order."""

    ids: list[str] = field(default_factory=list)
    warm_until: int = 0


class Recorder:
    """Appends entries to a session; the newest one is the leaf."""

    def __init__(self, seed: int, start: datetime) -> None:
        """Start an empty session."""
        self.entries: list[Entry] = []
        self.leaf: str | None = None
        self.model = SONNET
        self.thinks = True
        self._random = random.Random(seed)
        self._now = round(start.timestamp() * 1000)
        self._ids: set[str] = set()
        self._by_id: dict[str, Entry] = {}
        self._cache = _Cache()

    # What people and extensions do

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._now += round(seconds * 1000)

    def user(self, text: str, wait: float = 0.0, image: str | None = None) -> str:
        """A request, typed after a while."""
        self.pause(wait or self._random.uniform(18, 190))
        content: list[Entry] = [{"type": "text", "text": text}]
        if image is not None:
            content.append({"type": "image", "data": image, "mimeType": "image/png"})
        return self._message(
            {"role": "user", "content": content, "timestamp": self._now},
            lag=self._random.choice((0, 0, 1, 2)),
        )

    def shell(self, command: str, output: str, hidden: bool = False) -> str:
        """A command that the user ran themselves; a hidden one is kept from the model."""
        self.pause(self._random.uniform(6, 40))
        message: Entry = {"role": "bashExecution", "command": command, "output": output, "exitCode": 0}
        message |= {"cancelled": False, "truncated": False}
        if hidden:
            message["excludeFromContext"] = True
        return self._message({**message, "timestamp": self._now}, lag=1)

    def extension_message(self, kind: str, text: str, display: bool = True) -> str:
        """A message that an extension put into the conversation."""
        return self.add("custom_message", customType=kind, content=text, display=display)

    def switch_model(self, model: Model) -> str:
        """Select another model."""
        self.model = model
        return self.add("model_change", provider="anthropic", modelId=model.id)

    def navigate(self, entry: str, summary: str) -> str:
        """Go back to an earlier entry and leave a summary of the branch that is given up."""
        self.leaf = entry
        self.pause(14)
        return self.add("branch_summary", fromId=entry, summary=summary)

    def compact(self, first_kept: str, summary: str) -> str:
        """Replace everything before an entry by a summary."""
        before = self.context_tokens()
        self.pause(31)
        return self.add("compaction", summary=summary, firstKeptEntryId=first_kept, tokensBefore=before)

    # What the agent does

    def use(self, text: str, *calls: Call, thinking: str = "") -> str:
        """An exchange: one assistant message with its tool calls, then their results as they finish."""
        ids = [self._call_id() for _ in calls]
        blocks = self._blocks(text, thinking)
        for call, call_id in zip(calls, ids, strict=True):
            blocks.append({"type": "toolCall", "id": call_id, "name": call.name, "arguments": call.arguments})
        self._assistant(blocks, "toolUse")
        self._results(calls, ids)
        return str(self.leaf)

    def stop(self, text: str, thinking: str = "") -> str:
        """An answer that ends the turn."""
        return self._assistant(self._blocks(text, thinking), "stop")

    def abort(self, text: str, call: Call, thinking: str = "") -> str:
        """An answer that the user stopped while its tool call was about to run."""
        blocks = self._blocks(text, thinking)
        blocks.append(
            {"type": "toolCall", "id": self._call_id(), "name": call.name, "arguments": call.arguments}
        )
        return self._assistant(blocks, "aborted", error="Request was aborted.")

    def provider_error(self, error: str) -> str:
        """A failed provider call, and the edit by which Pi leaves it out before it tries again."""
        self.pause(1.4)
        message = {**self._head(), "content": [], "usage": _usage(self.model), "stopReason": "error"}
        failed = self._message({**message, "timestamp": self._now, "errorMessage": error}, lag=412)
        self.pause(2)
        self.add("context_edit", targetId=failed, replacement=None)
        return failed

    # Entries

    def add(self, kind: str, **fields: Any) -> str:
        """Append an entry of any kind."""
        entry_id = self._entry_id()
        entry = {"type": kind, "id": entry_id, "parentId": self.leaf, "timestamp": _iso(self._now), **fields}
        self.entries.append(entry)
        self._by_id[entry_id] = entry
        self.leaf = entry_id
        return entry_id

    def branch(self) -> list[Entry]:
        """The entries from the root to the leaf."""
        path: list[Entry] = []
        at = self.leaf
        while at is not None:
            path.append(self._by_id[at])
            at = self._by_id[at]["parentId"]
        return path[::-1]

    def context_tokens(self) -> int:
        """What the provider would count for the next request."""
        return RESIDENT_TOKENS + sum(entry_tokens(entry) for entry in context(self.branch()))

    def _message(self, message: Entry, lag: int = 0) -> str:
        self._now += lag
        return self.add("message", message=message)

    def _blocks(self, text: str, thinking: str) -> list[Entry]:
        blocks: list[Entry] = []
        if thinking and self.thinks:
            signature = self._random.randbytes(min(330, 110 + len(thinking) // 3))
            blocks.append(
                {
                    "type": "thinking",
                    "thinking": thinking,
                    "thinkingSignature": base64.b64encode(signature).decode(),
                }
            )
        if text:
            blocks.append({"type": "text", "text": text})
        return blocks

    def _assistant(self, blocks: list[Entry], stop: str, error: str | None = None) -> str:
        output = max(12, math.ceil(_characters(blocks) * TOKENS_PER_CHARACTER))
        began = self._now + self._random.choice((0, 0, 1, 2))
        message = {
            **self._head(),
            "content": blocks,
            "usage": self._measure(output, stop),
            "stopReason": stop,
        }
        message["timestamp"] = began
        if error is not None:
            message["errorMessage"] = error
        self._now = began
        self.pause(1.1 + self._random.random() * 1.9 + output / 78)
        return self._message(message)

    def _head(self) -> Entry:
        return {
            "role": "assistant",
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": self.model.id,
        }

    def _results(self, calls: Sequence[Call], ids: Sequence[str]) -> None:
        """Calls run side by side; a result is stored when its call ends."""
        began = self._now
        ends = [began + round(call.seconds * 1000 * self._random.uniform(0.8, 1.3)) for call in calls]
        for index in sorted(range(len(calls)), key=lambda index: ends[index]):
            call = calls[index]
            self._now = ends[index]
            message: Entry = {"role": "toolResult", "toolCallId": ids[index], "toolName": call.name}
            message["content"] = [{"type": "text", "text": call.text}]
            if call.details is not None:
                message["details"] = call.details
            self._message({**message, "isError": call.failed, "timestamp": self._now})

    def _measure(self, output: int, stop: str) -> Entry:
        """Usage of a request: what the cache still holds of the previous one is read, the rest is written."""
        entries = context(self.branch())
        total = RESIDENT_TOKENS + sum(entry_tokens(entry) for entry in entries)
        warm = self._now < self._cache.warm_until
        read = 0
        if warm:
            read = RESIDENT_TOKENS
            for entry, cached in zip(entries, self._cache.ids, strict=False):
                if entry["id"] != cached:
                    break
                read += entry_tokens(entry)
        fresh = min(total - read, self._random.choice((3, 4, 6, 8, 10)))
        self._cache = _Cache([entry["id"] for entry in entries], self._now + CACHE_MILLISECONDS)
        if stop == "aborted":
            output = min(output, 9)
        return _usage(self.model, fresh, output, read, total - read - fresh)

    def chill(self) -> None:
        """Forget the prompt cache, as a change of model or of thinking makes the provider do."""
        self._cache = _Cache()

    def _entry_id(self) -> str:
        while True:
            entry_id = f"{self._random.getrandbits(32):08x}"
            if entry_id not in self._ids:
                self._ids.add(entry_id)
                return entry_id

    def _call_id(self) -> str:
        return "toolu_01" + "".join(self._random.choice(LETTERS) for _ in range(22))


def context(branch: Sequence[Entry]) -> list[Entry]:
    """The entries of a branch that the next request is made of."""
    omitted = {entry["targetId"] for entry in branch if entry["type"] == "context_edit"}
    compactions = [index for index, entry in enumerate(branch) if entry["type"] == "compaction"]
    kept = list(branch)
    if compactions:
        at = compactions[-1]
        first = next(i for i, entry in enumerate(branch) if entry["id"] == branch[at]["firstKeptEntryId"])
        kept = [branch[at], *branch[first:at], *branch[at + 1 :]]
    return [entry for entry in kept if entry["id"] not in omitted and entry_characters(entry)]


def entry_tokens(entry: Entry) -> int:
    """What the provider counts for one entry."""
    return math.ceil(entry_characters(entry) * TOKENS_PER_CHARACTER)


def entry_characters(entry: Entry) -> int:
    """Characters of an entry that reach the model."""
    if entry["type"] in ("compaction", "branch_summary"):
        return len(entry["summary"])
    if entry["type"] == "custom_message":
        return len(entry["content"])
    if entry["type"] != "message":
        return 0
    message = entry["message"]
    if message["role"] == "bashExecution":
        return 0 if message.get("excludeFromContext") else len(message["command"] + message["output"])
    return _characters(message["content"])


def _characters(blocks: Sequence[Entry]) -> int:
    total = 0
    for block in blocks:
        if block["type"] == "toolCall":
            total += len(block["name"]) + len(_json(block["arguments"]))
        elif block["type"] == "image":
            total += IMAGE_CHARACTERS
        else:
            total += len(block[block["type"]])
    return total


def _usage(model: Model, fresh: int = 0, output: int = 0, read: int = 0, written: int = 0) -> Entry:
    prices = (model.input, model.output, model.cache_read, model.cache_write)
    costs = [
        round(n * price / 1e6, 8) for n, price in zip((fresh, output, read, written), prices, strict=True)
    ]
    cost = dict(zip(("input", "output", "cacheRead", "cacheWrite"), costs, strict=True))
    return {
        "input": fresh,
        "output": output,
        "cacheRead": read,
        "cacheWrite": written,
        "totalTokens": fresh + output + read + written,
        "cost": {**cost, "total": round(sum(costs), 8)},
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
