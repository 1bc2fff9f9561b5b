"""The message with the summary of a compaction."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nexus.assembly.fit.display_rules import DisplayRules
from nexus.ledger.replay import visible_start
from nexus.types.ledger_entries import Entry, StoredMessage
from nexus.types.message import Message, Text
from nexus.types.sanitize import sanitize_text

_QUOTED_TASK = re.compile(r"## Task\n> (.*)(?:\n|\Z)(?:>.*(?:\n|\Z))*")
"""The first section of a summary: the first user message, and its first line."""


def summary_messages(
    mark: Entry | None, rules: DisplayRules, visible: Iterable[StoredMessage], pinned: Iterable[StoredMessage]
) -> tuple[Message, ...]:
    """Return the summary of the current compaction under the profile's heading, which its text cannot imitate.

    `visible` are rows that are shown although the summary covers them. If one of those that are `pinned` is the task that
    the summary quotes, the quote is left out.
    """
    if mark is None or mark.kind != "compaction":
        return ()
    summary = str(mark.body.get("summary", ""))
    quote = None
    if rules.render >= 3:
        quote = _QUOTED_TASK.match(summary)
    if quote is not None:
        task = " ".join(quote[1].split()).removesuffix("…").rstrip()
        if task and any(" ".join(sanitize_text(row.message.text()).split()).startswith(task) for row in pinned):
            summary = f"## Task\n> (the first message, below)\n{summary[quote.end() :]}"
    text = f"{rules.header.summary_heading}{rules.path_format.summary(summary)}"
    return (Message("user", (Text(rules.path_format.notice(text, "compaction", visible_start(mark), visible)),)),)
