"""A bundled example session in Pi's session file format: `harbour-tides.jsonl.gz`, written by `generator`."""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

EXAMPLE_NAME = "harbour-tides.jsonl.gz"


def example_path() -> AbstractContextManager[Path]:
    """The bundled file as a path on disk, for as long as the context lasts."""
    return as_file(files("context_paging.service.example").joinpath(EXAMPLE_NAME))
