"""Templates, and how they write numbers, times and links."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from ...postmortem import frontier_text
from ...postmortem_report import event_text
from ..service import Service

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page(template: str, status: int = 200, *, service: Service | None = None, **values: Any) -> Response:
    """A page as a response; with a ``service``, people can log out of it."""
    asks = service is not None and service.access.asks
    text = _templates().get_template(f"{template}.html.j2").render(asks=asks, **values)
    # What a host stored may hold half characters, which no encoding has.
    return Response(text.encode("utf-8", "backslashreplace"), status, HEADERS, "text/html; charset=utf-8")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "tokens": _tokens,
        "moment": lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}",
        "session_url": lambda session_id: "/sessions/" + quote(session_id, safe="", errors="replace"),
        "frontier": frontier_text,
        "event_text": event_text,
        "isoformat": datetime.isoformat,
    }
    return environment


def _tokens(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
