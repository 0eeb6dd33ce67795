"""The host's outgoing messages of the previous request, to find what is new in the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not

from context_paging.domain.messages import Message, MessageRef


class OutgoingMessages:
    """Remembers messages by reference. The same object is the same message: hosts do not change messages.

    Among the same objects, one that is equal to the one before it is the same message, too; anything else is
    compared by its digest.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        # In their place: a list that only the session itself appends to, and its length then.
        self._source: Sequence[Message] | None = None
        self._length = 0

    def changes(
        self,
        outgoing: Sequence[Message],
        requested: Callable[[int], MessageRef],
        digest: Callable[[Message], MessageRef],
    ) -> tuple[int, tuple[MessageRef, ...]]:
        """How many leading messages are those of the previous request, and the digests of the others.

        ``requested`` gives a message of the previous request by its position.
        """
        limit = min(self._length, len(outgoing))
        if outgoing is self._source:
            reused = limit
        else:
            reused = _same(self._messages if self._source is None else list(self._source), outgoing, limit)
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
        if append_only:
            self._messages = []
        elif self._source is not None:
            self._messages = list(outgoing)
        else:
            self._messages[reused:] = outgoing[reused:]
        self._source = outgoing if append_only else None
        self._length = len(outgoing)


def _same(known: list[Message], outgoing: Sequence[Message], limit: int) -> int:
    """How many leading objects are the same, up to a limit."""
    if limit == len(known) and _goes_on(known, outgoing):
        return limit
    return min(limit, next(compress(count(), map(is_not, known, outgoing)), limit))


def _goes_on(known: list[Message], outgoing: Sequence[Message]) -> bool:
    """Whether a list begins with the known objects, or ones that are equal to them, and ends them alike.

    Two lists of the same objects are compared without a look at any object, a hundred times as fast as object
    by object; so the lists are made equally long. A host that passes copies is found out at the last one.
    """
    length = len(known)
    if not known or known[-1] is not outgoing[length - 1]:
        return False
    known += outgoing[length:]
    try:
        return known == outgoing
    except Exception:  # of an object in place of another one, which will be looked at
        return False
    finally:
        del known[length:]
