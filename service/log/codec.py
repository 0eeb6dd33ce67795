"""Events as JSON text and back.

The text is ASCII: lone surrogates and NUL characters of host strings are escaped, so that every database
takes it and it reads back as it was. Fields that have their default are left out. Fingerprints are written as
the log's key makes them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import msgspec
from cattrs import Converter
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError

from context_paging.domain.cut import Fallback, FrontierKind
from context_paging.domain.entries import EntryRef
from context_paging.domain.errors import HistoryErrorCode, InvalidEvent, SelectionErrorCode
from context_paging.domain.events import SCHEMA_VERSION, Event, Mode, Rule
from context_paging.domain.messages import MessageRef
from context_paging.domain.repair import RepairKind

from .upcasters import upcast

_json = json.JSONEncoder(separators=(",", ":"))


class Encoder:
    """Writes events; ``fingerprint`` turns a message's digest into what is stored of it."""

    def __init__(self, fingerprint: Callable[[bytes], bytes] = lambda digest: digest) -> None:
        self._unstructure = _make_converter(fingerprint).unstructure

    def __call__(self, event: Event) -> str:
        """The payload of an event, without its type.

        Raises:
            InvalidEvent: the event holds something that JSON does not have, or is nested too deeply.
        """
        try:
            return _json.encode(self._unstructure(event))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidEvent(f"a {event.type!r} event cannot be stored: {error}") from None


def decode(event_type: str, schema_version: int, payload: str) -> Event:
    """The event of a stored payload.

    Raises:
        InvalidEvent: the type or version is unknown, or the payload does not fit it.
    """
    if not 1 <= schema_version <= SCHEMA_VERSION:
        raise InvalidEvent(
            f"an event of schema version {schema_version} was written by another version of context-paging; "
            f"this one reads up to {SCHEMA_VERSION}"
        )
    shape = _SHAPES.get(event_type)
    if shape is None:
        raise InvalidEvent(f"there is no event type {event_type!r}")
    try:
        event: Event = _reader.structure(upcast(event_type, schema_version, json.loads(payload)), shape)
    except (
        BaseValidationError,
        ForbiddenExtraKeysError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        msgspec.ValidationError,
    ) as error:
        raise InvalidEvent(f"a stored {event_type!r} event cannot be read: {error!r}") from None
    return event


def _shapes() -> dict[str, Any]:
    shapes: dict[str, Any] = {}
    for shape in get_args(Event):
        name = next(field for field in dataclasses.fields(shape) if field.name == "type")
        shapes[str(name.default)] = shape
    return shapes


def _exactly(expected: type) -> Callable[[Any, Any], Any]:
    # JSON keeps apart what Python would take for each other: true and 1, 1 and "1".
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not expected:
            raise ValueError(f"{value!r} is not {expected.__name__}")
        return value

    return structure


def _scalar(value: Any, _: Any) -> Any:
    # A number stays whole or not, as it was written.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        raise ValueError(f"{value!r} is neither a number nor text")
    return value


def _number(value: Any, _: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return value


def _optional_number(value: Any, kind: Any) -> int | float | None:
    return None if value is None else _number(value, kind)


def _reference(fingerprint: Callable[[bytes], bytes], reference: MessageRef | EntryRef) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(reference, builtin_types=(bytes,))
    message = written if isinstance(reference, MessageRef) else written.get("message")
    if message is not None:
        message["fingerprint"] = fingerprint(message["fingerprint"]).hex()
    return written


def _read_reference(value: Any, kind: type[MessageRef | EntryRef]) -> MessageRef | EntryRef:
    if kind is MessageRef:
        return msgspec.convert(_with_digest(value), MessageRef)
    if value.get("message") is not None:
        value = {**value, "message": _with_digest(value["message"])}
    return msgspec.convert(value, EntryRef)


def _with_digest(message: Any) -> Any:
    return {**message, "fingerprint": bytes.fromhex(message["fingerprint"])}


def _make_converter(fingerprint: Callable[[bytes], bytes]) -> Converter:
    converter = Converter(omit_if_default=True, forbid_extra_keys=True, detailed_validation=False)
    for reference in (MessageRef, EntryRef):
        converter.register_unstructure_hook(reference, partial(_reference, fingerprint))
        converter.register_structure_hook(reference, _read_reference)
    for plain in (int, str, bool):
        converter.register_structure_hook(plain, _exactly(plain))
    # These are texts too, and would be taken for plain ones.
    for enumeration in (Fallback, FrontierKind, HistoryErrorCode, Mode, RepairKind, Rule, SelectionErrorCode):
        converter.register_structure_hook(enumeration, lambda value, kind: kind(value))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(int | float | None, _optional_number)
    converter.register_structure_hook(int | float | str | None, _scalar)
    return converter


_reader = _make_converter(lambda digest: digest)
_SHAPES = _shapes()
