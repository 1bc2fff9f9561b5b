"""The history of a session as a call shows it: its header, earlier turns told in blocks, and messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

from msgspec import Struct

from nexus.types.ledger_entries import StoredMessage
from nexus.types.message import Message

OLDER_ENTRIES = "older entries"
"""The reason of a cut by which the oldest entries leave a block that tells of earlier turns."""

MOMENT_ORIGIN = "nexus:this_moment"
"""The origin of the note that holds the time of a message in document 000's frame."""


MEMORY_ORIGIN = "nexus:shared_memory"
"""The origin of the blocks that tell of earlier turns in document 000's form."""


class PreviousTurns(Struct, frozen=True):
    """The newest messages before the turn, oldest first, each with the number of its turn, and a summary of those before.

    `pinned` are the messages before the turn that stay word for word, with the groups that they belong to.
    `most` is how many entries a block may show of them at present: a context that has little room asks for fewer.
    """

    rows: Sequence[tuple[int, StoredMessage]] = ()
    summary: str = ""
    pinned: Sequence[tuple[int, StoredMessage]] = ()
    max_entries: int = 20


SUMMARY_MARKER = "[Previous conversation summary]"
"""Document 002's words before a summary."""

CONTEXT_SUMMARY = """[CONTEXT SUMMARY]
The following is a summary of our previous conversation. It was automatically
generated when the context window needed compaction. Treat this as established
context - you don't need to re-confirm decisions already made.

---
"""
"""Document 004's words before a summary; the time at which it was made follows."""

GENERATED = "Generated: "


SESSION_SOURCE = "nexus:session-start"
"""What marks a first message of a session as one of ours: no text that a user writes can."""


class HistoryHeader(Struct, frozen=True):
    """What the first message says of the session's start ("": there is none), and what stands before a summary."""

    started: str = ""
    summary_heading: str = f"{SUMMARY_MARKER}\n"


PLAIN = HistoryHeader()


@dataclass(frozen=True, slots=True)
class History(Sequence[Message]):
    """What stands between the system slot and the current message: a sequence of messages.

    `opening` holds a summary or the marker of a cut; `shared[:end]` the messages, repaired, in order; `closing` the
    results that an interrupted tool call still lacks. `fragments` is the renderers' cache for `shared`, by wire.
    """

    opening: tuple[Message, ...] = ()
    shared: list[Message] = field(default_factory=list[Message])
    end: int = 0
    closing: tuple[Message, ...] = ()
    tokens: int = 0
    fragments: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

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
            raise IndexError(f"there is no message {place} in a history of {len(self)}")
        index -= len(self.opening)
        if index < 0:
            return self.opening[index]
        return self.shared[index] if index < self.end else self.closing[index - self.end]

    @classmethod
    def of(cls, messages: list[Message], tokens: int = 0) -> History:
        """A history of its own, that nothing else shares."""
        return cls(shared=messages, end=len(messages), tokens=tokens)
