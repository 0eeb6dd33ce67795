"""Fresh processes that measure, in this environment and in that of the peers."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
REQUIREMENTS = ("langchain-core>=1,<2", "llama-index-core>=0.14,<0.15", "autogen-core>=0.7,<0.8")
LONGEST = 240.0
"""Seconds that setting up one contender at one length and all of its calls may take."""


def default_environment() -> Path:
    """Where the peers are installed, unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "context-paging" / "bench-peers"


def peers_python(folder: Path) -> Path:
    """The interpreter of the peers' environment, which is made if it is not there or does not have them.

    Raises:
        RuntimeError: they cannot be installed.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if _asked(python, "peers", ["versions"]) is None:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        done = subprocess.run(command, env=_environment(python), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the peers cannot be installed: {done.stderr}")
    return python


def asked(python: Path, script: str, *arguments: str | int | float) -> dict[str, Any]:
    """What a script of this folder answers in a process of its own; ``stopped`` if it took too long.

    Raises:
        RuntimeError: it failed.
    """
    try:
        told = _asked(python, script, arguments, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {"stopped": LONGEST}
    if told is None:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))} failed")
    return told


def starts(commands: dict[str, tuple[Path, str]], runs: int) -> dict[str, float]:
    """Median milliseconds of programs given as text, from starting the interpreter to its end.

    They take turns, so that what else the machine does falls on all of them. A run before is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, (python, program) in commands.items():
            begin = time.perf_counter()
            subprocess.run([python, "-c", program], check=True, env=_environment(python), cwd=BENCH)
            if number:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) * 1e3 for name, found in times.items()}


def _asked(
    python: Path, script: str, arguments: Sequence[str | int | float], timeout: float | None = None
) -> dict[str, Any] | None:
    command = [python, "-m", f"call_costs.{script}", *map(str, arguments)]
    quiet = subprocess.DEVNULL if script == "peers" and arguments[0] == "versions" else None
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=quiet,
        text=True,
        cwd=BENCH,
        env=_environment(python),
        timeout=timeout,
        check=False,
    )
    told: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return told


def _environment(python: Path) -> dict[str, str]:
    """The peers find only what is installed for them; this environment finds what it found before."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python == Path(sys.executable):
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        found["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths if path)
    return found
