"""Texts that stand in for what left the window (design, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..cut import Notice
from ..estimation import TokenEstimator
from ..json_text import stringify
from ..messages import Message, text_content

REFERENCE_LIMIT = 2_000
"""Characters of the first page a reference asks for."""


@dataclass(frozen=True, slots=True)
class ToolReference:
    """Where the output of an evicted tool call can be read."""

    history_id: str
    call_id: str
    tool_name: str


def notice_message(text: str) -> Message:
    """A notice as the message that goes out."""
    return {"role": "user", "content": text, "timestamp": 0}


def reference_message(text: str) -> Message:
    """A tool result as far as its estimate goes, with a reference as its content."""
    return {"role": "toolResult", "content": text_content(text)}


class Notices:
    """Makes notices with their estimates for one budget, in tokens."""

    def __init__(self, estimator: TokenEstimator, budget: float) -> None:
        self._tokens: Callable[[Message], int] = estimator.message_tokens
        self._budget = _with_commas(budget)

    def normal(self, newest_id: str | None, reference: ToolReference | None) -> Notice:
        """Older history left the window."""
        lines = [
            f"[Context paging] Earlier history is outside this {self._budget}-token window. "
            "It is stored, complete and unchanged.",
            "Find items: search_history, browse_history. "
            "Read them exactly: load_history, read_context_output.",
        ]
        if newest_id is not None:
            lines.append(f"Newest item outside the window: {stringify(newest_id)}.")
        if reference is not None:
            call = _read_call(reference.history_id, reference.call_id)
            lines.append(f"Tool output outside the window: {reference.tool_name}, {call}.")
        return self._notice(lines)

    def overflow(self) -> Notice:
        """Unread tool results are above the budget, and go out once."""
        return self._notice(
            [
                "[Context paging] The newest tool results are shown in full for this one call, "
                f"above the usual {self._budget}-token window.",
                "They may leave the window after this call. To read them again: "
                "search_history or browse_history, then load_history or read_context_output.",
            ]
        )

    def recovery(self) -> Notice:
        """Unread tool results are above the model's window, and references go out."""
        return self._notice(
            [
                "[Context paging] The newest tool results do not fit the model's context window, "
                "so each is replaced by a reference.",
                "Call read_context_output with the arguments given in each reference "
                "to read the stored result in pages.",
            ]
        )

    def reference(self, history_id: str, call_id: str) -> Notice:
        """What goes out in the place of one tool result."""
        text = (
            "[Context paging] This tool result does not fit the model's context window.\n"
            f"Read the stored result: {_read_call(history_id, call_id)}."
        )
        return Notice(text, self._tokens(reference_message(text)))

    def _notice(self, lines: list[str]) -> Notice:
        text = "\n".join(lines)
        return Notice(text, self._tokens(notice_message(text)))


def _read_call(history_id: str, call_id: str) -> str:
    arguments = {
        "historyId": history_id,
        "source": "toolResult",
        "toolCallId": call_id,
        "offset": 0,
        "limit": REFERENCE_LIMIT,
    }
    return f"read_context_output({stringify(arguments)})"


def _with_commas(tokens: float) -> str:
    if tokens == int(tokens):
        return f"{int(tokens):,}"
    # As JavaScript formats a number for people: at most three decimals.
    return f"{tokens:,.3f}".rstrip("0").rstrip(".")
