"""The bundled example session is what the demo and the documentation say of it."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from typing import Any

import pytest

from context_paging.domain.entries import branch_to
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.service.example import example_path
from context_paging.service.example.generator import lines, session

Entry = dict[str, Any]


@pytest.fixture(scope="module")
def records() -> list[Entry]:
    """The header and the entries of the bundled file."""
    with example_path() as path, gzip.open(path, "rt", encoding="utf-8") as text:
        return [json.loads(line) for line in text]


@pytest.fixture(scope="module")
def branch(records: list[Entry]) -> list[Entry]:
    """The active branch."""
    entries = {entry["id"]: entry for entry in records[1:]}
    return [dict(entry) for entry in branch_to(records[-1]["id"], entries)]


@pytest.fixture(scope="module")
def messages(branch: list[Entry]) -> list[Entry]:
    """The messages on the active branch."""
    return [entry["message"] for entry in branch if entry["type"] == "message"]


def test_the_generator_writes_the_bundled_file() -> None:
    with example_path() as path:
        bundled = gzip.decompress(path.read_bytes())
        assert path.stat().st_size < 250_000

    assert lines(session()) == bundled


def test_it_is_a_long_session_of_the_current_version(records: list[Entry], messages: list[Entry]) -> None:
    assert records[0]["type"] == "session"
    assert records[0]["version"] == 3
    assert len(messages) >= 300
    assert sum(message["role"] == "user" for message in messages) >= 20


def test_every_finished_exchange_on_the_branch_is_complete(messages: list[Entry]) -> None:
    for index, message in enumerate(messages):
        if message["role"] != "assistant" or message["stopReason"] in ("aborted", "error"):
            continue
        calls = [block["id"] for block in message["content"] if block["type"] == "toolCall"]
        results = [m["toolCallId"] for m in messages[index + 1 : index + 1 + len(calls)] if "toolCallId" in m]
        assert sorted(calls) == sorted(results)
        assert len(set(calls)) == len(calls)
    assert messages[-1]["stopReason"] == "stop"


def test_it_has_every_kind_of_trouble(
    records: list[Entry], branch: list[Entry], messages: list[Entry]
) -> None:
    types = Counter(entry["type"] for entry in branch)
    stops = Counter(message.get("stopReason") for message in messages)
    roles = Counter(message["role"] for message in messages)

    assert types["compaction"] == 1
    assert types["branch_summary"] == 1
    assert len(records) - 1 > len(branch)
    assert stops["aborted"] == 1
    assert stops["error"] == 1
    assert roles["bashExecution"] >= 1
    assert types["context_edit"] == 1
    assert {"model_change", "custom_message", "label", "session_info", "custom"} <= set(types)
    assert any(m.get("usage", {}).get("cacheRead") for m in messages)


def test_parallel_calls_are_answered_as_they_finish(messages: list[Entry]) -> None:
    out_of_order = 0
    for index, message in enumerate(messages):
        calls = [
            b["id"] for b in message.get("content") or [] if isinstance(b, dict) and b["type"] == "toolCall"
        ]
        results = [m.get("toolCallId") for m in messages[index + 1 : index + 1 + len(calls)]]
        out_of_order += len(calls) > 1 and set(results) == set(calls) and results != calls
    assert out_of_order >= 5


def test_one_result_behind_the_compaction_is_huge(branch: list[Entry]) -> None:
    estimator = HeuristicEstimator()
    at = next(index for index, entry in enumerate(branch) if entry["type"] == "compaction")
    sizes = [
        estimator.message_tokens(entry["message"]) for entry in branch[at:] if entry["type"] == "message"
    ]

    assert len(sizes) >= 120
    assert sum(size > 30_000 for size in sizes) == 1
    assert sum(size > 6_000 for size in sizes) == 1


def test_its_picture_is_a_picture(messages: list[Entry]) -> None:
    blocks = [block for m in messages if isinstance(m.get("content"), list) for block in m["content"]]
    (image,) = [block for block in blocks if block["type"] == "image"]

    assert base64.b64decode(image["data"]).startswith(b"\x89PNG\r\n\x1a\n")
