"""Token counters: offline, exact about what they count, and never a surprise in the middle of a call."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.estimation import HeuristicEstimator, TokenEstimator
from context_paging.domain.what_if import Change
from context_paging.service import ContextPaging
from context_paging.service import tokenizers as counters
from context_paging.service.log import EventLog
from context_paging.service.tokenizers import (
    CountedTokens,
    InvalidCount,
    TiktokenEstimator,
    UnknownEstimator,
    VocabularyMissing,
    estimator,
)
from context_paging.service.what_if import what_if
from tests.service.hosts.scripts import TEXTS

HAN = "潮汐" * 1_750
ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may ask for anything."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("o200k_base", "o200k_base"),
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-5-mini", "o200k_base"),
        ("azure/openai/gpt-4", "cl100k_base"),
        ("gpt-4o-2024-05-13", "o200k_base"),
        ("heuristic", "heuristic"),
    ],
)
def test_an_estimator_has_the_name_of_an_encoding_or_of_a_model(name: str, encoding: str) -> None:
    assert estimator(name).name == encoding


def test_the_counts_are_those_of_the_vocabularies() -> None:
    message = {"role": "user", "content": HAN}
    counts = [estimator(name).message_tokens(message) for name in ("heuristic", "cl100k_base", "o200k_base")]
    assert counts[0] == 875
    assert counts[1] > counts[2] > 2 * counts[0]


def test_everything_the_heuristic_counts_is_counted() -> None:
    counter = TiktokenEstimator("o200k_base")
    picture = {"type": "image", "data": "x" * 100_000}
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a b c"}}
    messages: list[tuple[dict[str, Any], int]] = [
        ({"role": "user", "content": [{"type": "text", "text": "hello world"}, picture]}, 2 + 1_200),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hello world"}, call]},
            2 + 1 + 7,
        ),
        ({"role": "bashExecution", "command": "hello world", "output": "hello world"}, 4),
        ({"role": "branchSummary", "summary": "hello world"}, 2),
        ({"role": "unknown", "content": "hello world"}, 0),
    ]
    assert [counter.message_tokens(message) for message, _ in messages] == [count for _, count in messages]
    assert counter.resident_tokens("hello world", [{"name": "t"}]) > 2


@given(st.one_of(st.text(), st.lists(TEXTS).map("".join), st.text("a \n", max_size=9_000)))
def test_a_long_text_counts_about_what_it_counts_in_one(text: str) -> None:
    counter = TiktokenEstimator("cl100k_base")
    whole = counters._encoding("cl100k_base").encode_ordinary(text)
    pieces = len(text) // counters._PIECE + 1
    assert abs(counter.count(text) - len(whole)) <= 2 * pieces


@pytest.mark.parametrize("run", ["a", " ", "\n", "!", "中", "1", "aB", "<|endoftext|>", "\ud800", "😀"])
def test_no_text_is_refused_or_takes_long(run: str) -> None:
    text = run * (400_000 // len(run))
    assert 0 < TiktokenEstimator("o200k_base").count(text) <= len(text.encode("utf-8", "surrogatepass"))


def test_a_count_is_remembered_by_the_fingerprint_of_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = TiktokenEstimator("o200k_base")
    first = counter.message_tokens({"role": "user", "content": "hello"}, b"f")
    monkeypatch.setattr(counter, "_encode", None)

    assert counter.message_tokens({"role": "user", "content": "hello"}, b"f") == first


def test_only_the_newest_counts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "REMEMBERED_COUNTS", 2)
    counted = CountedTokens()
    messages = [{"role": "user", "content": f"message {n}"} for n in range(3)]
    for message in messages:
        counted.learn(message, 1_000)

    assert [counted.message_tokens(message) for message in messages] == [3, 1_000, 1_000]


@pytest.mark.parametrize(
    "name", ["gpt-4x", "claude-sonnet-4-5", "", "heuristics", "gpt2", "../../etc/passwd"]
)
def test_an_estimator_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(UnknownEstimator):
        estimator(name)


def test_what_was_meant_is_suggested() -> None:
    with pytest.raises(UnknownEstimator, match="did you mean gpt-4o"):
        estimator("gpt4o")


def test_a_vocabulary_that_is_not_here_is_told_at_once_and_not_fetched() -> None:
    with pytest.raises(VocabularyMissing, match="is not fetched") as raised:
        estimator("r50k_base")
    assert "TIKTOKEN_CACHE_DIR" in str(raised.value)


KEY = hashlib.sha1(ADDRESS.encode()).hexdigest()
PACKED = gzip.compress(b"x" * 9_000, mtime=0)


@pytest.fixture(scope="module")
def vocabulary() -> bytes:
    """The vocabulary's file, made again from what it holds."""
    lines = (b64encode(token) + b" %d" % rank for token, rank in counters._ranks(ADDRESS).items())
    return b"\n".join(lines) + b"\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders tiktoken keeps vocabularies in, in the order they are looked at; no packages."""
    found = [tmp_path / name for name in ("tiktoken", "data-gym", "temporary/data-gym-cache")]
    for folder in found:
        folder.mkdir(parents=True)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(found[0]))
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(found[1]))
    monkeypatch.setattr(tempfile, "tempdir", str(found[2].parent))
    monkeypatch.setattr(counters, "_PACKAGES", ())
    return found


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_file_where_tiktoken_keeps_it_is_taken(folders: list[Path], place: int, vocabulary: bytes) -> None:
    (folders[place] / KEY).write_bytes(vocabulary)

    assert len(counters._ranks(ADDRESS, hashlib.sha256(vocabulary).hexdigest())) > 199_000


