"""The bench of what a provider call costs: all get a valid conversation, nobody is left out silently."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

BENCH = Path(__file__).parents[2] / "ops" / "bench"
OWN = ("calls", "call_costs", "prompt_cache")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program and its modules, which are no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


def test_it_writes_tables_and_a_figure_without_the_peers(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--most", "50", "--calls", "3", "--held", "60", "--starts", "1", "--resumes", "1"]
    bench("calls").main(["--alone", "--parts", "calls", "resumed", *few, "--plots", str(tmp_path)])

    tables = (tmp_path / "calls.md").read_text()
    assert capsys.readouterr().out == f"{tables}\n"
    assert "| **context paging** | " in tables
    assert "## Resumed session" in tables
    assert "## Memory" not in tables
    assert "LangChain" not in tables
    figure = ElementTree.parse(tmp_path / "calls.svg").getroot()
    assert "context paging, whole list" in [text.text for text in figure.iter() if text.text]


@pytest.mark.parametrize("name", ["fed", "listed"])
def test_context_paging_sends_a_valid_window_of_the_conversation(bench: Any, name: str) -> None:
    measuring, contenders = bench("call_costs.measuring"), bench("call_costs.own").CONTENDERS
    told = measuring.calls(contenders[name](), 1_000, 20, 20.0)

    assert told["calls"] == 20
    assert (told["broken"], told["begins"]) == (0, "user")
    assert 0 < told["sent"] < 1_001
    assert 0 < told["median"] < told["first"]


def test_each_part_of_the_conversation_ends_where_a_call_is_due(bench: Any) -> None:
    messages = bench("call_costs.messages")
    said = list(messages.conversation(0, 65))

    assert {message["role"] for message in said[::2]} == {"user", "toolResult"}
    assert {message["role"] for message in said[1::2]} == {"assistant"}
    assert [messages.odd(length) for length in (1_000, 1_001)] == [1_001, 1_001]


class _Slow:
    """Holds every message again, and is slow from some length on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._list: list[Any] = []

    def native(self, message: dict[str, Any], number: int) -> Any:
        return message

    def begin(self, messages: list[Any]) -> None:
        self._list = [dict(message) for message in messages]

    def call(self, new: list[Any]) -> list[Any]:
        self._list += new
        if len(self._list) > self._limit:
            time.sleep(10)
        return self._list

    def shape(self, sent: Any) -> Any:
        calls = [block["id"] for block in sent["content"] if "id" in block]
        return sent["role"], calls, [sent["toolCallId"]] if "toolCallId" in sent else []


def test_who_is_too_slow_is_stopped(bench: Any) -> None:
    calls = bench("call_costs.measuring").calls

    assert calls(_Slow(10), 10, 3, 0.01) == {"stopped": pytest.approx(0.03)}
    assert calls(_Slow(11), 10, 3, 0.02) == {"stopped": 0.02}
    assert calls(_Slow(17), 10, 3, 0.5)["sent"] == 17


def test_the_table_and_the_figure_tell_who_was_stopped(bench: Any, tmp_path: Path) -> None:
    done = {"first": 9.0, "median": 2.0, "calls": 3, "sent": 7, "broken": 2, "begins": "user"}
    found = {
        "autogen": {1_000: done, 10_000: {"stopped": 20.0}},
        "dumped": {1_000: {**done, "median": 4.0}, 10_000: {**done, "median": 40.0}},
    }
    table = bench("call_costs.tables").page(
        {"calls": found, "versions": {"Python": "3"}, "cores": 2, "load": [0, 1]}
    )
    path = tmp_path / "calls.svg"
    bench("call_costs.picture").growth(path, "title", bench("calls").lines(found))

    assert "| AutoGen `TokenLimited…Context` | 2.00 | – | 7 | 2 |" in table
    assert "| AutoGen `TokenLimited…Context` | 0.5 | – |" in table
    assert "had no answer after 20 s at 10,000 messages. Longer sessions were not tried" in table
    assert "not measured in this run* | 35.0 | 372 |" in table
    assert "it would take longer than that" in path.read_text()


def test_the_status_tells_whether_a_fed_session_grows(bench: Any) -> None:
    steady = bench("calls").steady

    assert steady({"fed": {1_000: {"median": 1.0}, 10_000: {"median": 2.0}}})
    assert not steady({"fed": {1_000: {"median": 1.0}, 10_000: {"median": 2.1}}})
    assert not steady({"fed": {1_000: {"median": 1.0}, 10_000: {"stopped": 20.0}}})
    assert steady({})


def test_who_would_be_too_slow_by_far_is_not_tried(bench: Any) -> None:
    hopeless = bench("calls").hopeless

    assert hopeless([{"median": 40.0}, {"median": 6_000.0}], 20.0) == {"stopped": 20.0, "expected": 900.0}
    assert hopeless([{"median": 40.0}, {"median": 1_000.0}], 20.0) is None
    assert hopeless([{"median": 6_000.0}], 20.0) is None


def test_broken_pairs_of_a_request_are_counted(bench: Any) -> None:
    said = list(bench("call_costs.messages").conversation(0, 9))
    described = bench("call_costs.measuring").described

    assert described(_Slow(0), said) == {"sent": 9, "broken": 0, "begins": "user"}
    assert described(_Slow(0), said[2:4])["broken"] == 2
    assert described(_Slow(0), []) == {"sent": 0, "broken": 0, "begins": None}


def test_what_is_held_beside_the_messages_is_weighed(bench: Any) -> None:
    told = bench("call_costs.measuring").weighed(_Slow(10_000), 1_000, True)

    # A copy of each dictionary; the contents are the host's.
    assert 100 < told["beside"] < told["host"]


def test_a_recorded_session_has_a_call_before_each_response(bench: Any, tmp_path: Path) -> None:
    said = list(bench("call_costs.messages").conversation(0, 17))
    file = tmp_path / "said.json"
    file.write_text(json.dumps(said))
    told = bench("call_costs.measuring").answer(
        {"slow": lambda: _Slow(100)}, ["replay", "slow", str(file), "1"]
    )

    assert (told["calls"], told["sent"], told["empty"]) == (8, 8, 0)
