"""A session that is live in a service elsewhere, asked for its history over HTTP (extra ``mcp``)."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.recovery.errors import RecoveryErrorCode, RecoveryRefused

from .replies import ToolReply

SECONDS = 60.0
_TOKEN = re.compile(r"[\x21-\x7e]+")


class RemoteSessionError(ContextPagingError):
    """A service cannot be asked: wrong URL or token, not there, or it refuses."""

    code = "REMOTE_SESSION"


class RemoteSession:
    """The recovery tools of a session at ``http://HOST/v1/sessions/ID``, with a token that may write.

    Raises:
        RemoteSessionError: it is no such URL.
    """

    def __init__(self, url: str, token: str | None) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise RemoteSessionError(f"{url!r} is no URL: {error}") from None
        if token is not None and not _TOKEN.fullmatch(token):
            raise RemoteSessionError(
                "CONTEXT_PAGING_TOKEN holds no token: one is of printable ASCII characters"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or "/sessions/" not in parts.path:
            raise RemoteSessionError(f"{url!r} is no session; write http://HOST:PORT/v1/sessions/ID")
        if parts.query or parts.fragment or parts.username:
            raise RemoteSessionError("give the URL of a session alone, and the token in CONTEXT_PAGING_TOKEN")
        path = parts.path if parts.path.startswith("/v1/") else f"/v1{parts.path}"
        self._url = f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx2.Client(headers=headers, timeout=SECONDS)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def tool(self, name: str, parameters: Any) -> ToolReply:
        """Call a recovery tool: see `Session.tool`.

        Raises:
            RecoveryRefused: the parameters do not fit, or name what is not there.
            RemoteSessionError: the service cannot be asked.
        """
        try:
            answer = self._client.post(
                f"{self._url}/events",
                content=json.dumps({"type": "tool", "name": name, "parameters": parameters}).encode(),
                headers={"Content-Type": "application/json"},
            )
            told = answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise RemoteSessionError(
                f"{self._url} does not answer: {str(error) or type(error).__name__}"
            ) from None
        if answer.is_success and isinstance(told, dict) and isinstance(told.get("text"), str):
            return ToolReply((), (), told.get("result") or {}, told["text"])
        code, detail = (told.get("code"), told.get("detail")) if isinstance(told, dict) else (None, None)
        for reason in RecoveryErrorCode:
            if code == reason.value:
                raise RecoveryRefused(reason, str(detail))
        raise RemoteSessionError(f"{self._url}: {code or answer.status_code}: {detail or 'no such answer'}")
