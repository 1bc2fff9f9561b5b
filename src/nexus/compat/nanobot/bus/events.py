"""Messages of chat channels, named by channel and chat id as in document 003's runtime context and session keys."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["InboundMessage", "OutboundMessage"]


class InboundMessage(Struct, frozen=True):
    """A user's message from a channel."""

    channel: str
    sender_id: str
    chat_id: str
    content: str
    media: tuple[str, ...] | list[str] = ()
    """Paths of image files."""
    metadata: dict[str, Any] = {}
    """Data of the channel, which the answer has too while the program runs."""
    id: str = ""
    """Id of the channel's message: the same message again adds nothing."""

    @property
    def session_key(self) -> str:
        """Label of the message's session: `channel:chat_id`."""
        return f"{self.channel}:{self.chat_id}"


class OutboundMessage(Struct, frozen=True):
    """An answer for a channel."""

    channel: str
    chat_id: str
    content: str
    metadata: dict[str, Any] = {}
