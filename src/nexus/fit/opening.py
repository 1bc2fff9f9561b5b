"""What stands before the conversation: when the session was started, and what was summarised."""

from __future__ import annotations

from collections.abc import Iterable

from nexus.fit.shape import AS_GIVEN, Shape
from nexus.ledger.entries import Entry, Row
from nexus.ledger.replay import shown_from
from nexus.message import Message, Text
from nexus.opens import Opens
from nexus.render.frames import escape


def started(opens: Opens) -> tuple[Message, ...]:
    """The message on the session's start, if the profile has one."""
    return (Message("user", (Text(opens.begun),)),) if opens.begun else ()


def summarised(mark: Entry | None, opens: Opens, shape: Shape, stays: Iterable[Row]) -> tuple[Message, ...]:
    """The summary of the compaction that holds, under the profile's words; nothing in it can look like them.

    `stays` are the rows that are shown though it stands for them too.
    """
    if mark is None or mark.kind != "compaction":
        return ()
    told = str(mark.body.get("summary", ""))
    text = f"{opens.heading}{escape(told) if shape is AS_GIVEN else told}"
    return (Message("user", (Text(shape.mark(text, "compaction", shown_from(mark), stays)),)),)
