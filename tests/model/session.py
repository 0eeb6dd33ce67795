"""The host's callbacks (architecture, "Lifecycle"; design, the table of resets in section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from .conversation import Entry, Item, Unreadable, branch_of, conversation, history
from .recovery import Refused, call
from .selection import (
    Aborted,
    Cut,
    Piece,
    Request,
    Selection,
    cut_key,
    output_id,
    recovery_id,
    resolves,
    told_frontier,
)
from .stats import cache_totals, history_tokens, saved_input
from .texts import Message, failed, message_tokens, place, resident_tokens, same

LARGEST = 2**53 - 1
DEFAULT_BUDGET = 128_000
AUTOMATIC = ("threshold", "overflow")


@dataclass
class Sent:
    """A request that went out, and later its response."""

    resident: int
    messages: list[Message]
    outgoing_only: list[bool]
    extra: int = 0
    response: Message | None = None
    reported: float = 0


@dataclass
class Told:
    """What the user is told in a step."""

    notifications: list[str] = field(default_factory=list)
    status: list[str] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        return {"notifications": self.notifications, "status": self.status}


class Model:
    """A session."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.leaf: str | None = None
        self.settings = resolved(None, None)
        self.override: bool | None = None
        self.cut: Cut | None = None
        self.pending: Sent | None = None
        self.anchor: Sent | None = None
        self.overhead: float | None = None
        self.latest: tuple[float, bool] | None = None
        self.warned: set[tuple[int, int]] = set()
        self.seen: set[str | None] = set()
        self.window: float | None = None
        self.close = False

    # What the state makes, each time anew

    @property
    def enabled(self) -> bool:
        return self.settings["enabled"] if self.override is None else self.override

    @property
    def branch(self) -> list[Entry]:
        return branch_of(self.entries, self.leaf)

    @property
    def messages(self) -> list[Message]:
        """The projected conversation."""
        return [message for _, message in conversation(self.branch)]

    # Callbacks

    def start(self, global_settings: Any, project_settings: Any) -> dict[str, Any]:
        self.override = None
        self.settings = resolved(global_settings, project_settings)
        self._reset()
        self.seen = set()
        told = Told(status=[self._status()])
        self._refresh(told)
        return told.answer()

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.setdefault(entry["id"], entry)
            self.leaf = entry["id"]

    def navigate(self, leaf: str | None) -> dict[str, Any]:
        self.leaf = leaf
        self._reset()
        self.seen = set()
        return self._refreshed()

    def select_model(self) -> dict[str, Any]:
        self._reset()
        return Told().answer()

    def before_compaction(self, reason: str) -> dict[str, Any]:
        cancel = self.enabled and reason in AUTOMATIC
        if not cancel and reason == "manual":
            self._clear_calibration()
        return {"cancel": cancel, **Told().answer()}

    def compacted(self, entry_id: str | None) -> dict[str, Any]:
        if entry_id is None or entry_id not in self.seen:
            self._reset()
            self.seen.add(entry_id)
        return Told().answer()

    def command(self, arguments: str) -> dict[str, Any]:
        told = Told(["info"])
        match arguments.strip():
            case "on" | "off" as choice:
                before = self.enabled
                self.override = choice == "on"
                if self.enabled != before:
                    self._reset()
                told.status.append(self._status())
            case "" | "status" | "stats":
                pass
            case _:
                told.notifications = ["warning"]
        return told.answer()

    def turn_end(self, entry_id: str) -> dict[str, Any]:
        response: Message = self.entries[entry_id]["message"]
        usage = measured_usage(response)
        pending, self.pending = self.pending, None
        if usage is not None and not failed(response):
            self.latest = (usage[0], False)
            if pending is not None:
                self.anchor = pending
                pending.response, pending.reported = response, usage[1]
                surplus, resident, measured = self._surplus(pending)
                if self.overhead is not None:
                    self.overhead = max(0.0, min(self.overhead, surplus))
                elif resident + measured:
                    self.overhead = max(0.0, surplus * resident / (resident + measured))
                else:
                    self.overhead = 0.0
        elif self.latest is not None and not self.latest[1]:
            # A measured input is that of the newest response; an estimate is that of the newest request.
            self.latest = None
        return self._refreshed()

    def context(
        self,
        outgoing: list[Message],
        system_prompt: str,
        tools: list[dict[str, Any]],
        window: float | None,
        usage: float | None,
    ) -> dict[str, Any]:
        self.window = window
        if not self.enabled:
            return {"outcome": "inactive", **Told().answer()}
        told = Told()
        pair = (self.settings["tokenBudget"], self.settings["trimToTokens"])
        if self.settings["trimToTokensExplicit"] and pair[1] >= pair[0] and pair not in self.warned:
            self.warned.add(pair)
            told.notifications.append("warning")
        items = self._refresh(told)
        if self.cut is not None and not resolves(self.cut.frontier, items):
            self.cut = None
        try:
            return {**self._select(outgoing, system_prompt, tools, window, usage, items), **told.answer()}
        except Aborted as aborted:
            told.notifications.append("error")
            estimated = aborted.numbers["estimated_tokens"]
            aborted.numbers["estimated_tokens"] = None if estimated is None else max(0.0, estimated)
            return {"outcome": "aborted", "code": aborted.code, **aborted.numbers, **told.answer()}

    def tool(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        told = Told()
        try:
            if not self.enabled:
                raise Refused
            return {"result": call(self._refresh(told), name, parameters), **told.answer()}
        except Refused as refused:
            return {"error": {"code": refused.code}, **Told().answer()}

    def status_total(self) -> float | None:
        """The host's status total: what the newest response was measured with, and estimates behind it."""
        stored = self.messages
        newest = [at for at, message in enumerate(stored) if is_measured(message)]
        if not newest:
            return None
        usage = measured_usage(stored[newest[-1]])
        assert usage is not None
        return usage[1] + sum(message_tokens(message) for message in stored[newest[-1] + 1 :])

    def statistics(self) -> dict[str, Any]:
        """The numbers of the stats command."""
        budget = effective(self.settings, self.window)[0]
        latest, estimated = self.latest or (saved_input(self.branch), False)
        share = None
        if latest is not None and self.enabled:
            # As JavaScript rounds: the exact value of the double, halves up.
            share = float(Decimal(latest / budget * 100).quantize(Decimal("0.1"), ROUND_HALF_UP))
        entries = list(self.entries.values())
        totals = cache_totals(entries)
        return {
            "enabled": self.enabled,
            "history_tokens": history_tokens(entries),
            "input_tokens": None if latest is None else round(latest, 3),
            "input_estimated": estimated,
            "budget_tokens": budget,
            "used_percent": share,
            "model_window": self.window,
            "cache_read": totals["cacheRead"],
            "cache_write": totals["cacheWrite"],
        }

    # Steps of a context request

    def _select(
        self,
        outgoing: list[Message],
        system_prompt: str,
        tools: list[dict[str, Any]],
        window: float | None,
        usage: float | None,
        items: list[Item] | None,
    ) -> dict[str, Any]:
        budget, target = effective(self.settings, window)
        resident = resident_tokens(system_prompt, tools)
        only = [False for _ in outgoing] if items is None else self._outgoing_only(outgoing)
        costs, total, overhead = self._calibrated(outgoing, only, resident, usage)
        pieces = [
            Piece(
                position,
                message,
                costs[position],
                only[position],
                None if items is None else recovery_id(message, items),
                None if items is None else output_id(message, items),
                None if items is None or only[position] else cut_key(message, items),
            )
            for position, message in enumerate(outgoing)
        ]
        constant = 0.0 if total is None else total - resident - overhead - sum(costs)
        request = Request(
            pieces, resident + overhead, constant, total is not None, budget, target, window, items
        )
        try:
            chosen = Selection(request).select(self.cut)
        finally:
            self.close = request.close
        self.cut = chosen.cut
        self.latest = (max(0.0, chosen.estimated), True)
        kept = [piece.position for piece in chosen.kept]
        self.pending = Sent(
            resident,
            [
                {**outgoing[at], "content": [{"type": "text", "text": chosen.replaced[at]}]}
                if at in chosen.replaced
                else outgoing[at]
                for at in kept
            ],
            [only[at] or at in chosen.replaced for at in kept],
        )
        if chosen.notice is not None:
            self.pending.messages.insert(0, {"role": "user", "content": chosen.notice, "timestamp": 0})
            self.pending.outgoing_only.insert(0, True)
        return {
            "outcome": chosen.outcome,
            "estimated_tokens": max(0.0, chosen.estimated),
            "budget_tokens": budget,
            "resident_tokens": resident,
            "context_tokens": total,
            "kept": kept,
            "notice": chosen.notice,
            "replaced": {str(position): text for position, text in chosen.replaced.items()},
            "frontier": told_frontier(chosen.cut),
            "fallback": chosen.fallback,
        }

    def _outgoing_only(self, outgoing: list[Message]) -> list[bool]:
        stored = self.messages
        flags: list[bool] = []
        for message in outgoing:
            at = place(message, stored)
            flags.append(at is None)
            if at is not None:
                stored.pop(at)
        return flags

    def _surplus(self, sent: Sent, reported: float | None = None) -> tuple[float, float, float]:
        """Surplus, resident, and what was measured of the persistent messages."""
        assert sent.response is not None
        everything = [request_tokens(message) for message in [*sent.messages, sent.response]]
        outside = sum(
            cost for cost, only in zip(everything, [*sent.outgoing_only, False], strict=True) if only
        )
        total = sum(everything)
        surplus = (sent.reported if reported is None else reported) - sent.resident - total
        return surplus, sent.resident, total - outside

    def _calibrated(
        self, outgoing: list[Message], only: list[bool], resident: int, usage: float | None
    ) -> tuple[list[float], float | None, float]:
        """The cost of each message, the calibrated total of all, and the overhead of the resident input."""
        local: list[float] = [float(request_tokens(message)) for message in outgoing]
        anchor = self.anchor
        if anchor is None or anchor.response is None or usage is None:
            return local, None, 0.0
        stored = self.messages
        # The host's total is about the newest measured response.
        newest = [at for at, message in enumerate(stored) if is_measured(message)]
        if not newest or not same(stored[newest[-1]], anchor.response):
            return local, None, 0.0
        places = measured_places(anchor, outgoing, only)
        if places is None:
            return local, None, 0.0
        measured = usage - sum(message_tokens(message) for message in stored[newest[-1] + 1 :])
        surplus, _, counted = self._surplus(anchor, measured)
        if measured != anchor.reported or surplus <= 0:
            return local, max(0.0, resident + sum(local) + surplus), 0.0
        assert self.overhead is not None
        overhead = min(self.overhead, surplus)
        scale = 1 + (surplus - overhead) / counted if counted else 1.0
        costs = [cost * scale if at in places else cost for at, cost in enumerate(local)]
        return costs, resident + overhead + sum(costs), overhead

    # Resets

    def _refreshed(self) -> dict[str, Any]:
        told = Told()
        self._refresh(told)
        return told.answer()

    def _refresh(self, told: Told) -> list[Item] | None:
        branch = self.branch
        for entry in branch:
            if entry["type"] in ("compaction", "context_edit") and entry["id"] not in self.seen:
                self.seen.add(entry["id"])
                if self._is_retry(entry):
                    self._clear_calibration()
                else:
                    self._reset()
        try:
            return history(branch)
        except Unreadable:
            self._clear_calibration()
            told.notifications.append("error")
            return None

    def _is_retry(self, entry: Entry) -> bool:
        if entry["type"] != "context_edit" or entry["replacement"] is not None:
            return False
        target = self.entries.get(entry["targetId"], {})
        message = target.get("message", {})
        return message.get("role") == "assistant" and failed(message)

    def _reset(self) -> None:
        self.cut = None
        self.latest = None
        self._clear_calibration()

    def _clear_calibration(self) -> None:
        self.pending = None
        self.anchor = None
        self.overhead = None

    def _status(self) -> str:
        return "paging on" if self.enabled else "paging off"


def measured_places(anchor: Sent, outgoing: list[Message], only: list[bool]) -> list[int] | None:
    """Where the measured request and its response are: in order, equal messages from the newest on."""
    assert anchor.response is not None
    sent = zip(anchor.messages, anchor.outgoing_only, strict=True)
    wanted = [*(message for message, flag in sent if not flag), anchor.response]
    places: list[int] = []
    for message in reversed(wanted):
        before = places[-1] if places else len(outgoing)
        found = [at for at in range(before) if not only[at] and same(outgoing[at], message)]
        if not found:
            return None
        places.append(found[-1])
    return places


def request_tokens(message: Message) -> int:
    """A message's estimate inside a request, where resident input covers the system's."""
    return 0 if message.get("role") == "system" else message_tokens(message)


def measured_usage(message: Message) -> tuple[float, float] | None:
    """What the provider counted: the input, and the total with the output; none if nothing was."""
    usage = message.get("usage")
    if message.get("role") != "assistant" or not isinstance(usage, dict):
        return None
    given = [usage.get(name) or 0 for name in ("input", "cacheRead", "cacheWrite", "output")]
    total = usage.get("totalTokens") or sum(given)
    return (sum(given[:3]), total) if total else None


def is_measured(message: Message) -> bool:
    """A response that the provider counted, and that was not interrupted."""
    return measured_usage(message) is not None and not failed(message)


def resolved(global_settings: Any, project_settings: Any) -> dict[str, Any]:
    """Settings: the trusted project's, else the global ones, else the defaults."""
    sources = [
        source["contextPaging"]
        for source in (project_settings, global_settings)
        if isinstance(source, dict) and isinstance(source.get("contextPaging"), dict)
    ]

    def first(name: str, valid: Any) -> Any:
        return next((source[name] for source in sources if name in source and valid(source[name])), None)

    enabled = first("enabled", lambda value: isinstance(value, bool))
    budget = first("tokenBudget", _positive)
    target = first("trimToTokens", _positive)
    budget = DEFAULT_BUDGET if budget is None else budget
    return {
        "enabled": True if enabled is None else enabled,
        "tokenBudget": budget,
        "trimToTokens": max(1, budget * 5 // 8) if target is None else target,
        "trimToTokensExplicit": target is not None,
    }


def _positive(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == int(value) and 0 < value <= LARGEST


def effective(settings: dict[str, Any], window: float | None) -> tuple[float, float]:
    """The budget and the target under a model's window."""
    budget, target = settings["tokenBudget"], settings["trimToTokens"]
    limit = budget if window is None else min(budget, window)
    if target >= budget:
        return limit, limit
    return limit, max(1, int(target * limit // budget))
