"""The cut reducer: the remembered frontier and its frozen notice."""

from __future__ import annotations

from typing import assert_never

from ..cut import Cut
from ..events import ContextSelected, Event
from .table import CutEffect


def cut_after(cut: Cut | None, effect: CutEffect, event: Event) -> Cut | None:
    """The cut after an event."""
    match effect:
        case CutEffect.KEEP:
            return cut
        case CutEffect.RESET:
            return None
        case CutEffect.COMMIT:
            return event.cut if isinstance(event, ContextSelected) else cut
        case _:
            assert_never(effect)
