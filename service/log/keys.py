"""The secret of a log: it keys fingerprints, seals records, and wraps the keys of stored contents.

The secret is a file beside the log, never inside it: who reads the database alone can neither try out short
messages against their fingerprints, nor append a record that `verify` takes for the log's own.
"""

from __future__ import annotations

import os
import re
import secrets
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path

from .errors import InvalidKey, LogUnavailable

KEY_BYTES = 32
SEAL_BYTES = 16
_HEX = re.compile(rb"[0-9a-f]{64}\s*\Z")


class LogKey:
    """A log's secret, 32 bytes, and what is derived from it.

    Attributes:
        id: names the key without telling it; 16 hexadecimal digits.
    """

    def __init__(self, secret: bytes) -> None:
        self.id = _derived(secret, b"id").hex()[:16]
        self._secret = secret
        self._fingerprints = _derived(secret, b"fingerprints")
        self._seals = _derived(secret, b"seals")

    @classmethod
    def generate(cls) -> LogKey:
        """A new random key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: Path) -> LogKey:
        """The key in a file.

        Raises:
            InvalidKey: there is no such file, or it holds no key.
        """
        try:
            text = path.read_bytes()
        except OSError as error:
            raise InvalidKey(
                f"the key file {path} cannot be read: {error.strerror}. Restore it, or give its place "
                "in CONTEXT_PAGING_KEY_FILE."
            ) from None
        if not _HEX.match(text):
            raise InvalidKey(f"{path} is not a key file: it must hold 64 hexadecimal digits")
        return cls(bytes.fromhex(text.decode()))

    @classmethod
    def load_or_make(cls, path: Path) -> LogKey:
        """The key in a file, which is made, for its owner alone, if there is none.

        Of several processes that make the file at once, one wins and all get its key.

        Raises:
            InvalidKey: the file holds no key.
            LogUnavailable: it cannot be made.
        """
        if not path.exists():
            key = secrets.token_bytes(KEY_BYTES)
            draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_new(draft, key.hex().encode() + b"\n")
                try:
                    os.link(draft, path)
                except FileExistsError:
                    pass
                finally:
                    draft.unlink()
            except OSError as error:
                raise LogUnavailable(
                    f"the key file {path} of the log cannot be made: {error.strerror}. Check that this user "
                    "may write there, or give another place in CONTEXT_PAGING_KEY_FILE."
                ) from None
        return cls.load(path)

    @property
    def wrapping(self) -> bytes:
        """The key that wraps the keys of stored contents; 32 bytes."""
        return _derived(self._secret, b"contents")

    def fingerprint(self, digest: bytes) -> bytes:
        """A digest of content that cannot be made from the content without the key; 32 bytes."""
        return blake2b(digest, key=self._fingerprints, digest_size=32).digest()

    def seal(self, record_hash: bytes) -> bytes:
        """What shows that a holder of the key wrote a record; 16 bytes."""
        return blake2b(record_hash, key=self._seals, digest_size=SEAL_BYTES).digest()

    def sealed(self, record_hash: bytes, seal: bytes) -> bool:
        """Whether a seal is this key's."""
        return compare_digest(self.seal(record_hash), seal)


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return blake2b(b"context-paging " + purpose, key=secret, digest_size=32).digest()


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, for its owner alone, and see it onto the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
