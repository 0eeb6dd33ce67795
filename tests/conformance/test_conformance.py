"""Every conformance file gives the answers it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import DATA
from .__main__ import check_file
from .answers import NotFoundInCorpus

FILES = sorted(DATA.glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=[path.name.removesuffix(".jsonl.gz") for path in FILES])
def test_every_answer_equals_the_expected_one(path: Path) -> None:
    try:
        equal, differing = check_file(path)
    except NotFoundInCorpus as missing:
        pytest.skip(str(missing))

    assert not differing, "\n".join(differing[:5])
    assert equal > 0
