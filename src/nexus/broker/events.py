"""Results of accepted events, and events of the running turns for watchers."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.ledger.sessions import QueuedEvent
from nexus.types.message import Message
from nexus.types.stream_events import StreamEvent

SessionState: TypeAlias = Literal["idle", "processing", "streaming", "compacting", "completing"]


class SessionEvent(Struct, frozen=True):
    """An event of a running turn, for those who watch."""

    session: str
    event: StreamEvent
    event_ids: tuple[str, ...] = ()
    """Ids of the accepted events that the turn answers."""


class EventResult(Struct, frozen=True):
    """An accepted event with the replies of its turn."""

    event: QueuedEvent
    replies: tuple[Message, ...] = ()
    """The assistant's messages of its turn."""

    @property
    def text(self) -> str:
        """The text of the last reply."""
        if self.replies:
            return self.replies[-1].text()
        return ""
