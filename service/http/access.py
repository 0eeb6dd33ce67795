"""Who may do what: bearer tokens, scopes, the sessions a token may name, and how often."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from fastapi import HTTPException, Request

from .tokens import Scope, Token, TokenFile

ANYBODY = Token("anybody", "", (Scope.ADMIN,))
"""Who asks where no tokens are asked for: the loopback interface of one machine."""
COOKIE = "context_paging_token"
"""Where a browser keeps its token. It is for looking only, so that no other site can make it do anything."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_KNOWN_BUCKETS = 10_000


@dataclass
class RateLimit:
    """Requests a token may make: ``per_second`` in the long run, ``burst`` at once."""

    per_second: float
    burst: float
    now: Callable[[], float] = monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait(self, name: str) -> float:
        """Count a request; how many seconds it is too early, 0 if it is not."""
        now = self.now()
        left, at = self._buckets.pop(name, (self.burst, now))
        left = min(self.burst, left + (now - at) * self.per_second)
        self._buckets[name] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _KNOWN_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self.per_second


class Access:
    """Decides about requests. Without ``tokens`` everybody on this machine may do everything."""

    def __init__(self, tokens: TokenFile | None, rate: RateLimit) -> None:
        self._tokens = tokens
        self._rate = rate

    @property
    def asks(self) -> bool:
        """Whether tokens are asked for."""
        return self._tokens is not None

    def allowed(self, request: Request, scope: Scope) -> Token:
        """The token of a request that may do something.

        Raises:
            HTTPException: 401 without a known token, 403 without the scope, 421 for another machine's name,
                429 too often.
        """
        token = self.token_of(request)
        if not token.allows(scope):
            raise HTTPException(403, f"this token does not have the scope {scope.value}")
        early = self._rate.wait(token.name)
        if early:
            raise HTTPException(429, "too many requests", {"Retry-After": str(math.ceil(early))})
        return token

    def token_of(self, request: Request) -> Token:
        """Whose request it is.

        Raises:
            HTTPException: 401 without a known token, 421 for another machine's name.
        """
        if self._tokens is None:
            self._check_host(request)
            return ANYBODY
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if not kind and request.method in ("GET", "HEAD"):
            kind, secret = "bearer", request.cookies.get(COOKIE, "")
        token = self._tokens.token_of(secret.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise HTTPException(
                401, "give a known token: Authorization: Bearer cp_…", {"WWW-Authenticate": "Bearer"}
            )
        return token

    def holds(self, token: Token) -> bool:
        """Whether a token that was known still is."""
        return self._tokens is None or token in self._tokens.tokens()

    def token_named(self, secret: str) -> Token | None:
        """The token that somebody typed, if it is known."""
        return None if self._tokens is None else self._tokens.token_of(secret.strip())

    def _check_host(self, request: Request) -> None:
        # A page of another site may be served under a name that its owner then points to this machine.
        host = request.headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in _LOOPBACK:
            raise HTTPException(421, "without tokens this service answers to localhost only")


def named(token: Token, session_id: str) -> str:
    """A session id that a token may name. Others look as if there were none.

    Raises:
        HTTPException: 404.
    """
    if not session_id.startswith(token.prefix):
        raise HTTPException(404, "there is no such session")
    return session_id
