"""`demo` and `replay`: watch context paging work on stored sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from .options import LogOption

if TYPE_CHECKING:
    from rich.console import Console

    from context_paging.domain.estimation import TokenEstimator

    from ..log import EventLog
    from ..replay import ReplayedCall, ReplayOptions
    from ..session_file import SessionFile

DEMO_BUDGET = 16_000
DEMO_WINDOW = 32_000

TokenBudget = Annotated[int | None, typer.Option("--token-budget", min=1, help="Token budget of the window.")]
TrimTo = Annotated[int | None, typer.Option("--trim-to", min=1, help="Where an advance of the cut stops.")]
ContextWindow = Annotated[
    int | None, typer.Option("--context-window", min=1, help="The model's context window.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object a context request.")]
Limit = Annotated[int | None, typer.Option("--limit", min=0, help="Stop after so many context requests.")]


def demo_command(
    token_budget: TokenBudget = DEMO_BUDGET,
    trim_to: TrimTo = None,
    context_window: ContextWindow = DEMO_WINDOW,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the bundled example: a working day of a developer and an agent on a tide library."""
    from ..example import example_path
    from ..replay import ReplayOptions

    with example_path() as path:
        options = ReplayOptions(
            global_settings=_settings(token_budget, trim_to), context_window=context_window
        )
        failed = _replay_files([path], options, log, as_json=as_json)
    raise typer.Exit(failed)


def replay_command(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Pi session files, also .gz; - is standard input.")
    ],
    token_budget: TokenBudget = None,
    trim_to: TrimTo = None,
    context_window: ContextWindow = None,
    log: LogOption = None,
    as_json: JsonOption = False,
    limit: Limit = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Leave out what breaks an exchange, instead of aborting the call."),
    ] = False,
    recorded_usage: Annotated[
        bool,
        typer.Option("--recorded-usage", help="Calibrate with the usage in the file, of other requests."),
    ] = False,
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            help="How tokens are counted: heuristic, an encoding of tiktoken, or a model. "
            "[env: CONTEXT_PAGING_ESTIMATOR]",
        ),
    ] = None,
) -> None:
    """Replay session files: a context request before each assistant message of the active branch."""
    from ..replay import ReplayOptions

    options = ReplayOptions(
        global_settings=_settings(token_budget, trim_to, repair=repair),
        context_window=context_window,
        recorded_usage=recorded_usage,
        limit=limit,
    )
    raise typer.Exit(_replay_files(files, options, log, as_json=as_json, estimator=estimator))


def _settings(token_budget: int | None, trim_to: int | None, *, repair: bool = False) -> dict[str, Any]:
    from context_paging.domain.repair import OnInvalidStructure
    from context_paging.domain.settings import settings_section

    policy = OnInvalidStructure.REPAIR if repair else None
    return {"contextPaging": settings_section(token_budget, trim_to, policy)}


def _replay_files(
    paths: Iterable[str | Path],
    options: ReplayOptions,
    log: str | None,
    *,
    as_json: bool,
    estimator: str | None = None,
) -> int:
    from context_paging.domain.errors import ContextPagingError

    from ..config import log_location, log_options, token_estimator
    from ..log import EventLog
    from ..session_file import read_session_file
    from .console import messages

    told = messages()
    failed = 0
    counted = token_estimator(estimator)
    location = log_location(log)
    with EventLog.open(location, log_options()) as event_log:
        for path in paths:
            try:
                file = read_session_file(path)
                for problem in file.problems:
                    told.print(f"{file.name}: {problem}", markup=False, style="yellow")
                _replay_file(file, options, event_log, told, counted, as_json=as_json)
            except ContextPagingError as error:
                told.print(f"context-paging: {error}", markup=False, style="red")
                failed = 1
    if not as_json:
        told.print(f"log: {location}", markup=False, style="dim")
    return failed


def _replay_file(
    file: SessionFile,
    options: ReplayOptions,
    event_log: EventLog,
    told: Console,
    estimator: TokenEstimator,
    *,
    as_json: bool,
) -> None:
    from rich.progress import track

    from ..replay import answer_of, count_calls, replay
    from ..replay_report import print_report
    from ..session import Session
    from .console import output

    session = Session(
        f"replay-{uuid4().hex[:8]}",
        sink=event_log,
        estimator=estimator,
        host="replay",
        label=file.name,
    )
    total = count_calls(file)
    if options.limit is not None:
        total = min(total, options.limit)
    calls: list[ReplayedCall] = []
    for call in track(
        replay(file, session, options), description=file.name, total=total, console=told, transient=True
    ):
        if as_json:
            head = {"session": session.id, "call": call.reply.call_id, "number": call.number}
            repairs = [asdict(repaired) for repaired in call.reply.repairs]
            tail = {"outgoing_count": call.outgoing_count, "repairs": repairs}
            print(json.dumps({**head, **answer_of(call.reply), **tail}))
        else:
            calls.append(call)
    if not as_json:
        print_report(output(), file.name, session.id, session.state.settings, calls)
