"""A host's outgoing messages under the repair policy: what goes on to selection, and in which order.

Requests share what they have in common: only the newest stretch is looked at again (`repair`), and a request
costs what is new in it. Messages are matched with the stored ones in the host's order, before any is moved.
Positions are those in the host's list; selection counts in the repaired one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .conversation import Conversation
from .messages import MessageRef
from .projection import Projection
from .repair import RepairKind, Stretch, repair
from .steps import Step


class _Stretches:
    """The order of all but the newest stretch; shared by views of different lengths."""

    __slots__ = ("begins", "order")

    def __init__(self, order: list[int], begins: list[tuple[int, int]]) -> None:
        self.order = order
        # Where each stretch begins: among the messages, and in the order.
        self.begins = begins


@dataclass(frozen=True, slots=True)
class RequestRepair:
    """A repair of a request, and the positions of the messages it left out or moved."""

    kind: RepairKind
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RepairedRequest:
    """One request.

    Attributes:
        host: the messages as the host passed them.
        unchanged: leading messages of the repaired request that are those of the one before.
        repairs: what was repaired in the stretches that are new or have changed.
        new_repairs: those of them that the request before did not have.
    """

    _stretches: _Stretches
    host: Conversation = field(default_factory=Conversation)
    _closed: int = 0
    _count: int = 0
    _open: int = 0
    _newest: tuple[int, ...] = ()
    unchanged: int = 0
    repairs: tuple[RequestRepair, ...] = ()
    new_repairs: tuple[RequestRepair, ...] = ()

    @staticmethod
    def empty() -> RepairedRequest:
        """No messages."""
        return RepairedRequest(_Stretches([], []))

    @property
    def length(self) -> int:
        """How many messages the host passed."""
        return self.host.length

    def message(self, position: int) -> MessageRef:
        """A message the host passed."""
        return self.host.ref(position)

    def host_position(self, repaired: int) -> int:
        """Where a message of the repaired request stands in the host's list."""
        if repaired < self._closed:
            return self._stretches.order[repaired]
        return self._newest[repaired - self._closed]

    def changed(self) -> list[tuple[MessageRef, Step]]:
        """The messages behind the unchanged ones, each with its step among the host's."""
        repaired = range(self.unchanged, self._closed + len(self._newest))
        positions = [self.host_position(position) for position in repaired]
        if not positions:
            return []
        first = min(positions)
        steps = self.host.between(first, max(positions))
        return [(step.ref, step) for step in (steps[position - first] for position in positions)]

    def followed_by(
        self,
        reused: int,
        appended: Iterable[MessageRef],
        stored: Projection | None = None,
        stable_slots: int = 0,
    ) -> RepairedRequest:
        """The next request: see `Conversation.followed_by`."""
        host = self.host.followed_by(reused, appended, stored, stable_slots)
        # What is matched anew is looked at anew.
        reused = host.shared
        shared = self._stretches
        start, closed, count = self._open, self._closed, self._count
        while start >= reused and count:
            count -= 1
            start, closed = shared.begins[count]
        known = (*shared.order[closed : self._closed], *self._newest)
        if (len(shared.order), len(shared.begins)) != (closed, count):
            shared = _Stretches(shared.order[:closed], shared.begins[:count])
        stretch = Stretch()
        repairs: list[RequestRepair] = []
        for step in host.between(start, host.length - 1) if host.length > start else ():
            if stretch.ends_before(step.ref):
                order = _taken(stretch.messages, start, repairs)
                shared.begins.append((start, len(shared.order)))
                shared.order += order
                start += len(stretch.messages)
                stretch = Stretch()
            stretch.add(step.ref)
        newest = tuple(_taken(stretch.messages, start, repairs))
        unchanged = closed
        for before, now in zip(known, (*shared.order[closed:], *newest), strict=False):
            if before != now or now >= reused:
                break
            unchanged += 1
        told = set(self.repairs)
        return RepairedRequest(
            shared,
            host,
            len(shared.order),
            len(shared.begins),
            start,
            newest,
            unchanged,
            tuple(repairs),
            tuple(done for done in repairs if done not in told),
        )


def _taken(messages: Sequence[MessageRef], start: int, repairs: list[RequestRepair]) -> list[int]:
    if not messages:
        return []
    repaired = repair(messages)
    repairs += [RequestRepair(r.kind, tuple(start + p for p in r.positions)) for r in repaired.repairs]
    return [start + position for position in repaired.order]
