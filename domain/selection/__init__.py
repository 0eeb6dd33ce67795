"""Selection: which part of a context request goes out (architecture, "Context selection")."""

from .select import select

__all__ = ["select"]
