"""Rules of a window: which content of its messages is shown, and how much it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from nexus.assembly.fit.images import with_sendable_images
from nexus.assembly.fit.truncate_results import TruncationLimits
from nexus.assembly.formats.path_format import UNFORMATTED, PathFormat
from nexus.providers.openai import NAME_CHANGED, has_changed_name, must_have_reasoning
from nexus.providers.signatures import must_sign_calls
from nexus.text.as_received import REASONING_RENDER, has_reasoning
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model_names import same_model
from nexus.types.history import PLAIN, HistoryHeader, Lookup
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, ProviderFormat, TokenSize

_REQUIRED_OF_CALLS = 24
"""Tokens of the field that some models require of a message with calls: a placeholder signature, or an empty thought."""


@dataclass(frozen=True, slots=True)
class DisplayRules:
    """Rules by which a window shows and counts messages."""

    wire: ProviderFormat = "openai"
    """Provider format whose tokens count."""

    model: str = ""
    """Model that is called. Thinking counts only if it returns to the model that wrote it."""

    images: ImagePrice = ANY_MODEL
    header: HistoryHeader = PLAIN
    path_format: PathFormat = UNFORMATTED
    limits: TruncationLimits = field(default_factory=TruncationLimits)

    plain_until: int = 0
    """Seq up to which messages are shown without thinking and memory notes."""

    verbatim: frozenset[MessageRef] = frozenset()
    """Positions of messages whose results are never truncated."""

    keeps_images: frozenset[MessageRef] = frozenset()
    """Positions of messages whose images are never replaced by notes."""

    lookup: Lookup = "command"
    """What notices say about where the whole can be read."""

    render: int = RENDER_VERSION
    """Render version; replay uses the recorded one."""

    image_limits: ImageLimits | None = None
    """Limits of images; None if they are sent as they are stored, as up to render version 6."""

    def with_sendable_images(self, row: StoredMessage, counter: TokenCounter, changes: Counter[str]) -> StoredMessage:
        """Return the row with its images as they may be sent, counted in that form; the same object if they are."""
        message = with_sendable_images(row.message, self.image_limits, changes)
        if message is row.message:
            return row
        return replace(row, message=message, size=message_tokens(message, counter))

    def count_changed_name(self, message: Message, changes: Counter[str]) -> None:
        """Count a message whose participant's name is sent in another form."""
        if self.wire == "openai" and has_changed_name(message):
            changes[NAME_CHANGED] += 1

    def weight(self, message: Message, size: TokenSize) -> int:
        """Return the base tokens of a message under these rules, without its optional tokens."""
        return size.on(self.wire) + self.images.more_in(message) + self._required_tokens(message)

    def _required_tokens(self, message: Message) -> int:
        if message.role != "assistant" or self.wire == "anthropic" or self.render < REASONING_RENDER:
            return 0
        is_required = must_sign_calls(self.model) or (self.wire == "openai" and must_have_reasoning(self.model))
        if is_required and any(message.calls()):
            return _REQUIRED_OF_CALLS
        return 0

    def optional_tokens_of(self, message: Message, size: TokenSize) -> int:
        """Return the base tokens of a message's thinking and memory notes that count under these rules.

        Thinking counts only if it returns to the model that wrote it: in the Anthropic format, and in chat completions that
        came with it.
        """
        if message.role != "assistant" or not size.optional:
            return size.optional
        is_author = same_model(message.model, self.model)
        if self.wire == "openai" and self.render >= REASONING_RENDER:
            returned = has_reasoning(message) and (is_author or not message.model)
            returned = returned or (is_author and must_have_reasoning(self.model))
        else:
            returned = is_author and self.wire == "anthropic"
        if returned:
            return size.optional
        return 0
