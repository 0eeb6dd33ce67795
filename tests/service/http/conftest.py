"""The service over a log in a file, with tokens of every kind, and a client in the same process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import Durability, EventLog, LogOptions


def user(text: str, entry_id: str, parent: str | None = None) -> dict[str, Any]:
    """A stored user message."""
    message = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "id": entry_id, "parentId": parent, "message": message}


def answered(text: str, entry_id: str, parent: str) -> dict[str, Any]:
    """A stored response."""
    content = [{"type": "text", "text": text}]
    message = {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 2}
    return {"type": "message", "id": entry_id, "parentId": parent, "message": message}


@dataclass
class Client:
    """A client with one token, and the log behind the service."""

    http: TestClient
    log: EventLog
    tokens: TokenFile
    token: str | None = None

    def of(self, *scopes: Scope, prefix: str = "") -> Client:
        """A client with a token of its own."""
        name = f"token-{len(self.tokens.tokens())}"
        return Client(self.http, self.log, self.tokens, self.tokens.add(name, scopes, prefix))

    def get(self, path: str, **options: Any) -> Any:
        """GET below ``/v1``."""
        return self.http.get(f"/v1{path}", headers=self.headers, **options)

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """POST JSON below ``/v1``."""
        return self.http.post(f"/v1{path}", json=body, headers=self.headers, **options)

    def send(self, session: str, *events: dict[str, Any], status: int = 200) -> Any:
        """Host events of a session, each answered; a single one by itself."""
        body = events[0] if len(events) == 1 else list(events)
        response = self.post(f"/sessions/{session}/events", body)
        assert response.status_code == status, response.text
        return response.json()

    @property
    def headers(self) -> dict[str, str]:
        """What says who asks."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Client]:
    """A client without a token."""
    tokens = TokenFile(tmp_path / "tokens.json")
    options = LogOptions(durability=Durability.SYNC)
    with (
        EventLog.open(tmp_path / "log.db", options) as log,
        TestClient(create_app(log, ServerOptions(tokens))) as http,
    ):
        yield Client(http, log, tokens)


@pytest.fixture
def client(nobody: Client) -> Client:
    """A client that may do everything."""
    return nobody.of(Scope.ADMIN)
