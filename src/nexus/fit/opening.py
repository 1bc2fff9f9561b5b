"""What stands before the conversation: when the session was started, and what was summarised."""

from __future__ import annotations

from nexus.ledger.entries import Entry
from nexus.message import Message, Text
from nexus.opens import Opens
from nexus.render.frames import escape


def started(opens: Opens) -> tuple[Message, ...]:
    """The message on the session's start, if the profile has one."""
    return (Message("user", (Text(opens.begun),)),) if opens.begun else ()


def summarised(mark: Entry | None, opens: Opens) -> tuple[Message, ...]:
    """The summary of the compaction that holds, under the profile's words; nothing in it can look like them."""
    if mark is None or mark.kind != "compaction":
        return ()
    return (Message("user", (Text(f"{opens.heading}{escape(str(mark.body.get('summary', '')))}"),)),)
