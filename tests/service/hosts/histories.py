"""Made-up histories through a converter: valid, stable and unchanged, whatever they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from context_paging.domain.events import ContextSelected, Mode
from context_paging.service.hosts.conversation import HostConversation
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError

from .scripts import Step, calls_of


def check_history(
    converter: Any,
    script: list[Step],
    policy: str,
    *,
    write: Callable[[list[Step]], list[Any]],
    check: Callable[[list[Any]], None],
    wire: Callable[[list[Any]], list[str]],
) -> None:
    """Page a growing history as a host would: each request is valid, and the beginning of the next one until
    the cut moves or something is repaired.

    ``check`` refuses what the provider would; ``wire`` gives messages as they are sent.
    """
    settings = PagingSettings(token_budget=1_500, on_invalid_structure=policy)
    paging = ContextPaging(settings=settings)
    conversation: HostConversation[Any] = HostConversation(lambda: paging.session("s"), converter)
    before: list[str] = []
    notice: Any = None
    for count in calls_of(script):
        messages = write(script[:count])
        untouched = wire(copy.deepcopy(messages))
        try:
            paged = conversation.page(messages)
        except ContextAbortedError as error:
            if error.aborted.code != "ACTIVE_REQUEST_TOO_LARGE":
                raise
            continue
        assert wire(messages) == untouched
        check(paged.messages)
        shown, outcome = wire(paged.messages), paged.reply.outcome
        assert isinstance(outcome, ContextSelected)
        if outcome.mode in (Mode.PAGED, Mode.WITHIN_BUDGET):
            if notice == outcome.notice and policy == "abort":
                assert shown[: len(before)] == before
            before, notice = shown, outcome.notice
