"""What recovery costs and finds: searches of a long history, and how often the right item is among five.

    python ops/bench/recovery.py [speed] [quality] [repair] [--items 100000] [--json]

``speed``: the first search of a history, which makes the index; the same again; and one after each further
turn, as a ratio to the first. ``quality``: recall@5 of questions about real sessions
(``search_questions.json``) by the plain terms, by the expanded ones, and by SQLite's FTS5 over the same
texts; it needs the corpus folder, from CONTEXT_PAGING_CORPUS or beside the project. ``repair``: a context
request of a long session with the repair policy, as a ratio to one without.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from selection import SETTINGS, entries

from context_paging.domain.recovery.navigator import Navigator
from context_paging.domain.recovery.public_view import PublicItem, calls_recovery_tool
from context_paging.domain.recovery.terms import Analyzer, expanded_terms, plain_terms
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file

REPAIR: dict[str, Any] = {"contextPaging": {**SETTINGS["contextPaging"], "onInvalidStructure": "repair"}}
QUERIES = ("line 4711", "src/file_77.py read", "line", "nothing-like-this")
TURNS = 20
CALLS = 200
FOUND = 5
ENTRIES_AN_ITEM = 13 / 7


def resumed(items: int, settings: Any) -> Session:
    """A session of about so many history items."""
    session = Session("bench")
    session.start("resume", global_settings=settings)
    session.append(entries(round(items * ENTRIES_AN_ITEM)))
    return session


def seconds(work: Callable[[], Any]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(items: int) -> dict[str, Any]:
    """Times of searches, in milliseconds; of several, the median."""
    session = resumed(items, SETTINGS)
    session.context()
    first = seconds(lambda: session.tool("search_history", {"query": QUERIES[0]}))
    again = {
        query: statistics.median(
            seconds(lambda query=query: session.tool("search_history", {"query": query})) for _ in range(5)
        )
        for query in QUERIES
    }
    after_turns = []
    for number in range(TURNS):
        leaf = session.stored.leaf_id
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": "new.py"}}
        messages = [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": [call], "stopReason": "toolUse"},
            {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "text " * 200},
        ]
        for part, message in enumerate(messages):
            entry_id = f"turn-{number}-{part}"
            session.append([{"type": "message", "id": entry_id, "parentId": leaf, "message": message}])
            leaf = entry_id
        after_turns.append(seconds(lambda: session.tool("search_history", {"query": QUERIES[0]})))
    browse = statistics.median(
        seconds(lambda: session.tool("browse_history", {"direction": "around", "sequence": items // 2}))
        for _ in range(5)
    )
    after_turn = statistics.median(after_turns)
    return {
        "items": session.state.branch.history.length,
        "first search, ms": first * 1e3,
        "later searches, ms": {query: took * 1e3 for query, took in again.items()},
        "search after one more turn, ms": after_turn * 1e3,
        "ratio to the first": after_turn / first,
        "slowest of those, ratio": max(after_turns) / first,
        "browse, ms": browse * 1e3,
    }


def quality() -> dict[str, Any]:
    """Recall@5 of each way to search, over all questions."""
    questions = json.loads((Path(__file__).parent / "search_questions.json").read_text("utf-8"))
    named = os.environ.get("CONTEXT_PAGING_CORPUS")
    corpus = Path(named) if named else Path(__file__).parents[2].parent / "shared" / "corpus"
    found = dict.fromkeys(("plain BM25 (default)", "expanded terms", "FTS5", "FTS5, porter"), 0)
    asked = 0
    for name, pairs in questions.items():
        file = read_session_file(corpus / name)
        session = Session("bench")
        session.start(global_settings=REPAIR)
        session.append(file.entries)
        session.navigate(file.leaf_id)
        asked += len(pairs)
        for way, ask in _ways(session).items():
            found[way] += sum(bool(set(ask(question)) & set(answers)) for question, answers in pairs)
    return {"questions": asked, **{way: count / asked for way, count in found.items()}}


def _ways(session: Session) -> dict[str, Callable[[str], list[str]]]:
    history, content = session.state.branch.history, session.stored.entries.__getitem__

    def own(analyzer: Analyzer) -> Callable[[str], list[str]]:
        navigator = Navigator(content, analyzer)
        return lambda question: [r["historyId"] for r in navigator.search(history, question, limit=FOUND)]

    def fts(tokenizer: str) -> Callable[[str], list[str]]:
        database = sqlite3.connect(":memory:")
        database.execute(f"CREATE VIRTUAL TABLE items USING fts5(id UNINDEXED, body, tokenize='{tokenizer}')")
        for item in history.items:
            if not calls_recovery_tool(item):
                body = "\n".join(PublicItem(item, content).search_texts())
                database.execute("INSERT INTO items VALUES (?, ?)", (item.id, body))

        def ask(question: str) -> list[str]:
            words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
            with closing(database.cursor()) as cursor:
                cursor.execute(
                    "SELECT id FROM items WHERE items MATCH ? ORDER BY bm25(items) LIMIT ?", (words, FOUND)
                )
                return [row[0] for row in cursor]

        return ask

    return {
        "plain BM25 (default)": own(plain_terms),
        "expanded terms": own(expanded_terms),
        "FTS5": fts("unicode61"),
        "FTS5, porter": fts("porter unicode61"),
    }


def repair(items: int) -> dict[str, Any]:
    """A context request of a session that is fed and breaks nothing, under each policy, in microseconds."""
    sessions = {"abort": resumed(items, SETTINGS), "repair": resumed(items, REPAIR)}
    first = {name: seconds(session.context) for name, session in sessions.items()}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(CALLS):
        for name, session in sessions.items():
            entry = {
                "type": "message",
                "id": f"more-{number}",
                "parentId": session.stored.leaf_id,
                "message": {"role": "user", "content": "go on " * 20, "timestamp": number},
            }
            session.append([entry])
            times[name].append(seconds(session.context))
    medians = {name: statistics.median(took) * 1e6 for name, took in times.items()}
    return {
        "items": items,
        "abort, µs": medians["abort"],
        "repair, µs": medians["repair"],
        "ratio": medians["repair"] / medians["abort"],
        "first request, ratio": first["repair"] / first["abort"],
    }


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="speed, quality, repair; all of them if none is named")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "speed": lambda: speed(options.items),
        "quality": quality,
        "repair": lambda: repair(options.items),
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    figures = {name: part() for name, part in parts.items() if not options.parts or name in options.parts}
    if options.json:
        print(json.dumps(figures, ensure_ascii=False))
        return 0
    for name, values in figures.items():
        print(name)
        for label, value in values.items():
            for inner, figure in value.items() if isinstance(value, dict) else [("", value)]:
                shown = f"{figure:,.3f}" if isinstance(figure, float) else f"{figure:,}"
                print(f"  {label + (': ' + inner if inner else ''):<52} {shown:>14}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
