"""What a provider call may have come to, as the log names it."""

from __future__ import annotations

from typing import Literal, get_args

CallOutcome = Literal["within-budget", "paged", "protected-overflow", "recovery", "aborted", "inactive"]
OUTCOMES: tuple[str, ...] = get_args(CallOutcome)
