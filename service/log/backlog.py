"""The spool file of a live writer, and the file of the appends that the log does not take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from context_paging.domain.errors import InvalidEvent

from ..telemetry import logger
from .errors import LogUnavailable
from .prepared import Append, Encode
from .spool import REJECTED_SUFFIX, Damage, SpoolFile

_told = logger("log")


class Backlog:
    """What a writer puts into files, made when there is something to put; without a folder, nothing."""

    def __init__(self, name: str, folder: Path | None, log_id: str) -> None:
        self._name = name
        self._folder = folder
        self._log_id = log_id
        self._spool: SpoolFile | None = None
        self._rejected: SpoolFile | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing waits in the spool."""
        return self._spool is None or self._spool.empty

    @property
    def size(self) -> int:
        """Bytes of the spool."""
        return 0 if self._spool is None else self._spool.size

    def write(self, append: Append, *, sync: bool) -> bool:
        """Put an append into the spool; whether that was possible.

        Raises:
            InvalidEvent: an event cannot be stored.
        """
        if self._folder is None:
            return False
        try:
            if self._spool is None:
                self._spool = SpoolFile.make(self._folder, self._log_id)
            self._spool.write(append, sync=sync)
        except (OSError, LogUnavailable) as error:
            self._tell(error)
            return False
        return True

    def frames(self, encode: Encode, offset: int) -> Iterator[tuple[int, Append | Damage]]:
        """What is in the spool from an offset on, and the offset behind each."""
        if self._spool is not None:
            yield from self._spool.frames(encode, offset)

    def clear(self) -> None:
        """The database has everything in the spool."""
        if self._spool is not None:
            self._spool.clear()

    def reject(self, append: Append) -> None:
        """Keep an append that the log does not take, for somebody to look at."""
        if self._folder is None:
            return
        try:
            if self._rejected is None:
                name = f"{os.getpid()}-{uuid4().hex[:12]}{REJECTED_SUFFIX}"
                self._rejected = SpoolFile(self._folder / name, self._log_id)
            self._rejected.write(append, sync=True)
        except (OSError, InvalidEvent, LogUnavailable) as error:
            self._tell(error)

    def close(self) -> None:
        """Close the files; what is in them stays."""
        for file in (self._spool, self._rejected):
            if file is not None:
                file.close()
        self._spool = self._rejected = None

    def let_go(self) -> None:
        """Close the files in a forked child, which does not own them."""
        for file in (self._spool, self._rejected):
            if file is not None:
                file.let_go()
        self._spool = self._rejected = None

    def _tell(self, error: Exception) -> None:
        _told.error("log.spool.failed", log=self._name, folder=str(self._folder), reason=str(error))
