"""One conversation of a host that passes its whole list of messages before each provider call.

The list is compared with that of the call before: only what is new is read and stored. Where a list was
changed, the stored session branches off, so that a cut before that place stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import is_
from threading import Lock
from typing import Any, Generic

from context_paging.domain.messages import Message, tool_calls
from context_paging.domain.recovery.errors import RecoveryRefused

from ..log import LogUnavailable, SessionConflict
from ..replies import ContextReply
from ..session import Session
from .conversion import Converter, H, program_message, same_content
from .layout import Assembly, Layout, assembly_parts

RENEWED_UNITS = 4
"""How many units may say the same in other objects before everything behind them is read again."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[H]):
    """What goes out in one provider call.

    Attributes:
        messages: in order; the host's own objects wherever they go out whole.
        stable: how many of the leading ones are those of the call before.
        reply: the session's answer: outcome, notifications, numbers.
    """

    messages: list[H]
    stable: int
    reply: ContextReply


@dataclass(frozen=True, slots=True)
class _Unit(Generic[H]):
    """A unit of the host's list, the messages it makes, and the text of what always goes out of it."""

    host: Sequence[H]
    made: list[dict[str, Any]]
    resident: str | None


class HostConversation(Generic[H]):
    """A session that is given whole lists of host messages. Calls from several threads wait for each other.

    Messages are kept by reference and must not be changed afterwards. Where somebody else (a program on
    another machine) has gone on with the session in the log, the conversation begins anew behind that.

    Args:
        start: starts a session; called again to begin anew.
    """

    def __init__(self, start: Callable[[], Session], converter: Converter[H]) -> None:
        self._start = start
        self._converter = converter
        self._lock = Lock()
        self._begin(start())

    def _begin(self, session: Session) -> None:
        self.session = session
        self._layout: Layout[H] = Layout([], [], [], [])
        self._entry_ids: list[str] = []
        self._tool_names: dict[str, str] = {}
        self._count = 0
        self._response: list[dict[str, Any]] = []
        self._waiting = False
        self._sent: list[H] = []

    def page(
        self,
        messages: Sequence[H],
        *,
        system_prompt: str = "",
        tools: Iterable[Mapping[str, Any]] = (),
        context_window: float | None = None,
        transient: Sequence[H] = (),
    ) -> Paged[H]:
        """What goes out of ``messages``, and of ``transient`` ones behind them that this call alone has.

        Args:
            system_prompt: what goes out besides the messages.
            tools: active tool definitions: ``name``, ``description``, ``parameters``.
            context_window: the model's window in tokens, if known.

        Raises:
            ContextAbortedError: the provider must not be called.
            InvalidHostMessage: a message cannot be read; nothing has changed.
            LogUnavailable: the log did not take the events.
        """
        definitions = list(tools)
        with self._lock:
            try:
                return self._page(messages, transient, system_prompt, definitions, context_window)
            except SessionConflict:
                self._begin(self._start())
                return self._page(messages, transient, system_prompt, definitions, context_window)

    def responded(self, response: Sequence[H], usage: Mapping[str, Any] | None = None) -> None:
        """The provider answered the last call with messages that will be in the next list.

        ``usage`` is what it reported (`usage_counters`), where the messages do not hold it.

        Raises:
            InvalidHostMessage: a message cannot be read; nothing has changed.
        """
        # The answer is there and paid for: what is wrong with the log is met in the next call.
        with self._lock, suppress(SessionConflict, LogUnavailable):
            read = self._read(response, len(self._entry_ids))
            for message in (message for unit in read for message in unit.made):
                if usage is not None and message["role"] == "assistant":
                    message["usage"] = dict(usage)
            first = len(self._entry_ids)
            answers = (unit.made for unit in read if any(m["role"] == "assistant" for m in unit.made))
            self._response = next(answers, [])
            self._store(read)
            self._end_turn(first)

    def tool(self, name: str, parameters: Any) -> str:
        """What a recovery tool answers, as text for the model, also where it refuses.

        Raises:
            LogUnavailable: the log did not take the events.
        """
        with self._lock:
            try:
                return self._told(name, parameters)
            except SessionConflict:
                passed = list(self._layout.host)
                self._begin(self._start())
                self._take_in(passed)
                return self._told(name, parameters)

    def _told(self, name: str, parameters: Any) -> str:
        try:
            return self.session.tool(name, parameters).text
        except RecoveryRefused as refused:
            return f"{refused.told_code}: {refused}"

    def close(self) -> None:
        """The host is done with the conversation."""
        with self._lock, suppress(SessionConflict):
            if self.session.live:
                self.session.shut_down()

    def _page(
        self,
        messages: Sequence[H],
        transient: Sequence[H],
        system_prompt: str,
        tools: Sequence[Mapping[str, Any]],
        context_window: float | None,
    ) -> Paged[H]:
        self._take_in(messages)
        layout, outgoing = self._with_transient(transient) if transient else (self._layout, None)
        resident = [*([system_prompt] if system_prompt else []), *self._resident_texts(layout)]
        reply = self.session.context(
            outgoing,
            system_prompt="\n".join(resident),
            tools=tools,
            context_window=context_window,
            usage_tokens="stored",
        )
        stored = self.session.stored.messages() if outgoing is None else outgoing
        parts = assembly_parts(reply.sent, partial(_position, stored))
        sent = Assembly(layout, self._converter).assemble(parts)
        self._waiting = True
        stable = _common(self._sent, sent)
        self._sent = sent
        return Paged(sent, stable, reply)

    def _take_in(self, messages: Sequence[H]) -> None:
        kept = self._unchanged(messages, 0)
        for _ in range(RENEWED_UNITS):
            if not self._renewed(messages, kept):
                break
            kept = self._unchanged(messages, kept + 1)
        read = self._read(messages[self._layout.start(kept) :], self._layout.first(kept))
        same = 0
        while same < len(read) and kept + same < len(self._layout.ends):
            if not self._is_stored(kept + same, read[same]):
                break
            same += 1
        # The host's newest objects stand for those it passed before.
        end = self._layout.start(kept + same)
        self._layout.host[:end] = messages[:end]
        first = len(self._entry_ids)
        if same < len(read) and kept + same == len(self._layout.ends) - 1:
            same += self._grown(read[same])
        if kept + same < len(self._layout.ends):
            self._layout.truncate(kept + same)
            del self._entry_ids[self._layout.first(len(self._layout.ends)) :]
            self.session.stored.move_to(self._entry_ids[-1] if self._entry_ids else None)
            first = len(self._entry_ids)
        self._store(read[same:])
        if self._waiting:
            self._end_turn(first)

    def _renewed(self, messages: Sequence[H], unit: int) -> bool:
        """Whether a unit is another one that makes the same messages: instructions that change, say."""
        layout = self._layout
        if unit >= len(layout.ends) - 1:
            return False
        start, end = layout.start(unit), layout.ends[unit]
        if end > len(messages) or self._converter.extent(messages, start) != end:
            return False
        (read,) = self._read(messages[start:end], layout.first(unit))
        return self._is_stored(unit, read)

    def _unchanged(self, messages: Sequence[H], known: int) -> int:
        """How many leading units, ``known`` at least, are made of the same objects, or of equal ones."""
        ends, start = self._layout.ends, self._layout.start(known)
        if start:
            same = start + _common(self._layout.host[start:], messages[start:])
        else:
            same = _common(self._layout.host, messages)
        units = max(known, bisect_right(ends, same))
        # The newest units may go on with what is new.
        for unit in range(units - 1, max(known, units - self._converter.look_back) - 1, -1):
            if self._converter.extent(messages, self._layout.start(unit)) != ends[unit]:
                units = unit
        return units

    def _read(self, messages: Sequence[H], stored: int) -> list[_Unit[H]]:
        """Units, and what they make behind the first ``stored`` stored messages. Changes nothing."""
        units = []
        names = self._tool_names
        waiting = _waiting_calls(self.session.stored.messages(), stored)
        position = 0
        while position < len(messages):
            end = self._converter.extent(messages, position)
            unit = messages[position:end]
            made = self._converter.convert(unit, names)
            text = self._converter.resident_text(unit)
            if waiting and text is not None and not made:
                # Instructions between calls and their results are refused by providers, wherever they go out.
                units.append(_Unit(unit, [program_message(text)], None))
            else:
                units.append(_Unit(unit, made, text))
            for message in made:
                if message["role"] == "assistant":
                    calls = [(call["id"], call["name"]) for call in tool_calls(message)]
                    names.update(calls)
                    waiting = {call_id for call_id, _ in calls}
                elif message["role"] == "toolResult":
                    waiting.discard(message["toolCallId"])
            position = end
        return units

    def _is_stored(self, unit: int, read: _Unit[H]) -> bool:
        layout = self._layout
        if len(read.host) != layout.ends[unit] - layout.start(unit):
            return False
        # What the instructions say may change, but not whether there are any.
        if (read.resident is None) != (unit not in layout.residents):
            return False
        stored = self.session.stored.messages()[layout.first(unit) : layout.lasts[unit]]
        return len(stored) == len(read.made) and all(map(same_content, stored, read.made))

    def _grown(self, read: _Unit[H]) -> bool:
        """Take in what the newest unit has become, if it is the old one with further messages."""
        newest = len(self._layout.ends) - 1
        stored = self.session.stored.messages()[self._layout.first(newest) :]
        if not stored or len(stored) >= len(read.made) or not all(map(same_content, stored, read.made)):
            return False
        if (read.resident is None) != (newest not in self._layout.residents):
            return False
        further = read.made[len(stored) :]
        self._layout.grow(read.host, len(further))
        self._append(further)
        return True

    def _store(self, read: Sequence[_Unit[H]]) -> None:
        entries: list[dict[str, Any]] = []
        for unit in read:
            self._layout.add(unit.host, len(unit.made), resident=unit.resident is not None)
            entries += self._known_response(unit.made)
        self._append(entries)

    def _append(self, messages: Sequence[dict[str, Any]]) -> None:
        entries = []
        for message in messages:
            if "timestamp" not in message:
                self._count += 1
                # No two messages have the same one, so that each can be told from all others.
                message["timestamp"] = self._count
            entry_id = f"m{message['timestamp']}"
            if entry_id in self.session.stored.entries:
                self._count += 1
                entry_id = f"m{self._count}"
            parent = self._entry_ids[-1] if self._entry_ids else None
            entries.append({"type": "message", "id": entry_id, "parentId": parent, "message": message})
            self._entry_ids.append(entry_id)
        if entries:
            self.session.append(entries)

    def _known_response(self, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same messages; those of the last response with what the provider reported of it."""
        known = self._response
        if known and len(known) == len(made) and all(map(same_content, known, made)):
            return known
        return made

    def _end_turn(self, first: int) -> None:
        messages = self.session.stored.messages()
        for position in range(first, len(self._entry_ids)):
            if messages[position].get("role") == "assistant":
                self._waiting = False
                self.session.turn_end(self._entry_ids[position])
                return

    def _with_transient(self, transient: Sequence[H]) -> tuple[Layout[H], list[Message]]:
        layout = self._layout.copy()
        outgoing = list(self.session.stored.messages())
        for unit in self._read(transient, len(outgoing)):
            layout.add(unit.host, len(unit.made), resident=unit.resident is not None)
            for message in unit.made:
                message["timestamp"] = -len(outgoing)
                outgoing.append(message)
        return layout, outgoing

    def _resident_texts(self, layout: Layout[H]) -> list[str]:
        texts = (self._converter.resident_text(layout.messages(unit)) for unit in layout.residents)
        return [text for text in texts if text]


def _waiting_calls(messages: Sequence[Message], count: int) -> set[str]:
    """Ids of the newest calls among the first ``count`` messages that have no result yet."""
    answered: set[Any] = set()
    for position in range(count - 1, -1, -1):
        message = messages[position]
        if message["role"] == "assistant":
            return {call["id"] for call in tool_calls(message)} - answered
        if message["role"] == "toolResult":
            answered.add(message["toolCallId"])
    return set()


def _position(messages: Sequence[Message], timestamp: Any) -> int:
    # From the end: only the newest are asked for.
    backwards = range(len(messages) - 1, -1, -1)
    return next(position for position in backwards if messages[position]["timestamp"] == timestamp)


def _common(before: Sequence[H], now: Sequence[H]) -> int:
    """How many leading messages are the same, as objects or in what they hold."""
    shorter = min(len(before), len(now))
    if all(map(is_, before, now)) or _equal(list(before[:shorter]), list(now[:shorter])):
        return shorter
    count = 0
    for one, other in zip(before, now, strict=False):
        if one is not other and not _equal(one, other):
            break
        count += 1
    return count


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:
        return False
