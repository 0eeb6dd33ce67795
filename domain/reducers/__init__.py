"""Reducers: every event folds into the state through the transition table (design, section 4)."""

from .evolve import evolve
from .table import TABLE, Effects, Transition
from .transitions import transition_of

__all__ = ["TABLE", "Effects", "Transition", "evolve", "transition_of"]
