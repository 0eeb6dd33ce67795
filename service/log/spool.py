"""The spool: a local append-only file that holds appends until the database has them.

A file begins with a line that names the log. Frames follow: a marker, the length and the CRC-32 of a body,
the body, which is one append. A frame that the end of the process or of the disk cut short was never
acknowledged and is left out; one that was damaged later is skipped, found by the marker of the next.

A process holds a lock on the file it writes, so that others see which files nobody writes any more.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from .errors import LogUnavailable
from .prepared import Append, Encode

SUFFIX = ".spool"
DAMAGED_SUFFIX = ".damaged"
REJECTED_SUFFIX = ".rejected"
_TITLE = "context-paging spool 1 "
_DRAFT = ".draft"
_MARK = b"\xc5CPF"
_HEAD = struct.Struct(">4sII")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in a spool file that are no frame, although frames follow or the length was written whole."""

    path: Path
    offset: int


class SpoolFile:
    """A spool file that this process writes."""

    def __init__(self, path: Path, log_id: str) -> None:
        """Make the file.

        Raises:
            OSError: it cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        # It gets its name when it is locked and says whose it is: nobody may take it for an abandoned one.
        draft = path.with_name(f".{path.name}{_DRAFT}")
        self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        title = f"{_TITLE}{log_id}\n".encode()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.write(self._file, title) != len(title):
                raise OSError(errno.ENOSPC, "no space is left for a file")
            draft.rename(path)
        except OSError:
            draft.unlink(missing_ok=True)
            os.close(self._file)
            raise
        self._start = self.size = len(title)

    @classmethod
    def make(cls, folder: Path, log_id: str) -> Self:
        """A new file in a folder.

        Raises:
            OSError: it cannot be made.
        """
        return cls(folder / f"{os.getpid()}-{secrets.token_hex(6)}{SUFFIX}", log_id)

    @property
    def empty(self) -> bool:
        """Whether it holds no frame."""
        return self.size == self._start

    def write(self, append: Append, *, sync: bool) -> None:
        """Add a frame; with ``sync`` it is on the disk when this returns.

        Raises:
            OSError: it was not written; what was written of it is taken back.
        """
        body = append.to_bytes()
        frame = _HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body
        try:
            written = os.write(self._file, frame)
            if written != len(frame):
                raise OSError(errno.ENOSPC, "no space is left for the whole frame")
            if sync:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(frame)

    def sync(self) -> None:
        """Everything written so far is on the disk when this returns."""
        os.fsync(self._file)

    def clear(self) -> None:
        """Forget all frames: the database has them."""
        os.ftruncate(self._file, self._start)
        self.size = self._start

    def close(self) -> None:
        """Close the file; an empty one is removed."""
        if self.empty:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def frames(self, encode: Encode, offset: int = 0) -> Iterator[tuple[int, Append | Damage]]:
        """The appends in it from an offset on, in the order they were written, and the offset behind each."""
        with self.path.open("rb") as file:
            yield from read_frames(self.path, file, encode, offset)

    def let_go(self) -> None:
        """Close the file in a forked child, which does not own it."""
        os.close(self._file)


class AbandonedFile:
    """A spool file whose writer has ended, held so that no other process drains it too."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file

    def frames(self, encode: Encode) -> Iterator[Append | Damage]:
        """The appends in it, in the order they were written, and where it is damaged."""
        for _, frame in read_frames(self.path, self._file, encode):
            yield frame

    def remove(self) -> None:
        """The database has everything in it."""
        self.path.unlink(missing_ok=True)
        self._file.close()

    def put_aside(self) -> Path:
        """Keep it under another name, out of the way: it holds what could not be read."""
        kept = self.path.with_suffix(DAMAGED_SUFFIX)
        self.path.rename(kept)
        self._file.close()
        return kept

    def close(self) -> None:
        """Leave it for later."""
        self._file.close()


@contextmanager
def draining(folder: Path) -> Iterator[None]:
    """Wait for others that drain files of a folder, and let others wait: who opens a log finds all of it
    there.

    Raises:
        LogUnavailable: the folder cannot be used.
    """
    lock = None
    try:
        if any(folder.glob(f"*{SUFFIX}")):
            lock = os.open(folder / ".draining", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise LogUnavailable(f"the spool {folder} cannot be used: {error.strerror}") from error
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def abandoned(folder: Path, log_id: str) -> Iterator[AbandonedFile]:
    """The files of a log in a folder that nobody writes, the oldest first.

    Raises:
        LogUnavailable: the folder cannot be read.
    """
    try:
        paths = sorted((_age(path), path) for path in folder.glob(f"*{SUFFIX}"))
    except OSError as error:
        raise LogUnavailable(f"the spool {folder} cannot be read: {error.strerror}") from error
    for _, path in paths:
        try:
            file = path.open("rb+")
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        # Between the listing and the lock another process may have drained and removed it.
        title = file.readline(200).decode("ascii", "replace")
        if not _is_at(path, file) or title != f"{_TITLE}{log_id}\n":
            if f"{_TITLE}{log_id}\n".startswith(title):
                # Its writer ended before it had written anything.
                path.unlink(missing_ok=True)
            file.close()
            continue
        yield AbandonedFile(path, file)


def read_frames(
    path: Path, file: BinaryIO, encode: Encode, offset: int = 0
) -> Iterator[tuple[int, Append | Damage]]:
    """The frames of a spool file, after its title or from an offset on, and the offset behind each.

    ``encode`` writes their events for the database.
    """
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        offset = offset or content.find(b"\n") + 1
        while offset < len(content):
            head = content[offset : offset + _HEAD.size]
            if len(head) == _HEAD.size:
                mark, length, checksum = _HEAD.unpack(head)
                end = offset + _HEAD.size + length
                body = content[offset + _HEAD.size : end]
                if mark == _MARK and len(body) == length and zlib.crc32(body) == checksum:
                    yield end, _append_of(body, encode) or Damage(path, offset)
                    offset = end
                    continue
            following = content.find(_MARK, offset + 1)
            if following < 0 and _MARK.startswith(head[: len(_MARK)]):
                return
            end = len(content) if following < 0 else following
            yield end, Damage(path, offset)
            offset = end


def _append_of(body: bytes, encode: Encode) -> Append | None:
    try:
        return Append.from_bytes(body, encode)
    except ValueError:
        return None


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        # Its writer has just ended in order, or another process has drained it.
        return 0


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
