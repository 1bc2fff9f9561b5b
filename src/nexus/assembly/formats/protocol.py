"""Protocols of a message format: how a profile shows the conversation.

`MessageFormat` is the format of a profile, one object per name (see `nexus.assembly.formats.registry`). `PathFormat`
is a format applied to one path of the ledger; it may keep state about the path. Stored messages are rendered before
they enter a window, so budget, cuts, pins and prefix checks are the same in every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from nexus.text.frames import escape
from nexus.tokens.counter import TokenCounter
from nexus.types.history import PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Message
from nexus.types.profile import MessageFormatName

if TYPE_CHECKING:
    from nexus.assembly.fit.view import LedgerView, View
    from nexus.assembly.fit.window import Window

NoticeKind: TypeAlias = Literal["compaction", "cut"]


class PathFormat(Protocol):
    """A message format applied to one path."""

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


@dataclass(frozen=True, slots=True)
class FilledWindow:
    """A window filled from the ledger."""

    window: Window

    first_user_message: MessageRef | None = None
    """The session's first user message, if it is pinned."""

    previous_turns: PreviousTurns = field(default_factory=PreviousTurns)
    """Turns before the window, in formats that show one turn."""


class MessageFormat(Protocol):
    """How a profile shows the conversation."""

    @property
    def name(self) -> MessageFormatName:
        """Name in profiles and manifests."""
        ...

    @property
    def shows_one_turn(self) -> bool:
        """True if only the open turn is shown as messages. Blocks report the earlier turns.

        There is then no compaction of what the window shows, and the window is made for each call, because it is short.
        """
        ...

    @property
    def lists_tools(self) -> bool:
        """True if a block or log entry lists the tools, so that other tools change the text of the prompt."""
        ...

    @property
    def is_hashed(self) -> bool:
        """True if a manifest's id covers the format's name and preamble."""
        ...

    def on_path(self, counter: TokenCounter, /) -> PathFormat:
        """Return the format for a path that is read from its beginning."""
        ...

    def fill_window(
        self,
        reading: LedgerView,
        view: View,
        cut: Cut | None,
        counter: TokenCounter,
        *,
        starts_turn: bool,
        path_format: PathFormat | None = None,
    ) -> FilledWindow:
        """Fill the view's window. `path_format` continues the format of an earlier window of the path."""
        ...

    def entry_limits(self, previous: PreviousTurns, last_count: int | None, /) -> Sequence[int]:
        """Return the numbers of earlier entries that blocks may report, in the order to try.

        `last_count` is the number in the turn's previous call, None for the first call of a turn.
        """
        ...

    def covered_messages(self, previous: PreviousTurns, /) -> tuple[int, frozenset[MessageRef]]:
        """Return the number of earlier entries that blocks report, and the positions of their messages."""
        ...

    def plan_eviction(self, previous: PreviousTurns, window: Window, view: View, number: int, /) -> Cut | None:
        """Return cut `number` of the view, by which older entries leave the blocks. None if all are reported."""
        ...
