"""The files of the pretend library that the example session works on."""

from context_paging.service.example.project.checks import CHECKS
from context_paging.service.example.project.harbours import HARBOURS
from context_paging.service.example.project.library import LIBRARY

FILES: dict[str, str] = {**LIBRARY, **CHECKS, **HARBOURS}
"""Path to text, at the start of the session."""
