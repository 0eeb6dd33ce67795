"""Looks for what keeps context paging from working in Pi. Changes nothing; a log that is absent is made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.settings import Settings, resolve_settings

from ...bridge import PROTOCOL_VERSION
from .folders import EXTENSION, PROJECT_FOLDER, agent_folder
from .manifest import package_version, read_manifest

OLDEST_PI = (0, 87)
COMMAND_VARIABLE = "CONTEXT_PAGING_BRIDGE"
PROGRAM_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at, whether it is well, and what was found or is to be done."""

    name: str
    ok: bool
    told: str


class _Unwell(Exception):
    """A check failed."""


def examine(extensions: Path, pi: str = "pi") -> list[Check]:
    """All checks, in the order in which one can keep the next from working.

    Args:
        extensions: the folder that the extension's folder is in.
        pi: Pi's program.
    """
    target = extensions / EXTENSION
    checks: list[tuple[str, Callable[[], str]]] = [
        ("pi", lambda: _pi(pi)),
        ("extension", lambda: _extension(target)),
        ("bridge", lambda: _bridge(target)),
        ("settings", _settings),
        ("log", _log),
    ]
    return list(_done(checks))


def _done(checks: list[tuple[str, Callable[[], str]]]) -> Iterator[Check]:
    for name, look in checks:
        try:
            yield Check(name, True, look())
        except (_Unwell, ContextPagingError) as error:
            yield Check(name, False, str(error))
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            yield Check(name, False, f"{where}{error.strerror or error}")


def _pi(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise _Unwell(f"{program} is not on the path; install Pi, or name its program with --pi")
    printed = _run([path, "--version"], b"", {"PI_OFFLINE": "1"})
    found = re.search(r"(\d+)\.(\d+)\.\d+", printed)
    if found is None:
        raise _Unwell(f"{path} --version tells no version; is it Pi?")
    if (int(found[1]), int(found[2])) < OLDEST_PI:
        raise _Unwell(f"{path} is version {found[0]}; this needs {'.'.join(map(str, OLDEST_PI))} or newer")
    return f"{path}, version {found[0]}"


def _extension(target: Path) -> str:
    manifest = read_manifest(target)
    if manifest is None:
        raise _Unwell(f"it is not in {target}; run `context-paging pi install`")
    if manifest.version != package_version():
        raise _Unwell(
            f"{target} has version {manifest.version}, the package {package_version()}; "
            "run `context-paging pi install`"
        )
    if changed := manifest.changed(target):
        raise _Unwell(
            f"files in {target} are missing or were changed: {', '.join(changed)}; "
            "run `context-paging pi install`"
        )
    return f"{target}, version {manifest.version}"


def _bridge(target: Path) -> str:
    command = _command(target)
    hello = {"id": 0, "hello": {"version": PROTOCOL_VERSION, "host": "doctor"}}
    printed = _run(command, json.dumps(hello).encode() + b"\n", {})
    try:
        answer: Any = json.loads(printed)
        told = answer["ok"]["context_paging"]
    except (ValueError, TypeError, KeyError):
        raise _Unwell(f"{' '.join(command)} answers no hello: {printed[:200].strip()}") from None
    if told != package_version():
        raise _Unwell(
            f"{' '.join(command)} is of version {told}; run `context-paging pi install` with its Python"
        )
    return " ".join(command)


def _command(target: Path) -> list[str]:
    given = os.environ.get(COMMAND_VARIABLE, "").strip()
    if not given:
        manifest = read_manifest(target)
        if manifest is None:
            raise _Unwell("the extension is not installed, so nothing says how to start it")
        return manifest.command
    if not given.startswith("["):
        return [given, "bridge"]
    try:
        parts: Any = json.loads(given)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise _Unwell(f"{COMMAND_VARIABLE} must be a program, or a JSON array of a program and its arguments")
    return parts


def _settings() -> str:
    everywhere = _file(agent_folder() / "settings.json")
    told = _shown(resolve_settings(everywhere, project_trusted=False))
    path = Path.cwd() / PROJECT_FOLDER / "settings.json"
    if path.absolute() == (agent_folder() / "settings.json").absolute() or not path.exists():
        return told
    here = resolve_settings(everywhere, _file(path), project_trusted=True)
    return f"{told}; in this project, once it is trusted: {_shown(here)}"


def _file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _Unwell(f"{path} is not JSON ({error}); paging stays off until it is repaired") from None


def _shown(settings: Settings) -> str:
    state = "on" if settings.enabled else "off"
    return f"paging {state}, budget {settings.token_budget:,}, target {settings.trim_to_tokens:,} tokens"


def _log() -> str:
    from ...config import log_location, log_options
    from ...log import EventLog

    # A writer's transaction, with nothing in it.
    with EventLog.open(log_location(None), log_options()) as log, log.changing():
        return log.name


def _run(command: list[str], given: bytes, environment: Mapping[str, str]) -> str:
    """What a program prints to its standard output."""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Unwell(f"{' '.join(command)} does not end within {PROGRAM_SECONDS} seconds") from None
    if done.returncode != 0:
        *_, last = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise _Unwell(f"{' '.join(command)} ends with status {done.returncode}: {last}")
    return done.stdout.decode(errors="replace")
