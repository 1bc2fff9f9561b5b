"""Token factor of a prompt by its content, for models with rates for it.

The base count is of the JSON form, and one factor cannot fit all of it: a short chat is half JSON framing, for which a
provider has a few tokens, and a vocabulary needs more tokens for one kind of text than for another. So the text of each
message has the rate of its kind, by two cheap measures: its characters per base token, and its share of non-ASCII bytes.
Stored counts stay as they are; only the factor differs, and a manifest contains the factor that was used. Reported usage
then corrects the estimate (`nexus.tokens.calibration`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeAlias

from nexus.tokens.calibration import PARTS
from nexus.tokens.model_table import ContentRates
from nexus.types.message import Image, Message, Note, ProviderFormat, Text, Thinking, ToolCall, ToolResult

Kind: TypeAlias = Literal["words", "dense", "digits", "encoded", "accented", "cjk", "scripts"]

_TEXT_FRAMING: dict[ProviderFormat, tuple[int, int]] = {"openai": (12, 9), "anthropic": (20, 8), "gemini": (16, 4)}
"""Base tokens of the JSON around a message of text: with one part, and per further part."""

_PART_TOKENS = 2
"""A further part is mostly a time or a date, whose digits take more tokens than words."""

_TOOL_FRAMING = 40
"""Base tokens of the JSON around a call or a result, its id included; providers have about as many."""

_DENSE_BELOW = 3.0
_DIGITS_BELOW = 2.05
_ENCODED_BELOW = 1.65
"""Characters per base token: English and code have four, JSON two to three, logs under two, base64 one and a half."""

_ACCENTED_FROM = 3.2
_CJK_BELOW = 2.2
"""The same outside ASCII: Cyrillic has over three, Arabic and Hindi two to three, Chinese and Korean under two."""

_SAMPLED_CHARS = 2_000
"""Characters of a text in which other than ASCII characters are looked for."""

_SYMBOL = b"\xe2"
"""First byte of dashes, arrows, check marks and lines: in code and tables, and not letters."""

_ASCII_UNTIL = 0.01
_ACCENTED_UNTIL = 0.2
"""UTF-8 bytes beyond one per character: a few typographic marks, then accents, then other scripts."""


@dataclass(slots=True)
class MeasuredContent:
    """Base tokens of messages and texts by kind. It grows with a history, so that a call measures only new messages."""

    texts: dict[Kind, int] = field(default_factory=dict[Kind, int])
    """Base tokens of text by kind, without framing."""

    text_messages: int = 0

    unscaled: int = 0
    """Tokens that are the same for every model."""

    unmeasured: int = 0
    """Base tokens of images and of parts of unknown kind."""

    has_images: bool = False

    history_messages: int = 0
    """Number of the history's messages that were added."""

    def copy(self) -> Self:
        """Return a copy, to which a call adds system prompt, blocks and event."""
        return replace(self, texts=self.texts.copy())

    def add_messages(self, messages: Sequence[Message], tokens: int, wire: ProviderFormat) -> None:
        """Add messages that have these base tokens together. All their texts count as one kind."""
        first, further = _TEXT_FRAMING[wire]
        texts: list[str] = []
        remaining = tokens
        unscaled = 0
        text_messages = 0
        has_images = is_unmeasured = False
        for message in messages:
            tools = 0
            for part in message.parts:
                if isinstance(part, (Text, Note, Thinking)):
                    texts.append(part.text)
                elif isinstance(part, ToolCall):
                    tools += 1
                    texts.append(part.arguments)
                elif isinstance(part, ToolResult):
                    tools += 1
                    texts += [item.text for item in part.content if isinstance(item, Text)]
                    has_images |= any(isinstance(item, Image) for item in part.content)
                else:
                    has_images |= isinstance(part, Image)
                    is_unmeasured = True
            if tools:
                framing = constant = min(tools * _TOOL_FRAMING, remaining)
            else:
                more = max(len(message.parts) - 1, 0)
                framing = first + further * more
                constant = _PART_TOKENS * more
                text_messages += 1
            unscaled += constant
            remaining -= framing
        if has_images or is_unmeasured:
            self.has_images |= has_images
            self.unmeasured += tokens
            return
        self.unscaled += unscaled
        self.text_messages += text_messages
        self.add_text(texts, remaining)

    def add_text(self, texts: Sequence[str], tokens: int) -> None:
        """Add texts that have these base tokens together; without characters, these are only framing."""
        if tokens > 0 and any(texts):
            kind = _kind(texts, tokens)
            self.texts[kind] = self.texts.get(kind, 0) + tokens

    def estimated_tokens(self, rates: ContentRates, token_factor: float) -> float:
        """Return the model's tokens of this content, without the framing of a request."""
        framing = rates.message * self.text_messages + self.unscaled
        texts = sum(tokens * getattr(rates, kind) for kind, tokens in self.texts.items())
        return framing + texts + self.unmeasured * token_factor


def content_factor(content: MeasuredContent, base: int, tools: int, rates: ContentRates, token_factor: float) -> float:
    """Return the model's tokens per base token of a prompt with these base tokens, in 64ths and rounded up.

    `tools` are the base tokens of tool definitions, which have the model's `token_factor`, as have images and parts of
    unknown kind. With an image the factor is never below it.
    """
    estimate = rates.request + content.estimated_tokens(rates, token_factor)
    estimate += tools * token_factor + (rates.tools if tools else 0)
    factor = math.ceil(estimate / base * PARTS) / PARTS
    if content.has_images:
        return max(factor, token_factor)
    return factor


def _kind(texts: Sequence[str], tokens: int) -> Kind:
    """Return the kind of texts that have these base tokens."""
    per_token = sum(map(len, texts)) / tokens
    extra_share = 0.0
    if not all(map(str.isascii, texts)):
        extra = sum(_letter_bytes(text[:_SAMPLED_CHARS]) for text in texts if not text.isascii())
        extra_share = extra / max(sum(min(len(text), _SAMPLED_CHARS) for text in texts), 1)
    if extra_share <= _ASCII_UNTIL:
        if per_token >= _DENSE_BELOW:
            return "words"
        if per_token >= _DIGITS_BELOW:
            return "dense"
        if per_token >= _ENCODED_BELOW:
            return "digits"
        return "encoded"
    if extra_share <= _ACCENTED_UNTIL or per_token >= _ACCENTED_FROM:
        return "accented"
    if per_token < _CJK_BELOW:
        return "cjk"
    return "scripts"


def _letter_bytes(text: str) -> int:
    """Return the UTF-8 bytes of letters beyond one per character."""
    data = text.encode("utf-8", "replace")
    return len(data) - len(text) - 2 * data.count(_SYMBOL)
