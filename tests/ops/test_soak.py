"""A day of use: the soak plays it, and sees when memory grows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "ops" / "bench"


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the soak, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("soak")
    sys.modules.pop("soak", None)


def test_some_hours_of_use_leave_no_objects_behind(soak: Any, tmp_path: Path) -> None:
    seen = soak.soak(tmp_path / "log.db", hours=14, sessions=6)

    # Short sessions of six hours, and some long ones.
    assert all(6 * 6 <= hour.stored_sessions <= 7 * 6 for hour in seen[-4:])
    assert seen[-1].calls > seen[0].calls > 0
    assert soak.growth(seen, warm_up=9)["objects"] < 0.05


def test_growth_is_that_of_medians_behind_the_warm_up(soak: Any) -> None:
    mebibyte = 2**20
    steady = [soak.Hour(n, n, 1, 1, (300 if n < 4 else 100) * mebibyte, 1_000 + n % 2) for n in range(24)]
    leaking = [soak.Hour(n, n, 1, 1, (100 + 2 * n) * mebibyte, 1_000 * (n + 1)) for n in range(24)]

    assert soak.growth(steady, warm_up=8)["resident_bytes"] == 0
    assert soak.growth(steady, warm_up=8)["objects"] < 0.01
    assert soak.growth(leaking, warm_up=8)["resident_bytes"] > 0.1
    assert soak.growth(leaking, warm_up=8)["objects"] > 0.5


def test_the_program_fails_when_a_session_is_never_let_go(
    soak: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soak.main(["--hours", "4", "--warm-up", "1", "--sessions", "2", "--most", "0.5"]) == 0
    kept: list[Any] = []
    leave = soak.User.leave

    def leak(user: Any) -> int:
        kept.append([{"user": user, "number": [number]} for number in range(40_000)])
        return int(leave(user))

    monkeypatch.setattr(soak.User, "leave", leak)

    assert soak.main(["--hours", "4", "--warm-up", "1", "--sessions", "2", "--most", "0.05"]) == 1
    assert "objects +" in capsys.readouterr().out
