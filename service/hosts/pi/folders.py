"""Where Pi looks for extensions and settings (Pi's documentation, "Extension Locations")."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

EXTENSION = "context-paging"
"""The name of the extension's folder."""
PROJECT_FOLDER = ".pi"
AGENT_FOLDER_VARIABLE = "PI_CODING_AGENT_DIR"


def agent_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Pi's global folder: ``PI_CODING_AGENT_DIR``, else ``~/.pi/agent``."""
    given = environment.get(AGENT_FOLDER_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / PROJECT_FOLDER / "agent"


def extensions_folder(given: Path | None = None, *, project: bool = False) -> Path:
    """The folder of extensions: the one given, the project's in the working directory, or the global one."""
    if given is not None:
        return given.expanduser().absolute()
    root = Path.cwd() / PROJECT_FOLDER if project else agent_folder().absolute()
    return root / "extensions"
