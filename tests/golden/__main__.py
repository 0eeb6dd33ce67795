"""`python -m tests.golden [--write]`: compare the golden files, or write them again."""

from __future__ import annotations

import json
import sys
from typing import Any

from . import ROOT
from .script import cases, outcome, run


def text(value: Any) -> str:
    """JSON as it stands in the files."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Compare or write; 1 if a file differs."""
    write = arguments == ["--write"]
    if arguments and not write:
        print("usage: python -m tests.golden [--write]", file=sys.stderr)
        return 2
    differ = 0
    for folder in cases():
        for name, value in run(folder).items():
            path = folder / name
            if path.exists() and path.read_text("utf-8") == text(value):
                continue
            if write:
                path.write_text(text(value), "utf-8")
            differ += 1
            print(f"{'written' if write else 'differs'}: {folder.name}/{name}")
    path = ROOT / "outcomes.json"
    known = json.loads(path.read_text("utf-8"))
    now = {name: {**case, "outcome": outcome(case["steps"])} for name, case in known.items()}
    if text(now) != path.read_text("utf-8"):
        differ += 1
        if write:
            path.write_text(text(now), "utf-8")
        print(f"{'written' if write else 'differs'}: {path.name}")
    print(f"{len(cases())} cases, {len(known)} outcomes, {differ} files {'written' if write else 'differ'}")
    return 0 if write or not differ else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
