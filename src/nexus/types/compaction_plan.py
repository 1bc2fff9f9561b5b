"""A compaction before it is carried out: what it would cover and keep, as a value."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.ledger_entries import MessageRef

Trigger: TypeAlias = Literal["context_limit", "overflow_recovery", "manual", "periodic"]

COMPACT_AT = 0.85
"""A context that takes more than this share of the available tokens comes with a plan (document 002)."""

COMPACT_TO = 0.60
"""Compaction aims at this share (document 002)."""

RECOVER_TO = 0.40
"""The share that recovery from a provider's overflow aims at (document 002)."""


class CompactionPlan(Struct, frozen=True):
    """What a compaction covers and keeps. Tokens are base tokens.

    It covers `messages` messages from message `start_ord` of entry `covers_from` on, after the summary `previous`, and
    keeps all from message `kept_ord` of entry `first_kept` on. `tokens_before` is the whole prompt, `kept_tokens` what stays of it beside the
    summary, which may take `summary_tokens`. It holds while `after_mark` is the newest mark and `head` is on the path.
    """

    session: str
    view: str
    trigger: Trigger
    covers_from: int
    covers_to: int
    first_kept: int
    kept_ord: int
    asked: MessageRef | None
    previous: str
    after_mark: int
    head: int
    head_hash: str
    messages: int
    tokens_before: int
    kept_tokens: int
    summary_tokens: int
    start_ord: int = 0
    factor: float = 1.0

    @property
    def start(self) -> MessageRef:
        """The first message that is covered."""
        return MessageRef(self.covers_from, self.start_ord)

    @property
    def until(self) -> MessageRef:
        """The first message that is kept."""
        return MessageRef(self.first_kept, self.kept_ord)
