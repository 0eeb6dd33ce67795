"""Bearer tokens: stored as hashes, each with scopes and a prefix of the session ids it may name.

A token has 256 random bits, so that a plain SHA-256 of it cannot be searched for.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from context_paging.domain.errors import ContextPagingError

_MARK = "cp_"
_HASH = re.compile("[0-9a-f]{64}")


class Scope(StrEnum):
    """What a token allows: feeding sessions, reading the log, or what operators do."""

    WRITE = "write"
    READ = "read"
    ADMIN = "admin"


class InvalidTokens(ContextPagingError):
    """The file of tokens cannot be read or written, or a name in it is taken or missing."""

    code = "INVALID_TOKENS"


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token. ``prefix``: sessions it may name have ids that begin so."""

    name: str
    hash: str
    scopes: tuple[Scope, ...]
    prefix: str = ""

    def allows(self, scope: Scope) -> bool:
        """Whether a scope is among its own; ``admin`` has all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


class TokenFile:
    """The tokens in a file, which is read again when it has changed: rotating them needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: object = None
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        """All tokens.

        Raises:
            InvalidTokens: the file is there and cannot be read.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._tokens, self._stamp = [], None
            return []
        except OSError as error:
            raise InvalidTokens(f"{self.path}: {error.strerror}") from None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp != self._stamp:
            self._tokens = self._read()
            self._stamp = stamp
        return self._tokens

    def token_of(self, secret: str) -> Token | None:
        """The token that a client holds, compared in constant time with every one there is."""
        given = _hash(secret)
        matching = [token for token in self.tokens() if hmac.compare_digest(token.hash, given)]
        return matching[0] if matching else None

    def add(self, name: str, scopes: tuple[Scope, ...], prefix: str = "") -> str:
        """Make a token, and return it: it is nowhere else.

        Raises:
            InvalidTokens: the name is taken, or the file cannot be written.
        """
        with self._changing() as known:
            return self._added(known, name, scopes, prefix)

    def _added(self, known: list[Token], name: str, scopes: tuple[Scope, ...], prefix: str) -> str:
        if not name or any(token.name == name for token in known):
            raise InvalidTokens(
                f"{name!r} is taken or empty; give the token another name, or remove that one"
            )
        secret = _MARK + secrets.token_urlsafe(32)
        self._write([*known, Token(name, _hash(secret), scopes, prefix)])
        return secret

    def remove(self, name: str) -> None:
        """Make a token worthless.

        Raises:
            InvalidTokens: there is none of this name, or the file cannot be written.
        """
        with self._changing() as known:
            left = [token for token in known if token.name != name]
            if len(left) == len(known):
                raise InvalidTokens(f"there is no token {name!r} in {self.path}")
            self._write(left)

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """What the file holds, until the end of the block changed by nobody else."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidTokens(f"{self.path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._stamp = object()
            yield self.tokens()
        finally:
            os.close(lock)

    def _read(self) -> list[Token]:
        try:
            stored = json.loads(self.path.read_text("utf-8"))
            return [_token(value) for value in stored["tokens"]]
        except OSError as error:
            raise InvalidTokens(f"{self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidTokens(f"{self.path} is no file of tokens: {error}") from None

    def _write(self, tokens: list[Token]) -> None:
        text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2) + "\n"
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            temporary.replace(self.path)
        except OSError as error:
            raise InvalidTokens(f"{self.path} cannot be written: {error.strerror}") from None


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(value: Any) -> Token:
    if not _HASH.fullmatch(value["hash"]):
        raise ValueError("a hash is 64 hexadecimal digits")
    return Token(
        str(value["name"]),
        value["hash"],
        tuple(map(Scope, value["scopes"])),
        str(value.get("prefix", "")),
    )
