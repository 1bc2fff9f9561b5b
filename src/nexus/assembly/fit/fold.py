"""State of the repair of a message sequence (`nexus.assembly.fit.repair`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from nexus.assembly.fit.call_names import CallIds
from nexus.text.frames import escape
from nexus.text.message_text import RENDER_VERSION
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult


@dataclass(slots=True)
class Fold:
    """State of the repair after some messages."""

    waiting: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    """Calls of the open group without a result: stored id to the call as shown."""

    answered: set[str] = field(default_factory=set[str])
    """Stored ids of the open group's calls that have a result."""

    used_ids: CallIds = field(default_factory=CallIds)
    """Call ids that the conversation shows."""

    stored_ids: set[str] = field(default_factory=set[str])
    """Of the calls that the conversation shows."""

    last_assistant: Message | None = None
    """The last message, if it is an assistant message that a later piece may join."""

    started: bool = False
    changes: Counter[str] = field(default_factory=Counter[str])

    pieces: Message | None = None
    """The last assistant message as stored, with all pieces that were joined to it."""

    late: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    """Calls that the conversation continued without: stored id to the call as shown."""

    early: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results whose call has not been seen, by call id."""

    pending: list[Text | Image] = field(default_factory=list[Text | Image])
    """Late results to show when the open group is complete."""

    system_queue: list[Message] = field(default_factory=list[Message])
    """System messages between calls and their results, to show when the open group is complete."""

    hides_start: bool = False
    """True if earlier messages are not shown, so that the call of a result may be among them."""

    render: int = RENDER_VERSION

    late_text: Callable[[str], str] = escape
    """Makes a late result safe to show as text."""
