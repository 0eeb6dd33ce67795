"""Output of real commands, captured once while the pretend library was run at each point of the story."""

import json
from functools import cache
from importlib.resources import files


@cache
def _captures() -> dict[str, list[str]]:
    text = files("context_paging.service.example").joinpath("captures.json").read_text("utf-8")
    captures: dict[str, list[str]] = json.loads(text)
    return captures


def captured(name: str) -> str:
    """The output that was captured under a name."""
    return "\n".join(_captures()[name])
