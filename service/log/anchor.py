"""Anchors: the heads of all chains at one moment, signed, to be kept where the log's owner cannot change it.

Whoever keeps an anchor can check later, with the public key alone, that no record up to it was rewritten.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from .chain import GENESIS, moment_text
from .errors import InvalidAnchor, LogUnavailable
from .tables import events, log_identity, retired_sessions, sessions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = "context-paging anchor 1"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A session whose chain is no longer the one an anchor saw."""

    session_id: str
    sequence: int
    detail: str


@dataclass(frozen=True, slots=True)
class AnchorCheck:
    """What became of the sessions an anchor saw.

    Attributes:
        intact: how many still have the record the anchor saw as their newest, unchanged.
        retired: ids of those that retention took out since, which is no longer checkable.
        rewritten: those that are not what they were.
    """

    made_at: str
    public_key: str
    intact: int
    retired: tuple[str, ...]
    rewritten: tuple[Rewritten, ...]


def make_anchor(connection: Connection, private_key: Ed25519PrivateKey, moment: datetime) -> dict[str, Any]:
    """An anchor over the heads of all sessions, as a JSON object."""
    rows = connection.execute(
        select(sessions.c.session_id, sessions.c.last_sequence, sessions.c.last_hash).order_by(
            sessions.c.session_id
        )
    )
    heads = [
        [session_id, sequence, last_hash.hex()]
        for session_id, sequence, last_hash in rows
        if last_hash is not None
    ]
    anchor = {
        "format": FORMAT,
        "log": connection.scalar(select(log_identity.c.log_id)),
        "made_at": moment_text(moment),
        "heads": heads,
    }
    return {
        **anchor,
        "public_key": _raw(private_key.public_key()),
        "signature": b64encode(private_key.sign(_signed(anchor))).decode(),
    }


def check_anchor(
    connection: Connection, anchor: Any, public_key: Ed25519PublicKey | None = None
) -> AnchorCheck:
    """Compare a log with an anchor. ``public_key`` is the one the anchor must be signed with.

    Raises:
        InvalidAnchor: it is no anchor, its signature does not hold, or it is of another log.
    """
    signed = _verified(anchor, public_key)
    log_id = connection.scalar(select(log_identity.c.log_id))
    if signed["log"] != log_id:
        raise InvalidAnchor(f"the anchor is of log {signed['log']}, and this one is {log_id}")
    intact = 0
    rewritten, retired = [], []
    gone = {row.session_id: row for row in connection.execute(select(retired_sessions))}
    for session_id, sequence, head in signed["heads"]:
        found = connection.execute(
            select(events.c.hash).where(events.c.session_id == session_id, events.c.sequence == sequence)
        ).first()
        if found is not None and found.hash is not None and found.hash.hex() == head:
            intact += 1
        elif session_id in gone and gone[session_id].last_sequence >= sequence:
            retired.append(session_id)
        else:
            detail = "the record is missing" if found is None else "the record is another one"
            rewritten.append(Rewritten(session_id, sequence, detail))
    return AnchorCheck(signed["made_at"], anchor["public_key"], intact, tuple(retired), tuple(rewritten))


def make_signing_key(path: Path) -> None:
    """Write a new private key, for its owner alone, and its public key beside it with the suffix ``.pub``.

    Raises:
        LogUnavailable: a file is there already or cannot be written.
    """
    from .keys import write_new

    crypto = _cryptography()
    private = crypto.ed25519.Ed25519PrivateKey.generate()
    secret = private.private_bytes(
        crypto.serialization.Encoding.PEM,
        crypto.serialization.PrivateFormat.PKCS8,
        crypto.serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        crypto.serialization.Encoding.PEM, crypto.serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        write_new(path, secret)
        write_new(path.with_name(path.name + ".pub"), public)
    except OSError as error:
        raise LogUnavailable(f"{error.filename or path} cannot be written: {error.strerror}") from None


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 private key in PEM.

    Raises:
        InvalidAnchor: the file holds none.
    """
    crypto = _cryptography()
    key = _load(path, lambda text: crypto.serialization.load_pem_private_key(text, None))
    private: Ed25519PrivateKey | None = key if isinstance(key, crypto.ed25519.Ed25519PrivateKey) else None
    if private is None:
        raise InvalidAnchor(
            f"{path} holds no Ed25519 private key; `context-paging anchor-key FILE` makes one"
        )
    return private


def load_public_key(path: Path) -> Ed25519PublicKey:
    """An Ed25519 public key in PEM.

    Raises:
        InvalidAnchor: the file holds none.
    """
    crypto = _cryptography()
    key = _load(path, crypto.serialization.load_pem_public_key)
    public: Ed25519PublicKey | None = key if isinstance(key, crypto.ed25519.Ed25519PublicKey) else None
    if public is None:
        raise InvalidAnchor(f"{path} holds no Ed25519 public key")
    return public


def _verified(anchor: Any, public_key: Ed25519PublicKey | None) -> dict[str, Any]:
    crypto = _cryptography()
    try:
        signed = {name: anchor[name] for name in ("format", "log", "made_at", "heads")}
        signature = b64decode(anchor["signature"], validate=True)
        raw = b64decode(anchor["public_key"], validate=True)
        key = crypto.ed25519.Ed25519PublicKey.from_public_bytes(raw)
        shaped = signed["format"] == FORMAT and all(_is_head(head) for head in signed["heads"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidAnchor(f"this is no anchor: {error!r}") from None
    if not shaped:
        raise InvalidAnchor(f"this is no anchor of the format {FORMAT!r}")
    if public_key is not None and _raw(public_key) != anchor["public_key"]:
        raise InvalidAnchor("the anchor was signed with another key than the one given")
    try:
        key.verify(signature, _signed(signed))
    except crypto.InvalidSignature:
        raise InvalidAnchor(
            "the anchor's signature does not hold: it was changed after it was signed"
        ) from None
    return signed


def _is_head(head: Any) -> bool:
    return (
        isinstance(head, Sequence)
        and [type(part) for part in head] == [str, int, str]
        and len(head[2]) == 2 * len(GENESIS)
    )


def _signed(anchor: dict[str, Any]) -> bytes:
    return json.dumps(anchor, sort_keys=True, separators=(",", ":")).encode()


def _raw(key: Ed25519PublicKey) -> str:
    crypto = _cryptography()
    raw = key.public_bytes(crypto.serialization.Encoding.Raw, crypto.serialization.PublicFormat.Raw)
    return b64encode(raw).decode()


def _load(path: Path, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise InvalidAnchor(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise InvalidAnchor(f"{path} holds no key in PEM: {error}") from None


class _Crypto:
    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.InvalidSignature = InvalidSignature
        self.serialization = serialization
        self.ed25519 = ed25519


def _cryptography() -> _Crypto:
    try:
        return _Crypto()
    except ImportError:
        raise LogUnavailable("anchors need the encryption extra: context-paging[encryption]") from None
