"""What pytest prints when the pretend library's tests pass."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

WIDTH = 80
PLATFORM = "platform linux -- Python 3.11.9, pytest-9.0.2, pluggy-1.6.0"
ROOT = "/home/mara/code/harbour-tides"


def collect(files: Mapping[str, str]) -> list[str]:
    """Node ids of all tests, in order."""
    nodes: list[str] = []
    for path in sorted(files):
        if path.startswith("tests/test_"):
            for item in ast.parse(files[path]).body:
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
                    nodes += _nodes(f"{path}::{item.name}", item, files)
    return nodes


def report(nodes: Iterable[str], options: str, seconds: float) -> str:
    """The output of one run of the tests that the options select."""
    flags = options.split()
    chosen = [node for node in nodes if _selected(node, options)]
    lines = [] if "-q" in flags else _heading(len(chosen))
    lines += _verbose(chosen) if "-v" in flags else _dots(chosen)
    summary = f"{len(chosen)} passed in {seconds:.2f}s"
    return "\n".join([*lines, summary if "-q" in flags else f" {summary} ".center(WIDTH, "=")])


def _nodes(name: str, function: ast.FunctionDef, files: Mapping[str, str]) -> list[str]:
    ids = [""]
    for decorator in reversed(function.decorator_list):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            values = _ids(decorator.args[1], files)
            ids = [f"{one}-{two}" if one else two for one in ids for two in values]
    return [f"{name}[{i}]" if i else name for i in ids]


def _ids(values: ast.expr, files: Mapping[str, str]) -> list[str]:
    if not isinstance(values, ast.List):
        folder, suffix = "data/stations/", ".tide"
        return [path[len(folder) : -len(suffix)] for path in sorted(files) if path.startswith(folder)]
    return [_id(value) for value in values.elts]


def _id(value: ast.expr) -> str:
    if isinstance(value, ast.Tuple):
        return "-".join(_id(part) for part in value.elts)
    return str(ast.literal_eval(value))


def _selected(node: str, options: str) -> bool:
    paths = re.findall(r"tests/\S+", options)
    if paths and not any(node == path or node.partition("[")[0].startswith(path) for path in paths):
        return False
    word = re.search(r"-k (\w+)", options)
    return word is None or word[1] in node


def _heading(count: int) -> list[str]:
    title = " test session starts ".center(WIDTH, "=")
    return [title, PLATFORM, f"rootdir: {ROOT}", "configfile: pyproject.toml", f"collected {count} items", ""]


def _dots(nodes: Sequence[str]) -> list[str]:
    lines, done = [], 0
    for path in dict.fromkeys(node.split("::")[0] for node in nodes):
        count = sum(node.startswith(path + "::") for node in nodes)
        done += count
        percent = f"[{100 * done // len(nodes):>3}%]"
        lines.append(f"{path} {'.' * count}".ljust(WIDTH - len(percent)) + percent)
    return [*lines, ""]


def _verbose(nodes: Sequence[str]) -> list[str]:
    rows = []
    for number, node in enumerate(nodes, 1):
        percent = f"[{100 * number // len(nodes):>3}%]"
        rows.append(f"{node} PASSED ".ljust(WIDTH - len(percent)) + percent)
    return [*rows, ""]
