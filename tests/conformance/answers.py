"""This implementation's answers to the questions of a conformance file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from context_paging.domain.entries import Entry, digest_entry
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.history import History, HistoryItem, files_in
from context_paging.domain.messages import Message
from context_paging.domain.recovery.errors import RecoveryRefused
from context_paging.domain.settings import resolve_settings
from context_paging.service.replay import ReplayOptions, answer_of, replay
from context_paging.service.replies import ContextReply, Reply
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file

NAVIGATOR_CODES = frozenset(
    {"INVALID_HISTORY_NAVIGATOR_INPUT", "UNKNOWN_HISTORY_ANCHOR", "UNKNOWN_HISTORY_ID"}
)
"""Codes the files know. A null code there means any refusal; here every refusal has a code of its own."""

Question = dict[str, Any]


class NotFoundInCorpus(Exception):
    """A session file that a question is about is not on this machine."""


def questions(path: Path) -> Iterator[Question]:
    """The lines of a conformance file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def answers(question: Question) -> list[Any]:
    """One answer a step, or a list of one."""
    if "steps" in question:
        return _script_answers(question)
    if "file" in question:
        return _replay_answers(question)
    if "messages" in question:
        estimator = HeuristicEstimator()
        return [estimator.message_tokens(message) for message in question["messages"]]
    if "entries" in question:
        return [_history_answer(question["entries"])]
    return [_settings_answer(question)]


def expected(question: Question) -> list[Any]:
    """The answers the file gives, in the form of `answers`."""
    if "error" in question:
        return [{"error": question["error"]}]
    given = question["expected"]
    return [given] if "entries" in question or "global" in question else given


def corpus_file(name: str) -> Path:
    """A session file of the corpus, which is no part of the project: CONTEXT_PAGING_CORPUS, or beside it.

    Raises:
        NotFoundInCorpus: it is not there.
    """
    named = os.environ.get("CONTEXT_PAGING_CORPUS")
    folder = Path(named) if named else Path(__file__).parents[2].parent / "shared" / "corpus"
    if not (folder / name).exists():
        raise NotFoundInCorpus(
            f"there is no session file {name} in {folder}; set CONTEXT_PAGING_CORPUS to the folder it is in"
        )
    return folder / name


def _settings_answer(question: Question) -> Any:
    settings = resolve_settings(
        question.get("global"), question.get("project"), project_trusted=question["trusted"]
    )
    return {
        "enabled": settings.enabled,
        "tokenBudget": settings.token_budget,
        "trimToTokens": settings.trim_to_tokens,
        "trimToTokensExplicit": settings.trim_to_tokens_explicit,
    }


def _history_answer(entries: list[Entry]) -> Any:
    by_id = {entry["id"]: entry for entry in entries}
    history = History.empty().appended(
        [digest_entry(entry, HeuristicEstimator(), by_id.get) for entry in entries]
    )
    if history.error is not None:
        return {"error": history.error}
    return [_item_answer(item, by_id[item.id]) for item in history.items]


def _item_answer(item: HistoryItem, entry: Entry) -> Any:
    answer: dict[str, Any] = {"id": item.id, "kind": item.kind, "sequence": item.sequence}
    if item.kind == "modelTurn":
        answer["tools"] = item.tools
        answer["files"] = files_in(entry["message"])
        answer["failed"] = item.failed
        answer["results"] = [result.call_id for result in item.results]
    return answer


def _script_answers(question: Question) -> list[Any]:
    settings = question["settings"]
    session = Session("conformance")
    return [_step_answer(session, settings, step) for step in question["steps"]]


def _step_answer(session: Session, settings: Any, step: Any) -> Any:
    match step["do"]:
        case "append":
            session.append(step["entries"])
            return None
        case "context":
            return _context_answer(session, step)
        case "session_start":
            return reply_answer(
                session.start(
                    step["reason"],
                    global_settings=settings.get("global"),
                    project_settings=settings.get("project"),
                    project_trusted=settings["trusted"],
                )
            )
        case "turn_end":
            return reply_answer(session.turn_end(step["entry"]))
        case "session_tree":
            return reply_answer(session.navigate(step["leaf"]))
        case "model_select":
            return reply_answer(session.select_model())
        case "session_before_compact":
            reply = session.before_compaction(step["reason"])
            return {"cancel": reply.cancelled, **reply_answer(reply)}
        case "session_compact":
            return reply_answer(session.compacted(step["entry"]))
        case "command":
            told = reply_answer(session.command(step["args"]))
            return {**statistics_answer(session), **told} if step["args"] == "stats" else told
        case "tool":
            return tool_answer(session, step)
        case other:
            raise ValueError(f"there is no step {other!r}")


def reply_answer(reply: Reply) -> dict[str, Any]:
    return {
        "notifications": [note.level for note in reply.notifications],
        "status": [] if reply.status is None else [reply.status],
    }


def _context_answer(session: Session, step: Any) -> dict[str, Any]:
    outgoing = outgoing_messages(session, step)
    assert len(outgoing) == step["outgoing_count"]
    reply: ContextReply = session.context(
        outgoing,
        system_prompt=step["system_prompt"],
        tools=step["tools"],
        context_window=step.get("context_window"),
        usage_tokens=step["usage_tokens"],
    )
    answer = answer_of(reply)
    if "kept" in answer:
        answer["kept"] = [i for first, last in answer["kept"] for i in range(first, last + 1)]
    return {**answer, **reply_answer(reply)}


def tool_answer(session: Session, step: Any) -> dict[str, Any]:
    try:
        reply = session.tool(step["name"], step["params"])
    except RecoveryRefused as refused:
        navigating = step["name"] != "read_context_output"
        code = refused.reason if navigating and refused.reason in NAVIGATOR_CODES else None
        return {"error": {"code": code}, "notifications": [], "status": []}
    return {"result": reply.result, **reply_answer(reply)}


def statistics_answer(session: Session) -> dict[str, Any]:
    statistics = asdict(session.statistics())
    # A script has no session file.
    assert statistics.pop("stored_bytes") is None
    return {"stats": statistics}


def outgoing_messages(session: Session, step: Any) -> list[Message]:
    """What the host of a script sends: copies of the branch's messages, less some, with some inserted."""
    stored: list[Message] = json.loads(json.dumps(session.stored.messages()))
    outgoing = [message for message in stored if message.get("role") != "system"][step.get("drop", 0) :]
    for insertion in step.get("insert", []):
        at = {"start": 0, "end": len(outgoing), "before_last": max(0, len(outgoing) - 1)}[insertion["at"]]
        outgoing.insert(at, insertion["message"])
    return outgoing


def _replay_answers(question: Question) -> list[Any]:
    context, settings = question["context"], question["settings"]
    file = read_session_file(corpus_file(question["file"]))
    options = ReplayOptions(
        global_settings=settings.get("global"),
        project_settings=settings.get("project"),
        project_trusted=settings["trusted"],
        system_prompt=context["system_prompt"],
        tools=tuple(context["tools"]),
        context_window=context["context_window"],
    )
    return [
        {**answer_of(call.reply), "outgoing_count": call.outgoing_count}
        for call in replay(file, Session("conformance"), options)
    ]
