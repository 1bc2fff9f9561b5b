"""Who writes summaries in these sessions: a summariser of any mood, and the engine's own ladder with a look at its work."""

from __future__ import annotations

from typing import Any

from nexus.summarization import FallbackSummarizer, SummaryReply, SummaryRequest
from nexus.summarization.summarizer import SummaryResult
from nexus.types.ledger_entries import StoredMessage


class Scripted:
    """A summariser that answers well, too long, nothing, or not at all, as it is told."""

    name = "scripted"
    call_tokens = 0
    mood = 0

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The task and a rule, or what the mood says."""
        del request
        if self.mood % 4 == 1:
            raise OSError("no connection")
        if self.mood % 4 == 2:
            return SummaryReply("")
        text = "## Task\n> look at the tests\n\n## Constraints\n- Never touch legacy_auth.py\n"
        if self.mood % 4 == 3:
            text += "\n## Facts\n" + "\n".join(f"- fact {n} of this" for n in range(300))
        return SummaryReply(text, "model", "provider", 10, 5)


class Watched(FallbackSummarizer):
    """The ladder that the engine has, told what it is asked for. `quick` writes a short summary without reading."""

    quick = True
    asked: tuple[list[StoredMessage], str] = ([], "")
    number = 0

    def summary(self, rows: Any, previous: str, most_tokens: int, **options: Any) -> SummaryResult:
        """As the ladder's, or a short text at once."""
        self.asked = (list(rows), previous)
        if not self.quick:
            return super().summary(rows, previous, most_tokens, **options)
        self.number += 1
        before = previous.splitlines()[-1][:60] if previous else "nothing"
        return SummaryResult(
            f"## Task\n> look at the tests\n\n## Done\n- summary {self.number} after {before}", "quick", "m"
        )
