"""A pretend working copy: it holds the texts of the library and answers the agent's tools from them.

Reads, edits, searches, listings and diffs are worked out, so they agree with each other through the whole
session. What only a real machine could tell (timings, profiles, tracebacks) was captured from real runs.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_paging.service.example.captures import captured
from context_paging.service.example.report import collect, report

READ_SECONDS = 0.006
SHELL_SECONDS = 0.08
MATCHES_SHOWN = 60


@dataclass(frozen=True)
class Call:
    """One tool call with the result it will get."""

    name: str
    arguments: dict[str, Any]
    text: str
    seconds: float = SHELL_SECONDS
    failed: bool = False
    details: dict[str, Any] | None = None


@dataclass
class Checkout:
    """The working copy and its history."""

    files: dict[str, str]
    commits: list[tuple[str, str]]
    head: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is there at the start is what was committed, unless the caller says otherwise."""
        self.head = self.head or dict(self.files)

    # The agent's file tools

    def read(self, path: str, offset: int = 1, limit: int | None = None) -> Call:
        """Read a file, or some lines of it."""
        arguments: dict[str, Any] = {"path": path}
        if offset > 1:
            arguments["offset"] = offset
        if limit is not None:
            arguments["limit"] = limit
        if path not in self.files:
            return Call("read", arguments, f"ENOENT: no such file: {path}", READ_SECONDS, failed=True)
        lines = self.files[path].splitlines()
        end = len(lines) if limit is None else min(len(lines), offset - 1 + limit)
        text = "\n".join(lines[offset - 1 : end])
        if end < len(lines):
            text += f"\n\n[{len(lines) - end} more lines. Continue with offset={end + 1}.]"
        return Call("read", arguments, text, READ_SECONDS)

    def write(self, path: str, content: str) -> Call:
        """Write a whole file."""
        self.files[path] = content
        size = len(content.encode())
        return Call(
            "write", {"path": path, "content": content}, f"Wrote {size} bytes to {path}.", READ_SECONDS
        )

    def edit(self, path: str, *replacements: tuple[str, str]) -> Call:
        """Replace texts that occur once; the story is wrong if one does not."""
        before = text = self.files[path]
        for old, new in replacements:
            if text.count(old) != 1:
                raise ValueError(f"{path} holds this {text.count(old)} times: {old!r}")
            text = text.replace(old, new)
        self.files[path] = text
        count = len(replacements)
        return Call(
            "edit",
            {"path": path, "edits": [{"oldText": old, "newText": new} for old, new in replacements]},
            f"Replaced {count} block{'s' if count > 1 else ''} in {path}.",
            READ_SECONDS,
            details={"diff": "\n".join(_hunks(before, text))},
        )

    def missed_edit(self, path: str, old: str, new: str) -> Call:
        """An edit whose old text is not there."""
        if old in self.files[path]:
            raise ValueError(f"{path} does hold {old!r}")
        text = f"No match for oldText in {path}. It must match exactly, with all spaces and line ends."
        edits = [{"oldText": old, "newText": new}]
        return Call("edit", {"path": path, "edits": edits}, text, READ_SECONDS, failed=True)

    def grep(self, pattern: str, path: str = ".", glob: str | None = None) -> Call:
        """Search the files under a path."""
        arguments: dict[str, Any] = {"pattern": pattern, "path": path}
        if glob is not None:
            arguments["glob"] = glob
        lines = list(self._matches(pattern, path, glob))
        text = "\n".join(lines[:MATCHES_SHOWN]) or "No matches found"
        if len(lines) > MATCHES_SHOWN:
            text += f"\n\n[{MATCHES_SHOWN} of {len(lines)} matches shown]"
        return Call("grep", arguments, text, 0.02)

    def _matches(self, pattern: str, path: str, glob: str | None) -> Iterable[str]:
        wanted = re.compile(pattern)
        for name in self._under(path):
            if glob is None or name.endswith(glob.lstrip("*")):
                for number, line in enumerate(self.files[name].splitlines(), 1):
                    if wanted.search(line):
                        yield f"{name}:{number}: {line}"

    def _under(self, path: str) -> list[str]:
        if path in self.files:
            return [path]
        folder = "" if path == "." else path.rstrip("/") + "/"
        return [name for name in sorted(self.files) if name.startswith(folder)]

    # The shell

    def bash(self, command: str, output: str, seconds: float = SHELL_SECONDS, code: int = 0) -> Call:
        """A command whose output the story knows."""
        if code:
            output = f"{output.rstrip()}\n\nCommand exited with code {code}"
        return Call("bash", {"command": command}, output or "(no output)", seconds, failed=bool(code))

    def find(self, path: str = ".") -> Call:
        """List tracked files with their line counts."""
        names = self._under(path)
        counts = [(len(self.files[name].splitlines()), name) for name in names]
        rows = [f"{count:>6} {name}" for count, name in counts]
        rows.append(f"{sum(count for count, _ in counts):>6} total")
        return self.bash(f"git ls-files {path} | xargs wc -l".replace(" . ", " "), "\n".join(rows))

    def listing(self, path: str) -> Call:
        """`ls -l` of one folder."""
        rows = [f"total {4 * len(self._under(path))}"]
        for name in self._under(path):
            size = len(self.files[name].encode())
            rows.append(
                f"-rw-r--r-- 1 mara mara {size:>6} Mar 16 17:{size % 60:02d} {name.removeprefix(path + '/')}"
            )
        return self.bash(f"ls -l {path}", "\n".join(rows), 0.02)

    def sed(self, path: str, first: int, last: int) -> Call:
        """Print some lines of a file with the shell."""
        lines = self.files[path].splitlines()[first - 1 : last]
        return self.bash(f"sed -n '{first},{last}p' {path}", "\n".join(lines), 0.01)

    def run(self, command: str, capture: str, seconds: float = 0.3, code: int = 0) -> Call:
        """A command whose output was captured from a real run of it."""
        return self.bash(command, captured(capture), seconds, code)

    def pytest(self, options: str = "", seconds: float = 1.2, tail: int | None = None) -> Call:
        """A run of the tests that the options select, all of which pass."""
        text = report(collect(self.files), options, seconds)
        command = " ".join(part for part in (".venv/bin/pytest", options) if part)
        if tail is not None:
            command += f" 2>&1 | tail -{tail}"
            text = "\n".join(text.splitlines()[-tail:])
        return self.bash(command, text, seconds + 0.4)

    # Git

    def status(self) -> Call:
        """`git status --short`."""
        return self.bash("git status --short", "\n".join(self._changes()), 0.02)

    def diff(self, path: str = "", context: int = 3) -> Call:
        """`git diff`, of everything or of one path."""
        return self.bash(f"git diff {path}".strip(), "\n".join(self._diff(path, context)), 0.03)

    def diff_stat(self) -> Call:
        """`git diff --stat`."""
        return self.bash("git diff --stat", "\n".join(self._stat()), 0.03)

    def commit(self, subject: str, body: str = "") -> Call:
        """Commit everything."""
        command = f'git add -A && git commit -q -m "{subject}"' + (f' -m "{body}"' if body else "")
        stat = self._stat()
        name = hashlib.sha256((subject + "".join(self.files.values())).encode()).hexdigest()[:7]
        self.commits.insert(0, (name, subject))
        self.head = dict(self.files)
        return self.bash(
            f"{command} && git log --oneline -1 --stat", "\n".join([f"{name} {subject}", *stat]), 0.12
        )

    def log(self, count: int) -> str:
        """The newest commits, one a line."""
        return "\n".join(f"{name} {subject}" for name, subject in self.commits[:count])

    def _changed(self) -> list[str]:
        names = sorted(self.files.keys() | self.head.keys())
        return [name for name in names if self.files.get(name) != self.head.get(name)]

    def _changes(self) -> list[str]:
        return [f"{' M' if name in self.head else '??'} {name}" for name in self._changed()]

    def _diff(self, path: str, context: int) -> Iterable[str]:
        for name in self._changed():
            if name.startswith(path) and name in self.head:
                yield from _file_diff(name, self.head[name], self.files.get(name, ""), context)

    def _stat(self) -> list[str]:
        rows, added, removed = [], 0, 0
        changed = self._changed()
        width = max((len(name) for name in changed), default=0)
        for name in changed:
            plus, minus = _count(self.head, self.files, name)
            rows.append(f" {name:<{width}} | {plus + minus:>3} {'+' * min(plus, 24)}{'-' * min(minus, 24)}")
            added, removed = added + plus, removed + minus
        rows.append(f" {len(changed)} files changed, {added} insertions(+), {removed} deletions(-)")
        return rows


def _count(old: Mapping[str, str], new: Mapping[str, str], name: str) -> tuple[int, int]:
    lines = list(difflib.ndiff(old.get(name, "").splitlines(), new.get(name, "").splitlines()))
    return sum(line.startswith("+ ") for line in lines), sum(line.startswith("- ") for line in lines)


def _file_diff(name: str, old: str, new: str, context: int) -> Iterable[str]:
    marks = [hashlib.sha256(text.encode()).hexdigest()[:7] for text in (old, new)]
    yield f"diff --git a/{name} b/{name}"
    yield f"index {marks[0]}..{marks[1]} 100644"
    yield from difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{name}", f"b/{name}", n=context, lineterm=""
    )


def _hunks(old: str, new: str) -> Iterable[str]:
    """The changed lines with their numbers, as an edit tool shows them to the person."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=2, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++"))]
