"""Worker processes, and the real nginx before them, with the configuration of `ops`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONF = Path(__file__).parents[3] / "ops" / "deploy" / "nginx.conf"


class Missing(Exception):
    """A program is not installed."""


@dataclass
class Worker:
    """A worker process on a port, which can be killed and started again."""

    port: int
    folder: Path
    environment: dict[str, str]
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-c", "from context_paging.service.cli import main; main()", "serve"]
        environment = {**self.environment, "CONTEXT_PAGING_SPOOL": str(self.folder / f"spool-{self.port}")}
        with (self.folder / f"worker-{self.port}.log").open("ab") as output:
            self.running = subprocess.Popen(
                [*command, "--port", str(self.port), "--proxy", "127.0.0.1"],
                stderr=output,
                stdout=output,
                env=environment,
            )
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2).close()
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / f"worker-{self.port}.log").read_text())

    def kill(self) -> None:
        """End it at once."""
        assert self.running is not None
        self.running.send_signal(signal.SIGKILL)
        self.running.wait(10)

    def stop(self) -> None:
        """End it as an operator does."""
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGTERM)
            assert self.running.wait(30) == 0

    def metrics(self) -> str:
        """What it tells Prometheus."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")


@dataclass
class Deployment:
    """Workers behind the proxy, and a token that may feed sessions and read."""

    url: str
    token: str
    workers: list[Worker]

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer; status 0 if there was none."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if error.headers["content-type"].endswith("json") else {}
        except OSError:
            return 0, {}


@contextmanager
def nginx(folder: Path, port: int, workers: list[int]) -> Iterator[str]:
    """The real proxy, and its URL.

    Raises:
        Missing: it is not installed.
    """
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if binary is None:
        raise Missing("there is no nginx: apt-get install nginx-light")
    text = CONF.read_text().replace("listen 127.0.0.1:8642", f"listen 127.0.0.1:{port}")
    for given, own in zip((8643, 8644), workers, strict=True):
        text = text.replace(f"127.0.0.1:{given}", f"127.0.0.1:{own}")
    (folder / "service.conf").write_text(text)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    owner = "user root;" if os.geteuid() == 0 else ""
    main = f"{owner} daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
    main += f"http {{ access_log off; {temporary} include {folder}/service.conf; }}\n"
    (folder / "main.conf").write_text(main)
    running = subprocess.Popen([binary, "-p", str(folder), "-c", str(folder / "main.conf")])
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(10)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
