"""What is new in a request: whatever lists a host passes, digests have the last word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.messages import Message, MessageRef, digest
from context_paging.service.outgoing import OutgoingMessages

ESTIMATOR = HeuristicEstimator()


class Wilful(dict[str, Any]):
    """A message that is compared with nothing."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None


def wilful(content: str) -> Message:
    return Wilful(role="user", content=content)


def said(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "x", "n": content}]}


class Host:
    """Passes lists; remembers digests as a session does."""

    def __init__(self) -> None:
        self.outgoing = OutgoingMessages()
        self.refs: list[MessageRef] = []
        self.digested = 0

    def passes(self, messages: Sequence[Message], *, append_only: bool = False) -> int:
        reused, appended = self.outgoing.changes(messages, self.refs.__getitem__, self._digest)
        self.refs[reused:] = appended
        self.outgoing.remember(messages, reused, append_only=append_only)
        return reused

    def _digest(self, message: Message) -> MessageRef:
        self.digested += 1
        return digest(message, ESTIMATOR)


def exact(messages: Sequence[Message]) -> list[bytes]:
    return [digest(message, ESTIMATOR).fingerprint for message in messages]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "copy", "change", "drop", "insert", "copy all"]), st.integers(0, 30)),
    max_size=6,
)


@given(st.lists(CHANGES, min_size=1, max_size=6), st.data())
def test_the_digests_are_those_of_the_list_whatever_changed(
    requests: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    host, messages = Host(), [said(n % 3) for n in range(4)]
    for changes in requests:
        for change, place in changes:
            at = place % (len(messages) or 1)
            match change:
                case "add":
                    messages.append(said(place))
                case "insert":
                    messages.insert(at, said(place))
                case "copy all":
                    messages = [{**message} for message in messages]
                case "copy" if messages:
                    messages[at] = {**messages[at]}
                case "change" if messages:
                    messages[at] = said(f"other {place}")
                case "drop" if messages:
                    del messages[at]
        passed = list(messages) if data.draw(st.booleans()) else messages
        host.passes(passed)
        assert [ref.fingerprint for ref in host.refs] == exact(passed)


def test_a_list_that_grew_costs_what_is_new() -> None:
    host, messages = Host(), [said(n) for n in range(50)]
    host.passes(messages)
    host.digested = 0
    messages.append(said("new"))

    assert host.passes(messages) == 50
    assert host.digested == 1


def test_a_true_in_the_copies_is_no_one() -> None:
    host = Host()
    host.passes([said(1), said(0), said(2)])

    assert host.passes([said(True), said(0), said(2)]) == 0
    assert host.passes([said(True), said(False), said(2)]) == 1


def test_objects_that_do_not_compare_are_told_apart_by_what_they_hold() -> None:
    host, last = Host(), said("last")
    host.passes([wilful("a"), last])

    assert host.passes([wilful("a"), last]) == 2
    assert host.passes([wilful("b"), last, said("new")]) == 0
    assert [ref.fingerprint for ref in host.refs] == exact([wilful("b"), last, said("new")])


def test_a_hosts_list_behind_the_sessions_own_leaves_that_one_as_it_was() -> None:
    host, own = Host(), [said(n) for n in range(5)]
    host.passes(own, append_only=True)
    before = list(own)

    assert host.passes([*own, said("injected")]) == 5
    assert own == before
    own.append(said("stored"))
    assert host.passes(own, append_only=True) == 5
    assert [ref.fingerprint for ref in host.refs] == exact(own)
