"""A service with a real socket, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from context_paging.service.http.serving import configured, listen


@dataclass
class Served:
    """Where a service is."""

    url: str
    port: int


@contextmanager
def serving(app: FastAPI) -> Iterator[Served]:
    """The service, until the end of the block."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = uvicorn.Server(configured(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield Served(f"http://127.0.0.1:{port}", port)
    finally:
        app.state.service.stopping.set()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
