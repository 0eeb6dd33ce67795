"""JSON text as JavaScript prints it, and a canonical form for digests.

Hosts are JavaScript programs: sizes are UTF-16 code units and JSON is what ``JSON.stringify`` prints
(design, section 5). The standard encoder is used wherever its output is the same, which is nearly always.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from .errors import InvalidMessage

UTF16_UNIT = 2
"""Bytes of a code unit."""
_MAX_SAFE_INTEGER = 2**53
_JS_DECIMAL_DIGITS = 21
_SURROGATE = re.compile("[\ud800-\udfff]")
_ARRAY_INDEX = re.compile(r"(?:0|[1-9]\d{0,9})\Z")
_MAX_ARRAY_INDEX = 2**32 - 2

# Nothing but JSON: dates and data classes are no messages.
_ONLY_JSON = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_plain = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_canonical = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def utf16_length(text: str) -> int:
    """Length of ``text`` in UTF-16 code units; a lone surrogate counts one."""
    if text.isascii():
        return len(text)
    return len(to_utf16(text)) // UTF16_UNIT


def to_utf16(text: str) -> bytes:
    """The code units of a text, two bytes each; halves of surrogate pairs are kept."""
    return text.encode("utf-16-le", "surrogatepass")


def from_utf16(units: bytes) -> str:
    """The text of code units; two halves side by side become one character."""
    return units.decode("utf-16-le", "surrogatepass")


def stringify(value: Any) -> str:
    """``value`` as ``JSON.stringify`` prints it.

    Raises:
        InvalidMessage: the value is not JSON, or is nested too deeply.
    """
    try:
        text = orjson.dumps(value, option=_ONLY_JSON).decode()
    except orjson.JSONEncodeError:
        text = _encode(_plain, value)
    if _prints_alike(value):
        return text
    # Refuses what is no JSON.
    _encode(_plain, value)
    try:
        return "".join(_write(value))
    except RecursionError:
        raise _too_deep() from None


def canonical(value: Any) -> bytes:
    """JSON, equal for two values exactly when JavaScript holds them equal, in any key order.

    Raises:
        InvalidMessage: the value is not JSON, or is nested too deeply.
    """
    text = _sorted(value)
    # Every float with an integral value that is safe ends in ".0"; inside a string that only costs time.
    if b".0" not in text:
        return text
    try:
        return _sorted(_with_integral_numbers(value))
    except RecursionError:
        raise _too_deep() from None


def _sorted(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=_ONLY_JSON | orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # Long integers, halves of surrogate pairs and deep nesting are JSON all the same.
        return _encode(_canonical, value).encode()


def number_text(value: float) -> str:
    """A number as JavaScript prints it: the shortest digits that read back, ``null`` if not finite."""
    try:
        number = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(number):
        return "null"
    if number.is_integer() and abs(number) < 10**_JS_DECIMAL_DIGITS:
        return _integral_text(number)
    mantissa, _, exponent = repr(number).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    point = (len(whole) if whole != "0" else len(digits) - len(fraction)) + int(exponent or 0)
    digits = digits.rstrip("0")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= _JS_DECIMAL_DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    power = point - 1
    return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{'+' if power > 0 else ''}{power}"


def _integral_text(number: float) -> str:
    # Beyond 2**53 JavaScript prints the shortest digits that read back, filled up with zeros.
    if abs(number) <= _MAX_SAFE_INTEGER:
        return str(int(number))
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    whole, _, fraction = mantissa.partition(".")
    return whole + fraction + "0" * (int(exponent) - len(fraction))


def _encode(encoder: json.JSONEncoder, value: Any) -> str:
    try:
        return encoder.encode(value)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise InvalidMessage(f"a message holds something that is not JSON: {error}") from None


def _too_deep() -> InvalidMessage:
    return InvalidMessage("a message is nested too deeply to be read; flatten its arguments or details")


def _prints_alike(value: Any) -> bool:
    """Whether JavaScript surely prints a value as the standard encoder does.

    A float, a long integer, an integer-like key or half of a surrogate pair may print differently.
    """
    pending = [value]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is str:
            if not value.isascii() and not _encodes(value):
                return False
        elif kind is dict:
            for key in value:
                if type(key) is not str or key[:1].isdigit() or not (key.isascii() or _encodes(key)):
                    return False
            pending.extend(value.values())
        elif kind is list:
            pending.extend(value)
        elif kind is int:
            if not -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
                return False
        elif value is not None and kind is not bool:
            return False
    return True


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_integral_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _MAX_SAFE_INTEGER else value
    if isinstance(value, Mapping):
        return {key: _with_integral_numbers(child) for key, child in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_with_integral_numbers(child) for child in value]
    return value


def _write(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_string_text(value)]
    if value is None or isinstance(value, bool):
        return [{None: "null", True: "true", False: "false"}[value]]
    if isinstance(value, int):
        return [str(value) if abs(value) <= _MAX_SAFE_INTEGER else number_text(value)]
    if isinstance(value, float):
        return [number_text(value)]
    parts: list[str] = []
    if isinstance(value, Mapping):
        for key in _property_order(value):
            parts += [",", _string_text(str(key)), ":", *_write(value[key])]
        return ["{", *parts[1:], "}"]
    for child in value:
        parts += [",", *_write(child)]
    return ["[", *parts[1:], "]"]


def _string_text(text: str) -> str:
    encoded = _plain.encode(text)
    if not _SURROGATE.search(encoded):
        return encoded
    # A pair split over two Python characters is one character in JavaScript; a lone half is escaped.
    joined = from_utf16(to_utf16(encoded))
    return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", joined)


def _property_order(value: Mapping[Any, Any]) -> list[Any]:
    # JavaScript lists array-index keys first, in ascending order.
    indexes = [key for key in value if _ARRAY_INDEX.match(str(key)) and int(key) <= _MAX_ARRAY_INDEX]
    if not indexes:
        return list(value)
    seen = set(indexes)
    return [*sorted(indexes, key=int), *(key for key in value if key not in seen)]
