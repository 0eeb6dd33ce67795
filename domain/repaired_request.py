"""A host's outgoing messages under the repair policy: what goes on to selection, and in which order.

Requests share what they have in common: only the newest stretch is looked at again (`repair`), and a request
costs what is new in it. Positions are those in the host's list; selection counts in the repaired one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .messages import MessageRef
from .repair import RepairKind, Stretch, repair


class _Messages:
    """Messages with the order of all but the newest stretch; shared by views of different lengths."""

    __slots__ = ("order", "refs", "stretches")

    def __init__(self, refs: list[MessageRef], order: list[int], stretches: list[tuple[int, int]]) -> None:
        self.refs = refs
        self.order = order
        # Where each stretch begins: among the messages, and in the order.
        self.stretches = stretches


@dataclass(frozen=True, slots=True)
class RequestRepair:
    """A repair of a request: what was done, and the messages that were left out or moved."""

    kind: RepairKind
    messages: tuple[MessageRef, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RepairedRequest:
    """One request.

    Attributes:
        length: how many messages the host passed.
        unchanged: leading messages of the repaired request that are those of the one before.
        repairs: what was repaired in the stretches that are new or have changed.
    """

    _messages: _Messages
    length: int = 0
    _closed: int = 0
    _stretches: int = 0
    _open: int = 0
    _newest: tuple[int, ...] = ()
    unchanged: int = 0
    repairs: tuple[RequestRepair, ...] = ()

    @staticmethod
    def empty() -> RepairedRequest:
        """No messages."""
        return RepairedRequest(_Messages([], [], []))

    def message(self, position: int) -> MessageRef:
        """A message the host passed."""
        return self._messages.refs[position]

    def host_position(self, repaired: int) -> int:
        """Where a message of the repaired request stands in the host's list."""
        if repaired < self._closed:
            return self._messages.order[repaired]
        return self._newest[repaired - self._closed]

    def changed(self) -> list[MessageRef]:
        """The messages of the repaired request behind the unchanged ones."""
        repaired = range(self.unchanged, self._closed + len(self._newest))
        return [self._messages.refs[self.host_position(position)] for position in repaired]

    def followed_by(self, reused: int, appended: Iterable[MessageRef]) -> RepairedRequest:
        """The next request: the first ``reused`` messages of this one and then others.

        Raises:
            IndexError: this request has fewer than ``reused`` messages.
        """
        if reused > self.length:
            raise IndexError(reused)
        shared = self._messages
        start, closed, stretches = self._open, self._closed, self._stretches
        while start >= reused and stretches:
            stretches -= 1
            start, closed = shared.stretches[stretches]
        known = (*shared.order[closed : self._closed], *self._newest)
        messages = self._extensible(reused, closed, stretches)
        stretch = Stretch(messages.refs[start:reused])
        repairs: list[RequestRepair] = []
        for ref in appended:
            if stretch.ends_before(ref):
                order = _taken(stretch.messages, repairs)
                messages.stretches.append((start, len(messages.order)))
                messages.order += [start + position for position in order]
                start += len(stretch.messages)
                stretch = Stretch()
            stretch.add(ref)
            messages.refs.append(ref)
        newest = tuple(start + position for position in _taken(stretch.messages, repairs))
        unchanged = closed
        for before, now in zip(known, (*messages.order[closed:], *newest), strict=False):
            if before != now or now >= reused:
                break
            unchanged += 1
        return RepairedRequest(
            messages,
            len(messages.refs),
            len(messages.order),
            len(messages.stretches),
            start,
            newest,
            unchanged,
            tuple(repairs),
        )

    def _extensible(self, reused: int, closed: int, stretches: int) -> _Messages:
        shared = self._messages
        sizes = (len(shared.refs), len(shared.order), len(shared.stretches))
        if sizes == (reused, closed, stretches):
            return shared
        return _Messages(shared.refs[:reused], shared.order[:closed], shared.stretches[:stretches])


def _taken(stretch: list[MessageRef], repairs: list[RequestRepair]) -> tuple[int, ...]:
    if not stretch:
        return ()
    repaired = repair(stretch)
    repairs += [RequestRepair(r.kind, tuple(stretch[p] for p in r.positions)) for r in repaired.repairs]
    return repaired.order
