"""Events as text and back."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.errors import InvalidEvent
from context_paging.domain.events import SCHEMA_VERSION, Event, ModelSelected, SessionStarted
from context_paging.domain.messages import MessageRef
from context_paging.service.log.codec import Encoder, decode

from .events import ended

encode = Encoder()

# Hosts write JSON, where a whole number is an int and any other a float; halves of surrogate pairs happen.
TEXT = st.text(st.characters(exclude_categories=()), max_size=12).filter(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
)
FLOATS = st.floats(allow_nan=False)
NUMBERS = st.integers() | FLOATS
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXT, children, max_size=3),
    max_leaves=6,
)
st.register_type_strategy(str, TEXT)
st.register_type_strategy(float, NUMBERS)
st.register_type_strategy(bytes, st.binary(min_size=32, max_size=32))
st.register_type_strategy(
    MessageRef,
    st.builds(MessageRef, timestamp=st.none() | NUMBERS | TEXT, call_id=st.none() | TEXT),
)


def events() -> st.SearchStrategy[Event]:
    """Any event."""
    return st.one_of([_of(shape) for shape in get_args(Event)])


def _of(shape: Any) -> st.SearchStrategy[Event]:
    names = {"global_settings", "project_settings"} & set(shape.__slots__)
    built: st.SearchStrategy[Event] = st.builds(shape, **dict.fromkeys(names, JSON))
    return built


@given(events())
def test_every_event_reads_back_as_it_was(event: Event) -> None:
    text = encode(event)

    assert text.isascii()
    decoded = decode(event.type, SCHEMA_VERSION, text)
    assert decoded == event
    # A text is equal to the member of an enumeration, but is none.
    assert repr(decoded) == repr(event)


@given(events())
def test_whole_numbers_stay_whole(event: Event) -> None:
    text = encode(event)

    assert encode(decode(event.type, SCHEMA_VERSION, text)) == text


def test_infinity_survives() -> None:
    text = '{"model":"m","context_window":Infinity}'

    event = decode("model-selected", SCHEMA_VERSION, text)

    assert math.isinf(getattr(event, "context_window"))  # noqa: B009
    assert encode(event) == text


def test_what_is_not_a_number_survives() -> None:
    event = decode("model-selected", SCHEMA_VERSION, encode(ModelSelected(context_window=math.nan)))

    assert isinstance(event, ModelSelected)
    assert event.context_window is not None
    assert math.isnan(event.context_window)


def _nested(depth: int) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for _ in range(depth):
        settings = {"deeper": settings}
    return settings


@pytest.mark.parametrize(
    "settings",
    [{"a": {1, 2}}, {"a": object()}, _nested(5_000), 10**5_000],
    ids=["set", "object", "nested", "digits"],
)
def test_what_json_does_not_have_is_a_typed_error(settings: Any) -> None:
    with pytest.raises(InvalidEvent, match="session-started"):
        encode(SessionStarted(reason="new", host="h", global_settings=settings))


@pytest.mark.parametrize(
    ("event_type", "version", "payload"),
    [
        ("unheard-of", 1, "{}"),
        ("model-selected", SCHEMA_VERSION + 1, "{}"),
        ("model-selected", 0, "{}"),
        ("model-selected", 1, '{"model":1}'),
        ("model-selected", 1, '{"colour":"red"}'),
        ("model-selected", 1, '{"context_window":true}'),
        ("model-selected", 1, "[]"),
        ("model-selected", 1, "nothing"),
        ("paging-toggled", 1, '{"enabled":1}'),
        ("branch-refreshed", 1, '{"kept":1.5}'),
        ("history-unavailable", 1, '{"code":"NO_SUCH_CODE"}'),
        ("turn-ended", 1, '{"response":{"role":"user","timestamp":1,"fingerprint":"zz","tokens":1}}'),
        ("turn-ended", 1, encode(ended()).replace('"total":15', '"total":"15"')),
        ("context-aborted", 1, "{}"),
    ],
)
def test_what_is_no_event_is_a_typed_error(event_type: str, version: int, payload: str) -> None:
    with pytest.raises(InvalidEvent):
        decode(event_type, version, payload)
