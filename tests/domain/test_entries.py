"""Entries, and the messages that a host makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from context_paging.domain.entries import context_message
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.messages import digest


@pytest.mark.parametrize(
    "given", [{"display": True}, {"display": False, "details": {"a": 1}}, {"details": None}]
)
def test_a_custom_message_has_the_fingerprint_of_the_hosts_own(given: dict[str, Any]) -> None:
    entry = {
        "type": "custom_message",
        "id": "a",
        "timestamp": "1970-01-01T00:00:00.007Z",
        "customType": "note",
        "content": "noted",
        **given,
    }
    own = {"role": "custom", "customType": "note", "content": "noted", **given, "timestamp": 7}
    message = context_message(entry)
    assert message is not None
    assert digest(message, HeuristicEstimator()) == digest(own, HeuristicEstimator())
