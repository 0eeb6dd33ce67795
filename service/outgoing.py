"""The host's outgoing messages of the previous request, to find what is new in the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not

from context_paging.domain.messages import Message, MessageRef


class OutgoingMessages:
    """Remembers messages by reference. The same object is the same message: hosts do not change messages."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._source: Sequence[Message] | None = None

    def changes(
        self,
        outgoing: Sequence[Message],
        requested: Callable[[int], MessageRef],
        digest: Callable[[Message], MessageRef],
    ) -> tuple[int, tuple[MessageRef, ...]]:
        """How many leading messages are those of the previous request, and the digests of the others.

        ``requested`` gives a message of the previous request by its position.
        """
        known = self._messages
        limit = min(len(known), len(outgoing))
        # A list that only the session itself appends to needs no comparison.
        reused = limit if outgoing is self._source else _same(known, outgoing)
        refs: list[MessageRef] = []
        while reused < limit:
            ref = digest(outgoing[reused])
            if ref.fingerprint != requested(reused).fingerprint:
                refs.append(ref)
                break
            reused += 1
        refs += [digest(message) for message in outgoing[reused + len(refs) :]]
        return reused, tuple(refs)

    def remember(self, outgoing: Sequence[Message], reused: int, *, append_only: bool) -> None:
        """Keep this request's messages; ``append_only`` if nobody but the session changes the list."""
        self._messages[reused:] = outgoing[reused:]
        self._source = outgoing if append_only else None


def _same(known: Sequence[Message], outgoing: Sequence[Message]) -> int:
    """How many leading objects are the same."""
    limit = min(len(known), len(outgoing))
    if not any(map(is_not, known, outgoing)):
        return limit
    return next(compress(count(), map(is_not, known, outgoing)), limit)
