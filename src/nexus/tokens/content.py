"""Token factor of a prompt by its content, for models whose usage was not reported yet.

The base count is of the JSON form, and one factor cannot fit all of it: a short chat is half JSON framing, for which a
provider has a few tokens, and a vocabulary needs more tokens for one kind of text than for another. So the text of each
message has the rate of its kind, by two cheap measures: its characters per base token, and its share of non-ASCII bytes.
Stored counts stay as they are; only the factor differs, and a manifest contains the factor that was used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nexus.tokens.image_price import images_in
from nexus.tokens.model_table import ContentRates
from nexus.types.message import Image, Message, Note, ProviderFormat, Text, Thinking, ToolCall, ToolResult, Unknown

SAMPLED_MESSAGES = 30
"""Number of newest messages that are measured, so that the time of a call does not grow with its history."""

FACTOR_PARTS = 32
"""Fractions of one to which the factor is rounded up, so that it seldom moves."""

_TEXT_FRAMING: dict[ProviderFormat, tuple[int, int]] = {"openai": (12, 9), "anthropic": (20, 8), "gemini": (16, 4)}
"""Base tokens of the JSON around a message of text: with one part, and per further part."""

_PART_TOKENS = 2
"""A further part is mostly a time or a date, whose digits take more tokens than words."""

_TOOL_FRAMING = 40
"""Base tokens of the JSON around a call or a result, its id included; providers have about as many."""

_DENSE_BELOW, _DIGITS_BELOW, _ENCODED_BELOW = 3.0, 2.05, 1.65
"""Characters per base token: English and code have four, JSON two to three, logs under two, base64 one and a half."""

_ACCENTED_FROM, _CJK_BELOW = 3.2, 2.2
"""The same outside ASCII: Cyrillic has over three, Arabic and Hindi two to three, Chinese and Korean under two."""

_SAMPLED_CHARS = 2_000
"""Characters of a text in which other than ASCII characters are looked for."""

_ASCII_UNTIL = 0.01
_ACCENTED_UNTIL = 0.2
"""UTF-8 bytes beyond one per character: a few typographic marks, then accents, then other scripts."""


class MeasuredPrompt(Struct, frozen=True):
    """A prompt and the base tokens of its parts."""

    request_tokens: int
    """Allowance for the rest of a request body."""
    system: str
    system_tokens: int
    tools_tokens: int
    messages: Sequence[tuple[Message, int]]
    """Newest messages with their base tokens, at most `SAMPLED_MESSAGES`."""
    older_tokens: int
    """Base tokens of the other messages, assumed to be like these."""


def content_factor(prompt: MeasuredPrompt, rates: ContentRates, token_factor: float, wire: ProviderFormat) -> float:
    """Return the model's tokens per base token of this prompt, rounded up.

    Tools, images and parts of unknown kind have the model's `token_factor`, below which images never get.
    """
    measured = sum(tokens for _, tokens in prompt.messages)
    estimate = sum(_message_estimate(*item, rates, token_factor, wire) for item in prompt.messages)
    if measured:
        estimate *= 1 + prompt.older_tokens / measured
    else:
        estimate = prompt.older_tokens * token_factor
    if prompt.system:
        estimate += prompt.system_tokens * _rate([prompt.system], prompt.system_tokens, rates)
    if prompt.tools_tokens:
        estimate += prompt.tools_tokens * token_factor + rates.tools
    base = prompt.request_tokens + prompt.system_tokens + prompt.tools_tokens + measured + prompt.older_tokens
    factor = math.ceil((rates.request + estimate) / base * FACTOR_PARTS) / FACTOR_PARTS
    return max(factor, token_factor) if any(_has_image(message) for message, _ in prompt.messages) else factor


def _message_estimate(
    message: Message, tokens: int, rates: ContentRates, token_factor: float, wire: ProviderFormat
) -> float:
    if _has_image(message) or any(isinstance(part, Unknown) for part in message.parts):
        return tokens * token_factor
    tools = sum(isinstance(part, (ToolCall, ToolResult)) for part in message.parts)
    first, further = _TEXT_FRAMING[wire]
    if tools:
        framing = sent = tools * _TOOL_FRAMING
    else:
        more = max(len(message.parts) - 1, 0)
        framing, sent = first + further * more, rates.message + _PART_TOKENS * more
    text_tokens = max(tokens - framing, 0)
    return sent + text_tokens * _rate(list(_texts(message)), text_tokens, rates)


def _rate(texts: Sequence[str], tokens: int, rates: ContentRates) -> float:
    """Return the model's tokens per base token of texts that have these base tokens."""
    chars = sum(map(len, texts))
    samples = [text[:_SAMPLED_CHARS] for text in texts if not text.isascii()]
    extra = sum(len(text.encode("utf-8", "replace")) - len(text) for text in samples)
    extra_share = extra / max(sum(min(len(text), _SAMPLED_CHARS) for text in texts), 1)
    per_token = chars / max(tokens, 1)
    if extra_share <= _ASCII_UNTIL:
        limits = ((_ENCODED_BELOW, rates.encoded), (_DIGITS_BELOW, rates.digits), (_DENSE_BELOW, rates.dense))
        return next((rate for limit, rate in limits if per_token < limit), rates.words)
    if extra_share <= _ACCENTED_UNTIL or per_token >= _ACCENTED_FROM:
        return rates.accented
    return rates.cjk if per_token < _CJK_BELOW else rates.scripts


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text) | Note(text=text) | Thinking(text=text):
                yield text
            case ToolCall(arguments=arguments):
                yield arguments
            case ToolResult(content=content):
                yield from (item.text for item in content if isinstance(item, Text))
            case Image() | Unknown():
                pass


def _has_image(message: Message) -> bool:
    return next(images_in(message), None) is not None
