"""What goes out (architecture, "Context selection" and "Stable cut state"; design, section 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .conversation import Item
from .texts import Message, calls, failed, length, same, stringify, tokens

Key = tuple[str, str | None]
ROUNDING = 1e-6


class Aborted(Exception):
    """The provider call must not be made."""

    def __init__(
        self,
        code: str,
        resident: float | None = None,
        estimated: float | None = None,
        budget: float | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.numbers = {"resident_tokens": resident, "estimated_tokens": estimated, "budget_tokens": budget}


@dataclass
class Piece:
    """An outgoing message with what is known of it."""

    position: int
    message: Message
    cost: float
    outgoing_only: bool
    history_id: str | None = None
    output_id: str | None = None
    key: Key | None = None


@dataclass
class Unit:
    """What eviction takes as a whole."""

    kind: str
    pieces: list[Piece]
    key: Key | None = None
    ambiguous: bool = False


@dataclass
class Groups:
    """The request, cut into what may leave and what may not."""

    units: list[Unit]
    envelope: list[Piece]
    trailing: list[Piece]
    active: bool
    unread: Unit | None = None


@dataclass
class Frontier:
    """The remembered cut."""

    kind: str
    key: Key
    user: str | None = None


@dataclass
class Cut:
    """A frontier with its frozen notice."""

    frontier: Frontier
    notice: str


@dataclass
class Selected:
    """A successful selection."""

    outcome: str
    kept: list[Piece]
    notice: str | None
    estimated: float
    replaced: dict[int, str] = field(default_factory=dict)
    cut: Cut | None = None
    fallback: str | None = None


@dataclass
class Request:
    """All that a selection is made from."""

    pieces: list[Piece]
    resident: float
    constant: float
    calibrated: bool
    budget: float
    target: float
    window: float | None
    history: list[Item] | None
    close: bool = False
    """Whether a calibrated estimate was so near a limit that the order of a sum decides."""


# Messages and their places in the history


def recovery_id(message: Message, history: list[Item]) -> str | None:
    """The history item to read a message in: the first that holds it, else the newest that makes its call."""
    for item in history:
        if any(same(message, member) for member in [item.message, *item.results]):
            return item.id
    named = [message["toolCallId"]] if message["role"] == "toolResult" else calls(message)
    for called in named:
        for item in reversed(history):
            if called in calls(item.message):
                return item.id
    return None


def output_id(message: Message, history: list[Item]) -> str | None:
    """The history item to read a tool result in: the newest that makes its call, if it has a result."""
    if message["role"] != "toolResult":
        return None
    for item in reversed(history):
        if message["toolCallId"] in calls(item.message):
            answered = message["toolCallId"] in [result["toolCallId"] for result in item.results]
            return item.id if answered else None
    return None


def cut_key(message: Message, history: list[Item]) -> Key | None:
    """The key by which a cut remembers a message; none if it is ambiguous."""
    role, called = message["role"], calls(message)
    if role not in ("user", "assistant"):
        return None
    candidates = [
        item
        for item in history
        if item.message["role"] == role
        and item.message.get("timestamp") == message.get("timestamp")
        and calls(item.message) == called
    ]
    if not (len(candidates) == 1 and called):
        candidates = [item for item in candidates if same(item.message, message)]
    return (candidates[0].id, called[0] if called else None) if len(candidates) == 1 else None


def resolves(frontier: Frontier, history: list[Item] | None) -> bool:
    """Whether the raw history still has what a frontier names."""
    named = [item for item in history or [] if item.id == frontier.key[0]]
    if len(named) != 1:
        return False
    if frontier.key[1] is not None and frontier.key[1] not in calls(named[0].message):
        return False
    if frontier.kind == "partialTurn":
        if named[0].kind != "modelTurn":
            return False
        users = [item for item in history or [] if item.id == frontier.user and item.kind == "user"]
        return frontier.user is None or len(users) == 1
    return True


# Grouping


def normalized(pieces: list[Piece]) -> list[list[Piece]]:
    """Single messages and exchanges in order, without interrupted ones.

    Raises:
        Aborted: calls and results do not pair.
    """
    runs: list[list[Piece]] = []
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        index += 1
        role = piece.message["role"]
        if role == "toolResult":
            raise Aborted("INVALID_MESSAGE_STRUCTURE")
        run = [piece]
        if role == "assistant":
            wanted = calls(piece.message)
            if len(set(wanted)) != len(wanted):
                raise Aborted("INVALID_MESSAGE_STRUCTURE")
            while index < len(pieces) and pieces[index].message["role"] == "toolResult":
                called = pieces[index].message["toolCallId"]
                if called not in wanted or called in [p.message["toolCallId"] for p in run[1:]]:
                    raise Aborted("INVALID_MESSAGE_STRUCTURE")
                run.append(pieces[index])
                index += 1
            if failed(piece.message):
                continue
            if len(run) != len(wanted) + 1:
                raise Aborted("INVALID_MESSAGE_STRUCTURE")
        runs.append(run)
    return runs


def grouped(runs: list[list[Piece]], history: list[Item] | None) -> Groups:
    """Prefix units, completed turns, and the active turn."""
    groups = Groups([], [], [], active=False)
    starts = _request_starts(runs)
    heads = [start for start, _ in starts]
    for run in runs[: heads[0]] if heads else runs:
        groups.units.append(_unit("prefix", run))
    for number, start in enumerate(heads[:-1]):
        turn = [piece for run in runs[start : heads[number + 1]] for piece in run]
        groups.units.append(_unit("completedTurn", turn))
    if heads:
        groups.active = True
        start, size = starts[-1]
        groups.envelope = [piece for run in runs[start : start + size] for piece in run]
        last: Unit | None = None
        for run in runs[start + size :]:
            if len(run) == 1 and run[0].outgoing_only:
                groups.trailing += run
            else:
                last = (
                    _unit("partialTurn", run)
                    if run[0].message["role"] == "assistant"
                    else Unit("partialTurn", run)
                )
                groups.units.append(last)
        if last is not None and _is_unread(last, history):
            groups.unread = last
            groups.units.remove(last)
    return groups


def _request_starts(runs: list[list[Piece]]) -> list[tuple[int, int]]:
    """Where requests start, and how many messages their envelopes hold."""
    starts: list[tuple[int, int]] = []
    index = 0
    while index < len(runs):
        piece = runs[index][0]
        size = 0
        if not piece.outgoing_only and piece.message["role"] == "user":
            size = 1
            while index + size < len(runs) and (
                runs[index + size][0].outgoing_only or runs[index + size][0].message["role"] == "custom"
            ):
                size += 1
        elif not piece.outgoing_only and piece.message["role"] == "custom":
            size = 1
        if size:
            starts.append((index, size))
        index += max(size, 1)
    return starts


def _unit(kind: str, pieces: list[Piece]) -> Unit:
    named = [p for p in pieces if p.message["role"] in ("user", "assistant") and not p.outgoing_only]
    key = named[-1].key if named else None
    return Unit(kind, pieces, key, ambiguous=bool(named) and key is None)


def _is_unread(unit: Unit, history: list[Item] | None) -> bool:
    if not history or not calls(unit.pieces[0].message):
        return False
    newest = history[-1]
    return (
        newest.kind == "modelTurn"
        and calls(newest.message) == calls(unit.pieces[0].message)
        and [r["toolCallId"] for r in newest.results] == [p.message["toolCallId"] for p in unit.pieces[1:]]
    )


# Notices


def arguments_of(history_id: str, call_id: str) -> str:
    """Arguments that read a tool result."""
    return stringify(
        {"historyId": history_id, "source": "toolResult", "toolCallId": call_id, "offset": 0, "limit": 2000}
    )


def normal_notice(budget: float, before: list[Piece], evicted: list[Piece]) -> str:
    """The notice of a cut: the newest item of all that left, the first output of what leaves now."""
    lines = [
        f"[Context paging] Earlier history is outside this {int(budget):,}-token window. "
        "It is stored, complete and unchanged.",
        "Find items: search_history, browse_history. Read them exactly: load_history, read_context_output.",
    ]
    known = [piece for piece in [*before, *evicted] if piece.history_id is not None]
    if known:
        lines.append(f"Newest item outside the window: {stringify(known[-1].history_id)}.")
    results = [piece for piece in evicted if piece.output_id is not None]
    if results:
        message, history_id = results[0].message, results[0].output_id
        assert history_id is not None
        lines.append(
            f"Tool output outside the window: {message['toolName']}, "
            f"read_context_output({arguments_of(history_id, message['toolCallId'])})."
        )
    return "\n".join(lines)


def overflow_notice(budget: float) -> str:
    """The notice of a call above the budget."""
    return (
        f"[Context paging] The newest tool results are shown in full for this one call, "
        f"above the usual {int(budget):,}-token window.\n"
        "They may leave the window after this call. To read them again: search_history or browse_history, "
        "then load_history or read_context_output."
    )


RECOVERY_NOTICE = (
    "[Context paging] The newest tool results do not fit the model's context window, "
    "so each is replaced by a reference.\n"
    "Call read_context_output with the arguments given in each reference to read the stored result in pages."
)


def reference(history_id: str, call_id: str) -> str:
    """What stands for a tool result that does not fit."""
    return (
        "[Context paging] This tool result does not fit the model's context window.\n"
        f"Read the stored result: read_context_output({arguments_of(history_id, call_id)})."
    )


# Eviction


class Selection:
    """One selection."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.runs = normalized(request.pieces)
        if not request.calibrated and request.resident > request.budget:
            raise Aborted("RESIDENT_INPUT_TOO_LARGE", request.resident, request.resident, request.budget)
        self.groups = grouped(self.runs, request.history)
        self.remainder: list[Piece] = []
        if self.groups.active:
            floor = self.cost([*self.groups.envelope, *self.groups.trailing], None)
            if not self.fits(floor, request.budget):
                raise Aborted("ACTIVE_REQUEST_TOO_LARGE", request.resident, floor, request.budget)

    def cost(self, pieces: list[Piece], notice: str | None) -> float:
        told = 0 if notice is None else tokens(length(notice))
        return self.request.resident + self.request.constant + sum(piece.cost for piece in pieces) + told

    def fits(self, estimate: float, limit: float) -> bool:
        if self.request.calibrated and abs(estimate - limit) < ROUNDING:
            self.request.close = True
        return estimate <= limit

    def kept(self, gone: list[Piece]) -> list[Piece]:
        """What is left, in the order sent: the outgoing-only messages behind the active envelope last."""
        positions = {piece.position for piece in gone}
        last = {piece.position for piece in self.groups.trailing}
        first = {piece.position for piece in self.remainder}
        pieces = [piece for run in self.runs for piece in run if piece.position not in positions]
        return [
            *(piece for piece in self.remainder if piece.position not in positions),
            *(piece for piece in pieces if piece.position not in first | last),
            *(piece for piece in pieces if piece.position in last),
        ]

    def select(self, cut: Cut | None) -> Selected:
        request = self.request
        units = list(self.groups.units)
        gone: list[Piece] = []
        anchor: Frontier | None = None
        if cut is not None:
            applied = self.applied(cut.frontier)
            if applied is None:
                return self.fallback("frontier-not-in-groups")
            gone, units = applied
            anchor = cut.frontier
        notice = cut.notice if cut is not None else None
        estimate = self.cost(self.kept(gone), notice)
        if self.fits(estimate, request.budget):
            return Selected("paged" if gone else "within-budget", self.kept(gone), notice, estimate, cut=cut)
        if request.history is None:
            return self.fallback("raw-history-unavailable")
        evicted: list[Unit] = []
        while units and (not evicted or not self.fits(self.after(gone, evicted), request.target)):
            evicted.append(units.pop(0))
        if not evicted:
            return self.finish(gone, notice, cut, None)
        # Nothing that a fallback could do saves what is too large when all has left: that is refused at once.
        out = gone + [piece for unit in evicted for piece in unit.pieces]
        self.finish(out, normal_notice(request.budget, gone, out[len(gone) :]), None, None)
        if any(unit.ambiguous for unit in evicted):
            return self.fallback("cut-key-unresolved")
        keyed = list(evicted)
        while keyed and keyed[-1].key is None:
            keyed.pop()
        if not keyed and anchor is None:
            return self.fallback("keyless-no-key")
        all_gone = gone + [piece for unit in keyed for piece in unit.pieces]
        if not keyed:
            return self.fallback("keyless-snap-over-budget")
        snapped = Cut(self.frontier(keyed[-1]), normal_notice(request.budget, gone, all_gone[len(gone) :]))
        if not resolves(snapped.frontier, request.history):
            return self.fallback("cut-key-unresolved")
        if len(keyed) < len(evicted) and not self.fits(
            self.cost(self.kept(all_gone), snapped.notice), request.budget
        ):
            return self.fallback("keyless-snap-over-budget")
        return self.finish(all_gone, snapped.notice, snapped, None)

    def after(self, gone: list[Piece], evicted: list[Unit]) -> float:
        out = gone + [piece for unit in evicted for piece in unit.pieces]
        return self.cost(self.kept(out), normal_notice(self.request.budget, gone, out[len(gone) :]))

    def fallback(self, cause: str) -> Selected:
        self.remainder = []
        units, evicted = list(self.groups.units), list[Unit]()
        estimate = self.cost(self.kept([]), None)
        while units and not self.fits(estimate, self.request.budget):
            evicted.append(units.pop(0))
            estimate = self.after([], evicted)
        gone = [piece for unit in evicted for piece in unit.pieces]
        notice = normal_notice(self.request.budget, [], gone) if gone else None
        return self.finish(gone, notice, None, cause)

    def finish(self, gone: list[Piece], notice: str | None, cut: Cut | None, cause: str | None) -> Selected:
        request = self.request
        kept = self.kept(gone)
        estimate = self.cost(kept, notice)
        if self.fits(estimate, request.budget):
            outcome = "paged" if gone else "within-budget"
            return Selected(outcome, kept, notice, estimate, cut=cut, fallback=cause)
        if self.groups.unread is not None:
            window = float("inf") if request.window is None else request.window
            told = overflow_notice(request.budget)
            full = self.cost(kept, told)
            if self.fits(full, window):
                return Selected("protected-overflow", kept, told, full, cut=cut, fallback=cause)
            replaced: dict[int, str] = {}
            for piece in self.groups.unread.pieces[1:]:
                if piece.output_id is not None:
                    replaced[piece.position] = reference(piece.output_id, piece.message["toolCallId"])
            shrunk = self.cost([p for p in kept if p.position not in replaced], RECOVERY_NOTICE)
            shrunk += sum(tokens(length(text)) for text in replaced.values())
            if self.fits(shrunk, window):
                return Selected("recovery", kept, RECOVERY_NOTICE, shrunk, replaced, cut, cause)
            estimate = shrunk
        code = "ACTIVE_REQUEST_TOO_LARGE" if self.groups.active else "RESIDENT_INPUT_TOO_LARGE"
        raise Aborted(code, request.resident, estimate, request.budget)

    def frontier(self, unit: Unit) -> Frontier:
        assert unit.key is not None
        if unit.kind != "partialTurn":
            return Frontier(unit.kind, unit.key)
        user = self.groups.envelope[0].key
        return Frontier("partialTurn", unit.key, user[0] if user else None)

    def applied(self, frontier: Frontier) -> tuple[list[Piece], list[Unit]] | None:
        """What a remembered frontier leaves out, and the units after it; none if it is not in the groups."""
        gone: list[Piece] = []
        units = list(self.groups.units)
        while units:
            unit = units.pop(0)
            if unit.kind == "completedTurn" and frontier.kind == "partialTurn":
                inside = self.inside(unit, frontier)
                if inside is not None and self.is_of(unit.pieces[0], frontier):
                    out, rest = inside
                    # The remainder is known by the same message as the whole turn.
                    remainder = Unit(unit.kind, rest, unit.key, unit.ambiguous)
                    self.remainder = rest
                    return gone + out, [remainder, *units]
            gone += unit.pieces
            if unit.key == frontier.key and unit.kind == frontier.kind:
                named = frontier.kind != "partialTurn" or self.is_of(self.groups.envelope[0], frontier)
                return (gone, units) if named else None
        return None

    def is_of(self, request: Piece, frontier: Frontier) -> bool:
        """Whether a request is the one that a partial turn's frontier names, if it names one."""
        return frontier.user is None or (request.key is not None and request.key[0] == frontier.user)

    def inside(self, turn: Unit, frontier: Frontier) -> tuple[list[Piece], list[Piece]] | None:
        """The exchanges of a completed turn up to the anchor, and what remains of it."""
        runs = [run for run in self.runs if run[0] in turn.pieces]
        anchors = [i for i, run in enumerate(runs) if run[0].key == frontier.key]
        if not anchors:
            return None
        starts = _request_starts(runs)
        size = starts[0][1] if starts else 0
        # As it was sent while the turn was active: what only requests carried comes last.
        extra = [run[0] for run in runs[size:] if len(run) == 1 and run[0].outgoing_only]
        out = [piece for run in runs[size : anchors[0] + 1] for piece in run if piece not in extra]
        rest = [piece for piece in turn.pieces if piece not in out and piece not in extra] + extra
        return out, rest


def told_frontier(cut: Cut | None) -> dict[str, Any] | None:
    """A frontier as answers show it."""
    if cut is None:
        return None
    frontier = cut.frontier
    key = {"historyId": frontier.key[0]}
    if frontier.key[1] is not None:
        key["toolCallId"] = frontier.key[1]
    told: dict[str, Any] = {"kind": frontier.kind, "lastEvicted": key}
    if frontier.kind == "partialTurn" and frontier.user is not None:
        told["userHistoryId"] = frontier.user
    return told
