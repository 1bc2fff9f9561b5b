"""Compaction with an engine's summarizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING

from nexus.ledger.history_operations import Ledger
from nexus.models.tracing import span
from nexus.tokens.counter import TokenCounter
from nexus.types.compaction_plan import CompactionPlan

if TYPE_CHECKING:  # they take a while to import, and most programs use none
    from nexus.summarization import CompactionOutcome, FallbackSummarizer, Summarizer


class Compactor:
    """Summarizes planned messages. It does not decide when."""

    def __init__(self, ledger: Ledger, counter: TokenCounter, summarizer: Summarizer | None) -> None:
        self._ledger = ledger
        self._counter = counter
        self._summarizer = summarizer

    @cached_property
    def summarizer(self) -> FallbackSummarizer:
        """The engine's summarizer, with retries, a deterministic fallback and the state of its model."""
        from nexus.summarization import FallbackSummarizer

        return FallbackSummarizer(self._counter, self._summarizer)

    def run(
        self,
        plan: CompactionPlan | None,
        *,
        focus: str = "",
        progress: Callable[[int, int], None] | None = None,
        summarizer: FallbackSummarizer | None = None,
        cancel: Event | None = None,
    ) -> CompactionOutcome:
        """Summarize a plan's messages and store the summary; nothing without a plan. Arguments as for `Engine.compact`."""
        from nexus.summarization import NOTHING, run_compaction

        if plan is None:
            return NOTHING
        chosen = summarizer or self.summarizer
        with span("nexus.compact", {"gen_ai.conversation.id": plan.session}) as traced:
            outcome = run_compaction(
                plan, self._ledger, chosen, self._counter, focus=focus, progress=progress, cancel=cancel
            )
            traced.set({"nexus.tokens_before": outcome.tokens_before, "nexus.tokens_after": outcome.tokens_after})
        return outcome