def test_a_damaged_file_is_passed_over_and_left(folders: list[Path], vocabulary: bytes) -> None:
    (folders[0] / KEY).write_bytes(b"nonsense")
    (folders[1] / KEY).write_bytes(vocabulary)

    assert counters._ranks(ADDRESS, hashlib.sha256(vocabulary).hexdigest())
    assert (folders[0] / KEY).read_bytes() == b"nonsense"


def test_where_a_vocabulary_was_looked_for_is_told(folders: list[Path]) -> None:
    (folders[0] / KEY).write_bytes(b"nonsense")

    with pytest.raises(VocabularyMissing) as raised:
        counters._ranks(ADDRESS, "0" * 64)
    told = str(raised.value)
    assert f"{folders[0] / KEY} (not the vocabulary: its SHA-256 differs)" in told
    assert all(f"{folder / KEY} (no such file)" in told for folder in folders[1:])


@pytest.mark.parametrize(
    "damage",
    [b"nonsense", PACKED[:20], PACKED[:10] + b"\xff" * 40],
    ids=["not packed", "cut off", "spoilt"],
)
def test_a_damaged_file_of_a_package_is_told(
    folders: list[Path], damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "o200k_base.tiktoken.gz"
    packed.write_bytes(damage)
    places = counters._places
    monkeypatch.setattr(counters, "_places", lambda key, name: [*places(key, name), packed])

    with pytest.raises(VocabularyMissing, match=re.escape(str(packed))):
        counters._ranks(ADDRESS, "0" * 64)


def test_tiktoken_itself_is_left_as_it_was() -> None:
    from tiktoken_ext import openai_public

    before = dict(vars(openai_public)), dict(os.environ), dict(tiktoken.registry.ENCODINGS)
    counters._encoding.cache_clear()
    estimator("cl100k_base")

    assert (dict(vars(openai_public)), dict(os.environ), dict(tiktoken.registry.ENCODINGS)) == before


def test_what_a_provider_counted_comes_before_an_estimate() -> None:
    counted = CountedTokens(TiktokenEstimator("o200k_base"))
    known, other = {"role": "user", "content": "hello"}, {"role": "user", "content": "hello world"}
    counted.learn(known, 77)

    assert counted.name == "counted, o200k_base"
    assert counted.message_tokens(dict(known)) == 77
    assert counted.message_tokens(other) == 2
    session = ContextPaging(estimator=counted).session("s")
    session.append([{"type": "message", "id": "1", "parentId": None, "message": known}])
    outcome = session.context().outcome
    assert outcome is not None
    assert outcome.estimated_tokens == 77 + counted.resident_tokens("", [])


@pytest.mark.parametrize("count", [-1, 1.5, 3.0, float("nan"), True, None, "7"])
def test_what_is_no_count_is_not_learnt(count: Any) -> None:
    counted, message = CountedTokens(), {"role": "user", "content": "hello"}
    with pytest.raises(InvalidCount, match="whole number"):
        counted.learn(message, count)
    assert counted.message_tokens(message) == 2


def _session(log: EventLog, counter: TokenEstimator) -> None:
    session = ContextPaging(log, estimator=counter).session(
        "s", settings={"contextPaging": {"tokenBudget": 400}}
    )
    parent = None
    for number in range(40):
        role = "assistant" if number % 2 else "user"
        said = [{"type": "text", "text": f"message {number} " * 10}]
        message = {"role": role, "content": said, "timestamp": number, "stopReason": "stop"}
        session.append([{"type": "message", "id": str(number), "parentId": parent, "message": message}])
        parent = str(number)
        if not number % 2:
            session.context()


def test_the_log_names_the_estimator_and_decides_again_with_it() -> None:
    with EventLog.open() as log:
        _session(log, CountedTokens(TiktokenEstimator("o200k_base")))
        (first, *_) = log.events("s")
        calls = list(what_if(log, "s", Change()))

    assert getattr(first.event, "estimator", None) == "counted, o200k_base"
    assert len(calls) == 20
    assert [call.after for call in calls] == [call.before for call in calls]
    assert counters.known_estimator("nonsense").name == HeuristicEstimator().name


def test_it_is_set_by_a_variable_an_option_or_an_argument(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "CONTEXT_PAGING_LOG": str(tmp_path / "log.db"),
        "CONTEXT_PAGING_ESTIMATOR": "gpt-4o",
    }
    program = (
        "from context_paging.service import ContextPaging\n"
        "for name in (None, 'cl100k_base'):\n"
        "    with ContextPaging.open(estimator=name) as paging:\n"
        "        paging.session('a')\n"
    )
    command = [str(Path(sys.executable).parent / "context-paging")]
    missing = {**environment, "CONTEXT_PAGING_ESTIMATOR": "r50k_base"}

    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    refused = [
        subprocess.run(
            [*command, *arguments], env=missing, capture_output=True, text=True, check=False, timeout=120
        )
        for arguments in (["demo"], ["bridge"], ["serve", "--no-token", "--port", "0"])
    ]

    with EventLog.open(tmp_path / "log.db") as log:
        started = [e.event for e in log.events("a") if e.event.type == "session-started"]
    assert [getattr(event, "estimator", None) for event in started] == ["o200k_base", "cl100k_base"]
    assert all(done.returncode != 0 and "is not fetched" in done.stderr for done in refused)
