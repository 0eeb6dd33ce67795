"""Installing, updating and removing the extension: whole or not at all, and nothing of others is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from context_paging.service.hosts.pi.folders import agent_folder, extensions_folder
from context_paging.service.hosts.pi.installer import ForeignExtension, NotInstalled, install, uninstall
from context_paging.service.hosts.pi.manifest import MANIFEST, packaged_files, read_manifest
from tests.service.conftest import Shell


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_extension_is_installed_with_a_manifest_that_starts_the_bridge(tmp_path: Path) -> None:
    target = install(tmp_path / "agent" / "extensions")
    assert target == tmp_path / "agent" / "extensions" / "context-paging"
    assert set(tree(target)) == {*packaged_files(), MANIFEST}
    assert "index.ts" in packaged_files()
    manifest = read_manifest(target)
    assert manifest is not None
    assert manifest.changed(target) == []
    hello = {"id": 1, "hello": {"version": 1, "host": "test"}}
    done = subprocess.run(
        manifest.command,
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "CONTEXT_PAGING_LOG": str(tmp_path / "log.db")},
    )
    answer = json.loads(done.stdout)["ok"]
    assert (answer["context_paging"], answer["tools"]) == (manifest.version, manifest.tools)


def test_the_bridge_imports_nothing_of_the_folder_that_pi_runs_in(tmp_path: Path) -> None:
    manifest = read_manifest(install(tmp_path / "extensions"))
    assert manifest is not None
    for name in ("json", "typer", "structlog", "context_paging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the project')")
    environment = {**os.environ, "CONTEXT_PAGING_LOG": str(tmp_path / "log.db")}
    done = subprocess.run(
        manifest.command, input="", capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_installing_again_changes_nothing_and_repairs_what_was_changed(tmp_path: Path) -> None:
    target = install(tmp_path / "extensions")
    before = tree(tmp_path)
    install(tmp_path / "extensions")
    assert tree(tmp_path) == before
    (target / "index.ts").write_text("export default () => {};")
    (target / "bridge.ts").unlink()
    install(tmp_path / "extensions")
    assert tree(tmp_path) == before


def test_an_update_takes_out_what_is_no_longer_part_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    target = install(tmp_path / "extensions")
    manifest = json.loads((target / MANIFEST).read_text())
    manifest["files"]["former.ts"] = "0" * 64
    manifest["version"] = "0.0.1"
    (target / MANIFEST).write_text(json.dumps(manifest))
    (target / "former.ts").write_text("export {};")
    (target / "notes").mkdir()
    (target / "notes" / "mine.md").write_text("mine")
    (target / "notes" / "index.ts").write_text("mine, too")
    install(tmp_path / "extensions")
    assert set(tree(target)) == {*packaged_files(), MANIFEST, "notes/mine.md", "notes/index.ts"}
    assert [path.name for path in tmp_path.iterdir()] == ["extensions"]


@pytest.mark.parametrize("kind", ["folder", "file", "link", "link to ours", "other manifest"])
def test_what_is_not_ours_is_never_overwritten_or_removed(tmp_path: Path, kind: str) -> None:
    extensions = tmp_path / "extensions"
    extensions.mkdir()
    target = extensions / "context-paging"
    match kind:
        case "folder" | "other manifest":
            target.mkdir()
            (target / "index.ts").write_text("somebody's")
            if kind == "other manifest":
                (target / MANIFEST).write_text('{"name": "another-extension", "files": {"index.ts": ""}}')
        case "file":
            target.write_text("somebody's")
        case "link":
            (tmp_path / "elsewhere").mkdir()
            target.symlink_to(tmp_path / "elsewhere")
        case _:
            target.symlink_to(install(tmp_path / "elsewhere"))
    before = tree(tmp_path)
    with pytest.raises(ForeignExtension, match=str(target)):
        install(extensions)
    with pytest.raises((ForeignExtension, NotInstalled), match=str(target)):
        uninstall(extensions)
    assert tree(tmp_path) == before


def test_removing_takes_our_files_alone(tmp_path: Path) -> None:
    target = install(tmp_path / "extensions")
    assert uninstall(tmp_path / "extensions").left == ()
    assert not target.exists()
    with pytest.raises(NotInstalled):
        uninstall(tmp_path / "extensions")
    install(tmp_path / "extensions")
    (target / "mine.md").write_text("mine")
    assert uninstall(tmp_path / "extensions").left == ("mine.md",)
    assert set(tree(target)) == {"mine.md"}


def test_a_manifest_that_names_files_elsewhere_removes_nothing_there(tmp_path: Path) -> None:
    target = install(tmp_path / "extensions")
    (tmp_path / "precious.ts").write_text("precious")
    manifest = json.loads((target / MANIFEST).read_text())
    manifest["files"]["../../precious.ts"] = "0" * 64
    (target / MANIFEST).write_text(json.dumps(manifest))
    uninstall(tmp_path / "extensions")
    assert (tmp_path / "precious.ts").exists()


def test_pi_is_looked_for_where_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert agent_folder({}) == tmp_path / ".pi" / "agent"
    assert agent_folder({"PI_CODING_AGENT_DIR": "~/else"}) == tmp_path / "else"
    monkeypatch.chdir(tmp_path)
    assert extensions_folder(project=True) == tmp_path / ".pi" / "extensions"
    assert extensions_folder(Path("here")) == tmp_path / "here"


def test_the_commands_install_and_uninstall(shell: Shell) -> None:
    target = shell.home / ".pi" / "agent" / "extensions" / "context-paging"
    assert str(target) in shell("pi", "install").stdout
    assert (target / "index.ts").exists()
    manifest = read_manifest(target)
    assert manifest is not None
    assert manifest.command[0] == sys.executable
    assert str(target) in shell("pi", "uninstall").stdout
    assert not target.exists()
    refused = shell("pi", "uninstall", code=1).stderr
    assert "there is no extension of this package" in refused
    assert str(shell.home / ".pi" / "extensions") in shell("pi", "install", "--project").stdout
    shell("pi", "install", "--project", "--folder", "x", code=2)
