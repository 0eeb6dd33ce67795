"""What the pages show, looked up in the log."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from context_paging.domain.hindsight import WindowPart

from ...log import EventLog
from ...window_history import WindowHistory
from .charts import FATE_CLASSES

REMEMBERED_SESSIONS = 32
REMEMBERED_EVENTS = 200_000
"""How many events the remembered histories may have been folded from, in all."""


class Histories:
    """The windows over time of the sessions that were looked at last: only what is new is read again."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[threading.Lock, WindowHistory]] = OrderedDict()

    def of(self, session_id: str) -> WindowHistory:
        """A session's history up to now."""
        session = self._log.session(session_id)
        last = session.last_sequence
        with self._lock:
            found = self._known.pop(session_id, None)
            # A session that was retired may have begun anew with its id.
            if found is None or found[1].sequence > last or found[1].began_at != session.started_at:
                found = threading.Lock(), WindowHistory(session.started_at)
            lock, history = found
            self._known[session_id] = lock, history
            while len(self._known) > 1 and (
                len(self._known) > REMEMBERED_SESSIONS or self._events() > REMEMBERED_EVENTS
            ):
                self._known.popitem(last=False)
        with lock:
            for stored in self._log.events(session_id, history.sequence, last):
                history.take(stored)
        return history

    def _events(self) -> int:
        return sum(history.sequence for _, history in self._known.values())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring parts of a conversation that shared a fate."""

    fate: str
    css: str
    units: int
    first: int
    last: int
    messages: int
    tokens: float
    sent_tokens: float
    tools: str


def stretches(parts: Sequence[WindowPart]) -> list[Stretch]:
    """A conversation as runs of parts of one fate, oldest first."""
    found = []
    for fate, group in groupby(parts, lambda part: part.fate):
        run = list(group)
        tools = dict.fromkeys(tool for part in run for tool in part.tools)
        found.append(
            Stretch(
                fate.value,
                FATE_CLASSES[fate],
                len(run),
                run[0].first,
                run[-1].last,
                sum(part.messages for part in run),
                sum(part.tokens for part in run),
                sum(part.sent_tokens for part in run),
                ", ".join(tools),
            )
        )
    return found
