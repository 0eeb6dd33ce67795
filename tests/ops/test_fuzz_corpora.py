"""What fuzzing found and kept holds, file by file, without a fuzzer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "ops" / "fuzz"
TARGETS = ("entry_loading", "bridge_lines", "http_requests", "spool_files")
MOST_BYTES = 300_000

Check = Callable[[bytes], None]


@pytest.fixture
def check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """What a target checks of an input."""
    from anyio import to_thread

    monkeypatch.syspath_prepend(str(FUZZ))
    # The target puts its own way to work in the place of this.
    monkeypatch.setattr(to_thread, "run_sync", to_thread.run_sync)
    yield importlib.import_module(f"fuzz_targets.{request.param}").check
    for name in [name for name in sys.modules if name.startswith("fuzz_targets")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("check", "name"), [(name, name) for name in TARGETS], indirect=["check"], ids=TARGETS
)
def test_every_kept_input_is_dealt_with(check: Check, name: str) -> None:
    files = sorted((FUZZ / "corpus" / name).iterdir())

    assert len(files) > 30
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for file in files:
        try:
            check(file.read_bytes())
        except Exception as error:
            raise AssertionError(f"{name}/{file.name}: {error!r}") from error
