"""The real Pi in two versions, a scripted provider, and a home for Pi to run in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from .agent import PACKAGE, Home, Pi
from .provider import Provider, serving

FOLDER = "CONTEXT_PAGING_TEST_PI"
VERSIONS = ("pi-0.87", "pi-current")
HOW = """\
npm install --prefix {folder}/node node@22
npm install --prefix {folder}/pi-0.87 --ignore-scripts @earendil-works/pi-coding-agent@0.87.0
npm install --prefix {folder}/pi-current --ignore-scripts @earendil-works/pi-coding-agent@latest
npm install --prefix {folder}/typescript typescript@5"""


def missing(path: Path, folder: Path) -> None:
    """Skip a test that needs Pi, or fail where everything has to be tested."""
    reason = (
        f"{FOLDER} names no folder with {path.relative_to(folder)}; get it so:\n{HOW.format(folder=folder)}"
    )
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def pi_folder() -> Path:
    """Where Node, both versions of Pi, and TypeScript were installed to by npm."""
    given = os.environ.get(FOLDER)
    return Path(given) if given else user_cache_path("context-paging", appauthor=False) / "test-pi"


@pytest.fixture(scope="session")
def node(pi_folder: Path) -> Path:
    """Node's program."""
    program = pi_folder / "node/node_modules/node/bin/node"
    if not program.exists():
        missing(program, pi_folder)
    return program


@pytest.fixture(scope="session", params=VERSIONS)
def pi(request: pytest.FixtureRequest, node: Path, pi_folder: Path) -> Pi:
    """An installed Pi: the oldest that is supported, and the current one."""
    installed = Pi(node, pi_folder / request.param)
    if not (installed.package / "package.json").exists():
        missing(installed.folder / PACKAGE, pi_folder)
    return installed


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider; every request it got was one that a real one would take."""
    with serving() as provider:
        yield provider
        assert provider.problems() == []


@pytest.fixture
def home(tmp_path: Path, pi: Pi, provider: Provider) -> Home:
    """A home with the extension installed."""
    return Home(tmp_path / "home", pi, provider.url)
