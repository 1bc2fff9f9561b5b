"""Who writes a summary: the protocol, and the one that needs no model."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from nexus.compaction.extractive.summary import summarize
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import StoredMessage


class SummaryRequest(Struct, frozen=True):
    """What is to be summarised: messages as stored, after a `previous` summary that is to be brought up to date.

    `most_tokens` (base tokens) is the room of the summary, `focus` what the user wants kept above all. `stricter` is set
    on the second try, when `refused_because` says why the first text was not taken.
    """

    rows: tuple[StoredMessage, ...]
    most_tokens: int
    previous: str = ""
    focus: str = ""
    stricter: bool = False
    refused_because: str = ""


class SummaryReply(Struct, frozen=True):
    """A summary's text, who wrote it, and what the provider counted for the call (0 where no model was asked)."""

    text: str
    model: str = ""
    provider: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Summarizer(Protocol):
    """Writes summaries. It may raise anything and answer anything: what it says is judged before it is stored."""

    @property
    def name(self) -> str:
        """What it is called in reports and in the ledger."""
        ...

    @property
    def call_tokens(self) -> int:
        """The most base tokens that it takes in one request, its answer included; 0 if it has no limit."""
        ...

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The summary. Called from a thread of its own, with a time limit around it."""
        ...


class ExtractiveSummarizer:
    """Sentences and facts by rule, offline, the same for the same input; it cannot invent. The default."""

    name: str = "extractive"
    call_tokens: int = 0

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The findings of most weight that `most_tokens` hold; empty if not even the task fits."""
        made = summarize(
            request.rows, request.most_tokens, self._counter, previous=request.previous, focus=request.focus
        )
        return SummaryReply(made.text)
