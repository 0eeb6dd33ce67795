"""Writes the bundled example session: a developer and an agent work on a tide library for a day.

The same session comes out every time, byte for byte: the dice have a fixed seed, and the clock belongs to the story.

    python -m context_paging.service.example.generator [OUT]
"""

import gzip
import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from context_paging.service.example import EXAMPLE_NAME
from context_paging.service.example.checkout import Checkout
from context_paging.service.example.project import FILES
from context_paging.service.example.recorder import Entry, Recorder
from context_paging.service.example.story import CHAPTERS, COMMITS

SEED = 1867
"""The year of the first harmonic tide predictions."""
SESSION_ID = "0199f2b4-6c1e-7d3a-9b57-5e0c8a41d2f6"
START = datetime(2026, 3, 17, 7, 52, 8, 416_000, tzinfo=UTC)
FOLDER = "/home/mara/code/harbour-tides"


def session() -> list[Entry]:
    """The header and all entries of the session."""
    recorder = Recorder(SEED, START)
    checkout = Checkout(dict(FILES), list(COMMITS))
    for chapter in CHAPTERS:
        chapter(recorder, checkout)
    timestamp = f"{START:%Y-%m-%dT%H:%M:%S}.{START.microsecond // 1000:03d}Z"
    header = {"type": "session", "version": 3, "id": SESSION_ID, "timestamp": timestamp, "cwd": FOLDER}
    return [header, *recorder.entries]


def lines(entries: Sequence[Entry]) -> bytes:
    """The text of a session file: one JSON object a line, as JavaScript would write it."""
    texts = (json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    return "".join(f"{text}\n" for text in texts).encode()


def compress(text: bytes) -> bytes:
    """Gzip without a name or a time in its header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(text)
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file, beside this module unless a path is given."""
    given = sys.argv[1:] if arguments is None else arguments
    target = Path(given[0]) if given else Path(__file__).with_name(EXAMPLE_NAME)
    target.write_bytes(compress(lines(session())))


if __name__ == "__main__":
    main()
