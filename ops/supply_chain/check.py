"""What is known of the packages that context-paging stands on: ``python ops/supply_chain/check.py [lock|sbom|audit|wheel …]``.

``lock`` pins every package of the development environment in ``.ci/constraints.txt``, ``sbom`` lists what an
installation without extras brings in ``sbom.cdx.json`` (CycloneDX), ``audit`` asks the vulnerability database of the
package index for all pinned packages and writes ``audit.md``, ``wheel`` builds the wheel twice, from two copies with
different file times, and compares the bytes. Without an argument: all of them. The tools are put into an environment
that is thrown away. Exit status 1: a known vulnerability, or wheels that differ; 2: packages that could not be audited.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LOCK = CHECKOUT / ".ci" / "constraints.txt"
TOOLS = ("uv>=0.9,<1", "pip-audit>=2.9,<3", "cyclonedx-bom>=7,<8", "build>=1.2,<2", "setuptools>=77")
WHEEL_TIME = "1767225600"
"""Seconds since 1970 that the files in the compared wheels are given."""


def main() -> int:
    """Do what the arguments say; the highest exit status of all."""
    checks: dict[str, Callable[[Path, Path], int]] = {
        "lock": lock,
        "sbom": sbom,
        "audit": audit,
        "wheel": wheel,
    }
    names = sys.argv[1:] or list(checks)
    if not set(names) <= set(checks):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory(prefix="supply-chain-") as folder:
        work = Path(folder)
        tools = environment(work / "tools", *TOOLS)
        return max(checks[name](work, tools) for name in names)


def lock(_: Path, tools: Path) -> int:
    """Pin what the extra ``dev`` needs, for every platform and Python version at once."""
    options = [
        "--universal",
        "--python-version",
        "3.11",
        "--extra",
        "dev",
        "--no-header",
        "--no-annotate",
        "--upgrade",
    ]
    index = os.environ.get("PIP_INDEX_URL")
    where = ["--index-url", index] if index else []
    run(tools / "uv", "pip", "compile", "--quiet", *options, *where, "pyproject.toml", "--output-file", LOCK)
    print(f"{LOCK.relative_to(CHECKOUT)}: {len(LOCK.read_text('utf-8').splitlines())} packages")
    return 0


def sbom(work: Path, tools: Path) -> int:
    """List what an installation without extras brings."""
    core = environment(work / "core", str(copied(work / "core-checkout")))
    path = HERE / "sbom.cdx.json"
    options = ["--output-reproducible", "--of", "JSON", "--pyproject", CHECKOUT / "pyproject.toml"]
    run(tools / "cyclonedx-py", "environment", *options, "--output-file", path, core / "python")
    print(
        f"{path.relative_to(CHECKOUT)}: {len(json.loads(path.read_text('utf-8'))['components'])} components"
    )
    return 0


def audit(_: Path, tools: Path) -> int:
    """Ask for known vulnerabilities of all pinned packages."""
    command = [
        tools / "pip-audit",
        "--requirement",
        LOCK,
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
    ]
    asked = subprocess.run([*command, "--format", "json"], check=False, capture_output=True, text=True)
    try:
        found: list[dict[str, Any]] = json.loads(asked.stdout)["dependencies"]
    except ValueError:
        print(f"the vulnerability database could not be asked:\n{asked.stderr}")
        return 2
    unasked = [package["name"] for package in found if "skip_reason" in package]
    hit = [
        (p["name"], p["version"], flaw["id"], ", ".join(flaw["fix_versions"]))
        for p in found
        for flaw in p.get("vulns", ())
    ]
    lines = ["# Known vulnerabilities of the pinned packages", ""]
    lines += [f"{len(found)} packages, {len(unasked)} of them not to be found in the database.", ""]
    lines += ["| package | version | vulnerability | repaired in |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in hit] or ["| none | | | |"]
    if not unasked or hit:
        (HERE / "audit.md").write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    return 1 if hit else 2 if unasked else 0


def wheel(work: Path, tools: Path) -> int:
    """Build the wheel twice and compare."""
    digests = []
    for number, moment in enumerate((1_000_000_000, 1_500_000_000)):
        project = copied(work / f"wheel-{number}")
        for path in project.rglob("*"):
            if not path.is_symlink():
                os.utime(path, (moment, moment))
        build = [tools / "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
        subprocess.run(
            build,
            cwd=project,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": WHEEL_TIME},
        )
        (built,) = (project / "dist").iterdir()
        digests.append(hashlib.sha256(built.read_bytes()).hexdigest())
        print(f"{built.name} {digests[-1]}")
    return 0 if digests[0] == digests[1] else 1


def copied(folder: Path) -> Path:
    """A copy of what git knows of the checkout."""
    listed = run("git", "-C", CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / name).exists():
            shutil.copy2(CHECKOUT / name, target, follow_symlinks=False)
    return folder


def environment(folder: Path, *requirements: str) -> Path:
    """A new environment with some packages; the folder of its programs."""
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements)
    return folder / "bin"


def run(*command: str | Path) -> str:
    """Run a program that must not fail; what it prints."""
    return subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
