"""Options that several commands have, and the log they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..log import EventLog

LogOption = Annotated[
    str | None,
    typer.Option(
        "--log", metavar="URL", help="SQLAlchemy URL or SQLite file of the log. [env: CONTEXT_PAGING_LOG]"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="From this time on: 2026-03-01, 2026-03-01T12:00, or 7d ago."
    ),
]
BeforeOption = Annotated[
    str | None, typer.Option("--before", metavar="TIME", help="Before this time: as for --since.")
]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="The next page, as the last one named it.")
]

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def open_log(location: str | None) -> EventLog:
    """The log that an option or the environment names."""
    from ..config import log_location, log_options
    from ..log import EventLog

    return EventLog.open(log_location(location), log_options())


def moment_of(text: str | None, hint: str) -> datetime | None:
    """A time that somebody typed; without a zone, in UTC.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            return datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(number)})
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo is not None else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-03-01, 2026-03-01T12:00+01:00, or 12h, 7d, 4w for so long ago",
            param_hint=hint,
        ) from None
