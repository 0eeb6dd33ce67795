"""What `ops` offers for a deployment: files that the real tools accept, and names that the product has."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from context_paging.service.cli import app as commands
from context_paging.service.http.app import create_app
from context_paging.service.log import EventLog

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "ops" / "deploy"


@pytest.fixture(scope="module")
def metrics() -> str:
    """What a worker tells Prometheus."""
    with EventLog.open() as log, TestClient(create_app(log)) as http:
        return http.get("/metrics", headers={"Host": "localhost"}).text


def families(text: str) -> set[str]:
    """Names of metrics as queries write them."""
    return set(re.findall(r"context_paging_\w+", text))


def test_the_dashboard_asks_for_metrics_that_there_are(metrics: str) -> None:
    board = json.loads((ROOT / "ops" / "grafana" / "dashboard.json").read_text())
    known = {name for line in metrics.splitlines() if line.startswith("# TYPE") for name in [line.split()[2]]}
    asked = set[str]()
    for panel in board["panels"]:
        for target in panel["targets"]:
            asked |= families(target["expr"])
    assert len(asked) >= 8
    assert {re.sub("_bucket$", "", name) for name in asked} <= known
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) == 12


def test_the_runbook_names_metrics_commands_and_files_that_there_are(metrics: str) -> None:
    text = (ROOT / "ops" / "service.md").read_text()
    known = {line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")}
    assert families(text) <= known
    groups = {group.name: group.typer_instance for group in commands.registered_groups}
    names = {command.name for command in commands.registered_commands}
    for line in re.findall(r"context-paging ((?:[a-z-]+ ?)+)", text):
        words = line.split()
        if words[0] not in groups:
            assert words[0] in names, line
            continue
        instance = groups[words[0]]
        assert instance is not None
        assert words[1] in {command.name for command in instance.registered_commands}, line
    for name in re.findall(r"`([\w.@][\w.@/-]+\.(?:conf|service|env|yaml|json))`", text):
        assert (DEPLOY / name).exists(), name


def test_compose_starts_workers_that_share_a_log_and_nothing_else() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    workers = [services[name] for name in services if name.startswith("worker")]
    assert len(workers) == 2
    assert len({volume for worker in workers for volume in worker["volumes"]}) == 2
    assert {worker["environment"]["CONTEXT_PAGING_LOG"] for worker in workers} == {
        "postgresql+psycopg://context_paging@postgres/context_paging"
    }
    named = set(compose["secrets"])
    for service in services.values():
        assert set(service.get("secrets", ())) <= named
    replaced = " ".join(services["proxy"]["command"])
    text = (DEPLOY / "nginx.conf").read_text()
    for old in re.findall(r"s/([^/]+)/", replaced):
        assert old in text


def test_the_container_file_copies_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for source in shlex.split(line)[:-1]:
            assert (ROOT / source).exists(), source


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "context-paging@8643.service"
    text = (DEPLOY / "context-paging@.service").read_text()
    unit.write_text(re.sub(r"/opt/context-paging/bin/context-paging", "/bin/true", text))
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "context-paging@" not in done.stderr, done.stderr
