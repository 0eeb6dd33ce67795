"""Golden files of the reducers: a folder a row of the transition table.

``given.json`` is written by hand: the steps that lead to a state, and the event under test. ``state.json``
(the state before and after) and ``outcome.json`` (the decisions) are what comes out.

    python -m tests.golden            compare
    python -m tests.golden --write    write them again
"""

from pathlib import Path

ROOT = Path(__file__).parent
