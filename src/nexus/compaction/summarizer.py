"""The summarizer protocol with its request and reply, and the extractive summarizer, which needs no model."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from nexus.compaction.extractive.summary import summarize
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import StoredMessage


class SummaryRequest(Struct, frozen=True):
    """Messages to summarize and the limits of the summary."""

    rows: tuple[StoredMessage, ...]
    most_tokens: int
    """Limit of the summary in base tokens."""
    previous: str = ""
    """Previous summary to update with the rows."""
    focus: str = ""
    """Subjects that the user wants kept."""
    stricter: bool = False
    """True on the second attempt."""
    refused_because: str = ""
    """Why the first attempt was rejected."""


class SummaryReply(Struct, frozen=True):
    """A summary, its author, and the provider's token counts of the call (0 without a model)."""

    text: str
    model: str = ""
    provider: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Summarizer(Protocol):
    """Writes summaries. It may raise any exception; every reply is checked before it is stored."""

    @property
    def name(self) -> str:
        """Name in reports and in the ledger."""
        ...

    @property
    def call_tokens(self) -> int:
        """Largest request in base tokens, including the answer; 0 for no limit."""
        ...

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the summary. Called in a thread of its own, with a timeout."""
        ...


class ExtractiveSummarizer:
    """Offline, deterministic summaries of sentences and facts from the messages. The default."""

    name: str = "extractive"
    call_tokens: int = 0

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the heaviest findings that fit `most_tokens`; empty if not even the task fits."""
        summary = summarize(
            request.rows, request.most_tokens, self._counter, previous=request.previous, focus=request.focus
        )
        return SummaryReply(summary.text)
