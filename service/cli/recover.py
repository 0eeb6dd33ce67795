"""`search`, `browse`, `load`, `read`, `stats`: a stored session, read as a model reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption

if TYPE_CHECKING:
    from context_paging.domain.estimation import TokenEstimator

    from ..replies import ToolReply
    from ..stored_file import StoredFile

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A Pi session file, also .gz; - is standard input.")
]
RepairOption = Annotated[
    bool, typer.Option("--repair", help="Read past broken exchanges instead of refusing the whole history.")
]


def search_command(
    file: FileArgument,
    query: Annotated[str, typer.Argument(help="Words to find; empty for the filters alone.")] = "",
    path: Annotated[
        list[str] | None, typer.Option("--file", help="Only turns whose tool calls name this file.")
    ] = None,
    tool: Annotated[list[str] | None, typer.Option("--tool", help="Only turns that call this tool.")] = None,
    failed: Annotated[
        bool | None, typer.Option("--failed/--not-failed", help="Only turns that failed, or did not.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10, help="So many.")] = 5,
    expand: Annotated[
        bool, typer.Option("--expand", help="Split names and paths and strip endings: finds more.")
    ] = False,
    repair: RepairOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find items of a session's history by their words, as search_history does."""
    parameters: dict[str, Any] = {"query": query, "limit": limit}
    if path:
        parameters["files"] = path
    if tool:
        parameters["tools"] = tool
    if failed is not None:
        parameters["failed"] = failed
    _print_references(
        _call(file, "search_history", parameters, repair=repair, expand=expand), as_json=as_json
    )


def browse_command(
    file: FileArgument,
    anchor: Annotated[str | None, typer.Option("--from", help="The history id to start at.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=0, help="Or its number.")] = None,
    direction: Annotated[str, typer.Option("--direction", help="backward, forward or around.")] = "backward",
    count: Annotated[int, typer.Option("--count", min=1, max=10, help="So many.")] = 5,
    stride: Annotated[int, typer.Option("--stride", min=1, max=10, help="Only every so manieth.")] = 1,
    repair: RepairOption = False,
    as_json: JsonOption = False,
) -> None:
    """Step through a session's history, as browse_history does."""
    parameters: dict[str, Any] = {"direction": direction, "count": count, "stride": stride}
    if anchor is not None:
        parameters["historyId"] = anchor
    if sequence is not None:
        parameters["sequence"] = sequence
    _print_references(_call(file, "browse_history", parameters, repair=repair), as_json=as_json)


def load_command(
    file: FileArgument,
    history_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="One to three history ids.")],
    repair: RepairOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print items of a session's history exactly, as load_history gives them."""
    result = _call(file, "load_history", {"historyIds": history_ids}, repair=repair).result
    if as_json:
        print(_json(result))
        return
    for item in result["items"]:
        _print_item(item)


def read_command(
    file: FileArgument,
    history_id: Annotated[str, typer.Argument(metavar="ID", help="A history id.")],
    call: Annotated[str | None, typer.Option("--call", help="The id of a tool call: its result.")] = None,
    block: Annotated[int | None, typer.Option("--block", min=0, help="Or a block of the message.")] = None,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Where the page begins.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=2000, help="How long it is.")] = 2000,
    everything: Annotated[bool, typer.Option("--all", help="All pages, joined.")] = False,
    repair: RepairOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print an output of a session exactly, a page at a time, as read_context_output does."""
    from context_paging.domain.recovery.pages import joined

    if (call is None) == (block is None):
        raise typer.BadParameter("give --call for a tool's result, or --block for a block of the message")
    parameters: dict[str, Any] = {"historyId": history_id, "offset": offset, "limit": limit}
    parameters["source"] = "toolResult" if call is not None else "assistant"
    if call is not None:
        parameters["toolCallId"] = call
    if block is not None:
        parameters["contentIndex"] = block
    opened = stored_file(file, repair=repair)
    page = _tool(opened, "read_context_output", parameters).result
    pages = [page]
    while everything and pages[-1]["nextOffset"] is not None:
        parameters["offset"] = pages[-1]["nextOffset"]
        pages.append(_tool(opened, "read_context_output", parameters).result)
    if as_json:
        for page in pages:
            print(_json(page))
        return
    print(joined(page["text"] for page in pages))
    if pages[-1]["nextOffset"] is not None:
        total = pages[-1]["totalCharacters"]
        print(f"{total:,} characters; go on with --offset {pages[-1]['nextOffset']}", file=sys.stderr)


def stats_command(
    file: FileArgument,
    token_budget: Annotated[
        int | None,
        typer.Option("--token-budget", min=1, max=2**53 - 1, help="Token budget of the window."),
    ] = None,
    context_window: Annotated[
        int | None, typer.Option("--context-window", min=1, help="The model's context window.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the statistics of a session file: what is stored, what the latest request and the cache cost."""
    from dataclasses import asdict

    from context_paging.domain.stats import statistics_text

    from ..config import token_estimator

    session = stored_file(file, token_budget=token_budget, estimator=token_estimator()).read()
    if context_window is not None:
        session.select_model(context_window=context_window)
    statistics = session.statistics()
    print(_json(asdict(statistics)) if as_json else statistics_text(statistics))


