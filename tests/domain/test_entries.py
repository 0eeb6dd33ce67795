"""Entries, and the messages that a host makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from context_paging.domain.entries import context_message, digest_entry, edited_message
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


@pytest.mark.parametrize("odd", [["user"], {"role": "user"}, 7, True, None])
def test_an_edit_of_a_message_with_an_odd_role_or_stop_reason_is_read(odd: Any) -> None:
    unknown = {"type": "message", "id": "a", "message": {"role": odd, "content": "x"}}
    stopped = {"role": "assistant", "content": "x", "stopReason": odd}
    answer = {"type": "message", "id": "b", "message": stopped}

    for target in (unknown, answer):
        edit = {"type": "context_edit", "id": "c", "targetId": target["id"]}
        ref = digest_entry(edit, HeuristicEstimator(), {target["id"]: target}.get)

        assert not ref.omits_failed
        assert (ref.message is None) == (edited_message(edit, target) is None) == (target is answer)
