"""Message formats applied to one path of the ledger.

A path format renders stored messages before they enter a window, so budget, cuts, pins and prefix checks are the same in
every message format (see `nexus.assembly.formats.protocol.MessageFormat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.ledger.replay import LiveCheckpoints
from nexus.text.frames import escape
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Message

NoticeKind: TypeAlias = Literal["compaction", "cut", "excerpts"]


class LedgerView(Struct, frozen=True):
    """One path of the ledger, from which a window is filled."""

    entries: Callable[[int, int | None], Iterable[Entry]]
    """Reads the entries `after < seq <= until`."""

    head: tuple[int, bytes]
    """Seq and hash of the newest entry."""

    live: LiveCheckpoints


class PathFormat:
    """A message format applied to one path, which may keep state about it. This one is `roles`: messages as stored."""

    framing_tokens: int = 0
    """Upper bound of the base tokens that the format adds around a text."""

    rewriting: str = ""
    """What the format does to messages of earlier turns; empty if it never changes what was sent."""

    def follow(self, reading: LedgerView, /) -> LedgerView:
        """Return the view of the path with its entries rendered, after reading up to its head."""
        return reading

    def follow_entries(self, entries: Iterable[Entry], /) -> Iterable[Entry]:
        """Return entries that follow the path's head, rendered."""
        return entries

    def is_valid_in(self, _turn: int, /) -> bool:
        """Return False if entries that were read are rendered differently in a call of this turn."""
        return True

    def rewritten_since(self, _head: int, _starts_turn: bool, /) -> Iterable[MessageRef]:
        """Return the messages that a call from the entry `head`, if it showed them, showed differently."""
        return ()

    def summary(self, text: str, /) -> str:
        """Return the text of a summary, unable to imitate a frame."""
        return escape(text)

    def late_text(self, text: str, /) -> str:
        """Return the text of a late tool result, unable to imitate a frame."""
        return escape(text)

    def notice(self, text: str, _kind: NoticeKind, _before: MessageRef, _visible: Iterable[StoredMessage], /) -> str:
        """Render a summary, omission notice or note for the messages before a position, except the visible ones."""
        return text

    def event(self, messages: tuple[Message, ...], _head: int, _principal: str, /) -> tuple[Message, ...]:
        """Return the messages of an event that follows the entry `head`, as the history will show them."""
        return messages

    def unformatted(self, message: Message, /) -> Message:
        """Return a rendered user message with its original texts."""
        return message

    def with_text(self, _message: Message, text: str, /) -> str:
        """Return the text of a rendered user message with another text in place of its text and notes."""
        return text


UNFORMATTED = PathFormat()
