"""Steps of a golden case as domain events, folded and decided."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from context_paging.domain.decide import fold, trim_target_warning
from context_paging.domain.entries import Entry, EntryRef, digest_entry
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.events import (
    AttemptCancelled,
    BranchNavigated,
    BranchRefreshed,
    CompactionRequested,
    CompactionSucceeded,
    ContextAborted,
    ContextRequested,
    ContextSelected,
    Event,
    ModelSelected,
    PagingToggled,
    SessionStarted,
    SettingsReadFailed,
    StructureRepaired,
    TrimTargetWarned,
    TurnEnded,
)
from context_paging.domain.messages import MessageRef, digest
from context_paging.domain.repair import RepairKind
from context_paging.domain.state import SessionState

from . import ROOT

RESIDENT = 10
ADDED = 1_000
"""Timestamp of the first message that is added to a request; stored ones count from zero."""
ESTIMATOR = HeuristicEstimator()


class Script:
    """A state, and the host's entries that led to it."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.entries: dict[str, Entry] = {}
        self.branch: list[EntryRef] = []

    def play(self, step: dict[str, Any]) -> list[Event]:
        """Fold one step; the events it made, decisions included."""
        self.state, happened = fold(self.state, self._events(step), ESTIMATOR)
        return happened

    def play_all(self, steps: Iterable[dict[str, Any]]) -> list[Event]:
        """Fold steps in order; the events that the last one made."""
        happened: list[Event] = []
        for step in steps:
            happened = self.play(step)
        return happened

    def _events(self, step: dict[str, Any]) -> list[Event]:
        (name,) = set(step) - {"why"}
        value = step[name]
        match name:
            case "started":
                return [SessionStarted(reason="new", host="golden", global_settings=value)]
            case "settings unreadable":
                return [SettingsReadFailed(reason="new", error=value)]
            case "stored":
                return [self._stored(value, len(self.branch))]
            case "stored instead":
                return [self._stored(value, 0)]
            case "requested":
                warning = trim_target_warning(self.state)
                return [*([warning] if warning else []), self._requested(value)]
            case "ended":
                message = next(ref.message for ref in self.branch if ref.id == value)
                assert message is not None
                return [TurnEnded(entry_id=value, response=message)]
            case "toggled":
                return [PagingToggled(enabled=value)]
            case "navigated":
                return [BranchNavigated(leaf_id=value)]
            case "model":
                return [ModelSelected(model=value)]
            case "compaction attempted":
                return [CompactionRequested(reason=value)]
            case "compacted":
                return [CompactionSucceeded(entry_id=value)]
            case "warned":
                return [TrimTargetWarned(token_budget=value[0], trim_to_tokens=value[1])]
            case "repaired":
                return [StructureRepaired(kind=RepairKind.ORPHAN_RESULT, entry_ids=(value,))]
            case "cancelled":
                return [AttemptCancelled(attempt=value)]
            case _:
                raise ValueError(f"there is no step {name!r}")

    def _stored(self, specifications: list[dict[str, Any]], kept: int) -> BranchRefreshed:
        del self.branch[kept:]
        refs = []
        for specification in specifications:
            entry = _entry(specification, len(self.entries))
            self.entries[entry["id"]] = entry
            refs.append(digest_entry(entry, ESTIMATOR, self.entries.get))
        self.branch += refs
        return BranchRefreshed(kept=kept, appended=tuple(refs))

    def _requested(self, options: dict[str, Any]) -> ContextRequested:
        refs = self._outgoing(options)
        before = [self.state.requested(position) for position in range(self.state.request_length)]
        reused = 0
        while reused < min(len(refs), len(before)) and refs[reused] == before[reused]:
            reused += 1
        return ContextRequested(
            reused=reused,
            appended=tuple(refs[reused:]),
            resident_tokens=options.get("resident", RESIDENT),
            context_window=options.get("window"),
            usage_tokens=options.get("usage"),
        )

    def _outgoing(self, options: dict[str, Any]) -> list[MessageRef]:
        # The stored messages but for some; then what the host adds to this request, each at its position.
        projection = self.state.branch.projection
        without = options.get("without", [])
        slots = [slot for slot in range(options.get("drop", 0), projection.length) if slot not in without]
        refs = [projection.message(slot) for slot in slots]
        for number, added in enumerate(options.get("added", []), ADDED):
            if "again" in added:
                ref = projection.message(added["again"])
            else:
                ref = digest(_entry(added, number)["message"], ESTIMATOR)
            refs.insert(added["at"], ref)
        return refs


def run(folder: Path) -> dict[str, Any]:
    """What comes out of a case, by file name."""
    given = json.loads((folder / "given.json").read_text("utf-8"))
    script = Script()
    if given.get("after") is not None:
        script.play_all(json.loads((ROOT / f"{given['after']}.json").read_text("utf-8")))
    script.play_all(given["steps"])
    before = shown(script.state)
    happened = script.play(given["event"])
    return {
        "state.json": {"before": before, "after": shown(script.state)},
        "outcome.json": [_shown_event(event) for event in happened],
    }