def stored_file(
    file: str,
    *,
    repair: bool = False,
    expand: bool = False,
    token_budget: int | None = None,
    estimator: TokenEstimator | None = None,
) -> StoredFile:
    """A session file, read; what is wrong with it is told on standard error.

    Raises:
        SessionFileError: it cannot be read.
    """
    from context_paging.domain.recovery.terms import expanded_terms, plain_terms

    from ..stored_file import StoredFile

    analyzer = expanded_terms if expand else plain_terms
    opened = StoredFile(
        file, repair=repair, token_budget=token_budget, analyzer=analyzer, estimator=estimator
    )
    opened.read()
    for problem in opened.problems:
        print(f"{file}: {problem}", file=sys.stderr)
    return opened


def _call(
    file: str, name: str, parameters: dict[str, Any], *, repair: bool, expand: bool = False
) -> ToolReply:
    return _tool(stored_file(file, repair=repair, expand=expand), name, parameters)


def _tool(opened: StoredFile, name: str, parameters: dict[str, Any]) -> ToolReply:
    from context_paging.domain.errors import HistoryErrorCode
    from context_paging.domain.recovery.errors import RecoveryRefused

    try:
        return opened.tool(name, parameters)
    except RecoveryRefused as refused:
        if not isinstance(refused.reason, HistoryErrorCode):
            raise
        raise RecoveryRefused(
            refused.reason,
            f"an exchange of this session is broken ({refused.reason}); --repair reads past it",
        ) from None


def _print_references(reply: ToolReply, *, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from .console import output

    references = reply.result["references"]
    if as_json:
        print(_json(reply.result))
        return
    if not references:
        print("nothing found", file=sys.stderr)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
    table.add_column("no.", justify="right")
    for name in ("id", "kind", "stored"):
        table.add_column(name, no_wrap=True)
    table.add_column("tools", overflow="fold", max_width=30)
    table.add_column("preview", overflow="ellipsis", no_wrap=True, ratio=1)
    for reference in references:
        failed = " (failed)" if reference["failed"] else ""
        table.add_row(
            str(reference["sequence"]),
            Text(reference["historyId"]),
            Text(reference["kind"] + failed, "red" if failed else ""),
            Text(str(reference["timestamp"] or "")),
            Text(", ".join(dict.fromkeys(reference["tools"]))),
            Text(reference["preview"]),
        )
    output().print(table)


def _print_item(item: Mapping[str, Any]) -> None:
    print(f"{item['kind']} {item['id']} (no. {item['sequence']}, {item['timestamp']})")
    message = item.get("assistantMessage") or item.get("userMessage")
    content = None if message is None else message.get("content")
    for position, block in enumerate(content if isinstance(content, list | tuple) else [content]):
        if block is not None:
            print(f"[{position}] {_block_text(block)}")
    results = [item["toolResult"]] if "toolResult" in item else item.get("toolResults", [])
    for result in results:
        failed = ", failed" if result.get("isError") else ""
        print(f"[result of {result.get('toolCallId')}, {result.get('toolName')}{failed}]")
        blocks = result.get("content")
        for block in blocks if isinstance(blocks, list | tuple) else [blocks]:
            print(_block_text(block))
    print()


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
        text: str = block["text"]
        return text
    return _json(block)


def _json(value: Any) -> str:
    from context_paging.domain.json_text import stringify

    return stringify(value)
