"""Plans of compactions, as values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.ledger_entries import MessageRef

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
    trigger: Trigger
    covers_from: int
    """First entry that is covered, from its message `start_ord` on."""
    covers_to: int
    """Last entry that is covered completely."""
    first_kept: int
    """First entry that is kept, from its message `kept_ord` on."""
    kept_ord: int
    pending_request: MessageRef | None
    """The covered user message that the kept messages still answer."""
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
    start_ord: int = 0
    factor: float = 1.0
    """Provider tokens per base token."""
    excerpts: tuple[MessageRef, ...] = ()
    """Covered messages that are still shown, in part."""
    excerpt_tokens: int = 0
    """Base tokens of each excerpt, at most."""
    unshown_turns: int = 0
    """Covered user turns that are neither excerpts nor pins."""
    withheld_turns: tuple[MessageRef, ...] = ()
    """The newest of these."""
    instructions: tuple[MessageRef, ...] = ()
    """Covered instructions of the client's list, shown whole."""

    @property
    def start(self) -> MessageRef:
        """Position of the first message that is covered."""
        return MessageRef(self.covers_from, self.start_ord)

    @property
    def until(self) -> MessageRef:
        """Position of the first message that is kept."""
        return MessageRef(self.first_kept, self.kept_ord)
