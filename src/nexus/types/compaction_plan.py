"""Plans of compactions, as values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.ledger_entries import Compaction, MessageRef

Trigger: TypeAlias = Literal["context_limit", "overflow_recovery", "manual", "periodic"]

FULL = 1.0
"""By default a context that takes more than this share of the available tokens is compacted."""
FULL_TO = 0.40
"""Share of the available tokens to which it is compacted by default."""

COMPACT_AT = 0.85
"""`FULL` in the layered broker form, and for a manual compaction."""
COMPACT_TO = 0.60
"""`FULL_TO` in the layered broker form, and for a manual compaction."""

RECOVER_TO = 0.40
"""Target share of a compaction after a provider's overflow error."""


class CompactionPlan(Struct, frozen=True):
    """Plan of a compaction: the messages that it covers and keeps. Tokens are base tokens.

    A plan is current while `after_mark` is the newest checkpoint and `head` is on the session's path.
    """

    session: str
    view: str
    draft: Compaction
    """The compaction as it will be stored, without the summary and what it costs."""
    start: MessageRef
    """Position of the first message that is covered."""
    previous: str
    """The current summary, which the new one updates."""
    after_mark: int
    """Seq of the newest checkpoint."""
    head: int
    head_hash: str
    messages: int
    """Number of messages that are covered."""
    tokens_before: int
    """Tokens of the whole prompt."""
    kept_tokens: int
    """Tokens of the prompt that stay, without the new summary."""
    summary_tokens: int
    """Limit of the new summary."""
    factor: float = 1.0
    """Provider tokens per base token."""

    @property
    def until(self) -> MessageRef:
        """Position of the first message that is kept."""
        return MessageRef(self.draft.first_kept, self.draft.kept_ord)
