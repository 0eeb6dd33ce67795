"""The versions that CI installs fit the ranges that users install from."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]


def requirements() -> list[Requirement]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
    ]
    return [r for r in map(Requirement, named) if r.name != project["name"]]


def locked() -> dict[str, str]:
    found = {}
    for line in (PROJECT / ".ci" / "constraints.txt").read_text("utf-8").splitlines():
        pinned, _, marker = line.partition(" ; ")
        if not marker or Marker(marker).evaluate():
            name, _, version = pinned.partition("==")
            found[canonicalize_name(name)] = version
    return found


def test_the_lock_pins_every_requirement_within_its_range() -> None:
    versions = locked()

    outside = [
        str(r) for r in requirements() if versions.get(canonicalize_name(r.name), "") not in r.specifier
    ]
    assert not outside