def outcome(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything that the events of the last of some steps say, but for what the host passed."""
    told = [
        event
        for event in Script().play_all(steps)
        if not isinstance(event, BranchRefreshed | ContextRequested)
    ]
    return [_rounded(_plain(asdict(event))) for event in told]


def cases() -> list[Path]:
    """All cases."""
    return sorted(path.parent for path in ROOT.glob("*/given.json"))


def shown(state: SessionState) -> dict[str, Any]:
    """A state as far as reducers change it."""
    calibration, cut, latest = state.calibration, state.cut, state.latest_input
    pending = None if calibration.pending is None else calibration.pending.sent()
    anchor = calibration.anchor
    return {
        "enabled": state.enabled,
        "override": state.override,
        "token budget and target": [state.settings.token_budget, state.settings.trim_to_tokens],
        "cut": None
        if cut is None
        else {**_plain(asdict(cut.frontier)), "notice": cut.notice.text.split("\n")},
        "pending request": None
        if pending is None
        else {"messages": len(pending.messages), "tokens": pending.tokens},
        "anchor": None
        if anchor is None
        else {"reported": anchor.reported_tokens, "messages": len(anchor.request.messages)},
        "resident overhead": None if calibration.overhead is None else round(calibration.overhead, 3),
        "latest input": None if latest is None else asdict(latest),
        "warned": sorted(map(list, state.warned)),
        "seen": sorted(state.seen),
        "repairs told": len(state.repaired),
        "history": state.branch.history.error or [item.id for item in state.branch.history.items],
        "outgoing messages": state.conversation.length,
    }


def _entry(specification: dict[str, Any], count: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": f"e{count}", "timestamp": "2026-01-05T09:00:00.000Z"}
    kind = next(iter(specification))
    value = specification[kind]
    text = "word" * value if isinstance(value, int) else value
    match kind:
        case "user":
            message: dict[str, Any] = {"role": "user", "content": text}
        case "assistant":
            calls = [
                {"type": "toolCall", "id": call, "name": "read", "arguments": {}}
                for call in specification.get("calls", [])
            ]
            message = {"role": "assistant", "content": [{"type": "text", "text": text}, *calls]}
            message["stopReason"] = specification.get("stop", "stop")
            if "usage" in specification:
                message["usage"] = {
                    "input": specification["usage"],
                    "output": 1,
                    "cacheRead": 0,
                    "cacheWrite": 0,
                    "totalTokens": specification["usage"] + 1,
                }
        case "result":
            block = {"type": "text", "text": "word" * specification["size"]}
            message = {"role": "toolResult", "toolCallId": value, "toolName": "read", "content": [block]}
        case "omit":
            return {**entry, "type": "context_edit", "targetId": value, "replacement": None}
        case "compaction":
            return {
                **entry,
                "type": "compaction",
                "summary": "sum",
                "firstKeptEntryId": value,
                "tokensBefore": 1,
            }
        case _:
            raise ValueError(f"there is no entry {kind!r}")
    return {**entry, "type": "message", "message": {**message, "timestamp": specification.get("time", count)}}


def _shown_event(event: Event) -> dict[str, Any]:
    if isinstance(event, ContextSelected):
        return {
            "type": event.type,
            "mode": event.mode,
            "rule": event.rule,
            "fallback": event.fallback,
            "kept": event.kept,
            "notice": None if event.notice is None else event.notice.text.split("\n"),
            "frontier": None if event.cut is None else _plain(asdict(event.cut.frontier)),
            "estimated": event.estimated_tokens,
            "calibrated total": event.context_tokens,
        }
    if isinstance(event, ContextAborted):
        return {
            "type": event.type,
            "code": event.code,
            "rule": event.rule,
            "estimated": event.estimated_tokens,
        }
    if isinstance(event, BranchRefreshed):
        return {"type": event.type, "kept": event.kept, "appended": [entry.id for entry in event.appended]}
    if isinstance(event, ContextRequested):
        return {"type": event.type, "reused": event.reused, "new": len(event.appended)}
    if isinstance(event, TurnEnded):
        return {"type": event.type, "entry": event.entry_id}
    return _plain(asdict(event))


def _rounded(value: Any) -> Any:
    # Python sums fractions more exactly in newer versions.
    if isinstance(value, float):
        return round(value, 6) + 0.0
    if isinstance(value, dict):
        return {key: _rounded(child) for key, child in value.items()}
    return [_rounded(child) for child in value] if isinstance(value, list | tuple) else value


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {key: child for key, child in value.items() if child is not None}
