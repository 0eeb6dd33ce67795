"""The OpenAPI document says what the service does: schemathesis makes requests of it, and checks answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import EventLog
from context_paging.service.session import Session

from .conftest import user
from .serving import serving

EXAMPLES = 60
# What a document cannot say: that a cursor is one the service gave, that a named entry or tool exists.
NOT_CHECKED = "positive_data_acceptance"


def test_every_answer_is_one_that_the_document_promises(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("admin", (Scope.ADMIN,))
    with EventLog.open(tmp_path / "log.db") as log:
        session = Session("0", sink=log)
        session.start()
        session.append([user("hi", "1")])
        session.context()
        app = create_app(log, ServerOptions(tokens, rate=1e9, burst=1e9))
        # Streams have an end then.
        app.state.service.stopping.set()
        with serving(app) as running:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.url}/openapi.json"),
                    *("--header", f"Authorization: Bearer {secret}"),
                    *(
                        "--checks",
                        "all",
                        "--exclude-checks",
                        NOT_CHECKED,
                        "--mode",
                        "all",
                        "--max-examples",
                        str(EXAMPLES),
                    ),
                    *("--seed", "1", "--workers", "1", "--request-timeout", "20", "--no-color"),
                ],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env={**os.environ, "PYTHONUTF8": "1", "COLUMNS": "120"},
                timeout=280,
            )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_document_names_every_route_and_every_host_event(tmp_path: Path) -> None:
    with (
        EventLog.open() as log,
        serving(create_app(log)) as running,
        urllib.request.urlopen(f"{running.url}/openapi.json") as answer,
    ):
        document = json.load(answer)
    assert len(document["paths"]) >= 14
    body = document["paths"]["/v1/sessions/{session_id}/events"]["post"]["requestBody"]
    one, batch = body["content"]["application/json"]["schema"]["anyOf"]
    assert batch["items"] == one
    assert len(one["discriminator"]["mapping"]) == len(one["oneOf"]) == 12
    for reference in one["discriminator"]["mapping"].values():
        assert reference.rpartition("/")[2] in document["components"]["schemas"]
