"""Appends ready for the log: events as text, with the keys and contents that go with them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from context_paging.domain.events import Event

from .codec import decode


class PreparedEvent(NamedTuple):
    """One event as it will be stored; ``content`` is encrypted under the append's content key."""

    event_id: str
    type: str
    schema_version: int
    recorded_at: datetime
    call_id: str | None
    payload: str
    content: bytes | None = None

    @property
    def content_hash(self) -> bytes | None:
        """SHA-256 of the encrypted content: the chain covers it, and it stays when the key is destroyed."""
        return None if self.content is None else sha256(self.content).digest()


class ContentKey(NamedTuple):
    """The key contents of a session are encrypted with, wrapped by the log's key."""

    id: str
    wrapped: bytes


@dataclass(frozen=True)
class Append:
    """Events that follow the sequence ``expected`` of a session: all of them or none."""

    session_id: str
    expected: int
    label: str | None
    prepared: Sequence[PreparedEvent]
    content_key: ContentKey | None = None

    @cached_property
    def events(self) -> Sequence[Event]:
        """The events themselves.

        Raises:
            InvalidEvent: one of them cannot be read.
        """
        return [decode(event.type, event.schema_version, event.payload) for event in self.prepared]

    @classmethod
    def of(
        cls,
        session_id: str,
        expected: int,
        label: str | None,
        prepared: Sequence[PreparedEvent],
        events: Sequence[Event],
        content_key: ContentKey | None = None,
    ) -> Append:
        """An append whose events are at hand."""
        append = cls(session_id, expected, label, prepared, content_key)
        # What a cached property would make by decoding.
        append.__dict__["events"] = events
        return append

    def to_lines(self) -> bytes:
        """As ASCII: a line of JSON, and a line for each payload."""
        key = self.content_key
        head = [
            self.session_id,
            self.expected,
            self.label,
            None if key is None else [key.id, _text(key.wrapped)],
            [
                [
                    event_id,
                    event_type,
                    version,
                    _moment_text(moment),
                    call_id,
                    None if content is None else _text(content),
                ]
                for event_id, event_type, version, moment, call_id, _, content in self.prepared
            ],
        ]
        return "\n".join([_json.encode(head), *[event.payload for event in self.prepared]]).encode("ascii")

    @classmethod
    def from_lines(cls, text: bytes) -> Append:
        """What `to_lines` wrote.

        Raises:
            ValueError, TypeError: it is something else.
        """
        head, *payloads = text.decode("ascii").split("\n")
        session_id, expected, label, key, rows = json.loads(head)
        prepared = [
            PreparedEvent(
                event_id,
                event_type,
                version,
                datetime.fromisoformat(moment),
                call_id,
                payload,
                None if content is None else b64decode(content),
            )
            for (event_id, event_type, version, moment, call_id, content), payload in zip(
                rows, payloads, strict=True
            )
        ]
        content_key = None if key is None else ContentKey(key[0], b64decode(key[1]))
        return cls(session_id, expected, label, prepared, content_key)


_moment_text = lru_cache(maxsize=64)(datetime.isoformat)
_json = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _text(value: Any) -> str:
    return b64encode(value).decode()
