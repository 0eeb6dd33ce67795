"""Read-only statistics of a session (architecture, "Read-only session stats").

They read every stored entry, whatever is paged out, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from .entries import Entry, EntryRef, context_message
from .estimation import TokenEstimator
from .messages import MAX_NUMBER, MAX_SAFE_INTEGER, is_number, token_counter
from .settings import Settings
from .state import LatestInput

_BOUNDARIES = frozenset({"compaction", "branch_summary", "model_change"})
"""Entry types behind which an older response says nothing of the next request."""
DECIMALS = 3
"""How exact an estimate is told."""
_COUNTERS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """Statistics of a session; ``None`` is unavailable. Tokens are estimates unless measured.

    Attributes:
        stored_bytes: size of the session file.
        history_tokens: everything saved, on all branches, replaced texts and their replacements included.
        input_tokens: input of the latest request; measured by the provider, or else estimated.
        budget_tokens: the effective budget; it does not apply while paging is off.
        used_percent: the input as a share of the budget, with one decimal; none while paging is off.
        model_window: the model's window, where it is known.
        cache_read: tokens read from the provider's cache over all saved usage records.
        cache_write: tokens written to it.
    """

    enabled: bool
    stored_bytes: int | None
    history_tokens: int
    input_tokens: float | None
    input_estimated: bool
    budget_tokens: float
    used_percent: float | None
    model_window: float | None
    cache_read: int | None
    cache_write: int | None


def session_statistics(
    stored: Sequence[tuple[Entry, EntryRef]],
    branch: Iterable[EntryRef],
    *,
    settings: Settings,
    enabled: bool,
    latest: LatestInput | None,
    estimator: TokenEstimator,
    model_window: float | None = None,
    stored_bytes: int | None = None,
) -> SessionStatistics:
    """The statistics of a session.

    Args:
        stored: every saved entry with its digest.
        branch: digests of the active branch, root first.
        latest: input of the latest request since the session started, if there was one.
        model_window: the model's window in tokens; anything but a positive finite number is unknown.
    """
    window = model_window if is_number(model_window) and 0 < (model_window or 0) <= MAX_NUMBER else None
    budget = settings.token_budget if window is None else min(settings.token_budget, window)
    if latest is None:
        measured = _saved_input(list(branch))
        latest = None if measured is None else LatestInput(measured, False)
    records = [usage for entry, _ in stored if (usage := _usage_record(entry)) is not None]
    tokens = None if latest is None else round(latest.tokens, DECIMALS)
    return SessionStatistics(
        enabled=enabled,
        stored_bytes=stored_bytes,
        history_tokens=_saved_tokens(stored, estimator),
        input_tokens=tokens,
        input_estimated=latest is not None and latest.estimated,
        budget_tokens=budget,
        used_percent=_percent(tokens, budget) if enabled and tokens is not None else None,
        model_window=window,
        cache_read=_total(records, "cacheRead"),
        cache_write=_total(records, "cacheWrite"),
    )


def statistics_text(statistics: SessionStatistics) -> str:
    """The statistics as lines for people."""
    s = statistics
    if s.input_tokens is None:
        latest = "unavailable"
    else:
        latest = f"{'about ' if s.input_estimated else ''}{s.input_tokens:,.0f} tokens"
        latest += f" ({'estimated' if s.input_estimated else 'measured'}"
        latest += ")" if s.used_percent is None else f", {s.used_percent:,.1f} % of the budget)"
    budget = f"{s.budget_tokens:,.0f} tokens" if s.enabled else "inactive"
    return "\n".join(
        [
            f"Context paging: {'on' if s.enabled else 'off'}",
            f"Stored session: {_shown(s.stored_bytes, 'bytes')}",
            f"Stored history: about {s.history_tokens:,} tokens on all branches",
            f"Latest request: {latest}",
            f"Budget: {budget}",
            f"Model window: {_shown(s.model_window, 'tokens')}",
            f"Cache reads: {_shown(s.cache_read, 'tokens')}",
            f"Cache writes: {_shown(s.cache_write, 'tokens')}",
        ]
    )


def _saved_tokens(stored: Sequence[tuple[Entry, EntryRef]], estimator: TokenEstimator) -> int:
    roles = {
        ref.id: ref.message.role
        for _, ref in stored
        if ref.type != "context_edit" and ref.message is not None
    }
    total = 0
    for entry, ref in stored:
        if ref.type != "context_edit":
            total += 0 if ref.message is None else ref.message.tokens
            continue
        replacement = entry.get("replacement")
        if isinstance(replacement, Mapping):
            role = roles.get(ref.target_id or "", "user")
            total += estimator.message_tokens({"role": role, "content": replacement.get("content")})
    return total


def _saved_input(branch: Sequence[EntryRef]) -> int | None:
    for ref in reversed(branch):
        if ref.type in _BOUNDARIES:
            return None
        if ref.type == "message" and ref.message is not None and ref.message.role == "assistant":
            return ref.message.measured_input_tokens
    return None


def _usage_record(entry: Entry) -> Mapping[str, Any] | None:
    """Counters saved with an entry, if they measure anything."""
    message = context_message(entry) if entry.get("type") == "message" else entry
    usage = None if message is None else message.get("usage")
    if not isinstance(usage, Mapping) or not any(usage.get(name) for name in _COUNTERS):
        return None
    return usage


def _total(records: Iterable[Mapping[str, Any]], name: str) -> int | None:
    total = 0
    for record in records:
        counter = token_counter(record.get(name))
        if counter is None:
            return None
        total += counter
    return total if total <= MAX_SAFE_INTEGER else None


def _percent(tokens: float, budget: float) -> float | None:
    share = tokens / budget * 100
    if not share <= MAX_SAFE_INTEGER:
        return None
    return float(Decimal(share).quantize(Decimal("0.1"), ROUND_HALF_UP))


def _shown(value: float | None, unit: str) -> str:
    return "unavailable" if value is None else f"{value:,.0f} {unit}"
