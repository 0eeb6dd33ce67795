"""`python -m tests.conformance PATH…`: how many answers are equal, and how the first ones differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from . import DATA
from .answers import NotFoundInCorpus, answers, expected, questions
from .compare import differences

SHOWN = 12


def main(arguments: Sequence[str]) -> int:
    """Run files; 1 if any answer differs or a file cannot be run."""
    equal = differ = unusable = 0
    for path in [Path(argument) for argument in arguments] or sorted(DATA.glob("*.jsonl.gz")):
        try:
            file_equal, texts = check_file(path)
        except (NotFoundInCorpus, OSError, ValueError) as error:
            print(f"{path.name}: cannot be run: {error}")
            unusable += 1
            continue
        equal += file_equal
        for text in texts[: max(0, SHOWN - differ)]:
            print(text)
        differ += len(texts)
        print(f"{path.name}: {file_equal} answers equal, {len(texts)} differ")
    print(f"{equal} answers equal, {differ} differ")
    return 1 if differ or unusable else 0


def check_file(path: Path) -> tuple[int, list[str]]:
    """How many answers of a file are equal, and a text for each that is not."""
    equal, texts = 0, []
    for line, question in enumerate(questions(path), 1):
        given, wanted = answers(question), expected(question)
        for number in range(max(len(given), len(wanted))):
            name = f"{path.name} line {line} ({question.get('name', '')}) answer {number}"
            if number >= len(given) or number >= len(wanted):
                texts.append(f"{name}: {len(given)} answers instead of {len(wanted)}")
                break
            found = list(differences(given[number], wanted[number]))
            equal += not found
            if found:
                texts.append(f"{name}:\n  " + "\n  ".join(found[:SHOWN]))
    return equal, texts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
