"""`what-if`: a logged session decided again with other settings."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .inspect import session_named
from .options import JsonOption, LogOption, open_log


def what_if_command(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session id, or its beginning.")],
    token_budget: Annotated[int | None, typer.Option("--token-budget", min=1, help="Another budget.")] = None,
    trim_to: Annotated[int | None, typer.Option("--trim-to", min=1, help="Another target.")] = None,
    context_window: Annotated[
        int | None, typer.Option("--context-window", min=1, help="A model with another window.")
    ] = None,
    repair: Annotated[
        bool | None, typer.Option("--repair/--abort", help="What becomes of broken exchanges.")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide every call of a logged session again, all else equal, and show what would differ.

    Messages have the tokens that were counted when they were logged: the log does not have their texts, so
    that another estimator cannot count them anew.
    """
    from context_paging.domain.repair import OnInvalidStructure
    from context_paging.domain.what_if import Change

    from ..what_if import call_json, what_if
    from ..what_if_report import print_what_if
    from .console import output

    policies = {None: None, True: OnInvalidStructure.REPAIR, False: OnInvalidStructure.ABORT}
    change = Change(token_budget, trim_to, policies[repair], context_window)
    with open_log(log) as event_log:
        calls = what_if(event_log, session_named(event_log, session).session_id, change)
        if as_json:
            for call in calls:
                print(json.dumps(call_json(call)))
        else:
            print_what_if(output(), calls)
