"""Mutation testing of the domain: what could be written differently without any test noticing?

    python ops/mutation/run.py [--again] [--work FOLDER] [NAME…]

NAME is a module below domain/ (``selection/select``) or a folder of them; without any, those that the report
is about. ``--again`` tries only what no test noticed the last time, which needs the FOLDER of that time. The
checkout is copied there and never changed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from mutmut.mutation.file_mutation import mutate_file_contents

CHECKOUT = Path(__file__).resolve().parents[2]
REPORTED = ("selection", "cut", "calibration", "reducers", "decide", "state")
TESTS = ("tests/golden", "tests/domain", "tests/conformance/test_lines.py")
CONFIGURATION = """
[pytest]
addopts = --strict-config --strict-markers -p no:cacheprovider
"""
PROFILE = """
settings.register_profile("mutation", settings.get_profile("ci"), max_examples=12)
"""


def main() -> int:
    """Copy, mutate, run, report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=REPORTED)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    work: Path = (arguments.work or Path(tempfile.mkdtemp(prefix="mutation-"))).resolve()
    results = work / "results.json"
    known = json.loads(results.read_text("utf-8")) if arguments.again else {}
    copy(work)
    os.chdir(work / "checkout")  # where mutmut looks for its configuration, which is the usual one
    modules = [module for name in arguments.names for module in modules_of(name)]
    names = [name for module in modules for name in mutate(work, module)]
    again = [
        name for name in names if not known or known.get(name, {}).get("outcome") in ("survived", "no test")
    ]
    latest = work / "latest.json"
    run(work, again, latest)
    found = {**known, **json.loads(latest.read_text("utf-8"))}
    found = {name: found[name] for name in names}
    results.write_text(json.dumps(found, indent=0, ensure_ascii=False), "utf-8")
    print(report(work, found))
    return 0


def copy(work: Path) -> None:
    """The checkout, with the import package as real folders."""
    shutil.rmtree(work / "checkout", ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("domain", "service", "migrations"):
        shutil.copytree(CHECKOUT / folder, work / "checkout/src/context_paging" / folder, ignore=ignored)
    shutil.copytree(CHECKOUT / "tests", work / "checkout/tests", ignore=ignored)
    shutil.copy(Path(__file__).with_name("lines.py"), work / "checkout/tests/conformance/test_lines.py")
    (work / "checkout/pytest.ini").write_text(CONFIGURATION, "utf-8")
    with (work / "checkout/tests/conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(PROFILE)


def modules_of(name: str) -> list[str]:
    """Modules below domain/, by their paths without suffix."""
    path = CHECKOUT / "domain" / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [str(file.relative_to(CHECKOUT / "domain").with_suffix("")) for file in files]


def mutate(work: Path, module: str) -> list[str]:
    """Put the mutants of a module beside its functions; their names."""
    path = work / "checkout/src/context_paging/domain" / f"{module}.py"
    mutated = mutate_file_contents(str(path), path.read_text("utf-8"))
    path.write_text(mutated.code, "utf-8")
    dotted = "context_paging.domain." + module.replace("/", ".").removesuffix(".__init__")
    return [f"{dotted}.{name}" for name in mutated.mutant_names]


def run(work: Path, names: list[str], results: Path) -> None:
    """Run the tests for each mutant, in this process and its children."""
    from survivors import Mutants

    os.environ["CI"] = "1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path[:0] = [str(work / "checkout/src"), str(work / "checkout")]
    options = ["-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutation", "-q", "-s"]
    code = pytest.main([*options, *TESTS], plugins=[Mutants(names, results)])
    if not results.exists() or code not in (0, 1, 5):
        raise SystemExit(f"the tests cannot be run: {code}")


def report(work: Path, found: dict[str, dict[str, str]]) -> str:
    """A table of the modules, and the mutants that no test noticed."""
    counts: dict[str, Counter[str]] = {}
    for name, result in found.items():
        counts.setdefault(_module(name), Counter())[result["outcome"]] += 1
    total = sum(counts.values(), Counter())
    lines = [
        "| module | mutants | killed | timeouts | survived | score |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for module, count in [*sorted(counts.items()), ("all", total)]:
        left = count["survived"] + count["no test"]
        score = 100 * (1 - left / count.total())
        cells = (module, count.total(), count["killed"], count["timeout"], left, f"{score:.1f} %")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    survivors = [
        (name, found[name]["outcome"]) for name in found if found[name]["outcome"] in ("survived", "no test")
    ]
    for name, outcome in survivors:
        lines += ["", f"{name.removeprefix('context_paging.domain.')}: {outcome}", *_difference(work, name)]
    return "\n".join(lines)


def _module(name: str) -> str:
    return name.removeprefix("context_paging.domain.").rpartition(".")[0].replace(".", "/")


def _difference(work: Path, name: str) -> list[str]:
    source = (work / f"checkout/src/context_paging/domain/{_module(name)}.py").read_text("utf-8")
    function, _, number = name.rpartition(".")[2].rpartition("__mutmut_")
    wanted = [f"{function}__mutmut_{which}" for which in ("orig", number)]
    texts = {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in wanted
    }
    before, after = (texts[name].split("\n")[1:] for name in wanted)
    changes = difflib.unified_diff(before, after, n=0, lineterm="")
    return [f"    {line}" for line in changes if not line.startswith(("---", "+++", "@@"))]


if __name__ == "__main__":
    sys.exit(main())
