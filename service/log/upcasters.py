"""Events of earlier schema versions, read as today's.

A stored event is never rewritten: its hash covers what was written. It is lifted on read instead, one
version at a time, by the functions in `UPCASTERS`; a type without one was not changed by that version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from context_paging.domain.events import SCHEMA_VERSION

Payload = dict[str, Any]
Upcasters = Mapping[tuple[str, int], Callable[[Payload], Payload]]

UNKNOWN_HOST = "unknown"


def _with_host(payload: Payload) -> Payload:
    return {**payload, "host": UNKNOWN_HOST}


UPCASTERS: Upcasters = {
    # Version 2 tells which host a session runs in.
    ("session-started", 1): _with_host,
}
"""By event type and the version it lifts from."""


def upcast(
    event_type: str,
    version: int,
    payload: Payload,
    *,
    to: int = SCHEMA_VERSION,
    upcasters: Upcasters = UPCASTERS,
) -> Payload:
    """A payload of an earlier version as one of the version ``to``."""
    for step in range(version, to):
        lift = upcasters.get((event_type, step))
        if lift is not None:
            payload = lift(payload)
    return payload
