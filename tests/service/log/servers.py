"""A PostgreSQL server of a test's own, which it may stop and kill."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Server:
    """A server on a socket in a folder."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self._folder = folder
        self._binaries = binaries
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}&connect_timeout=2"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
        self._control("start", "--log", str(self._folder / "server.log"), "--options", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: ``immediate`` ends it as a crash would, ``fast`` in order."""
        self._control("stop", "--mode", mode)

    def _control(self, action: str, *arguments: str) -> None:
        data = str(self._folder / "data")
        self.run("pg_ctl", action, "--pgdata", data, "--silent", "--wait", *arguments)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs; it refuses to run as root."""
        command = [str(self._binaries / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL, timeout=120)


@contextmanager
def running_server() -> Iterator[Server]:
    """A fresh server that runs; skips, or in CI fails, where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = found[-1] if found else shutil.which("initdb")
    if initdb is None:
        reason = "PostgreSQL's initdb is not installed"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    # The path of a socket has to be short.
    folder = Path(tempfile.mkdtemp(prefix="cp-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    server = Server(folder, Path(initdb).resolve().parent)
    try:
        arguments = ("--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C")
        server.run("initdb", "--pgdata", str(folder / "data"), "--no-sync", *arguments)
        server.start()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
