"""Configuration of the commands, from the environment."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_config_path, user_data_path
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.estimation import HeuristicEstimator, TokenEstimator

from .log.options import Audit, Durability, LogOptions, Payloads


class InvalidConfiguration(ContextPagingError):
    """An environment variable holds something else than it may."""

    code = "INVALID_CONFIGURATION"


def default_log() -> str:
    """Where the log is unless somebody says otherwise: a file among the user's data."""
    return str(user_data_path("context-paging", appauthor=False) / "log.db")


class Config(BaseSettings):
    """What ``CONTEXT_PAGING_…`` variables set.

    Attributes:
        log: a SQLAlchemy URL, or the path of a SQLite file.
        durability, audit, payloads, spool, key_file: see `LogOptions`; a service's durability is ``sync``
            unless it is set.
        tokens: the file of a service's bearer tokens.
        token: what a client of a service shows.
        estimator: how tokens are counted: see `tokenizers.estimator`.
    """

    model_config = SettingsConfigDict(env_prefix="CONTEXT_PAGING_", extra="ignore")

    log: str = Field(default_factory=default_log, min_length=1)
    durability: Durability | None = None
    audit: Audit = Audit.BEST_EFFORT
    payloads: Payloads = Payloads.DIGESTS
    spool: Path | None = None
    key_file: Path | None = None
    tokens: Path | None = None
    token: SecretStr | None = None
    estimator: str | None = None


def token_estimator(given: str | None = None) -> TokenEstimator:
    """How tokens are counted: as named, or as a variable says, or four UTF-16 code units each.

    Raises:
        UnknownEstimator, VocabularyMissing: see `tokenizers.estimator`.
        InvalidConfiguration: a variable holds something else than it may.
    """
    name = given or _config().estimator
    if name is None:
        return HeuristicEstimator()
    from .tokenizers import estimator

    return estimator(name)


def tokens_file(given: Path | None) -> Path:
    """The file of bearer tokens to use.

    Raises:
        InvalidConfiguration: a variable holds something else than it may.
    """
    own = user_config_path("context-paging", appauthor=False) / "tokens.json"
    return given or _config().tokens or own


def service_token() -> str | None:
    """What a client of a service shows.

    Raises:
        InvalidConfiguration: a variable holds something else than it may.
    """
    token = _config().token
    return None if token is None else token.get_secret_value()


def log_location(given: str | None) -> str:
    """The log to use; the folder of the default one is made.

    Raises:
        InvalidConfiguration: a variable holds something else than it may.
    """
    if given:
        return given
    location = _config().log
    if location == default_log():
        Path(location).parent.mkdir(parents=True, exist_ok=True)
    return location


def log_options(durability: Durability = Durability.GROUP, *, sigterm: bool = True) -> LogOptions:
    """How the log is kept; ``durability`` unless a variable says otherwise.

    Raises:
        InvalidConfiguration: a variable holds something else than it may.
    """
    config = _config()
    return LogOptions(
        durability=config.durability or durability,
        audit=config.audit,
        payloads=config.payloads,
        spool=config.spool,
        key_file=config.key_file,
        sigterm=sigterm,
    )


def _config() -> Config:
    try:
        return Config()
    except ValidationError as error:
        (first, *_) = error.errors()
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise InvalidConfiguration(f"CONTEXT_PAGING_{name}: {first['msg']}") from None
