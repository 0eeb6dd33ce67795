"""Conformance: answers of an independent implementation of the specification, run by pytest and by hand.

python -m tests.conformance PATH…
"""

from pathlib import Path

DATA = Path(__file__).parent / "data"
"""The project's copy of the files."""
