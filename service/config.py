"""Configuration of the commands, from the environment."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_log() -> str:
    """Where the log is unless somebody says otherwise: a file among the user's data."""
    return str(user_data_path("context-paging", appauthor=False) / "log.db")


class Config(BaseSettings):
    """What ``CONTEXT_PAGING_…`` variables set.

    Attributes:
        log: a SQLAlchemy URL, or the path of a SQLite file.
    """

    model_config = SettingsConfigDict(env_prefix="CONTEXT_PAGING_", extra="ignore")

    log: str = Field(default_factory=default_log, min_length=1)


def log_location(given: str | None) -> str:
    """The log to use; the folder of the default one is made."""
    if given:
        return given
    location = Config().log
    if location == default_log():
        Path(location).parent.mkdir(parents=True, exist_ok=True)
    return location
