"""Pi's session file format: versions 1 to 3 as version 3 entries, and what is wrong with a file.

Version 1 has no ids: entries form a line, and a compaction names a record by its position, the header
included. Version 2 calls custom messages ``hookMessage``. Source: Pi's own migrations, observed in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .entries import Entry
from .messages import MAX_SAFE_INTEGER, is_number, text

CURRENT_VERSION = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that was worked around. ``line`` counts from 1; ``None`` is the whole file."""

    line: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class SessionRecords:
    """A session file's contents, as version 3 entries whose parents come before them.

    Attributes:
        header: the session header, empty if the file has none.
        leaf_id: the last entry, as Pi chooses it; ``None`` without entries.
    """

    header: Mapping[str, Any]
    entries: list[Entry]
    leaf_id: str | None
    problems: list[Problem]


def session_records(records: Iterable[tuple[int, Any]]) -> SessionRecords:
    """Entries from a file's JSON values, each with its line number, in file order.

    Whatever is not a usable entry is left out and reported; an entry whose parent does not come before it
    begins a branch of its own.
    """
    problems: list[Problem] = []
    objects = _objects(records, problems)
    header, version = _header(objects, problems)
    entries: list[Entry] = []
    known: dict[str, Entry] = {}
    previous: str | None = None
    for position, (line, value) in enumerate(objects):
        if value.get("type") == "session":
            continue
        entry = _migrated(value, version, position, previous)
        entry_id, problem = entry.get("id"), None
        if not isinstance(entry_id, str) or not entry_id:
            problem = "an entry without an id was left out"
        elif not isinstance(entry.get("type"), str):
            problem = f"entry {entry_id!r} without a type was left out"
        elif entry_id in known:
            if known[entry_id] != entry:
                problem = f"a second entry with the id {entry_id!r} was left out"
            else:
                continue
        if problem is not None or not isinstance(entry_id, str):
            problems.append(Problem(line, problem or ""))
            continue
        rooted = _rooted(entry, known, line, problems)
        known[entry_id] = rooted
        entries.append(rooted)
        previous = entry_id
    _check_compactions(entries, known, problems)
    _check_leaves(entries, problems)
    return SessionRecords(header, entries, previous, problems)


def _objects(
    records: Iterable[tuple[int, Any]], problems: list[Problem]
) -> list[tuple[int, Mapping[str, Any]]]:
    objects = []
    for line, value in records:
        if isinstance(value, Mapping):
            objects.append((line, value))
        else:
            problems.append(Problem(line, f"a {type(value).__name__} instead of an object was left out"))
    return objects


def _header(
    objects: list[tuple[int, Mapping[str, Any]]], problems: list[Problem]
) -> tuple[Mapping[str, Any], int]:
    header = next((value for _, value in objects if value.get("type") == "session"), None)
    if header is None:
        has_ids = any(isinstance(value.get("id"), str) for _, value in objects)
        version = CURRENT_VERSION if has_ids else 1
        if objects:
            problems.append(Problem(None, f"there is no session header; it was read as version {version}"))
        return {}, version
    version = header.get("version", 1)
    if version not in (1, 2, 3):
        problems.append(
            Problem(None, f"unknown version {version!r}; it was read as version {CURRENT_VERSION}")
        )
        version = CURRENT_VERSION
    return header, int(version)


def _migrated(entry: Entry, version: int, position: int, previous: str | None) -> Entry:
    match version:
        case 1:
            return _from_version_1(entry, position, previous)
        case 2:
            return _from_version_2(entry)
        case _:
            return entry


def _from_version_1(entry: Entry, position: int, previous: str | None) -> Entry:
    migrated = {**_from_version_2(entry), "id": f"{position:08x}", "parentId": previous}
    index = migrated.pop("firstKeptEntryIndex", None)
    if is_number(index) and 0 <= index <= MAX_SAFE_INTEGER and index == int(index):
        migrated["firstKeptEntryId"] = f"{int(index):08x}"
    return migrated


def _from_version_2(entry: Entry) -> Entry:
    message = entry.get("message")
    if isinstance(message, Mapping) and message.get("role") == "hookMessage":
        return {**entry, "message": {**message, "role": "custom"}}
    return entry


def _rooted(entry: Entry, known: Mapping[str, Entry], line: int, problems: list[Problem]) -> Entry:
    parent = entry.get("parentId")
    if parent is None or (isinstance(parent, str) and parent in known):
        return entry
    reason = (
        "its parent is itself" if parent == entry["id"] else f"its parent {parent!r} does not come before it"
    )
    problems.append(Problem(line, f"entry {entry['id']!r} begins a branch of its own: {reason}"))
    return {**entry, "parentId": None}


def _check_compactions(entries: list[Entry], known: Mapping[str, Entry], problems: list[Problem]) -> None:
    for entry in entries:
        first = entry.get("firstKeptEntryId")
        if entry.get("type") == "compaction" and first is not None and text(first) not in known:
            problems.append(
                Problem(
                    None,
                    f"compaction {entry['id']!r} keeps entries from {first!r} on, which is not in the file: "
                    "nothing before it is kept",
                )
            )


def _check_leaves(entries: list[Entry], problems: list[Problem]) -> None:
    if not entries:
        return
    depth: dict[str, int] = {}
    parents = set()
    for entry in entries:
        parent = entry.get("parentId")
        depth[entry["id"]] = 1 + depth.get(parent or "", 0)
        parents.add(parent)
    chosen = entries[-1]["id"]
    leaf = max((e["id"] for e in entries if e["id"] not in parents), key=lambda i: depth[i], default=chosen)
    if depth[leaf] > depth[chosen]:
        longer = depth[leaf] - depth[chosen]
        problems.append(
            Problem(
                None,
                f"the last entry {chosen!r} is the leaf; the branch of {leaf!r} is {longer} entries longer",
            )
        )
