"""What a form makes of messages that are rows of a ledger no longer, or none yet: a summary, a marker, the event.

Rows get their shape before they enter a window, so all else, budget, cuts, pins, prefix, is the same in every form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message


class Shape(Protocol):
    """A form's shape. `around` is how many base tokens stand around a text at most, beside the text itself."""

    @property
    def around(self) -> int:
        """Base tokens around a text."""
        ...

    def mark(self, text: str, kind: str, before: MessageRef, shown: Iterable[StoredMessage], /) -> str:
        """A summary or marker (`kind`) that stands for what is before a place, but for the rows that are shown."""
        ...

    def event(self, messages: tuple[Message, ...], after: int, principal: str, /) -> tuple[Message, ...]:
        """The messages of an event that follows entry `after`, as they will stand in the history."""
        ...

    def given(self, message: Message, /) -> Message:
        """A user's message as it was given."""
        ...

    def with_text(self, message: Message, text: str, /) -> str:
        """What a user's message shows with another text in the place of what it says and of its notes."""
        ...


class AsGiven:
    """Real roles: everything as it is."""

    around = 0

    def mark(self, text: str, _kind: str, _before: MessageRef, _shown: Iterable[StoredMessage], /) -> str:
        """The text."""
        return text

    def event(self, messages: tuple[Message, ...], _after: int, _principal: str, /) -> tuple[Message, ...]:
        """The messages."""
        return messages

    def given(self, message: Message, /) -> Message:
        """The message."""
        return message

    def with_text(self, _message: Message, text: str, /) -> str:
        """The text."""
        return text


AS_GIVEN = AsGiven()
