"""Anchors: what somebody else can check with a file and a public key."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from context_paging.service.log import EventLog, InvalidAnchor, LogUnavailable
from context_paging.service.log.anchor import load_private_key, load_public_key, make_signing_key
from context_paging.service.log.chain import GENESIS, record_hash

from .events import records, small_session, started


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key pair for anchors."""
    make_signing_key(tmp_path / "anchor.pem")
    return tmp_path / "anchor.pem"


@pytest.fixture
def anchored(log: EventLog, key: Path) -> tuple[EventLog, Any]:
    """A log of two sessions, and an anchor of it that went through a file."""
    log.append("s", 0, small_session())
    log.append("t", 0, small_session("t"))
    log.flush()
    return log, json.loads(json.dumps(log.anchor(load_private_key(key))))


def test_a_log_that_only_grew_fits_its_anchor(anchored: tuple[EventLog, Any], key: Path) -> None:
    log, anchor = anchored
    log.append("s", 9, records(started(), first=10))
    log.append("u", 0, records(started(), session="u"))

    checked = log.check_anchor(anchor, load_public_key(key.with_name("anchor.pem.pub")))

    assert (checked.intact, checked.retired, checked.rewritten) == (2, (), ())


def test_a_chain_that_was_written_again_from_a_change_on_does_not_fit(anchored: tuple[EventLog, Any]) -> None:
    log, anchor = anchored
    previous = GENESIS
    with log.engine.begin() as connection:
        connection.execute(
            text("UPDATE events SET payload = replace(payload, '1000', '9000') WHERE session_id = 's'")
        )
    for event in log.events("s"):
        previous = record_hash(event, before := previous)
        with log.engine.begin() as connection:
            connection.execute(
                text("UPDATE events SET hash = :hash, previous_hash = :before WHERE position = :position"),
                {"hash": previous, "before": before, "position": event.position},
            )

    checked = log.check_anchor(anchor)

    assert [(found.session_id, found.sequence) for found in checked.rewritten] == [("s", 9)]
    assert checked.intact == 1


def test_a_session_that_is_gone_is_told_from_one_that_was_retired(anchored: tuple[EventLog, Any]) -> None:
    log, anchor = anchored
    log.retire("s")
    with log.engine.begin() as connection:
        connection.execute(text("DELETE FROM events WHERE session_id = 't'"))

    checked = log.check_anchor(anchor)

    assert checked.retired == ("s",)
    assert [found.session_id for found in checked.rewritten] == ["t"]


def test_an_id_that_was_retired_and_used_again_is_not_taken_for_rewritten(
    anchored: tuple[EventLog, Any],
) -> None:
    log, anchor = anchored
    log.retire("s")
    log.append("s", 0, [record._replace(event_id=f"new-{record.event_id}") for record in small_session()])

    checked = log.check_anchor(anchor)

    assert (checked.retired, checked.rewritten) == (("s",), ())


@pytest.mark.parametrize(
    "change",
    [
        {"made_at": "2020-01-01T00:00:00.000000Z"},
        {"heads": []},
        {"heads": 5},
        {"heads": [["s", 9]]},
        {"heads": [["s", True, "0" * 64]]},
        {"signature": "AAAA"},
        {"signature": "?"},
        {"public_key": "AAAA"},
        {"format": "another"},
        {"log": None},
    ],
    ids=str,
)
def test_an_anchor_that_was_changed_is_refused(
    anchored: tuple[EventLog, Any], change: dict[str, Any]
) -> None:
    log, anchor = anchored

    with pytest.raises(InvalidAnchor):
        log.check_anchor({**anchor, **change})


@pytest.mark.parametrize("anchor", [None, [], "text", {}, {"heads": []}])
def test_what_is_no_anchor_is_refused(log: EventLog, anchor: Any) -> None:
    with pytest.raises(InvalidAnchor):
        log.check_anchor(anchor)


def test_an_anchor_signed_by_somebody_else_is_refused(anchored: tuple[EventLog, Any], tmp_path: Path) -> None:
    log, anchor = anchored
    make_signing_key(tmp_path / "other.pem")

    with pytest.raises(InvalidAnchor, match="another key"):
        log.check_anchor(anchor, load_public_key(tmp_path / "other.pem.pub"))


def test_an_anchor_of_another_log_is_refused(anchored: tuple[EventLog, Any]) -> None:
    _, anchor = anchored
    with EventLog.open() as other, pytest.raises(InvalidAnchor, match="of log"):
        other.check_anchor(anchor)


def test_a_private_key_is_for_its_owner_alone_and_never_overwritten(key: Path) -> None:
    content = key.read_bytes()

    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(LogUnavailable, match="cannot be written"):
        make_signing_key(key)
    assert key.read_bytes() == content


def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, key: Path) -> None:
    (tmp_path / "text").write_text("not a key")

    for load in (load_private_key, load_public_key):
        with pytest.raises(InvalidAnchor, match="holds no"):
            load(tmp_path / "text")
        with pytest.raises(InvalidAnchor, match="cannot be read"):
            load(tmp_path / "nothing")
    with pytest.raises(InvalidAnchor):
        load_public_key(key)
