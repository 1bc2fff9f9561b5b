"""The history that one call shows: a view into arrays that successive calls share.

The arrays only grow at their end, so an earlier view stays true while later calls extend them; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

from nexus.types.message import Message


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
