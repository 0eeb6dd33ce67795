"""Who may do what: tokens, scopes, tenants, rates, and the loopback interface."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from context_paging.domain.errors import ContextPagingError
from context_paging.service.http.access import RateLimit
from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.tokens import InvalidTokens, Scope, TokenFile
from context_paging.service.log import EventLog
from tests.service.conftest import Shell

from .conftest import Client

START = {"type": "session_start"}


def test_without_a_known_token_nothing_is_told(nobody: Client) -> None:
    nobody.of(Scope.ADMIN)
    forged = ["", "Bearer", "Bearer ", "Bearer cp_forged", "Basic cp_x", "bearer\tcp_", "Bearer \xff"]
    for header in forged:
        sent = {b"Authorization": header.encode("latin-1")}
        answer = nobody.http.get("/v1/sessions", headers=sent)
        assert (answer.status_code, answer.json()["code"]) == (401, "UNKNOWN_TOKEN")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert nobody.post("/sessions/s/events", START).status_code == 401


def test_scopes_are_kept(nobody: Client) -> None:
    writer, reader, admin = nobody.of(Scope.WRITE), nobody.of(Scope.READ), nobody.of(Scope.ADMIN)
    writer.send("s", START)

    assert reader.post("/sessions/s/events", START).status_code == 403
    assert reader.post("/sessions/s/tools/browse_history", {}).status_code == 403
    assert writer.get("/sessions").status_code == 403
    assert reader.get("/sessions/s").status_code == 200
    assert reader.get("/verify").status_code == 403
    assert admin.get("/verify").json() == []
    assert admin.get("/sessions/s/verify").json()["records"] == 2


def test_a_tenant_sees_its_own_sessions_alone(nobody: Client) -> None:
    alice = nobody.of(Scope.WRITE, Scope.READ, prefix="alice/")
    bob = nobody.of(Scope.WRITE, Scope.READ, prefix="bob/")
    for tenant, name in ((alice, "alice"), (bob, "bob")):
        tenant.send(f"{name}/1", START, {"type": "context"})
    (call,) = bob.get("/sessions/bob/1/calls").json()["rows"]

    paths = ["", "/calls", "/calls/1", f"/calls/{call['call_id']}", "/timeline", "/verify", "/what-if"]
    for path in [*paths, "/statistics", "/calls/1/compare/1"]:
        answer = alice.get(f"/sessions/bob/1{path}")
        unknown = alice.get(f"/sessions/bob/2{path}")
        assert answer.status_code == 404
        # Nothing tells a foreign session from none.
        assert answer.json() == unknown.json()
    foreign, none = (alice.get(f"/sessions/alice/1/calls/{each}") for each in (call["call_id"], "0" * 32))
    assert foreign.status_code == none.status_code == 404
    assert foreign.json()["detail"].replace(call["call_id"], "0" * 32) == none.json()["detail"]
    assert alice.post("/sessions/bob/1/events", {"type": "shut_down"}).status_code == 404
    assert [row["session_id"] for row in alice.get("/sessions").json()["rows"]] == ["alice/1"]
    assert alice.get("/sessions?prefix=bob").json()["rows"] == []
    assert len(alice.get("/sessions?prefix=a").json()["rows"]) == 1
    assert {row["session_id"] for row in alice.get("/calls").json()["rows"]} == {"alice/1"}
    tail = alice.get("/tail?after=0&follow=false").text
    assert "alice/1" in tail
    assert "bob" not in tail


def test_a_call_of_another_session_is_not_told_of(client: Client) -> None:
    for session in ("a", "b"):
        client.send(session, START, {"type": "context"})
    call = client.get("/sessions/a/calls").json()["rows"][0]["call_id"]
    assert client.get(f"/sessions/a/calls/{call}").status_code == 200
    foreign = client.get(f"/sessions/b/calls/{call}")
    assert (foreign.status_code, foreign.json()["code"]) == (404, "UNKNOWN_CALL")
    assert "'a'" not in foreign.text


def test_tokens_are_stored_as_hashes_and_removed_at_once(nobody: Client) -> None:
    client = nobody.of(Scope.READ)
    text = nobody.tokens.path.read_text()
    assert client.token is not None
    assert client.token not in text
    assert stat.S_IMODE(nobody.tokens.path.stat().st_mode) == 0o600
    assert client.get("/sessions").status_code == 200

    nobody.tokens.remove("token-0")
    assert client.get("/sessions").status_code == 401


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "[]",
        "{}",
        '{"tokens": [{}]}',
        '{"tokens": [{"name": "t", "hash": "é", "scopes": ["admin"]}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_of_tokens_lets_nobody_in(nobody: Client, damaged: str) -> None:
    client = nobody.of(Scope.ADMIN)
    nobody.tokens.path.write_text(damaged)
    answer = client.get("/sessions")
    assert (answer.status_code, answer.json()["code"]) == (503, "INVALID_TOKENS")


def test_tokens_made_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    (tmp_path / "tokens.json.new").write_text("left over")
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from context_paging.service.http.tokens import Scope, TokenFile\n"
        "for n in range(10): TokenFile(Path(sys.argv[1])).add(f'{sys.argv[2]}-{n}', (Scope.READ,))\n"
        "TokenFile(Path(sys.argv[1])).remove(f'{sys.argv[2]}-0')"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(4)]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    names = {token.name for token in TokenFile(path).tokens()}
    assert names == {f"{process}-{number}" for process in range(4) for number in range(1, 10)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_trouble_with_a_token_file_is_the_operators(nobody: Client) -> None:
    nobody.tokens.path.write_text("{")
    told = nobody.get("/sessions").json()
    assert (told["code"], str(nobody.tokens.path) in told["detail"]) == ("INVALID_TOKENS", False)


def test_an_administrator_of_a_tenant_sees_that_tenant_alone(nobody: Client) -> None:
    nobody.of(Scope.ADMIN).send("b/1", START)
    with nobody.log.changing() as connection:
        connection.execute(text("UPDATE events SET payload = '{}'"))
    assert nobody.of(Scope.ADMIN, prefix="a/").get("/verify").json() == []
    assert [each["session_id"] for each in nobody.of(Scope.ADMIN, prefix="b/").get("/verify").json()] == [
        "b/1"
    ]


def test_the_token_commands(shell: Shell) -> None:
    made = shell("token", "add", "ci", "--scope", "read", "--prefix", "ci/", "--tokens", "t.json").stdout
    assert made.startswith("cp_")
    assert shell("token", "list", "--tokens", "t.json").stdout == "ci  read  sessions ci/…\n"
    known = json.loads(shell("token", "list", "--json", "--tokens", "t.json").stdout)
    assert known == [{"name": "ci", "scopes": ["read"], "prefix": "ci/"}]
    assert "is taken" in shell("token", "add", "ci", "--tokens", "t.json", code=1).stderr
    assert "admin" in shell("token", "add", "x", "--scope", "root", code=2).stderr
    shell("token", "remove", "ci", "--tokens", "t.json")
    assert "no token 'ci'" in shell("token", "remove", "ci", "--tokens", "t.json", code=1).stderr


def test_serve_asks_for_tokens_unless_it_is_for_this_machine(shell: Shell) -> None:
    assert "there are no tokens" in shell("serve", "--tokens", "none.json", code=2).stderr
    assert "loopback" in shell("serve", "--no-token", "--host", "0.0.0.0", code=2).stderr


def test_without_tokens_only_names_of_this_machine_are_answered(tmp_path: Path) -> None:
    with EventLog.open() as log, TestClient(create_app(log, ServerOptions())) as http:
        for host in ("localhost", "localhost:8642", "127.0.0.1:1", "[::1]:8642", "[::1]"):
            assert http.get("/v1/sessions", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1].x"):
            assert http.get("/v1/sessions", headers={"Host": host}).status_code == 421


def test_a_page_of_another_site_cannot_send_events(tmp_path: Path) -> None:
    with EventLog.open() as log, TestClient(create_app(log, ServerOptions())) as http:
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ):
            headers = {"Host": "localhost", "Content-Type": kind}
            answer = http.post("/v1/sessions/s/events", content=json.dumps(START), headers=headers)
            assert answer.status_code == 415
        asked = {
            "Host": "localhost",
            "Origin": "https://evil.example",
            "Access-Control-Request-Method": "POST",
        }
        preflight = http.options("/v1/sessions/s/events", headers=asked)
        assert "access-control-allow-origin" not in preflight.headers


def test_a_token_may_ask_so_often(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "t.json")
    secret, other = tokens.add("a", (Scope.READ,)), tokens.add("b", (Scope.READ,))
    with (
        EventLog.open() as log,
        TestClient(create_app(log, ServerOptions(tokens, rate=0.1, burst=3))) as http,
    ):
        sent = [http.get("/v1/calls", headers={"Authorization": f"Bearer {secret}"}) for _ in range(4)]
        assert [answer.status_code for answer in sent] == [200, 200, 200, 429]
        assert 1 <= int(sent[3].headers["retry-after"]) <= 10
        assert http.get("/v1/calls", headers={"Authorization": f"Bearer {other}"}).status_code == 200


def test_a_rate_is_kept_in_the_long_run() -> None:
    now = 0.0
    rate = RateLimit(10, 5, now=lambda: now)
    allowed = 0
    for step in range(1_000):
        now = step / 100
        allowed += rate.wait("a") == 0
    assert 95 <= allowed <= 105


def test_the_errors_of_a_token_file_say_what_to_do(tmp_path: Path) -> None:
    folder = TokenFile(tmp_path)
    with pytest.raises(InvalidTokens) as told:
        folder.tokens()
    assert isinstance(told.value, ContextPagingError)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidTokens):
        TokenFile(tmp_path / "file" / "t.json").add("a", (Scope.READ,))
