"""Runs of positions: a first and a last one, both included, stand for all from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Run = tuple[int, int]


def runs_of(positions: Iterable[int]) -> tuple[Run, ...]:
    """Positions as runs, in the same order."""
    return joined((position, position) for position in positions)


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same positions in the same order; where a run goes on from the one before it, both are one."""
    found: list[Run] = []
    for first, last in runs:
        if found and found[-1][1] == first - 1:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return tuple(found)


def without(first: int, last: int, left_out: Sequence[int]) -> tuple[Run, ...]:
    """The positions from ``first`` to ``last`` but those ``left_out``, which ascend."""
    if not left_out:
        return ((first, last),) if first <= last else ()
    found = []
    for position in left_out:
        if first <= position <= last:
            if first < position:
                found.append((first, position - 1))
            first = position + 1
    if first <= last:
        found.append((first, last))
    return tuple(found)


def positions_of(runs: Iterable[Run]) -> Iterator[int]:
    """The positions of runs, in order."""
    for first, last in runs:
        yield from range(first, last + 1)
