"""Comparing answers: numbers with a relative tolerance of 1e-9, everything else exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

TOLERANCE = 1e-9
_MISSING = object()


def differences(given: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """Readable differences between an answer and the expected one; none if they are equal."""
    if isinstance(given, dict) and isinstance(wanted, dict):
        for key in sorted({*given, *wanted}):
            yield from differences(given.get(key, _MISSING), wanted.get(key, _MISSING), f"{where}.{key}")
    elif isinstance(given, list | tuple) and isinstance(wanted, list | tuple):
        for index, pair in enumerate(zip_longest(given, wanted, fillvalue=_MISSING)):
            yield from differences(*pair, f"{where}[{index}]")
    elif not _equal(given, wanted):
        yield f"{where or 'answer'}: {_shown(given)} instead of {_shown(wanted)}"


def _equal(given: Any, wanted: Any) -> bool:
    if _is_number(given) and _is_number(wanted):
        return math.isclose(given, wanted, rel_tol=TOLERANCE, abs_tol=1e-12)
    # A StrEnum member is equal to its text; a boolean is not equal to a number.
    return bool(given == wanted) and isinstance(given, bool) == isinstance(wanted, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return "nothing" if value is _MISSING else repr(value)
