"""What the command tells of the stored session (architecture, "Read-only session stats")."""

from __future__ import annotations

from typing import Any

from .conversation import Entry, message_of
from .texts import Message, content_length, failed, message_tokens, tokens

BOUNDARIES = ("compaction", "branch_summary", "model_change")
COUNTERS = ("input", "output", "cacheRead", "cacheWrite")
LARGEST = 2**53 - 1


def history_tokens(entries: list[Entry]) -> int:
    """Saved text, summaries and replacements, across all branches."""
    total = 0
    for entry in entries:
        message = message_of(entry)
        if message is not None:
            total += message_tokens(message)
        if entry["type"] == "context_edit" and entry["replacement"] is not None:
            total += tokens(content_length(entry["replacement"]["content"]))
    return total


def saved_input(branch: list[Entry]) -> float | None:
    """The input that the latest saved assistant on the branch was measured with."""
    for entry in reversed(branch):
        if entry["type"] in BOUNDARIES:
            return None
        message = message_of(entry)
        if message is not None and message["role"] == "assistant":
            return None if failed(message) else measured_input(message)
    return None


def measured_input(message: Message) -> float | None:
    """What the provider counted of a request."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    counted = [usage.get(name) or 0 for name in ("input", "cacheRead", "cacheWrite")]
    return sum(counted) or None


def cache_totals(entries: list[Entry]) -> dict[str, float | None]:
    """Each saved usage record once, across all branches."""
    totals: dict[str, float | None] = {"cacheRead": 0, "cacheWrite": 0}
    for usage in [record for entry in entries for record in usage_records(entry)]:
        if not any(usage.get(name) for name in (*COUNTERS, "totalTokens")):
            continue
        for name, total in totals.items():
            counter = _counter(usage.get(name))
            totals[name] = None if total is None or counter is None else total + counter
    return totals


def usage_records(entry: Entry) -> list[dict[str, Any]]:
    """The usage that an entry saves."""
    holder = entry
    if entry["type"] == "message":
        holder = entry["message"] if entry["message"]["role"] in ("assistant", "toolResult") else {}
    usage = holder.get("usage")
    return [usage] if isinstance(usage, dict) else []


def _counter(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        return None
    return value
