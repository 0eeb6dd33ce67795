"""Column types that store the same on every engine."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Float, String, TypeDecorator

# A noncharacter, which no text holds on purpose: other texts are stored as they are, readable in SQL.
_MARK = "\ufdd0"
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{_MARK}]")
_MARKED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def storable(text: str) -> str:
    """A text as every database takes it."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(lambda match: f"{_MARK}{ord(match[0]):04x}", text)


def stored_text(text: str | None) -> str | None:
    """A text, or nothing, as every database takes it."""
    return None if text is None else storable(text)


def original(text: str) -> str:
    """A text as the host wrote it, of one from a database."""
    return text if _MARK not in text else _MARKED.sub(lambda match: chr(int(match[1], 16)), text)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with a time zone, whatever the database makes of it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; SQLite keeps no zone."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class HostText(TypeDecorator[str]):
    """Text that a host chose. Lone surrogates and NUL, which databases refuse, are escaped."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """With escapes, where they are needed."""
        return stored_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """As the host wrote it."""
        return None if value is None else original(value)


class TokenCount(TypeDecorator[float]):
    """A number of tokens. Whole numbers that no float holds become infinite; what is no number, unknown."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """As a float, or nothing."""
        if value is None:
            return None
        try:
            count = float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        return None if math.isnan(count) else count
