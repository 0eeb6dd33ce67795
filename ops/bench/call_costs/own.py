"""Context paging, and ``json.dumps`` as a yardstick.

``python -m call_costs.own WHAT NAME …``: see `measuring.answer`.
``resume FILE`` reads a file of entries as a host does that goes on with a session.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from context_paging.service.session import Session

from .measuring import Contender, Shape, answer, tell
from .messages import calls_of

BUDGET = 32_000
SETTINGS = {"contextPaging": {"tokenBudget": BUDGET}}


def entry(message: dict[str, Any], number: int) -> dict[str, Any]:
    """A stored message, as a host stores it."""
    return {
        "type": "message",
        "id": f"{number:08x}",
        "parentId": f"{number - 1:08x}" if number else None,
        "timestamp": "2026-01-05T09:00:00.000Z",
        "message": message,
    }


class _Messages:
    def native(self, message: dict[str, Any], number: int) -> Any:
        """An entry around the message."""
        return entry(message, number)

    def shape(self, sent: Any) -> Shape:
        """The notice is a message, too."""
        results = [sent["toolCallId"]] if sent["role"] == "toolResult" else []
        return sent["role"], [call["id"] for call in calls_of(sent)], results


class Fed(_Messages):
    """A session that gets its entries as they are stored, and puts the request together itself."""

    def __init__(self) -> None:
        self._session = Session("bench")
        self._session.start("resume", global_settings=SETTINGS)

    def begin(self, messages: list[Any]) -> None:
        """Store all of them."""
        self._session.append(messages)

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Store the response, end the turn, store what follows it, ask for the context."""
        for stored in new:
            self._session.append([stored])
            if stored["message"]["role"] == "assistant":
                self._session.turn_end(stored["id"])
        return self._asked(new)

    def _asked(self, new: list[Any]) -> Sequence[Any]:
        return self._sent(None)

    def _sent(self, outgoing: list[Any] | None) -> Sequence[Any]:
        reply = self._session.context(outgoing, context_window=200_000)
        if reply.aborted is not None:
            raise RuntimeError(reply.aborted.message)
        return reply.messages


class Listed(Fed):
    """The same, with the whole list of messages in each call; the list only grows."""

    def __init__(self) -> None:
        super().__init__()
        self._list: list[Any] = []

    def begin(self, messages: list[Any]) -> None:
        """Store all of them, and put their messages into the list."""
        super().begin(messages)
        self._list = [stored["message"] for stored in messages]

    def _asked(self, new: list[Any]) -> Sequence[Any]:
        self._list += [stored["message"] for stored in new]
        return self._sent(self._list)


class Dumped(_Messages):
    """The yardstick: the whole list as JSON text. It sends everything."""

    def begin(self, messages: list[Any]) -> None:
        """Take the list."""
        self._list = [stored["message"] for stored in messages]

    def call(self, new: list[Any]) -> Sequence[Any]:
        """Write the list."""
        self._list += [stored["message"] for stored in new]
        json.dumps(self._list)
        return self._list


CONTENDERS: dict[str, Callable[[], Contender]] = {"fed": Fed, "listed": Listed, "dumped": Dumped}


def resumed(path: Path) -> dict[str, float]:
    """Milliseconds of what resuming a session file takes, a line an entry.

    ``loads`` parses the lines, which the host has read already; ``append`` takes the parsed entries,
    ``context`` selects for the first call.
    """
    lines = path.read_text("utf-8").splitlines()
    session = Session("bench")
    session.start("resume", global_settings=SETTINGS)
    times = [time.perf_counter()]
    entries = [json.loads(line) for line in lines]
    times.append(time.perf_counter())
    session.append(entries)
    times.append(time.perf_counter())
    reply = session.context(context_window=200_000)
    times.append(time.perf_counter())
    if reply.aborted is not None:
        raise RuntimeError(reply.aborted.message)
    loads, append, context = ((times[n + 1] - times[n]) * 1e3 for n in range(3))
    return {"loads": loads, "append": append, "context": context}


if __name__ == "__main__":
    if sys.argv[1] == "resume":
        tell(resumed(Path(sys.argv[2])))
    tell(answer(CONTENDERS, sys.argv[1:]))
