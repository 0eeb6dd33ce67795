"""What an embedder gets: the sdist and the wheel are built from a copy of the project and looked into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PARTS = ("domain", "service", "migrations")

LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", "venv", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "build", "dist"
)


def run(command: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)


def run_well(command: Sequence[str | Path], cwd: Path) -> None:
    done = run(command, cwd)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without the leftovers of earlier builds, which setuptools would pack again."""
    return shutil.copytree(
        PROJECT, tmp_path_factory.mktemp("project") / "copy", symlinks=True, ignore=LEFT_BEHIND
    )


@pytest.fixture(scope="module")
def distributions(project: Path) -> Path:
    """A folder with the sdist and the wheel that was built from that sdist."""
    run_well([sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"], project)
    return project / "dist"


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("context_paging-*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def embedder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment that holds the wheel and none of its dependencies."""
    environment = tmp_path_factory.mktemp("embedder")
    venv.create(environment, with_pip=True, symlinks=True)
    python = environment / "bin" / "python"
    run_well([python, "-m", "pip", "install", "--no-index", "--no-deps", wheel], environment)
    return python


def test_the_wheel_puts_nothing_but_the_package_and_its_metadata_at_the_top(wheel_names: set[str]) -> None:
    tops = {PurePosixPath(name).parts[0] for name in wheel_names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"context_paging"}


def test_the_wheel_holds_every_file_of_the_three_parts_and_no_other(
    project: Path, wheel_names: set[str]
) -> None:
    in_tree = {
        f"context_paging/{path.relative_to(project).as_posix()}"
        for part in PARTS
        for path in (project / part).rglob("*")
        if path.is_file()
    }
    packed = {name for name in wheel_names if name.startswith("context_paging/")}

    assert sorted(packed) == sorted(in_tree)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_marked_as_typed(part: str, wheel_names: set[str]) -> None:
    assert f"context_paging/{part}/py.typed" in wheel_names


def test_the_wheel_carries_the_licence_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            PurePosixPath(name).name: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }

    assert texts["LICENSE"] == (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert "context-paging = context_paging.service.cli:main" in texts["entry_points.txt"]


def test_the_sdist_holds_files_where_the_checkout_holds_links(distributions: Path) -> None:
    (path,) = distributions.glob("context_paging-*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()

    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert any(member.name.endswith("/.src/context_paging/domain/__init__.py") for member in members)


def test_an_installed_wheel_is_imported_below_context_paging(embedder: Path, tmp_path: Path) -> None:
    run_well([embedder, "-c", "import context_paging.domain"], tmp_path)


@pytest.mark.parametrize("name", [*PARTS, "tests"])
def test_an_installed_wheel_takes_no_top_level_name(name: str, embedder: Path, tmp_path: Path) -> None:
    done = run([embedder, "-c", f"import {name}"], tmp_path)

    assert f"No module named '{name}'" in done.stderr


def test_two_builds_of_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for number, moment in enumerate((1_000_000_000, 1_500_000_000)):
        copy = shutil.copytree(PROJECT, tmp_path / str(number), symlinks=True, ignore=LEFT_BEHIND)
        for path in copy.rglob("*"):
            if not path.is_symlink():
                os.utime(path, (moment, moment))
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
        run_well(["env", "SOURCE_DATE_EPOCH=1767225600", *build], copy)
        (built,) = (copy / "dist").glob("*.whl")
        digests.add(sha256(built.read_bytes()).hexdigest())

    assert len(digests) == 1
