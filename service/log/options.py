"""How a log is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .errors import InvalidOption


class Durability(StrEnum):
    """When an append returns."""

    SYNC = "sync"
    """The database has committed it: it survives a power cut, and any conflict is told at once."""
    SPOOL = "spool"
    """A local file has it: it survives the end of the process; the database gets it within moments."""
    GROUP = "group"
    """It is in memory; the database gets it within moments, many appends in one commit. `EventLog.flush`
    waits for that commit, and so do an abort, a shutdown, and the end of the process, unless it is killed."""


class Audit(StrEnum):
    """What happens to an event that neither the database nor the spool takes."""

    REQUIRED = "required"
    """It is refused, so that the provider call does not happen."""
    BEST_EFFORT = "best-effort"
    """The provider call goes on; how many events are missing is told as soon as anything can be written."""


class Payloads(StrEnum):
    """What is stored of the messages that hosts pass."""

    DIGESTS = "digests"
    """Sizes, ids, and fingerprints that only the holder of the log's key can compare with a message."""
    FULL = "full"
    """The messages too, encrypted with a key of their session, which can be destroyed."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is kept.

    Attributes:
        spool: the folder for appends that the database does not take; ``None`` for one beside the log,
            ``False`` for none.
        key_file: where the log's key is, or is to be made; ``None`` for a file beside the log. sigterm: let
        SIGTERM end the process as `sys.exit` would, unless it is handled already, so that what is
            not committed yet is.
    """

    durability: Durability | str = Durability.GROUP
    audit: Audit | str = Audit.BEST_EFFORT
    payloads: Payloads | str = Payloads.DIGESTS
    spool: Path | str | bool | None = None
    key_file: Path | str | None = None
    sigterm: bool = True

    def __post_init__(self) -> None:
        """Take texts for values.

        Raises:
            InvalidOption: a text is none of them.
        """
        for name, kind in (("durability", Durability), ("audit", Audit), ("payloads", Payloads)):
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(given))
            except ValueError:
                raise InvalidOption(f"{name} is {given!r}; it may be {', '.join(kind)}") from None
