"""Token counts of texts and of whole requests, before anything is assembled: as a new session would count them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nexus.assembly.gather import REQUEST_TOKENS
from nexus.assembly.record import provisional_factor
from nexus.assembly.token_report import to_provider_tokens
from nexus.providers.messages import read_messages
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.content import MeasuredContent, content_factor
from nexus.tokens.counter import get_counter
from nexus.tokens.image_price import image_price
from nexus.tokens.message_tokens import message_tokens, text_tokens_json, tools_tokens
from nexus.tokens.model import Model, resolve
from nexus.tokens.model_names import same_model
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.types.message import Message, TokenSize
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_definition import ToolSource, canonical, tool_definitions


def count_tokens(
    content: Any,
    *,
    model: str = "",
    provider: ReceivedFormat | None = None,
    system: str = "",
    tools: Iterable[dict[str, Any]] | ToolSource = (),
) -> int:
    """Return the input tokens of a text, or of a request with these messages, for a model.

    Counts lean high, as in `assemble`. An engine's own counts also follow the usage that its models reported.

    Args:
        content: A text; or messages, neutral or in any provider's format.
        model: The model's name; by default the default model of `nexus.open`.
        provider: Format of the messages; recognized by default (see `nexus.read_messages`).
        system: The request's system prompt.
        tools: The request's tools, in any provider's format.

    Raises BadEvent for messages that cannot be read, and BadTool.
    """
    counter = get_counter()
    info = resolve(model or DEFAULT_MODEL).for_counter(counter.name)
    specs = canonical(tool_definitions(tools))
    tool_base = 0
    if specs:
        tool_base = tools_tokens([spec.counted() for spec in specs], counter)
    measured = MeasuredContent()
    if isinstance(content, str):
        text = sanitize_text(content)
        base = counter.count(text)
        measured.add_text([text], base)
        if not system and not specs:
            return to_provider_tokens(base, _text_factor(measured, base, info))
        messages: list[Message] = []
    else:
        base = 0
        messages = read_messages(content, provider, model=info.name)
    system_base = text_tokens_json(sanitize_text(system), counter)
    measured.add_text([system], system_base)
    factor, correction = provisional_factor(info, info.initial_factor)
    images = image_price(info, factor)
    for message in messages:
        size = message_tokens(message, counter)
        tokens = size.on(info.provider_format) + images.more_in(message) + _optional(message, size, info)
        measured.add_messages((message,), tokens, info.provider_format)
        base += tokens
    total = base + system_base + REQUEST_TOKENS + tool_base
    if info.content is not None and correction is not None:
        factor = content_factor(measured, total, tool_base, info.content, info.token_factor) * correction
    return to_provider_tokens(total, factor)


def _text_factor(measured: MeasuredContent, base: int, info: Model) -> float:
    """Return the model's tokens per base token of a text alone, without the framing of a request."""
    if info.content is None or not base:
        return info.initial_factor
    return measured.estimated_tokens(info.content, info.token_factor) / base * info.initial_factor


def _optional(message: Message, size: TokenSize, info: Model) -> int:
    """Return the tokens of thinking that goes back to the model that wrote it."""
    if message.role != "assistant" or info.provider_format != "anthropic":
        return 0
    if same_model(message.model, info.name):
        return size.optional
    return 0
