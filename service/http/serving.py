"""Running a worker: uvicorn with limits of our own, one JSON line a message, and a clean end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..telemetry import FIELDS
from .service import Service

HEADER_SECONDS = 15.0
"""How long a client may take to send the head of a request."""
KEEP_ALIVE_SECONDS = 75
"""How long a connection may wait for its next request: longer than a proxy keeps it."""
CONNECTIONS = 2_000
GRACE_SECONDS = 20
SWITCH_SECONDS = 0.001


class _Patient(H11Protocol):
    """Closes connections whose next request does not come, or does not come to the end of its head.

    Between requests it is uvicorn's own keep-alive timeout that counts.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._cancel()
        elif self._waiting is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Tells the application when it stops, so that streams without an end have one.

    The signal is dealt with then: raised again, as uvicorn would, it would end the process before the log is
    closed.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del frame
        self._service.stopping.set()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1_024)
    except BaseException:
        listener.close()
        raise
    return listener


def run(app: FastAPI, listener: socket.socket, trusted_proxies: Sequence[str] = ()) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are answered first."""
    # Beside threads that compute, the event loop must not wait long for each of its turns.
    sys.setswitchinterval(SWITCH_SECONDS)
    _Server(configured(app, trusted_proxies), app.state.service).run(sockets=[listener])


def configured(app: FastAPI, trusted_proxies: Sequence[str] = ()) -> uvicorn.Config:
    """How a worker is run."""
    return uvicorn.Config(
        app,
        http=_Patient,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=64 * 1024,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies) or None,
    )


def log_to_stderr(level: str) -> None:
    """Print what is logged as one JSON object a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # It tells how it sets itself up.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It quotes headers that it cannot read.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, FIELDS, None) or {"event": record.getMessage()}
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, **fields}
        if record.exc_info is not None and record.exc_info[0] is not None:
            # Without the message and the traceback, which may quote what was sent.
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, default=str)
