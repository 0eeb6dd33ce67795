"""Settings: resolution from the host's sources, and the limits of one context request.

Source: architecture, "Settings and limits". Arithmetic is exact on integers, however large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import SelectionErrorCode
from .messages import MAX_NUMBER, MAX_SAFE_INTEGER, is_number, text
from .repair import OnInvalidStructure

DEFAULT_TOKEN_BUDGET = 128_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings of a session; both token settings in tokens.

    ``on_invalid_structure`` is set as ``onInvalidStructure`` (design, section 13).
    """

    enabled: bool = True
    token_budget: int = DEFAULT_TOKEN_BUDGET
    trim_to_tokens: int = DEFAULT_TOKEN_BUDGET * 5 // 8
    trim_to_tokens_explicit: bool = False
    on_invalid_structure: OnInvalidStructure = OnInvalidStructure.ABORT

    @property
    def leaves_no_headroom(self) -> bool:
        """Whether somebody asked for a target at or above the budget."""
        return self.trim_to_tokens_explicit and self.trim_to_tokens >= self.token_budget


DISABLED = Settings(enabled=False)
"""What holds while no settings could be read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Effective limits of one context request, in tokens."""

    budget: float
    target: float
    window: float


def default_trim_target(token_budget: int) -> int:
    """Five eighths of the budget, at least one token."""
    return max(1, token_budget * 5 // 8)


def settings_section(
    token_budget: int | None = None,
    trim_to_tokens: int | None = None,
    on_invalid_structure: OnInvalidStructure | None = None,
) -> dict[str, Any]:
    """A ``contextPaging`` object that sets what is given, and nothing else."""
    given = {
        "tokenBudget": token_budget,
        "trimToTokens": trim_to_tokens,
        "onInvalidStructure": on_invalid_structure,
    }
    return {name: value for name, value in given.items() if value is not None}


def resolve_settings(
    global_settings: Any, project_settings: Any = None, *, project_trusted: bool
) -> Settings:
    """Settings from the host's global and project sources.

    Both are JSON objects with a ``contextPaging`` object; anything else in their place counts as absent, and
    an invalid value falls through to the next trusted source, then to the default.
    """
    sources = [_section(project_settings)] if project_trusted else []
    sources.append(_section(global_settings))
    budget = _token_setting(sources, "tokenBudget") or DEFAULT_TOKEN_BUDGET
    target = _token_setting(sources, "trimToTokens")
    enabled = next((s["enabled"] for s in sources if isinstance(s.get("enabled"), bool)), True)
    return Settings(
        enabled=enabled,
        token_budget=budget,
        trim_to_tokens=default_trim_target(budget) if target is None else target,
        trim_to_tokens_explicit=target is not None,
        on_invalid_structure=_structure_policy(sources),
    )


def limits_of(settings: Settings, context_window: float | None) -> Limits | SelectionErrorCode:
    """The effective limits, or the code of the first invalid one.

    ``context_window`` is the model's window in tokens, ``None`` when unknown. Checked in this order: window,
    budget, target (design, section 6).
    """
    if context_window is not None and not (is_number(context_window) and 0 < context_window <= MAX_NUMBER):
        return SelectionErrorCode.INVALID_MODEL_CONTEXT
    if not _is_token_count(settings.token_budget):
        return SelectionErrorCode.INVALID_TOKEN_BUDGET
    if not _is_token_count(settings.trim_to_tokens):
        return SelectionErrorCode.INVALID_TRIM_TARGET
    budget = settings.token_budget if context_window is None else min(settings.token_budget, context_window)
    window = math.inf if context_window is None else context_window
    return Limits(budget, _effective_target(settings, budget), window)


def _effective_target(settings: Settings, budget: float) -> float:
    if settings.trim_to_tokens >= settings.token_budget:
        return budget
    if budget == int(budget):
        return max(1, settings.trim_to_tokens * int(budget) // settings.token_budget)
    return max(1, math.floor(settings.trim_to_tokens / settings.token_budget * budget))


def _section(source: Any) -> Mapping[str, Any]:
    section = source.get("contextPaging") if isinstance(source, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _token_setting(sources: list[Mapping[str, Any]], name: str) -> int | None:
    return next((int(source[name]) for source in sources if _is_token_count(source.get(name))), None)


def _structure_policy(sources: list[Mapping[str, Any]]) -> OnInvalidStructure:
    known = {policy.value: policy for policy in OnInvalidStructure}
    chosen = (known.get(text(source.get("onInvalidStructure"))) for source in sources)
    return next((policy for policy in chosen if policy is not None), OnInvalidStructure.ABORT)


def _is_token_count(value: Any) -> bool:
    return is_number(value) and 0 < value <= MAX_SAFE_INTEGER and value == int(value)
