"""Every domain event: what a host did and what was decided, as one discriminated union.

Events hold digests, never content (design, section 4). ``type`` discriminates; `SCHEMA_VERSION` numbers the
shape of all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from .cut import Cut, Fallback, Frontier, FrontierKind, Notice
from .entries import EntryRef
from .errors import HistoryErrorCode, SelectionErrorCode
from .estimation import HEURISTIC
from .messages import MessageRef
from .repair import RepairKind

SCHEMA_VERSION = 2


class Mode(StrEnum):
    """How a context request was selected (architecture, "Context selection")."""

    WITHIN_BUDGET = "within-budget"
    PAGED = "paged"
    PROTECTED_OVERFLOW = "protected-overflow"
    RECOVERY = "recovery"


class Rule(StrEnum):
    """The rule that decided a context request: what a postmortem names."""

    FITS = "fits"
    CUT_HOLDS = "cut-holds"
    ADVANCE = "advance"
    ADVANCE_SNAPPED = "advance-snapped"
    STATELESS = "stateless"
    UNREAD_RESULTS_OVER_BUDGET = "unread-results-over-budget"
    UNREAD_RESULTS_OVER_WINDOW = "unread-results-over-window"
    INVALID_LIMITS = "invalid-limits"
    STRUCTURE = "structure"
    RESIDENT_OVER_BUDGET = "resident-over-budget"
    REQUEST_OVER_BUDGET = "request-over-budget"
    RETAINED_OVER_BUDGET = "retained-over-budget"
    REFERENCES_OVER_WINDOW = "references-over-window"


@dataclass(frozen=True, slots=True)
class Replacement:
    """A tool result that goes out as a reference: its position, the text instead, and the text's estimate."""

    index: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What an estimate is made of, in tokens: it is the sum of the fields."""

    resident: float
    request: float
    units: float
    notice: float
    calibration: float


@dataclass(frozen=True, slots=True)
class UnitSize:
    """One unit of the window: its first and last position, its tokens, and the tools it called."""

    kind: FrontierKind
    first: int
    last: int
    tokens: float
    protected: bool = False
    history_id: str | None = None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """A session began, resumed, forked or reloaded, in the agent program that calls itself ``host``.

    Sources are the host's ``contextPaging`` sections. ``estimator`` is how tokens are counted.
    """

    type: Literal["session-started"] = "session-started"
    reason: str
    host: str
    global_settings: Any = None
    project_settings: Any = None
    project_trusted: bool = False
    estimator: str = HEURISTIC


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReadFailed:
    """A session began, but its settings could not be read: paging stays off."""

    type: Literal["settings-read-failed"] = "settings-read-failed"
    reason: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShutDown:
    """The host closed the session."""

    type: Literal["session-shut-down"] = "session-shut-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRefreshed:
    """The stored branch was read: its first ``kept`` entries are as before, others follow."""

    type: Literal["branch-refreshed"] = "branch-refreshed"
    kept: int
    appended: tuple[EntryRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryUnavailable:
    """The branch that was just read has no valid history."""

    type: Literal["history-unavailable"] = "history-unavailable"
    code: HistoryErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequested:
    """The host is about to call the provider.

    Attributes:
        reused: leading outgoing messages that are those of the previous request.
        resident_tokens: estimate of system prompt and active tools.
        context_window: the model's window in tokens, ``None`` when unknown.
        usage_tokens: the host's status total in tokens, ``None`` when unknown.
    """

    type: Literal["context-requested"] = "context-requested"
    reused: int
    appended: tuple[MessageRef, ...] = ()
    resident_tokens: int
    context_window: float | None = None
    usage_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBypassed:
    """The host is about to call the provider while paging is off: its messages go out as they are."""

    type: Literal["context-bypassed"] = "context-bypassed"
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSelected:
    """A context request was answered.

    Attributes:
        kept: positions that go out, as runs of first and last, in the order sent.
        notice: what goes out before them.
        cut: the cut that holds from now on.
        estimated_tokens: calibrated estimate of what goes out.
        resident_tokens: estimate of resident input, without calibration.
        context_tokens: calibrated total of everything the host passed, if known.
        frontier_before: the frontier this selection started from.
        largest: the largest units that could still leave the window.
    """

    type: Literal["context-selected"] = "context-selected"
    mode: Mode
    rule: Rule
    kept: tuple[tuple[int, int], ...]
    notice: Notice | None = None
    replaced: tuple[Replacement, ...] = ()
    cut: Cut | None = None
    fallback: Fallback | None = None
    estimated_tokens: float
    budget_tokens: float
    target_tokens: float
    resident_tokens: int
    context_tokens: float | None = None
    parts: Parts
    frontier_before: Frontier | None = None
    evicted_units: int = 0
    largest: tuple[UnitSize, ...] = ()

    @property
    def advanced(self) -> bool:
        """Whether the cut moved."""
        return self.cut is not None and self.cut.frontier != self.frontier_before


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAborted:
    """A context request cannot be answered: the host must not call the provider.

    The numbers are ``None`` where the rule fired before they were known.
    """

    type: Literal["context-aborted"] = "context-aborted"
    code: SelectionErrorCode
    rule: Rule
    message: str
    estimated_tokens: float | None = None
    budget_tokens: float | None = None
    target_tokens: float | None = None
    resident_tokens: float | None = None
    parts: Parts | None = None
    frontier_before: Frontier | None = None
    fallback: Fallback | None = None
    evicted_units: int = 0
    largest: tuple[UnitSize, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The provider's response was stored."""

    type: Literal["turn-ended"] = "turn-ended"
    entry_id: str | None = None
    response: MessageRef


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchNavigated:
    """The host moved to another leaf of the session tree."""

    type: Literal["branch-navigated"] = "branch-navigated"
    leaf_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSelected:
    """The host switched models."""

    type: Literal["model-selected"] = "model-selected"
    model: str | None = None
    context_window: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequested:
    """The host is about to compact: ``threshold`` or ``overflow`` by itself, ``manual`` when told to."""

    type: Literal["compaction-requested"] = "compaction-requested"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCancelled:
    """An automatic compaction was cancelled because paging is on."""

    type: Literal["compaction-cancelled"] = "compaction-cancelled"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSucceeded:
    """A compaction was stored as an entry."""

    type: Literal["compaction-succeeded"] = "compaction-succeeded"
    entry_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The host gave up a branch, fork, session switch or compaction it had announced."""

    type: Literal["attempt-cancelled"] = "attempt-cancelled"
    attempt: Literal["branch", "fork", "switch", "compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingToggled:
    """A person turned paging on or off for this session."""

    type: Literal["paging-toggled"] = "paging-toggled"
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimTargetWarned:
    """The user was told that the target leaves no headroom below the budget."""

    type: Literal["trim-target-warned"] = "trim-target-warned"
    token_budget: int
    trim_to_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPublished:
    """The host's status line was set."""

    type: Literal["status-published"] = "status-published"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureRepaired:
    """A broken exchange was repaired, where it was first met (design, section 13).

    Attributes:
        entry_ids: stored entries that were left out or moved, or whose exchange was.
        call_ids: the tool calls concerned.
        unstored: how many messages concerned are in the request only.
    """

    type: Literal["structure-repaired"] = "structure-repaired"
    kind: RepairKind
    entry_ids: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    unstored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryToolCalled:
    """The model called a recovery tool. Of the parameters, sizes and ids are kept, no content.

    Attributes:
        query_characters: how long the query is.
        offset: where the page begins, in UTF-16 code units; ``limit`` is how many are asked for.
    """

    type: Literal["recovery-tool-called"] = "recovery-tool-called"
    tool: str
    history_ids: tuple[str, ...] = ()
    call_id: str | None = None
    query_characters: int | None = None
    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryToolAnswered:
    """A recovery tool answered with so many characters (UTF-16 code units) about these items.

    Attributes:
        total_characters: length of the whole output that a page is of.
        next_offset: where the next page begins; ``None`` behind the last.
    """

    type: Literal["recovery-tool-answered"] = "recovery-tool-answered"
    tool: str
    characters: int
    history_ids: tuple[str, ...] = ()
    total_characters: int | None = None
    next_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryToolRejected:
    """A recovery tool refused a call."""

    type: Literal["recovery-tool-rejected"] = "recovery-tool-rejected"
    tool: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInterrupted:
    """Events of the session before this one could not be logged, and are missing from the log."""

    type: Literal["audit-interrupted"] = "audit-interrupted"
    events: int
    reason: str


Event = (
    SessionStarted
    | SettingsReadFailed
    | SessionShutDown
    | BranchRefreshed
    | HistoryUnavailable
    | ContextRequested
    | ContextBypassed
    | ContextSelected
    | ContextAborted
    | TurnEnded
    | BranchNavigated
    | ModelSelected
    | CompactionRequested
    | CompactionCancelled
    | CompactionSucceeded
    | AttemptCancelled
    | PagingToggled
    | TrimTargetWarned
    | StatusPublished
    | StructureRepaired
    | RecoveryToolCalled
    | RecoveryToolAnswered
    | RecoveryToolRejected
    | AuditInterrupted
)
