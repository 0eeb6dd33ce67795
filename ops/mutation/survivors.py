"""A pytest plugin: instead of the collected tests, it runs for each mutant those that may notice it.

Every mutant has a process of its own, forked once everything is imported and collected, which ends at the
first test that fails. Which tests call which function, and how long they take, is found out before. What no
test calls may still be called on import: there the tests are run in a new interpreter.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation import trampoline

MEMORY = 4 << 30
"""Bytes a mutant may use."""
FAILED = 1
IMPORT_LIMIT = 120
"""Seconds that the tests may take in a new interpreter."""


class Mutants:
    """Runs mutants, named ``module.function__mutmut_number``, and keeps what became of each."""

    def __init__(self, names: list[str], results: Path) -> None:
        self._names = names
        self._results = results
        self._current = ""
        self._called: set[str] = set()
        self._callers: dict[str, list[int]] = defaultdict(list)
        self._seconds: list[float] = []
        self._failed: list[str] = []
        self._items: list[pytest.Item] = []
        trampoline.get_mutant_under_test = lambda: self._current
        trampoline.record_trampoline_hit = lambda name, **_: self._called.add(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running each test once."""
        self._items = session.items
        started = time.perf_counter()
        self._watch()
        if self._failed:
            raise pytest.UsageError(f"tests fail without any mutant: {self._failed}")
        said = f"{len(self._items)} tests, {sum(self._seconds):.0f} s, are run for {len(self._names)} mutants"
        print(said, flush=True)
        found: dict[str, dict[str, Any]] = {}
        recent: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self._names, 1):
            function = name.rpartition("__mutmut_")[0]
            outcome, killer = self._try(name, self._order(function, recent[function]))
            found[name] = {"outcome": outcome, "by": None if killer is None else self._items[killer].nodeid}
            if killer is not None:
                recent[function] = [killer, *(item for item in recent[function] if item != killer)]
            if number % 100 == 0:
                print(f"{number} mutants, {time.perf_counter() - started:.0f} s", flush=True)
                self._results.write_text(json.dumps(found, indent=0, ensure_ascii=False), "utf-8")
        self._results.write_text(json.dumps(found, indent=0, ensure_ascii=False), "utf-8")
        print(f"{len(found)} mutants, {time.perf_counter() - started:.0f} s", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test failed: with a mutant that is all there is to know."""
        if report.failed:
            self._failed.append(report.nodeid)

    def _watch(self) -> None:
        self._current = "stats"
        for number, (item, following) in enumerate(self._pairs(range(len(self._items)))):
            self._called.clear()
            before = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._seconds.append(time.process_time() - before)
            for function in self._called:
                self._callers[function].append(number)
        self._current = ""

    def _order(self, function: str, recent: list[int]) -> list[int]:
        # What noticed another change of the function comes first, then the quick ones.
        others = sorted(set(self._callers[function]) - set(recent), key=lambda item: self._seconds[item])
        return [*recent, *others]

    def _try(self, name: str, order: list[int]) -> tuple[str, int | None]:
        if not order:
            return self._try_on_import(name), None
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._run(name, order, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as told:
            last = [int(number) for number in told.read().split()]
        _, status = os.waitpid(child, 0)
        killer = last[-1] if last else order[0]
        if os.WIFSIGNALED(status):
            return ("timeout" if os.WTERMSIG(status) == signal.SIGPROF else "killed"), killer
        return ("survived", None) if os.WEXITSTATUS(status) == 0 else ("killed", killer)

    def _try_on_import(self, name: str) -> str:
        arguments = self._items[0].config.invocation_params.args
        environment = {**os.environ, "MUTANT_UNDER_TEST": name, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "pytest", "-x", *map(str, arguments)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=IMPORT_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        return "killed" if done.returncode else "no test"

    def _run(self, name: str, order: list[int], writer: int) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        self._current = name
        try:
            for number, (item, following) in zip(order, self._pairs(order), strict=True):
                os.write(writer, b"%d\n" % number)
                # Processor time, so that a busy machine kills no mutant.
                signal.setitimer(signal.ITIMER_PROF, 3 + 10 * self._seconds[number])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    os._exit(FAILED)
        except BaseException:
            os._exit(FAILED)
        os._exit(0)

    def _pairs(self, order: Any) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        items = [self._items[number] for number in order]
        return zip(items, [*items[1:], None], strict=True)
