"""Message formats applied to one path of the ledger.

A path format renders stored messages before they enter a window, so budget, cuts, pins and prefix checks are the same in
every message format (see `nexus.assembly.fit.view.MessageFormat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from nexus.ledger.replay import LiveCheckpoints
from nexus.text.frames import escape
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Message

NoticeKind: TypeAlias = Literal["compaction", "cut"]


class LedgerView(Struct, frozen=True):
    """One path of the ledger, from which a window is filled."""

    entries: Callable[[int, int | None], Iterable[Entry]]
    """Reads the entries `after < seq <= until`."""

    head: tuple[int, bytes]
    """Seq and hash of the newest entry."""

    live: LiveCheckpoints


class PathFormat(Protocol):
    """A message format applied to one path. It may keep state about the path."""

    @property
    def framing_tokens(self) -> int:
        """Upper bound of the base tokens that the format adds around a text."""
        ...

    def follow(self, reading: LedgerView, /) -> LedgerView:
        """Return the view of the path with its entries rendered, after reading up to its head."""
        ...

    def follow_entries(self, entries: Iterable[Entry], /) -> Iterable[Entry]:
        """Return entries that follow the path's head, rendered."""
        ...

    def summary(self, text: str, /) -> str:
        """Return the text of a summary, unable to imitate a frame."""
        ...

    def notice(self, text: str, kind: NoticeKind, before: MessageRef, visible: Iterable[StoredMessage], /) -> str:
        """Render a summary or omission notice for the messages before a position, except the visible ones."""
        ...

    def event(self, messages: tuple[Message, ...], head: int, principal: str, /) -> tuple[Message, ...]:
        """Return the messages of an event that follows entry `head`, as the history will show them."""
        ...

    def unformatted(self, message: Message, /) -> Message:
        """Return a rendered user message with its original texts."""
        ...

    def with_text(self, message: Message, text: str, /) -> str:
        """Return the text of a rendered user message with another text in place of its text and notes."""
        ...


class Unformatted:
    """Path format of real roles: every message as stored."""

    framing_tokens = 0

    def follow(self, reading: LedgerView, /) -> LedgerView:
        """Return the view unchanged."""
        return reading

    def follow_entries(self, entries: Iterable[Entry], /) -> Iterable[Entry]:
        """Return the entries unchanged."""
        return entries

    def summary(self, text: str, /) -> str:
        """Return the text, escaped."""
        return escape(text)

    def notice(self, text: str, _kind: NoticeKind, _before: MessageRef, _visible: Iterable[StoredMessage], /) -> str:
        """Return the text."""
        return text

    def event(self, messages: tuple[Message, ...], _head: int, _principal: str, /) -> tuple[Message, ...]:
        """Return the messages."""
        return messages

    def unformatted(self, message: Message, /) -> Message:
        """Return the message."""
        return message

    def with_text(self, _message: Message, text: str, /) -> str:
        """Return the text."""
        return text


UNFORMATTED = Unformatted()
