"""The model's answers to the questions of the conformance files."""

from __future__ import annotations

import json
from typing import Any

from .conversation import Item, Unreadable, history
from .recovery import files_of, tools_of
from .session import Model, resolved
from .texts import Message, message_tokens


def model_answers(question: dict[str, Any]) -> list[Any]:
    """An answer a step, or a list of one."""
    if "steps" in question:
        model = Model()
        return [step_answer(model, question["settings"], step) for step in question["steps"]]
    if "messages" in question:
        return [message_tokens(message) for message in question["messages"]]
    if "entries" in question:
        try:
            return [[_item_answer(item) for item in history(question["entries"])]]
        except Unreadable as unreadable:
            return [{"error": str(unreadable)}]
    return [resolved(question.get("global"), question.get("project") if question["trusted"] else None)]


def step_answer(model: Model, settings: dict[str, Any], step: dict[str, Any]) -> Any:
    """The answer to one step."""
    match step["do"]:
        case "append":
            return model.append(step["entries"])
        case "session_start":
            project = settings.get("project") if settings["trusted"] else None
            return model.start(settings.get("global"), project)
        case "context":
            return model.context(
                outgoing(model, step),
                step["system_prompt"],
                step["tools"],
                step.get("context_window"),
                step["usage_tokens"],
            )
        case "turn_end":
            return model.turn_end(step["entry"])
        case "session_tree":
            return model.navigate(step["leaf"])
        case "model_select":
            return model.select_model()
        case "session_before_compact":
            return model.before_compaction(step["reason"])
        case "session_compact":
            return model.compacted(step["entry"])
        case "command":
            told = {"stats": model.statistics()} if step["args"] == "stats" else {}
            return {**told, **model.command(step["args"])}
        case "tool":
            return model.tool(step["name"], step["params"])
        case other:
            raise ValueError(f"there is no step {other!r}")


def outgoing(model: Model, step: dict[str, Any]) -> list[Message]:
    """What the host of a script sends: copies, less some, with some inserted."""
    stored: list[Message] = json.loads(json.dumps(model.messages))
    sent = [message for message in stored if message["role"] != "system"][step.get("drop", 0) :]
    for insertion in step.get("insert", []):
        at = {"start": 0, "end": len(sent), "before_last": max(0, len(sent) - 1)}[insertion["at"]]
        sent.insert(at, insertion["message"])
    assert len(sent) == step["outgoing_count"]
    return sent


def _item_answer(item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {"id": item.id, "kind": item.kind, "sequence": item.sequence}
    if item.kind == "modelTurn":
        told["tools"], told["files"], told["failed"] = tools_of(item), files_of(item), item.failed
        told["results"] = [result["toolCallId"] for result in item.results]
    return told
