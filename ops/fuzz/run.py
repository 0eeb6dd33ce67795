"""Fuzz a target: ``run.py TARGET [libFuzzer options] [folders]``. ``--seeds FOLDER`` writes seeds."""

from __future__ import annotations

import importlib
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

TARGETS = ("entry_loading", "bridge_lines", "http_requests", "spool_files")
TIMEOUT_SECONDS = 10
MEMORY_MEGABYTES = 2_048


def main() -> None:
    """Do what the arguments say."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"{__doc__}\nTargets: {', '.join(TARGETS)}")
    name = sys.argv.pop(1)
    if sys.argv[1:2] == ["--seeds"]:
        _write_seeds(importlib.import_module(f"fuzz_targets.{name}"), Path(sys.argv[2]))
        return
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["context_paging"]):
        target = importlib.import_module(f"fuzz_targets.{name}")

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        plain = _plain(atheris)
        try:
            return bytes(target.mutate(data, most, Random(seed), plain))
        except (RecursionError, ValueError):
            # Changes add up to what JSON's own writer does not take.
            return plain(data, most)

    logging.disable()
    options = [
        f"-timeout={TIMEOUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MEGABYTES}",
        f"-max_len={target.MOST_BYTES}",
    ]
    # A merge runs this in a shell again.
    command = shlex.join([sys.executable, __file__, name])
    atheris.Setup([command, *options, *sys.argv[1:]], target.check, custom_mutator=mutated)
    atheris.Fuzz()


def _plain(atheris: Any) -> Callable[[bytes, int], bytes]:
    return lambda data, most: bytes(atheris.Mutate(data, min(most, len(data) + 64)))


def _write_seeds(target: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in target.seeds():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
