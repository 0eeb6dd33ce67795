"""What the service tells its operator: structured messages through the host's own logging, never content."""

from __future__ import annotations

import logging

import structlog
from structlog.stdlib import BoundLogger


def logger(name: str) -> BoundLogger:
    """A structured logger over the standard one below ``context_paging``.

    Nothing is configured: an embedding program decides what becomes of the messages.
    """
    wrapped: BoundLogger = structlog.wrap_logger(
        logging.getLogger(f"context_paging.{name}"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=False,
    )
    return wrapped
