"""Replaying a stored session: a context request before each assistant message of the active branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from context_paging.domain.conversation import Conversation
from context_paging.domain.cut import Frontier
from context_paging.domain.entries import Entry
from context_paging.domain.events import ContextAborted, ContextSelected

from .replies import ContextReply
from .session import Session
from .session_file import SessionFile


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How the replayed host is set up. Settings are JSON objects with a ``contextPaging`` object.

    Attributes:
        context_window: the model's window in tokens, if known.
        recorded_usage: calibrate with the usage in the file, although it measured other requests.
        limit: stop after so many context requests.
    """

    global_settings: Any = None
    project_settings: Any = None
    project_trusted: bool = False
    system_prompt: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    context_window: float | None = None
    recorded_usage: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One context request of a replay; all sizes in estimated tokens, resident input included.

    Attributes:
        number: counts from 1.
        entry_id: the assistant entry that answered the call.
        history_tokens: the whole stored conversation.
        sent_tokens: what went out, the notice included.
        reused_tokens: the part of it that is an unchanged prefix of the previous request.
        sliding_sent_tokens: what a window without a stable cut, sliding message by message, would have sent.
        sliding_reused_tokens: the part of that which is an unchanged prefix of its previous request.
    """

    number: int
    entry_id: str
    reply: ContextReply
    outgoing_count: int
    history_tokens: float
    sent_tokens: float = 0
    reused_tokens: float = 0
    sliding_sent_tokens: float = 0
    sliding_reused_tokens: float = 0


def count_calls(file: SessionFile) -> int:
    """How many context requests a replay of a file makes."""
    return sum(map(_is_assistant, file.branch()))


def replay(file: SessionFile, session: Session, options: ReplayOptions) -> Iterator[ReplayedCall]:
    """Replay the active branch of a file through a new session, one context request at a time.

    Raises:
        InvalidMessage, InvalidEntry: an entry cannot be read.
        LogUnavailable, SessionConflict: the log does not take the events; everything yielded before is in it.
    """
    session.start(
        "resume",
        global_settings=options.global_settings,
        project_settings=options.project_settings,
        project_trusted=options.project_trusted,
    )
    before: list[Entry] = []
    windows = (_Sent(), _Sent())
    number = 0
    for entry in file.branch():
        if not _is_assistant(entry):
            before.append(entry)
            if entry.get("type") == "compaction":
                _append(session, before)
                session.compacted(entry["id"])
            continue
        if options.limit is not None and number >= options.limit:
            break
        _append(session, before)
        number += 1
        yield _call(session, options, number, entry["id"], windows)
        session.append([entry])
        session.turn_end(entry["id"])
    else:
        _append(session, before)
    session.shut_down()


def answer_of(reply: ContextReply) -> dict[str, Any]:
    """A context request's answer with the field names of the conformance files; ``kept`` as runs."""
    outcome = reply.outcome
    match outcome:
        case None:
            return {"outcome": "inactive"}
        case ContextAborted():
            return {
                "outcome": "aborted",
                "code": outcome.code.value,
                "resident_tokens": outcome.resident_tokens,
                "estimated_tokens": outcome.estimated_tokens,
                "budget_tokens": outcome.budget_tokens,
            }
        case ContextSelected():
            return {
                "outcome": outcome.mode.value,
                "estimated_tokens": outcome.estimated_tokens,
                "budget_tokens": outcome.budget_tokens,
                "resident_tokens": outcome.resident_tokens,
                "context_tokens": outcome.context_tokens,
                "kept": [list(run) for run in outcome.kept],
                "notice": None if outcome.notice is None else outcome.notice.text,
                "replaced": {str(item.index): item.text for item in outcome.replaced},
                "frontier": None if outcome.cut is None else _frontier_answer(outcome.cut.frontier),
                "fallback": None if outcome.fallback is None else outcome.fallback.value,
            }


def _frontier_answer(frontier: Frontier) -> dict[str, Any]:
    key = frontier.last_evicted
    answer: dict[str, Any] = {"kind": frontier.kind.value, "lastEvicted": {"historyId": key.history_id}}
    if key.tool_call_id is not None:
        answer["lastEvicted"]["toolCallId"] = key.tool_call_id
    if frontier.user_history_id is not None:
        answer["userHistoryId"] = frontier.user_history_id
    return answer


def _append(session: Session, entries: list[Entry]) -> None:
    session.append(entries)
    entries.clear()


def _is_assistant(entry: Entry) -> bool:
    message = entry.get("message")
    return entry.get("type") == "message" and isinstance(message, dict) and message.get("role") == "assistant"


def _call(
    session: Session, options: ReplayOptions, number: int, entry_id: str, windows: tuple[_Sent, _Sent]
) -> ReplayedCall:
    sent, sliding = windows
    outgoing = session.stored.messages()
    reply = session.context(
        system_prompt=options.system_prompt,
        tools=options.tools,
        context_window=options.context_window,
        usage_tokens="stored" if options.recorded_usage else None,
    )
    conversation = session.state.conversation
    history = conversation.input_tokens
    outcome = reply.outcome
    if not isinstance(outcome, ContextSelected):
        return ReplayedCall(number, entry_id, reply, len(outgoing), history)
    resident = outcome.resident_tokens
    sent.take(_sent_parts(conversation, outcome), resident)
    sliding.take(_sliding_parts(conversation, outcome.budget_tokens - resident), resident)
    return ReplayedCall(
        number,
        entry_id,
        reply,
        len(outgoing),
        resident + history,
        sent.tokens,
        sent.reused,
        sliding.tokens,
        sliding.reused,
    )


class _Sent:
    """The parts of the last request that went out, to find what the next one has in common with it."""

    def __init__(self) -> None:
        self.tokens: float = 0
        self.reused: float = 0
        self._parts: list[tuple[object, int]] | None = None

    def take(self, parts: list[tuple[object, int]], resident: float) -> None:
        self.tokens = resident + sum(tokens for _, tokens in parts)
        self.reused = 0
        if self._parts is not None:
            self.reused = resident
            for before, now in zip(self._parts, parts, strict=False):
                if before != now:
                    break
                self.reused += now[1]
        self._parts = parts


def _sent_parts(conversation: Conversation, selected: ContextSelected) -> list[tuple[object, int]]:
    parts: list[tuple[object, int]] = []
    if selected.notice is not None:
        parts.append((selected.notice.text, selected.notice.tokens))
    replaced = {item.index: item for item in selected.replaced}
    for first, last in selected.kept:
        for step in conversation.between(first, last):
            item = replaced.get(step.index)
            if item is None:
                parts.append((step.ref.fingerprint, step.tokens))
            else:
                parts.append((item.text, item.tokens))
    return parts


def _sliding_parts(conversation: Conversation, budget: float) -> list[tuple[object, int]]:
    parts: list[tuple[object, int, str]] = []
    total = 0
    for step in conversation.backwards():
        if step.dropped:
            continue
        total += step.tokens
        if total > budget and parts:
            break
        parts.append((step.ref.fingerprint, step.tokens, step.ref.role))
    while parts and parts[-1][2] == "toolResult":
        parts.pop()
    return [(fingerprint, tokens) for fingerprint, tokens, _ in reversed(parts)]
