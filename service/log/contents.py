"""What hosts passed with events, encrypted with a key of its session that can be destroyed."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from context_paging.domain.errors import InvalidEvent

from .commit import REMEMBERED_SESSIONS
from .errors import InvalidKey, LogUnavailable
from .keys import LogKey
from .prepared import ContentKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class ContentCipher:
    """Encrypts the contents of live sessions with AES-256-GCM, each session with a random key of its own.

    A process makes a new key for a session it begins to write, so that no key has to be read. Ciphertexts are
    bound to their session and event: none can be passed off as another's.
    """

    def __init__(self, key: LogKey) -> None:
        """Prepare.

        Raises:
            LogUnavailable: the cryptography package is missing.
        """
        self._cipher = cipher_class()
        self._wrapping = self._cipher(key.wrapping)
        self._keys: dict[str, tuple[ContentKey, AESGCM]] = {}

    def key_of(self, session_id: str) -> ContentKey:
        """The session's key, wrapped."""
        return self._of(session_id)[0]

    def forget(self, session_id: str) -> None:
        """The session's key was destroyed: what comes gets another."""
        self._keys.pop(session_id, None)

    def encrypt(self, session_id: str, event_id: str, content: Any) -> bytes:
        """A content, as a nonce and a ciphertext.

        Raises:
            InvalidEvent: it is not JSON.
        """
        try:
            text = json.dumps(content, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidEvent(f"a content cannot be stored: {error}") from None
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._of(session_id)[1].encrypt(nonce, text.encode(), _bound(session_id, event_id))

    def _of(self, session_id: str) -> tuple[ContentKey, AESGCM]:
        known = self._keys.get(session_id)
        if known is None:
            secret, key_id = secrets.token_bytes(32), uuid4().hex
            nonce = secrets.token_bytes(NONCE_BYTES)
            wrapped = nonce + self._wrapping.encrypt(nonce, secret, _bound(session_id, key_id))
            if len(self._keys) >= REMEMBERED_SESSIONS:
                self._keys.clear()
            known = self._keys[session_id] = ContentKey(key_id, wrapped), self._cipher(secret)
        return known


def decrypt(
    key: LogKey, session_id: str, event_id: str, content_key_id: str, wrapped: bytes, content: bytes
) -> Any:
    """A stored content.

    Raises:
        InvalidKey: it was encrypted under the key of another file, or was altered.
        LogUnavailable: the cryptography package is missing.
    """
    from cryptography.exceptions import InvalidTag

    cipher = cipher_class()
    try:
        secret = cipher(key.wrapping).decrypt(
            wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _bound(session_id, content_key_id)
        )
        text = cipher(secret).decrypt(
            content[:NONCE_BYTES], content[NONCE_BYTES:], _bound(session_id, event_id)
        )
    except InvalidTag:
        raise InvalidKey(
            f"a content of session {session_id!r} was altered, or encrypted with another key file's key: "
            "give that of the machine that wrote it"
        ) from None
    return json.loads(text)


def cipher_class() -> type[AESGCM]:
    """AES-GCM.

    Raises:
        LogUnavailable: the cryptography package is missing.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise LogUnavailable(
            "keeping contents needs the encryption extra: context-paging[encryption]"
        ) from None
    return AESGCM


def _bound(session_id: str, other_id: str) -> bytes:
    return json.dumps([session_id, other_id]).encode()
