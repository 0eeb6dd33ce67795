"""What an installed extension says of itself: version, files, tools, and how to start the bridge."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from context_paging.domain.recovery.tools import tool_definitions

MANIFEST = "manifest.json"


class Manifest(BaseModel):
    """The manifest beside the extension's files.

    Attributes:
        version: of the package that installed it.
        command: the program that is the bridge, and its arguments.
        files: SHA-256 of each file, in hexadecimal digits.
        tools: definitions of the recovery tools, which Pi needs before any bridge runs.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["context-paging"] = "context-paging"
    version: str
    command: list[str] = Field(min_length=1)
    files: dict[str, str]
    tools: list[dict[str, Any]]

    def text(self) -> str:
        """The manifest as a file."""
        return json.dumps(self.model_dump(), indent=2) + "\n"

    def changed(self, folder: Path) -> list[str]:
        """The files in a folder that are missing or not as they were installed."""
        return [name for name, digest in self.files.items() if file_digest(folder / name) != digest]


def packaged_files() -> dict[str, bytes]:
    """The extension's files by name, as this package has them."""
    folder = files("context_paging.service.hosts.pi") / "extension"
    return {
        item.name: item.read_bytes()
        for item in sorted(folder.iterdir(), key=lambda item: item.name)
        if item.name.endswith(".ts")
    }


def package_version() -> str:
    """The version of this package."""
    return version("context-paging")


def packaged_manifest(contents: dict[str, bytes]) -> Manifest:
    """The manifest of what is installed now; the bridge is started by the Python that runs this.

    ``-P`` keeps Python from importing modules of the folder that Pi happens to run in.
    """
    return Manifest(
        version=package_version(),
        command=[sys.executable, "-P", "-m", "context_paging.service.cli", "bridge"],
        files={name: sha256(content).hexdigest() for name, content in contents.items()},
        tools=tool_definitions(),
    )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of an installed extension; ``None`` if the folder has none of ours."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, in hexadecimal digits; ``None`` where there is no file."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
