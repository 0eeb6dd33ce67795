"""The state of one live session: everything decisions depend on, in memory only."""

from __future__ import annotations

from dataclasses import dataclass, field

from .arena import GrowingSet
from .branch import Branch
from .calibration import Calibration
from .conversation import Conversation
from .cut import Cut, Frontier
from .events import StructureRepaired
from .messages import MessageRef
from .projection import Projection
from .repaired_request import RepairedRequest
from .settings import DISABLED, Settings


@dataclass(frozen=True, slots=True)
class LatestInput:
    """Input of the latest provider call in tokens: measured by the provider, or our estimate."""

    tokens: float
    estimated: bool


RepairKey = tuple[str, tuple[str, ...], tuple[str, ...]]
"""What tells repairs apart: the kind, entry ids and call ids."""


def repair_key(repaired: StructureRepaired) -> RepairKey:
    """What tells a repair apart."""
    return (repaired.kind, repaired.entry_ids, repaired.call_ids)


@dataclass(frozen=True, slots=True, eq=False)
class SessionState:
    """A session between two events. Never changed: `evolve` makes the next one.

    A new state, as after a restart of the process, has no cut and no calibration: nothing is ever restored
    from the log (design, section 1).

    Attributes:
        override: the user's choice for this session, which outranks the settings.
        seen: ids of compactions and edits whose effect on the cut has been dealt with.
        warned: pairs of budget and target that the user was warned about.
        request: the host's messages of the last request, while broken exchanges are repaired; else they are
            those of the conversation.
        repaired: keys of the repairs that have been told.
        stable_slots: leading slots of the context projection unchanged since the last context request,
            ``None`` for all of them.
    """

    settings: Settings = DISABLED
    override: bool | None = None
    seen: frozenset[str] = frozenset()
    warned: frozenset[tuple[int, int]] = frozenset()
    branch: Branch = field(default_factory=Branch.empty)
    conversation: Conversation = field(default_factory=Conversation)
    request: RepairedRequest | None = None
    repaired: GrowingSet[RepairKey] = field(default_factory=GrowingSet)
    stable_slots: int | None = None
    cut: Cut | None = None
    calibration: Calibration = field(default_factory=Calibration)
    latest_input: LatestInput | None = None

    @property
    def enabled(self) -> bool:
        """Whether paging is on."""
        return self.settings.enabled if self.override is None else self.override

    @property
    def stored(self) -> Projection | None:
        """The stored conversation, ``None`` while the branch has no valid history."""
        return self.branch.projection if self.branch.available else None

    @property
    def frontier(self) -> Frontier | None:
        """The remembered frontier."""
        return None if self.cut is None else self.cut.frontier

    @property
    def request_length(self) -> int:
        """How many messages the host passed with the last request."""
        return self.conversation.length if self.request is None else self.request.length

    def requested(self, position: int) -> MessageRef:
        """A message of the last request, by its position in the host's list."""
        return self.conversation.ref(position) if self.request is None else self.request.message(position)

    def host_position(self, position: int) -> int:
        """Where a message of the conversation stands in the host's list."""
        return position if self.request is None else self.request.host_position(position)
