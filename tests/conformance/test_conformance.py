"""Every conformance file gives the answers it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import DATA
from .__main__ import check_file
from .answers import NOT_BUILT, NotFoundInCorpus, kind_of

FILES = sorted(path for path in DATA.glob("*.jsonl.gz") if kind_of(path) not in NOT_BUILT)


@pytest.mark.parametrize("path", FILES, ids=[kind_of(path) for path in FILES])
def test_every_answer_equals_the_expected_one(path: Path) -> None:
    try:
        equal, differing = check_file(path)
    except NotFoundInCorpus as missing:
        pytest.skip(str(missing))

    assert not differing, "\n".join(differing[:5])
    assert equal > 0
