"""How large the log of a session is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from context_paging.service.log import EventLog
from context_paging.service.session import Session


def session_bytes(path: Path, messages: int) -> int:
    """Bytes of the SQLite file after a session of tool loops with that many messages, call by call."""
    with EventLog.open(str(path)) as log:
        session = Session("s", sink=log)
        session.start(global_settings={"contextPaging": {"tokenBudget": 4_000}})
        parent = None
        for number in range(0, messages, 2):
            entries: list[dict[str, Any]] = []
            for each in (number, number + 1):
                entry = {"type": "message", "id": f"e{each}", "parentId": parent, "message": _message(each)}
                parent = f"e{each}"
                entries.append(entry)
            session.append(entries[:1])
            session.context()
            session.append(entries[1:])
            session.turn_end(entries[1]["id"])
        session.shut_down()
    return path.stat().st_size


def _message(number: int) -> dict[str, Any]:
    if number % 20 == 0:
        return {"role": "user", "content": f"request {number}", "timestamp": number}
    if number % 2:
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.py"}}
        return {"role": "assistant", "content": [call], "stopReason": "toolUse", "timestamp": number}
    return {
        "role": "toolResult",
        "toolCallId": f"c{number - 1}",
        "toolName": "read",
        "content": [{"type": "text", "text": f"line {number} " * 20}],
        "isError": False,
        "timestamp": number,
    }
