"""A host that does anything in any order, to a session and to its model; after every step they must agree.

What it does is meant to lead to where mistakes are: budgets so small that cuts, overflows and aborts happen
all the time, several calls in an exchange, results out of order, missing, twice or for nothing, messages that
look alike, branches, compactions and edits, requests that lack messages or carry others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from hypothesis import currently_in_test_context, event, reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from context_paging.service.replay import answer_of
from context_paging.service.session import Session

from ..conformance.answers import reply_answer, statistics_answer, tool_answer
from ..conformance.compare import differences
from .recovery import RECOVERY_TOOLS
from .session import Model
from .texts import Message, calls

Json = Any

REACHED: Counter[str] = Counter()
"""Outcomes over all examples, for long runs."""

SIZES = [1, 20, 80, 200, 500]
"""Tokens of one text."""

BUDGETS: list[Json] = [
    {"tokenBudget": 300},
    {"tokenBudget": 600},
    {"tokenBudget": 600, "trimToTokens": 1},
    {"tokenBudget": 1_500},
    {"tokenBudget": 1_500, "trimToTokens": 300},
    {"tokenBudget": 1_500, "trimToTokens": 1_500},
    {"tokenBudget": 3_000, "trimToTokens": 2_900},
    {"tokenBudget": 900.0, "trimToTokens": 0},
    {"tokenBudget": 1_000, "enabled": False},
    {},
]
WINDOWS = [None, None, 900, 3_000, 400]
RESIDENTS = ["", "prompt " * 10, "prompt " * 10, "prompt " * 200]
TOOLS: list[list[Json]] = [
    [],
    [{"name": "read", "description": "Read a file.", "parameters": {"type": "object"}}],
]
REASONS = ["new", "resume", "fork", "reload"]
RARELY = [False] * 30 + [True]
NOW_AND_THEN = [False] * 5 + [True]

SAID: dict[str, list[Any]] = {
    "size": SIZES,
    "word": ["word", "näh ", "文件 x", "a/b.", "😀.", '"\n\\ '],
    "alike": RARELY,
    "blocks": [False, True],
}
RESPONSE: dict[str, list[Any]] = {
    "sizes": [[], [20], [80], [200], [500], [1, 500], [80, 80], [200, 20], [20, 1, 200], [500, 200, 80]],
    "stop": ["stop"] * 15 + ["toolUse", "error", "aborted"],
    "usage": ["none", "none", "zero", "fitting", "fitting", "fitting", "fitting", "small", "large"],
    "alike": RARELY,
    "reused": RARELY,
    "recovering": RARELY,
    "thinking": [False, True],
    "order": ["as called", "reversed"],
    "answered": [9] * 150 + [1, 0],
}
INSERTIONS = [
    ("start", "user"),
    ("end", "user"),
    ("end", "custom"),
    ("before_last", "custom"),
    ("middle", "user"),
]
REQUEST: dict[str, list[Any]] = {
    "how": ["stored"] * 4 + ["objects", "copies"],
    "usage": ["none", "status", "status", "status", "stored", "odd"],
    "drop": [0] * 25 + [1, 3],
    "insertions": [*[[]] * 10, *([one] for one in INSERTIONS), INSERTIONS[:2], INSERTIONS[1:3]],
    "other": [None] * 12 + [(900, "", 0), (400, "prompt " * 10, 1), (None, "prompt " * 60, 1)],
}


def one_of(choices: list[Any]) -> st.SearchStrategy[Any]:
    """A strategy for one of them."""
    return st.sampled_from(choices)


def all_of(choices: dict[str, list[Any]]) -> Any:
    """Strategies for the arguments of a rule."""
    return {name: one_of(values) for name, values in choices.items()}


def picked(random: Random, choices: dict[str, list[Any]]) -> dict[str, Any]:
    """Arguments for a rule, from a number that hypothesis chose: it cannot choose that much one by one."""
    return {name: random.choice(values) for name, values in choices.items()}


class Conversation(RuleBasedStateMachine):
    """The rules are what a host may do."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("machine")
        self.model = Model()
        self.made = 0
        self.window: float | None = None
        self.resident = ""
        self.tools = 0

    # Starting

    @initialize(
        settings=one_of(BUDGETS),
        reason=one_of(REASONS),
        window=one_of(WINDOWS),
        resident=one_of(RESIDENTS),
        tools=st.integers(0, 1),
    )
    def begin(self, settings: Json, reason: str, window: float | None, resident: str, tools: int) -> None:
        self.window, self.resident, self.tools = window, resident, tools
        self._start(settings, None, reason)

    @precondition(lambda self: self.made > 8)
    @rule(
        settings=one_of(BUDGETS),
        project=st.none() | one_of(BUDGETS),
        reason=one_of(REASONS),
        seldom=one_of(RARELY),
    )
    def start_again(self, settings: Json, project: Json, reason: str, seldom: bool) -> None:
        if seldom:
            self._start(settings, project, reason)

    def _start(self, settings: Json, project: Json, reason: str) -> None:
        source = {"contextPaging": settings}
        of_project = None if project is None else {"contextPaging": project}
        told = self.session.start(
            reason, global_settings=source, project_settings=of_project, project_trusted=project is not None
        )
        self._agree(reply_answer(told), self.model.start(source, of_project))

    # Storing

    @rule(seed=st.integers(0, 2**32), responses=st.integers(1, 5))
    def work(self, seed: int, responses: int) -> None:
        """A turn."""
        random = Random(seed)
        self.say(**picked(random, SAID))
        for _ in range(responses):
            self.ask(**picked(random, REQUEST))
            self.respond(**picked(random, RESPONSE))

    @rule(seed=st.integers(0, 2**32), responses=st.integers(1, 5))
    def go_on(self, seed: int, responses: int) -> None:
        """More of a turn, and a request that sees its last results."""
        random = Random(seed)
        for _ in range(responses):
            self.respond(**picked(random, RESPONSE))
            self.ask(**picked(random, REQUEST))

    @rule(**all_of(SAID))
    def say(self, size: int, word: str, alike: bool, blocks: bool) -> None:
        text = _text(word, size)
        content = [{"type": "text", "text": text}] if blocks else text
        self._message("user", 5 if alike else None, content="same" if alike else content)

    @rule(
        kind=st.sampled_from(["custom_message", "bash", "branch_summary", "model_change", "label"]),
        size=one_of(SIZES),
    )
    def store_something_else(self, kind: str, size: int) -> None:
        text = _text("text", size)
        match kind:
            case "custom_message":
                self._entry(kind, customType="note", content=text, display=True)
            case "bash":
                self._message("bashExecution", command="ls", output=text, exitCode=0)
            case "branch_summary":
                self._entry(kind, fromId="x", summary=text)
            case "model_change":
                self._entry(kind, provider="p", modelId="m")
            case _:
                self._entry(kind, targetId="x", label="l")

    @rule(**all_of(RESPONSE))
    def respond(
        self,
        sizes: list[int],
        stop: str,
        usage: str,
        alike: bool,
        reused: bool,
        recovering: bool,
        thinking: bool,
        order: str,
        answered: int,
    ) -> None:
        """A response with its results, all or some of them."""
        start = 0 if reused else self.made
        ids = [f"call-{start}-{number}" for number in range(len(sizes))]
        tool = RECOVERY_TOOLS[self.made % 4] if recovering else "read"
        blocks: list[Json] = (
            [{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}] if thinking else []
        )
        blocks.append({"type": "text", "text": "same" if alike else "well"})
        blocks += [
            {"type": "toolCall", "id": call, "name": tool, "arguments": {"path": f"src/{call}.py", "n": 1.5}}
            for call in ids
        ]
        entry = self._message(
            "assistant", 6 if alike else None, content=blocks, stopReason=stop, **self._usage(usage)
        )
        self._turn_end(entry)
        answers = list(zip(ids, sizes, strict=True))[:: -1 if order == "reversed" else 1][:answered]
        for call, size in answers:
            self._result(call, tool, size)
        if stop in ("error", "aborted") and not answers:
            self._entry("context_edit", targetId=entry, replacement=None)

    @rule(call=st.sampled_from(["stray", "call-0-0"]), size=one_of(SIZES), seldom=one_of(RARELY))
    def store_a_stray_result(self, call: str, size: int, seldom: bool) -> None:
        if seldom:
            self._result(call, "read", size)

    @rule(at=st.integers(0, 99), stale=one_of(RARELY))
    def end_a_turn(self, at: int, stale: bool) -> None:
        """A second time, or that of an earlier response."""
        stored = [i for i, e in self.model.entries.items() if e.get("message", {}).get("role") == "assistant"]
        if stale and stored:
            self._turn_end(stored[at % len(stored)])

    # Asking

    @rule(**all_of(REQUEST))
    def ask(
        self,
        how: str = "stored",
        usage: str = "stored",
        drop: int = 0,
        insertions: Iterable[tuple[str, str]] = (),
        other: tuple[float | None, str, int] | None = None,
    ) -> None:
        """A provider call is due."""
        window, resident, tools = other or (self.window, self.resident, self.tools)
        outgoing = list(self.model.messages)
        if how == "copies":
            outgoing = json.loads(json.dumps(outgoing))
        if how != "stored":
            outgoing = outgoing[drop:]
            for where, role in insertions:
                at = {"start": 0, "end": len(outgoing), "middle": len(outgoing) // 2}.get(
                    where, max(0, len(outgoing) - 1)
                )
                outgoing.insert(at, {"role": role, "content": f"told {where} " * 9, "timestamp": 0})
        told_usage: Any = None
        status = self.model.status_total()
        if usage in ("status", "odd"):
            told_usage = None if status is None else status + (77 if usage == "odd" else 0)
        reply = self.session.context(
            None if how == "stored" else outgoing,
            system_prompt=resident,
            tools=TOOLS[tools],
            context_window=window,
            usage_tokens="stored" if usage == "stored" else told_usage,
        )
        wanted = self.model.context(
            outgoing, resident, TOOLS[tools], window, status if usage == "stored" else told_usage
        )
        given = answer_of(reply)
        if "kept" in given:
            given["kept"] = [i for first, last in given["kept"] for i in range(first, last + 1)]
        self._reached(wanted)
        if self.model.close and list(differences(given, {k: wanted[k] for k in given if k in wanted})):
            # Both are right: no order of a sum is the specification's. From here on they are two sessions.
            REACHED["rounding decides"] += 1
            reject()
        self._agree({**given, **reply_answer(reply)}, wanted)
        if wanted["outcome"] != "aborted":
            self._same_objects(reply.messages, _sent(outgoing, wanted))

    @rule()
    def ask_as_it_is(self) -> None:
        self.ask()

    @rule(
        name=st.sampled_from(RECOVERY_TOOLS),
        query=st.sampled_from(["", " ", "word", "文件 src", "read", "NÄH told"]),
        at=st.integers(0, 99),
        limit=st.integers(1, 10),
        offset=st.sampled_from([0, 0, 3, 50, 5_000]),
        direction=st.sampled_from(["backward", "forward", "around"]),
        assistant=st.booleans(),
    )
    def recover(
        self, name: str, query: str, at: int, limit: int, offset: int, direction: str, assistant: bool
    ) -> None:
        branch = self.model.branch
        ids = [entry["id"] for entry in branch] or ["none"]
        named_id = ids[at % len(ids)]
        parameters: dict[str, Any] = {
            "search_history": {"query": query, "limit": limit, "load": assistant},
            "browse_history": {
                "direction": direction,
                "historyId": named_id,
                "count": limit,
                "stride": at % 3 + 1,
            },
            "load_history": {"historyIds": [named_id]},
        }.get(name, {"historyId": named_id, "source": "assistant", "contentIndex": at % 3, "offset": offset})
        if name == "read_context_output" and not assistant:
            called = [call for entry in branch for call in calls(entry.get("message", {}))] or ["none"]
            named = called[at % len(called)]
            owners = [e["id"] for e in branch if named in calls(e.get("message", {}))] or ["none"]
            parameters = {
                "historyId": owners[0],
                "source": "toolResult",
                "toolCallId": named,
                "limit": 1 + at,
            }
        if name == "browse_history" and at % 4 == 0:
            parameters.pop("historyId")
        step = {"name": name, "params": parameters}
        self._agree(tool_answer(self.session, step), self.model.tool(name, parameters))

    # Everything else

    @rule(
        at=st.integers(0, 99),
        size=one_of(SIZES),
        told=st.sampled_from(["both", "both", "before", "after", "none"]),
    )
    def compact(self, at: int, size: int, told: str) -> None:
        # Now and then the compaction begins inside of an exchange.
        kept = self._earlier(at) if at % 9 == 0 else self._earlier(at, ("user",))
        if kept is None or at % 3:
            return
        if told in ("both", "before"):
            reply = self.session.before_compaction("manual")
            self._agree(
                {"cancel": reply.cancelled, **reply_answer(reply)}, self.model.before_compaction("manual")
            )
        entry = self._entry("compaction", summary=_text("sums", size), firstKeptEntryId=kept, tokensBefore=1)
        if told in ("both", "after"):
            self._agree(reply_answer(self.session.compacted(entry)), self.model.compacted(entry))

    @rule(reason=st.sampled_from(["threshold", "overflow", "manual"]))
    def attempt_a_compaction(self, reason: str) -> None:
        reply = self.session.before_compaction(reason)
        self._agree({"cancel": reply.cancelled, **reply_answer(reply)}, self.model.before_compaction(reason))

    @rule(at=st.integers(0, 99), omit=st.booleans(), size=one_of(SIZES), seldom=one_of(NOW_AND_THEN))
    def edit(self, at: int, omit: bool, size: int, seldom: bool) -> None:
        target = self._earlier(at, ("user", "toolResult"))
        if target is None or not seldom:
            return
        self._entry(
            "context_edit", targetId=target, replacement=None if omit else {"content": _text("edit", size)}
        )

    @rule(at=st.integers(0, 99), seldom=one_of(NOW_AND_THEN))
    def navigate(self, at: int, seldom: bool) -> None:
        # Now and then to the middle of an exchange.
        ids = [
            entry["id"]
            for entry in [*self.model.entries.values(), *self.model.branch[-1:]]
            if at % 9 == 0 or "message" not in entry or _is_between(entry["message"])
        ]
        if ids and seldom:
            leaf = ids[max(0, len(ids) - 1 - at % 12)] if at else None
            self._agree(reply_answer(self.session.navigate(leaf)), self.model.navigate(leaf))

    @rule(seldom=one_of(RARELY))
    def select_a_model(self, seldom: bool) -> None:
        if seldom:
            self._agree(reply_answer(self.session.select_model("m")), self.model.select_model())

    @rule(
        arguments=st.sampled_from(["on", "on", "off", "", "status", "stats", "bogus"]),
        seldom=one_of(NOW_AND_THEN),
    )
    def command(self, arguments: str, seldom: bool) -> None:
        if arguments == "off" and not seldom:
            return
        reply = self.session.command(arguments)
        self._agree(reply_answer(reply), self.model.command(arguments))
        if arguments in ("on", "off", "", "status"):
            state = "on" if self.model.enabled else "off"
            assert reply.notifications[-1].text == f"Context paging is {state} for this session."

    # What holds at any time

    @invariant()
    def the_conversation_is_the_same(self) -> None:
        self._same_objects(self.session.stored.messages(), self.model.messages)

    @invariant()
    def the_statistics_are_the_same(self) -> None:
        given, wanted = statistics_answer(self.session)["stats"], self.model.statistics()
        # Rounded numbers: the last digit is that of sums made in another order.
        for name, digit in (("input_tokens", 0.001), ("used_percent", 0.1)):
            one, other = given.pop(name), wanted.pop(name)
            assert one == other or abs(one - other) <= digit * 1.01, name
        self._agree(given, wanted)

    # Helpers

    def _agree(self, given: Json, wanted: Json) -> None:
        found = list(differences(given, wanted))
        assert not found, "\n".join(found[:8])

    def _same_objects(self, given: Sequence[Json], wanted: Sequence[Json]) -> None:
        assert len(given) == len(wanted)
        for one, other in zip(given, wanted, strict=True):
            assert one is other or one == other

    def _reached(self, answer: dict[str, Any]) -> None:
        frontier = answer.get("frontier")
        kind = frontier["kind"] if frontier else "no cut"
        what = answer.get("code") or answer.get("fallback") or kind
        calibrated = "calibrated" if answer.get("context_tokens") is not None else "estimated"
        told = f"{answer['outcome']}, {what}, {calibrated}"
        REACHED[told] += 1
        if currently_in_test_context():
            event(told)

    def _entry(self, kind: str, **fields: Any) -> str:
        entry = {
            "type": kind,
            "id": f"e{self.made}",
            "parentId": self.model.leaf,
            "timestamp": f"2026-01-01T00:{self.made // 60 % 60:02}:{self.made % 60:02}.000Z",
            **fields,
        }
        self.made += 1
        self.session.append([entry])
        self.model.append([entry])
        return str(entry["id"])

    def _message(self, role: str, time: int | None = None, **fields: Any) -> str:
        message = {"role": role, "timestamp": 1_000 + self.made if time is None else time, **fields}
        return self._entry("message", message=message)

    def _result(self, call: str, tool: str, size: int) -> None:
        text = [{"type": "text", "text": _text("line ", size)}]
        self._message("toolResult", toolCallId=call, toolName=tool, content=text, isError=size == 20)

    def _turn_end(self, entry: str) -> None:
        self._agree(reply_answer(self.session.turn_end(entry)), self.model.turn_end(entry))

    def _usage(self, kind: str) -> dict[str, Any]:
        latest = self.model.latest
        fitting = round(latest[0]) if latest is not None else 400
        total = {"zero": 0, "fitting": fitting * 5 // 4, "small": fitting // 2, "large": fitting * 4}.get(
            kind
        )
        if total is None:
            return {}
        cached = total // 3
        counters = {
            "input": total - cached,
            "output": 7 if total else 0,
            "cacheRead": cached,
            "cacheWrite": 0,
        }
        return {"usage": {**counters, "totalTokens": sum(counters.values())}}

    def _earlier(self, at: int, roles: tuple[str, ...] = ()) -> str | None:
        branch = [
            entry["id"]
            for entry in self.model.branch
            if not roles or entry.get("message", {}).get("role") in roles
        ]
        return branch[at % len(branch)] if branch else None


def _is_between(message: Message) -> bool:
    """Whether a conversation can go on behind a message."""
    return message["role"] != "toolResult" and not calls(message)


def _text(word: str, size: int) -> str:
    return (word * size)[: 4 * size]


def _sent(outgoing: list[Message], answer: dict[str, Any]) -> list[Message]:
    """What goes out by an answer."""
    if answer["outcome"] == "inactive":
        return outgoing
    sent: list[Message] = []
    if answer["notice"] is not None:
        sent.append({"role": "user", "content": answer["notice"], "timestamp": 0})
    for position in answer["kept"]:
        text = answer["replaced"].get(str(position))
        message = outgoing[position]
        sent.append(message if text is None else {**message, "content": [{"type": "text", "text": text}]})
    return sent
