"""The doctor: all well with the real Pi, and the right word for whatever is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_paging.service.hosts.pi.doctor import Check, examine
from context_paging.service.hosts.pi.installer import install

from .agent import Pi


@pytest.fixture
def extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed extension in a home of its own, without a Pi."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("CONTEXT_PAGING_LOG", str(tmp_path / "log.db"))
    for name in ("PI_CODING_AGENT_DIR", "CONTEXT_PAGING_BRIDGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".pi" / "agent" / "extensions"
    install(folder)
    return folder


def found(extensions: Path, name: str) -> Check:
    """What a doctor finds."""
    (check,) = [check for check in examine(extensions) if check.name == name]
    return check


def program(path: Path, text: str) -> str:
    """A program that prints a text."""
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return str(path)


def test_all_is_well_with_a_real_pi(extensions: Path, pi: Pi, tmp_path: Path) -> None:
    start = tmp_path / "pi"
    start.write_text(f'#!/bin/sh\nexec {" ".join(pi.command)} "$@"\n')
    start.chmod(0o755)
    checks = examine(extensions, str(start))
    assert [check.name for check in checks] == ["pi", "extension", "bridge", "settings", "log"]
    assert all(check.ok for check in checks), checks
    assert checks[0].told == f"{start}, version {pi.version}"
    assert checks[3].told == "paging on, budget 128,000, target 80,000 tokens"
    assert str(tmp_path / "log.db") in checks[4].told


@pytest.mark.parametrize(
    ("version", "ok"), [("0.87.0", True), ("1.6.0", True), ("0.86.9", False), ("no number", False)]
)
def test_pi_has_to_be_new_enough(extensions: Path, tmp_path: Path, version: str, ok: bool) -> None:
    (check, *_) = examine(extensions, program(tmp_path / "some-pi", version))
    assert check.ok is ok


def test_a_missing_pi_is_named(extensions: Path) -> None:
    assert found(extensions, "pi") == Check(
        "pi", False, "pi is not on the path; install Pi, or name its program with --pi"
    )


def test_changed_missing_and_older_files_are_found(extensions: Path, tmp_path: Path) -> None:
    target = extensions / "context-paging"
    assert found(extensions, "extension").ok
    (target / "tools.ts").write_text("one more file is nobody's business")
    assert found(extensions, "extension").ok
    (target / "index.ts").write_text("changed")
    (target / "bridge.ts").unlink()
    changed = found(extensions, "extension")
    assert not changed.ok
    assert "bridge.ts, index.ts" in changed.told
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps({**manifest, "version": "0.0.1"}))
    assert "has version 0.0.1" in found(extensions, "extension").told
    assert "run `context-paging pi install`" in found(tmp_path / "elsewhere", "extension").told


def test_a_bridge_that_does_not_start_or_answer_is_found(
    extensions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(extensions, "bridge").ok
    monkeypatch.setenv("CONTEXT_PAGING_BRIDGE", str(tmp_path / "nowhere"))
    assert "No such file" in found(extensions, "bridge").told
    monkeypatch.setenv("CONTEXT_PAGING_BRIDGE", program(tmp_path / "other", "hello yourself"))
    assert "answers no hello: hello yourself" in found(extensions, "bridge").told
    monkeypatch.setenv("CONTEXT_PAGING_BRIDGE", "[1]")
    assert "must be a program" in found(extensions, "bridge").told
    monkeypatch.delenv("CONTEXT_PAGING_BRIDGE")
    (tmp_path / "log.db").write_text("this is no log")
    assert "ends with status 1: context-paging: " in found(extensions, "bridge").told


def test_a_log_that_cannot_be_written_is_found(
    extensions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(extensions, "log").ok
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONTEXT_PAGING_LOG", str(tmp_path / "file" / "log.db"))
    check = found(extensions, "log")
    assert not check.ok
    assert str(tmp_path / "file") in check.told


def test_settings_are_told_as_they_resolve(extensions: Path, tmp_path: Path) -> None:
    settings = extensions.parent / "settings.json"
    settings.write_text('\ufeff{"contextPaging": {"tokenBudget": 64000, "enabled": false}}')
    assert found(extensions, "settings").told == "paging off, budget 64,000, target 40,000 tokens"
    (tmp_path / ".pi" / "settings.json").write_text('{"contextPaging": {"enabled": true}}')
    told = found(extensions, "settings").told
    assert told.endswith("once it is trusted: paging on, budget 64,000, target 40,000 tokens")
    settings.write_text("{")
    check = found(extensions, "settings")
    assert not check.ok
    assert f"{settings} is not JSON" in check.told


def test_the_command_prints_a_line_a_check_and_fails_if_one_does(
    extensions: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from typer.testing import CliRunner

    from context_paging.service.cli import app

    well = program(tmp_path / "some-pi", "1.6.0")
    runner = CliRunner()
    done = runner.invoke(app, ["pi", "doctor", "--pi", well])
    assert done.exit_code == 0
    assert [line[:9] for line in done.output.splitlines()] == [
        "ok   pi: ", "ok   exte", "ok   brid", "ok   sett", "ok   log:",
    ]  # fmt: skip
    failed = runner.invoke(app, ["pi", "doctor", "--json"])
    assert failed.exit_code == 1
    told = json.loads(failed.output)
    assert [check["ok"] for check in told] == [False, True, True, True, True]
