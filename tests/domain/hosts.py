"""A host that plays random scripts: what its users, tools, provider and extensions might do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hypothesis import strategies as st

from context_paging.domain.events import Event
from context_paging.domain.messages import Message
from context_paging.service.replies import ContextReply
from context_paging.service.session import Session

Action = dict[str, Any]
SIZES = st.sampled_from([1, 20, 80, 200, 500])
"""Tokens of one text; budgets are a few hundred to a few thousand."""


@dataclass
class Call:
    """One context request of a script, with what the host had and got.

    Attributes:
        newest: the message of the branch's newest user, assistant or tool result entry.
        plain: the host passed its stored conversation as it is, and nothing but appends happened since the
            call before.
    """

    outgoing: list[Message]
    reply: ContextReply
    plain: bool
    newest: Message | None = None


@dataclass
class Host:
    """Stores a session and tells a `Session` about it."""

    session: Session
    entries: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    appended_only: bool = False
    failed: str | None = None

    def play(self, action: Action) -> None:
        """Do one thing."""
        steps: dict[str, Callable[[Action], None]] = {
            "user": self._user,
            "custom": self._custom,
            "exchange": self._exchange,
            "bash": self._bash,
            "summary": self._summary,
            "compact": self._compact,
            "edit": self._edit,
            "retry": self._retry,
            "navigate": self._navigate,
            "toggle": self._toggle,
            "model": self._model,
            "context": self._context,
            "stray": self._stray,
            "open": self._open,
        }
        steps[action["do"]](action)

    def _store(self, kind: str, **fields: Any) -> str:
        entry_id = f"e{len(self.entries)}"
        parent = self.session.stored.leaf_id
        entry = {
            "type": kind,
            "id": entry_id,
            "parentId": parent,
            "timestamp": "2026-01-01T00:00:00Z",
            **fields,
        }
        self.entries.append(entry)
        self.session.append([entry])
        return entry_id

    def _message(self, action: Action, role: str, content: Any, **fields: Any) -> str:
        stamp = 1 if action.get("same_time") else len(self.entries)
        message = {"role": role, "content": content, "timestamp": stamp, **fields}
        return self._store("message", message=message)

    def _user(self, action: Action) -> None:
        self._message(action, "user", "word" * action["size"])

    def _custom(self, action: Action) -> None:
        self._store("custom_message", customType="note", content="note" * action["size"], display=True)

    def _bash(self, action: Action) -> None:
        self._message(action, "bashExecution", None, command="ls", output="file" * action["size"])

    def _summary(self, action: Action) -> None:
        self._store("branch_summary", fromId="x", summary="sums" * action["size"])

    def _exchange(self, action: Action) -> None:
        start = 0 if action.get("same_calls") else len(self.entries)
        ids = [f"call-{start}-{number}" for number in range(len(action["calls"]))]
        blocks: list[Action] = [{"type": "text", "text": "well"}]
        blocks += [
            {"type": "toolCall", "id": call, "name": "read", "arguments": {"path": call}} for call in ids
        ]
        stop = action["stop"]
        fields: Action = {"stopReason": stop}
        if action["usage"]:
            fields["usage"] = _usage(action["usage"])
        entry_id = self._message(action, "assistant", blocks, **fields)
        self.failed = entry_id if stop in ("error", "aborted") else None
        answered = list(zip(ids, action["calls"], strict=True))
        if action["reversed"]:
            answered.reverse()
        if self.failed:
            answered = answered[: action["answered"]]
        self._note(self.session.turn_end(entry_id).events)
        for call, size in answered:
            text = [{"type": "text", "text": "line" * size}]
            self._message(action, "toolResult", text, toolCallId=call, toolName="read", isError=False)

    def _stray(self, action: Action) -> None:
        text = [{"type": "text", "text": "lost" * action["size"]}]
        self._message(action, "toolResult", text, toolCallId=action["call"], toolName="read", isError=False)

    def _open(self, action: Action) -> None:
        blocks = [
            {"type": "toolCall", "id": call, "name": "read", "arguments": {}} for call in action["calls"]
        ]
        entry_id = self._message(action, "assistant", blocks, stopReason="toolUse")
        self._note(self.session.turn_end(entry_id).events)

    def _compact(self, action: Action) -> None:
        kept = self._earlier(action)
        self._note(self.session.before_compaction("manual").events)
        entry = self._store(
            "compaction", summary="sums" * action["size"], firstKeptEntryId=kept, tokensBefore=1
        )
        self._note(self.session.compacted(entry).events)
        self.appended_only = False

    def _edit(self, action: Action) -> None:
        content = None if action["omit"] else {"content": "edit" * action["size"]}
        self._store("context_edit", targetId=self._earlier(action, results=False), replacement=content)
        self.appended_only = False

    def _retry(self, action: Action) -> None:
        if self.failed is not None:
            self._store("context_edit", targetId=self.failed, replacement=None)
            self.failed = None

    def _navigate(self, action: Action) -> None:
        self._note(self.session.navigate(self._earlier(action)).events)
        self.appended_only = False

    def _toggle(self, action: Action) -> None:
        self._note(self.session.command("on" if action["on"] else "off").events)
        self.appended_only = False

    def _model(self, action: Action) -> None:
        self._note(self.session.select_model("m", action["window"]).events)
        self.appended_only = False

    def _context(self, action: Action) -> None:
        outgoing = list(self.session.stored.messages())
        for where in action["insert"]:
            index = {"start": 0, "end": len(outgoing), "before_last": max(0, len(outgoing) - 1)}[where]
            outgoing.insert(index, {"role": "user", "content": f"instruction {where} " * 9, "timestamp": 0})
        usage = None
        if action["status"] and self.session.state.stored is not None:
            stored = self.session.state.stored
            newest = stored.last_measured()
            if newest is not None:
                usage = (stored.message(newest).reported_tokens or 0) + stored.tokens_after(newest)
        reply = self.session.context(
            outgoing,
            system_prompt="prompt" * 10,
            context_window=action["window"],
            usage_tokens=usage,
        )
        self._note(reply.events)
        plain = self.appended_only and not action["insert"]
        self.calls.append(Call(outgoing, reply, plain, self._newest()))
        self.appended_only = not action["insert"]

    def _newest(self) -> Message | None:
        messages = [entry["message"] for entry in self.session.stored.branch if "message" in entry]
        return next((m for m in reversed(messages) if m["role"] != "bashExecution"), None)

    def _earlier(self, action: Action, *, results: bool = True) -> str | None:
        branch = [
            entry["id"]
            for entry in self.session.stored.branch
            if results or entry.get("message", {}).get("role") in ("user", "assistant", "toolResult")
        ]
        return branch[action["at"] % len(branch)] if branch else None

    def _note(self, events: tuple[Event, ...]) -> None:
        self.events.extend(events)


def _usage(total: int) -> Action:
    return {"input": total, "output": 7, "cacheRead": 0, "cacheWrite": 0, "totalTokens": total + 7}


def scripts(*, edits: bool = True) -> st.SearchStrategy[list[Action]]:
    """Scripts of a host: turns with tool loops, and now and then something else.

    Without ``edits`` the stored conversation only grows, and requests carry nothing else.
    """
    rare = st.sampled_from([False] * 29 + [True])
    said = st.fixed_dictionaries(
        {
            "do": st.sampled_from(["user"] * 8 + ["custom", "bash", "summary"]),
            "size": SIZES,
            "same_time": rare,
        }
    )
    exchange = st.fixed_dictionaries(
        {
            "do": st.just("exchange"),
            "calls": st.lists(SIZES, max_size=3),
            "stop": st.sampled_from(["stop"] * 9 + ["error", "aborted"]),
            "answered": st.integers(0, 3),
            "reversed": st.booleans(),
            "usage": st.sampled_from([0, 30, 300, 2_000]),
            "same_time": rare,
            "same_calls": rare,
        }
    )
    insertions = st.sampled_from([[], [], [], ["start"], ["end"], ["before_last"], ["start", "end"]])
    context = st.fixed_dictionaries(
        {
            "do": st.just("context"),
            "window": st.sampled_from([None, None, 900, 3_000]),
            "insert": insertions if edits else st.just([]),
            "status": st.booleans(),
        }
    )
    # Pi leaves a failed response out of the next request at once.
    retry: Action = {"do": "retry"}
    loop = st.lists(st.tuples(context, exchange).map(lambda pair: [*pair, retry]), min_size=1, max_size=5)
    turn = st.tuples(said, loop).map(lambda parts: [parts[0], *chain.from_iterable(parts[1])])
    at = st.integers(0, 200)
    others: list[st.SearchStrategy[Any]] = [
        st.fixed_dictionaries({"do": st.just("compact"), "at": at, "size": SIZES}),
        st.fixed_dictionaries({"do": st.just("edit"), "at": at, "size": SIZES, "omit": st.booleans()}),
        st.fixed_dictionaries({"do": st.just("navigate"), "at": at}),
        st.fixed_dictionaries({"do": st.just("model"), "window": st.just(None)}),
        st.just({"do": "toggle", "on": False}),
    ]
    on: Action = {"do": "toggle", "on": True}
    other = st.one_of(others).map(lambda action: [action, on] if action["do"] == "toggle" else [action])
    chapters = st.one_of(turn, turn, turn, turn, other) if edits else turn
    return st.lists(chapters, min_size=3, max_size=14).map(lambda parts: list(chain.from_iterable(parts)))


def broken_scripts() -> st.SearchStrategy[list[Action]]:
    """Scripts in which exchanges break: results go missing, come twice, late, or for nothing."""
    call = st.sampled_from(["a", "b", "call-0-0"])
    broken: list[st.SearchStrategy[Any]] = [
        st.fixed_dictionaries({"do": st.just("stray"), "size": SIZES, "call": call}),
        st.fixed_dictionaries({"do": st.just("open"), "calls": st.lists(call, min_size=1, max_size=3)}),
    ]
    said = st.fixed_dictionaries({"do": st.sampled_from(["user", "custom", "bash"]), "size": SIZES})
    asked = st.fixed_dictionaries(
        {
            "do": st.just("context"),
            "window": st.sampled_from([None, 900]),
            "insert": st.sampled_from([[], [], ["end"], ["before_last"]]),
            "status": st.booleans(),
        }
    )
    piece = st.lists(st.one_of(*broken, said, asked), min_size=1, max_size=8)
    return st.lists(st.one_of(piece, scripts()), min_size=1, max_size=4).map(
        lambda parts: list(chain.from_iterable(parts))
    )


def repairing() -> st.SearchStrategy[Action]:
    """Settings with the repair policy."""
    return settings().map(
        lambda chosen: {"contextPaging": {**chosen["contextPaging"], "onInvalidStructure": "repair"}}
    )


def settings() -> st.SearchStrategy[Action]:
    """Settings with small budgets, now and then with a target that leaves no room."""
    return st.sampled_from([(600, None), (1_500, None), (1_500, 300), (1_500, 2_000)]).map(
        lambda pair: {"contextPaging": {"tokenBudget": pair[0], "trimToTokens": pair[1]}}
    )


def played(script: list[Action], chosen: Action) -> Host:
    """A host after a whole script."""
    host = Host(Session("script"))
    host.events.extend(host.session.start(global_settings=chosen).events)
    for action in script:
        host.play(action)
    return host
