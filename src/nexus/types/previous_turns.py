"""What was said before the turn that is answered, where a form tells of it in a block and not in messages of its own."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from nexus.types.ledger_entries import Row

OLDER_ENTRIES = "older entries"
"""The reason of a cut by which the oldest entries leave a block that tells of earlier turns."""

MOMENT_ORIGIN = "nexus:this_moment"
"""The origin of the note that holds the time of a message in document 000's frame."""


MEMORY_ORIGIN = "nexus:shared_memory"
"""The origin of the blocks that tell of earlier turns in document 000's form."""


class Earlier(Struct, frozen=True):
    """The newest messages before the turn, oldest first, each with the number of its turn, and a summary of those before.

    `pinned` are the messages before the turn that stay word for word, with the groups that they belong to.
    `most` is how many entries a block may show of them at present: a context that has little room asks for fewer.
    """

    rows: Sequence[tuple[int, Row]] = ()
    summary: str = ""
    pinned: Sequence[tuple[int, Row]] = ()
    most: int = 20
