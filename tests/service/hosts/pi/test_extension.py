"""The extension's source: it fits the types of both versions of Pi, and Pi loads all of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from context_paging.domain.recovery.tools import tool_definitions
from context_paging.service.hosts.pi.installer import install
from context_paging.service.hosts.pi.manifest import packaged_files

from .agent import USER, Pi
from .conftest import missing

OPTIONS = {
    "strict": True,
    "noEmit": True,
    "module": "nodenext",
    "target": "es2023",
    "lib": ["es2023"],
    "types": ["node"],
    "allowImportingTsExtensions": True,
    "erasableSyntaxOnly": True,
    "exactOptionalPropertyTypes": True,
    "noUncheckedIndexedAccess": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    # The types of Pi's own dependencies are not ours to check.
    "skipLibCheck": True,
    "verbatimModuleSyntax": True,
}
LOAD = """
import { discoverAndLoadExtensions } from "@earendil-works/pi-coding-agent";
const { extensions, errors } = await discoverAndLoadExtensions([], process.cwd(), process.argv[2]);
const told = [];
for (const extension of extensions) {
  const command = extension.commands.get("context-paging");
  if (!command) continue;
  const complete = async (prefix) =>
    (await command.getArgumentCompletions(prefix))?.map((item) => item.value);
  told.push({
    tools: [...extension.tools.values()].map(({ definition }) => definition),
    completions: { "": await complete(""), s: await complete("s"), x: await complete("x") },
  });
}
console.log(JSON.stringify({ told, errors }));
"""


@pytest.fixture
def workspace(tmp_path: Path, pi: Pi) -> Path:
    """A folder whose imports find this version of Pi."""
    (tmp_path / "node_modules").symlink_to(pi.folder / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


def test_it_fits_the_types_of_pi(workspace: Path, pi: Pi, pi_folder: Path) -> None:
    compiler = pi_folder / "typescript/node_modules/typescript/bin/tsc"
    if not compiler.exists():
        missing(compiler, pi_folder)
    for name, content in packaged_files().items():
        (workspace / name).write_bytes(content)
    shutil.copy(USER, workspace)
    (workspace / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["*.ts"]}))
    done = subprocess.run(
        [pi.node, compiler, "--project", "."], cwd=workspace, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_pi_loads_its_command_with_completions_and_its_tools(workspace: Path, pi: Pi) -> None:
    agent = workspace / "agent"
    install(agent / "extensions")
    (workspace / "load.js").write_text(LOAD)
    done = subprocess.run(
        [pi.node, "load.js", str(agent)], cwd=workspace, capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout)
    assert loaded["errors"] == []
    (told,) = loaded["told"]
    assert told["completions"] == {"": ["on", "off", "status", "stats"], "s": ["status", "stats"]}
    definitions = [
        {name: tool[name] for name in ("name", "description", "parameters")} for tool in told["tools"]
    ]
    assert definitions == tool_definitions()
