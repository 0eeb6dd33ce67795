"""Whatever a host does, in whatever order: a session answers as the model does.

The suite runs some examples, always the same ones. A long run, with new ones each time, tells at the end what
was reached:

    MACHINE_EXAMPLES=5000 MACHINE_STEPS=40 pytest -s --timeout=0 tests/model/test_machine.py
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import REACHED, Conversation

EXAMPLES, STEPS = 120, 30
LONG_RUN = "MACHINE_EXAMPLES"
PHASES = [Phase.generate] if "MACHINE_NO_SHRINKING" in os.environ else [Phase.generate, Phase.shrink]


def test_a_session_answers_as_the_model_does() -> None:
    run_state_machine_as_test(
        Conversation,
        settings=settings(
            max_examples=int(os.environ.get(LONG_RUN, EXAMPLES)),
            stateful_step_count=int(os.environ.get("MACHINE_STEPS", STEPS)),
            derandomize=LONG_RUN not in os.environ,
            database=None,
            phases=PHASES,
            report_multiple_bugs=False,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    if LONG_RUN in os.environ:
        for reached, times in REACHED.most_common():
            print(f"{times:8}  {reached}")
