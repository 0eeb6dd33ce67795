"""Logs on every engine: each test of the shared behaviour runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from context_paging.service.log import EventLog

POSTGRES = "CONTEXT_PAGING_TEST_POSTGRES"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and spools of logs on a server are the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a fresh log can be."""
    if request.param == "sqlite":
        yield str(tmp_path / "log.db")
    else:
        yield from fresh_database()


@pytest.fixture
def postgres() -> Iterator[str]:
    """Where a fresh log on a server can be."""
    yield from fresh_database()


def fresh_database() -> Iterator[str]:
    """The URL of a database of the test's own."""
    server = os.environ.get(POSTGRES)
    if server is None:
        reason = f"{POSTGRES} names no server, as in postgresql+psycopg://postgres@/postgres?host=/folder"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    name = f"context_paging_test_{uuid4().hex[:12]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield admin.url.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def log(location: str) -> Iterator[EventLog]:
    """A fresh log."""
    with EventLog.open(location) as opened:
        yield opened
