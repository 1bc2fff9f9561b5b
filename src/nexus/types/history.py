"""The history of a session as a call shows it: header, earlier turns for blocks, and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeAlias, overload

from msgspec import Struct

from nexus.types.ledger_entries import StoredMessage
from nexus.types.message import Message

OLDER_ENTRIES = "older entries"
"""Reason of a cut by which the oldest entries leave a block that reports earlier turns."""


Lookup: TypeAlias = Literal["", "command", "recall", "omitted", "none"]
"""Where notices say that the whole of a shortened part can be read: a command, the tool `recall`, `nexus_omitted` for
omitted messages, or nowhere. Empty in calls recorded before there was a choice: their commands contain the word SESSION."""


class Memory(Struct, frozen=True):
    """The blocks that report earlier turns, in a message format that shows only the open turn as messages."""

    name: str
    """Noun for reports."""
    source: str
    """Source of the blocks."""


class PreviousTurns(Struct, frozen=True):
    """The messages before the open turn that blocks may report."""

    rows: Sequence[tuple[int, StoredMessage]] = ()
    """Newest messages, oldest first, each with the number of its turn."""
    summary: str = ""
    """Summary of the messages before them."""
    pinned: Sequence[tuple[int, StoredMessage]] = ()
    """Verbatim pins with their groups, each group with a number of its own."""
    max_entries: int = 20
    """Maximum entries that a block may show. A smaller budget allows fewer."""


SUMMARY_MARKER = "[Previous conversation summary]"
"""Heading of a summary in most profiles."""

CONTEXT_SUMMARY = """[CONTEXT SUMMARY]
The following is a summary of our previous conversation. It was automatically
generated when the context window needed compaction. Treat this as established
context - you don't need to re-confirm decisions already made.

---
"""
"""Heading of a summary in the profile `repl`; the time of the compaction follows."""

GENERATED = "Generated: "


SESSION_SOURCE = "nexus:session-start"
"""Source of the message on the session's start, which no user message can have."""


SESSION_START = "session_start"
"""Field of an entry without messages whose text is the header of the session's history."""

UNANSWERED = "nexus:turn-log"
"""Source of an assistant message that was imported from a file without results of calls. It is stored like this."""


class HistoryHeader(Struct, frozen=True):
    """Fixed texts of a session's history."""

    started: str = ""
    """First message, on the session's start; empty if there is none."""
    summary_heading: str = f"{SUMMARY_MARKER}\n"


PLAIN = HistoryHeader()


@dataclass(frozen=True, slots=True)
class History(Sequence[Message]):
    """The messages between the system prompt and the current message."""

    opening: tuple[Message, ...] = ()
    """Header, summary, omission notice and pins."""
    shared: list[Message] = field(default_factory=list[Message])
    """The window's messages, repaired. The window appends to this list; only the first `end` belong to this history."""
    end: int = 0
    closing: tuple[Message, ...] = ()
    """Results that an interrupted tool call lacks."""
    tokens: int = 0
    fragments: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """The renderers' cache for `shared`, by provider format."""

    def __len__(self) -> int:
        return len(self.opening) + self.end + len(self.closing)

    def __iter__(self) -> Iterator[Message]:
        yield from self.opening
        yield from islice(self.shared, self.end)
        yield from self.closing

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        index = place + len(self) if place < 0 else place
        if not 0 <= index < len(self):
            raise IndexError(f"message {place} out of range: history has {len(self)} messages")
        index -= len(self.opening)
        if index < 0:
            return self.opening[index]
        if index < self.end:
            return self.shared[index]
        return self.closing[index - self.end]

    def has_any(self, name: str, test: Callable[[Message], bool]) -> bool:
        """Return True if a test holds for one of the messages. The answer for the window is kept under a name."""
        tested, first = self.fragments.get(name, (0, -1))
        if first < 0 and tested < self.end:
            indexes = (index for index in range(tested, self.end) if test(self.shared[index]))
            first = next(indexes, -1)
            # A new list, assigned at once: other threads may be reading the old one.
            self.fragments[name] = [self.end, first]
        return 0 <= first < self.end or any(map(test, (*self.opening, *self.closing)))

    @classmethod
    def of(cls, messages: list[Message], tokens: int = 0) -> History:
        """Return a history that shares no list with a window."""
        return cls(shared=messages, end=len(messages), tokens=tokens)
