"""What stands before the conversation: when the session was started, and what was summarised."""

from __future__ import annotations

from collections.abc import Iterable

from nexus.assembly.forms.protocol import AS_GIVEN, Shape
from nexus.ledger.replay import shown_from
from nexus.text.frames import escape
from nexus.types.history_header import Opens
from nexus.types.ledger_entries import Entry, Row
from nexus.types.message import Message, Text


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
