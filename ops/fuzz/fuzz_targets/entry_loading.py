"""Session files: any is loaded or refused with a typed error, and what was loaded is there, exactly.

An input is a file, plain or gzip. Of what was loaded it must hold that

- the same file compressed gives the same entries and the same problems, and so do the entries written anew;
- ids are taken once, and a parent comes before its children;
- a session takes it, decides about it, and logs what it did; asked again without a change, it sends the same;
- what goes out are the host's own messages, a notice, and references in the place of payloads;
- statistics can be told, and each recovery tool reads the stored text back to the last character.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from context_paging.domain.errors import InvalidMessage
from context_paging.domain.json_text import stringify, utf16_length
from context_paging.domain.recovery.errors import RecoveryErrorCode, RecoveryRefused
from context_paging.domain.recovery.pages import joined
from context_paging.domain.recovery.public_view import public_block
from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.settings import settings_section
from context_paging.service.session import Session
from context_paging.service.session_file import SessionFile, SessionFileError, read_session_file

from .checked_log import CheckedLog
from .json_trees import changed, depth_of, dumped, loaded, words

MOST_BYTES = 16_384
_READ_ITEMS = 6
_DEEP = 500
_LONGEST_HISTORY_ID = 128
_MAGIC = b"\x1f\x8b"
_FOLDER = TemporaryDirectory(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
_WAYS = (
    {"contextPaging": settings_section(60, 20, OnInvalidStructure.REPAIR)},
    {"contextPaging": settings_section(900, on_invalid_structure=OnInvalidStructure.REPAIR)},
    {"contextPaging": settings_section(300)},
)
WORDS = words("entries")


def check(data: bytes) -> None:
    """What has to hold for a session file.

    Raises:
        Exception: it does not.
    """
    file = _read(data)
    if not data.startswith(_MAGIC):
        _same(file, _read(gzip.compress(data, 1)))
    if file is None:
        return
    ids = [entry["id"] for entry in file.entries]
    assert len(set(ids)) == len(ids)
    for number, entry in enumerate(file.entries):
        assert entry.get("parentId") is None or entry["parentId"] in ids[:number]
    _check_rewritten(file)
    _check_session(file, _WAYS[zlib.crc32(data) % len(_WAYS)])


def seeds() -> Iterator[tuple[str, bytes]]:
    """Files to begin with, by name."""
    head = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}
    text = {"type": "text", "text": "The tide table is in docs/tides.md 😀", "textSignature": "x"}
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "docs/a.md", "n": 1.0}}
    other = {"type": "toolCall", "id": "c2", "name": "edit", "arguments": {}}
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
    asked = {"role": "user", "content": "Where is the tide table?", "timestamp": 1}
    turn = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, text, call, other],
        "timestamp": 2,
    }
    turn |= {"stopReason": "toolUse", "usage": usage}
    found = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": [text], "timestamp": 3}
    failed = {"role": "toolResult", "toolCallId": "c2", "toolName": "edit", "content": [], "isError": True}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    last = {"role": "assistant", "content": [text], "stopReason": "stop", "timestamp": 5, "usage": usage}
    yield "turn", _lines(head, *_chain(asked, turn, found, failed, last, {**asked, "content": [text, image]}))
    yield "long", _lines(head, *_chain(*[asked, turn, found, failed, last] * 3))
    gone = {**turn, "stopReason": "aborted"}
    broken = _chain(
        asked, gone, found, turn, asked, failed, {"role": "bashExecution", "command": "ls", "output": "x"}
    )
    yield "broken", _lines(head, *broken)
    chain = _chain(asked, last, asked, last)
    edit = {
        "type": "context_edit",
        "id": "e5",
        "parentId": "e4",
        "targetId": "e2",
        "replacement": {"content": "short"},
    }
    cut = {
        "type": "compaction",
        "id": "e6",
        "parentId": "e5",
        "summary": "s",
        "firstKeptEntryId": "e2",
        "tokensBefore": 9,
    }
    said = {
        "type": "custom_message",
        "id": "e7",
        "parentId": "e6",
        "customType": "t",
        "content": "x",
        "display": True,
    }
    side = {"type": "branch_summary", "id": "e8", "parentId": "e2", "summary": "there", "fromId": "e7"}
    tail = {
        "type": "message",
        "id": "e9",
        "parentId": "e8",
        "message": {"role": "hookMessage", "content": "h"},
    }
    yield (
        "kinds",
        _lines(
            head, *chain, edit, cut, said, side, {"type": "model_change", "id": "m", "parentId": "e8"}, tail
        ),
    )
    first = [
        {"type": "message", "timestamp": "2026-01-01T00:00:00.000Z", "message": each}
        for each in (asked, last, asked)
    ]
    old = {"type": "compaction", "summary": "s", "firstKeptEntryIndex": 2, "tokensBefore": 1}
    yield "version-1", _lines({"type": "session", "id": "s"}, *first, old, *first)
    yield "version-2", _lines({**head, "version": 2}, *chain, {**tail, "parentId": "e4"})
    yield "gzip", gzip.compress(_lines(head, *_chain(asked, turn, found, failed, last)), mtime=0)
    yield "two-a-line", _lines(head, *chain).replace(b"\n", b" ", 2) + b"\xef\xbb\xbf{\xff\n[1]\nNaN\n"


def mutate(data: bytes, most: int, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    """An input that is somewhat different. ``plain`` changes bytes that are no structure."""
    if data.startswith(_MAGIC):
        if random.random() < 0.5:
            return plain(data, most)
        try:
            return gzip.compress(mutate(gzip.decompress(data)[:MOST_BYTES], most, random, plain), 1, mtime=0)[
                :most
            ]
        except (OSError, EOFError, zlib.error):
            return plain(data, most)
    chosen = random.random()
    if chosen < 0.15:
        return plain(data, most)
    if chosen < 0.16:
        return gzip.compress(data, 1, mtime=0)[:most]
    lines = data.split(b"\n")
    values = [value for line in lines if (value := _value(line)) is not None]
    at = random.randrange(len(lines))
    match random.choice(("change", "change", "change", "change", "drop", "twice", "swap", "join", "plain")):
        case "change":
            value = _value(lines[at])
            if value is not None:
                lines[at] = dumped(changed(value, random, WORDS, values))
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(random.randrange(len(lines) + 1), lines[at])
        case "swap":
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case "join":
            lines[at : at + 2] = [b" ".join(lines[at : at + 2])]
        case _:
            lines[at] = plain(lines[at], most)
    return b"\n".join(lines)[:most]


def _read(data: bytes) -> SessionFile | None:
    path = Path(_FOLDER.name) / "session.jsonl"
    path.write_bytes(data)
    try:
        return read_session_file(path)
    except SessionFileError:
        return None


def _same(one: SessionFile | None, other: SessionFile | None) -> None:
    if one is None or other is None:
        assert one is other
        return
    assert repr(one.entries) == repr(other.entries)
    assert (one.leaf_id, one.session_id) == (other.leaf_id, other.session_id)
    assert one.problems == other.problems


def _check_rewritten(file: SessionFile) -> None:
    # How deep a value may be depends on how deep its reader is called.
    if depth_of(file.entries) > _DEEP:
        return
    try:
        lines = [json.dumps(entry, allow_nan=False) for entry in file.entries]
    except ValueError:
        # A number as large as this is infinite in JavaScript, too, which then writes null.
        return
    again = _read("\n".join(['{"type": "session", "version": 3, "id": "s"}', *lines]).encode())
    assert again is not None
    assert repr(again.entries) == repr(file.entries)
    assert again.leaf_id == file.leaf_id
    assert all("compaction" in problem.text or "longer" in problem.text for problem in again.problems), (
        again.problems
    )


def _check_session(file: SessionFile, settings: dict[str, Any]) -> None:
    session = Session("s", sink=CheckedLog())
    session.start("resume", global_settings=settings)
    try:
        session.append(file.entries)
    except InvalidMessage:
        return
    assert session.stored.leaf_id == file.leaf_id
    assert session.stored.branch == file.branch()
    _check_context(session)
    _check_statistics(session)
    _check_recovery(session, may_fail="onInvalidStructure" not in settings["contextPaging"])
    for entry in (file.entries[-1], file.entries[len(file.entries) // 2]):
        session.navigate(entry["id"])
        if session.stored.branch[-1].get("type") == "message" and isinstance(entry.get("message"), dict):
            session.turn_end(entry["id"])
        _check_context(session)
    session.before_compaction("manual")
    session.compacted(file.entries[0]["id"])
    _check_context(session)
    session.shut_down()


def _check_context(session: Session) -> None:
    first = session.context(usage_tokens="stored")
    second = session.context(usage_tokens="stored")
    if first.outcome is None or first.aborted or second.aborted:
        return
    assert first.sent == second.sent, "nothing has changed, and another window goes out"
    known = {id(message) for message in session.stored.messages()}
    made = sum(not isinstance(part, tuple) for part in first.sent)
    runs = sum(part[1] - part[0] + 1 for part in first.sent if isinstance(part, tuple))
    assert len(first.messages) == made + runs
    assert sum(id(message) not in known for message in first.messages) == made


def _check_statistics(session: Session) -> None:
    statistics = session.statistics()
    assert statistics.history_tokens >= 0
    (told,) = session.command("stats").notifications
    assert told.text


def _check_recovery(session: Session, *, may_fail: bool) -> None:
    def call(name: str, **parameters: Any) -> Any:
        reply = session.tool(name, parameters)
        assert utf16_length(reply.text) <= 8_000
        json.loads(reply.text)
        return reply.result

    try:
        found = call("browse_history", direction="backward", count=10)["references"]
    except RecoveryRefused as refused:
        _check_refusal(refused, may_fail)
        return
    for query in ("tide docs", "", "x"):
        try:
            call("search_history", query=query, load=True)
        except RecoveryRefused as refused:
            _check_refusal(refused, False)
    for reference in found[:_READ_ITEMS]:
        history_id = reference["historyId"]
        try:
            (item,) = call("load_history", historyIds=[history_id])["items"]
        except RecoveryRefused as refused:
            _check_refusal(refused, len(history_id) > _LONGEST_HISTORY_ID)
            continue
        stored = session.stored.entries[history_id]["message"]
        _check_blocks(session, history_id, stored)
        for result in item.get("toolResults", ()):
            pages = _pages(
                session, historyId=history_id, source="toolResult", toolCallId=result.get("toolCallId")
            )
            if pages is not None:
                assert pages in [stringify(each) for each in item["toolResults"]]


def _check_refusal(refused: RecoveryRefused, expected: bool) -> None:
    # Whatever is read, it may be nested too deeply.
    assert expected or refused.reason is RecoveryErrorCode.UNREADABLE_OUTPUT, refused


def _check_blocks(session: Session, history_id: str, stored: Any) -> None:
    blocks = stored.get("content")
    if not isinstance(blocks, list):
        return
    for number, block in enumerate(blocks[:_READ_ITEMS]):
        pages = _pages(session, historyId=history_id, source="assistant", contentIndex=number)
        shown = public_block(block) if stored.get("role") == "assistant" else block
        if pages is not None:
            assert pages == stringify(shown)
        elif stored.get("role") == "assistant":
            assert shown is None


def _pages(session: Session, **parameters: Any) -> str | None:
    """What an output reads as, page by page; nothing if it is refused."""
    texts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        try:
            page = session.tool("read_context_output", {**parameters, "offset": offset}).result
        except RecoveryRefused:
            assert not texts
            return None
        texts.append(page["text"])
        assert page["nextOffset"] is None or page["nextOffset"] > offset
        offset = page["nextOffset"]
    return joined(texts)


def _value(line: bytes) -> Any:
    try:
        value = loaded(line)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _chain(*messages: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for number, message in enumerate(messages, 1):
        parent = f"e{number - 1}" if number > 1 else None
        entries.append({"type": "message", "id": f"e{number}", "parentId": parent, "message": message})
    return entries


def _lines(*values: Any) -> bytes:
    return b"".join(dumped(value) + b"\n" for value in values)
