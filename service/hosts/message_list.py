"""What conversations have in common whose programs call a provider's SDK themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

from context_paging.domain.recovery.public_view import RECOVERY_TOOLS
from context_paging.domain.recovery.tools import tool_definitions

from ..paging import ContextPaging
from .conversation import HostConversation
from .conversion import Converter, H, InvalidHostMessage, parsed_arguments


class MessageList(Generic[H]):
    """A conversation that a program keeps as a list of messages.

    Attributes:
        conversation: the list as a session.
        recovery_tools: definitions of the tools that read what left the window; none if the model is not
            offered them.
    """

    def __init__(
        self,
        paging: ContextPaging,
        session_id: str,
        converter: Converter[H],
        recovery_tools: bool,
        **session_options: Any,
    ) -> None:
        start = partial(paging.session, session_id, **session_options)
        self.conversation: HostConversation[H] = HostConversation(start, converter)
        self.recovery_tools = tool_definitions() if recovery_tools else []

    def answer_text(self, name: Any, arguments: Any) -> str | None:
        """What a recovery tool answers, for the model; ``None`` if the call is of another tool."""
        if not self.recovery_tools or name not in RECOVERY_TOOLS:
            return None
        return self.conversation.tool(name, parsed_arguments(arguments))

    def close(self) -> None:
        """The program is done with the conversation."""
        self.conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def field_of(value: Any, name: str) -> Any:
    """A field of a dictionary or of an object of an SDK; ``None`` where there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def instructions_text(message: Any, blocks: Callable[[Any], list[dict[str, Any]]]) -> str | None:
    """The text of a message of OpenAI's that instructs the model; ``None`` if it is another one."""
    if field_of(message, "role") not in ("system", "developer"):
        return None
    content = field_of(message, "content")
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in blocks(content))


def dictionary_of(value: Any) -> dict[str, Any]:
    """The same as the API takes it. Objects of the SDKs say it themselves, without what they do not hold.

    Raises:
        InvalidHostMessage: it is neither.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "to_dict"):
        return dict(value.to_dict(mode="json"))
    raise InvalidHostMessage(f"a part of a message is an object, not {type(value).__name__}")
