"""Base counts of messages: o200k tokens of their JSON form, in each of the three provider formats.

OpenAI's count is for chat completions, plus the difference to the Responses format, item by item.

The JSON is counted, not the raw text, because escapes, call ids and framing are a fifth of an agent's context. The formats
differ: OpenAI puts arguments as a JSON string into JSON, Anthropic gives every text a block with a type, Gemini repeats
the tool's name in a result. All three counts are taken once, when a message is written. A model's `token_factor` and the
calibration scale the budget, never the counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, assert_never

import msgspec

from nexus.text.as_received import ReceivedFormat, images_with_data, reasoning_json, received_items
from nexus.text.message_text import escape_message
from nexus.tokens.counter import TokenCounter, without_surrogates
from nexus.tokens.images import max_image_tokens
from nexus.types.message import (
    Image,
    Message,
    Note,
    Part,
    Text,
    Thinking,
    TokenSize,
    ToolCall,
    ToolResult,
    Unknown,
    phases,
    returnable_reasoning,
    with_neutral_parts,
)

# Tokens merge differently where messages meet: in 13,500 splits a text had at most three tokens more than its parts.
_SLACK = 3
_BLOCK = 9  # tokens of [{"type":"text","text":}]
# Tokens of a Responses item beyond the same in chat completions: `function_call_output` against a message of role `tool`,
# `input_text` against `text`, a phase against none, and one piece of a result that is a list because of its images.
_EXTRA_PER_OUTPUT = 1
_EXTRA_PER_TEXT = 1
_EXTRA_PER_PHASE = 5
_EXTRA_PER_PIECE = 12
# Encrypted reasoning is base64 of the model's own text, so one token for four characters is one for three bytes.
_SEALED_CHARS_PER_TOKEN = 4
# A long run of base64 in a part of unknown kind is a document or audio, not text: a page of PDF is about 50 kB and
# 3,000 tokens (17 characters per token), so one token for eight characters errs far upwards and is still bounded.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{1000,}={0,2}")
_BASE64_CHARS_PER_TOKEN = 8

_SYSTEM_NOTE = 16  # tokens of the heading of a system message that is sent as a user's, and of its block

_EXPONENT = re.compile("[0-9]e[0-9]")

_IMAGE_LINE = "[image left out here: image/jpeg 12000x12000; this provider's tool results hold text only]"
_encode = msgspec.json.Encoder().encode


def message_tokens(message: Message, counter: TokenCounter) -> TokenSize:
    """Return the base counts of a message, with three calls of the counter, and one more for optional parts.

    Images cost `max_image_tokens`; their data, signatures of thinking and redacted thinking are not text and not counted.
    """
    message = escape_message(message)
    parts = tuple(part for part in message.parts if not _is_optional(part))
    optional = [part for part in message.parts if _is_optional(part)]
    non_text = _SLACK + sum(_non_text_tokens(part) for part in parts)
    if message.role == "system" and message.received:
        non_text += _SYSTEM_NOTE
    openai, anthropic, gemini = (
        counter.count(as_json(message.role, parts)) + non_text for as_json in (_openai, _anthropic, _gemini)
    )
    openai += _extra_in_responses(message, counter)
    if message.received:
        plain = with_neutral_parts(message, parts)
        chat, responses, blocks_tokens, contents = (
            _received_tokens(plain, name, counter) for name in _RECEIVED_FORMATS
        )
        # The count of OpenAI's formats is the larger one, in that the message was received, or of its parts.
        openai = max(openai, chat, responses)
        if message.role == "system":
            blocks_tokens = max(blocks_tokens, anthropic)
        anthropic = blocks_tokens or anthropic
        gemini = contents or gemini
    if not optional:
        return TokenSize(openai, anthropic, gemini)
    blocks = ",".join(_block(part) for part in optional)
    reasoning = _reasoning_tokens(message, counter)
    # Next to a note, OpenAI's format has blocks instead of a plain string.
    texts = sum(isinstance(part, (Text, Note)) for part in parts)
    block = 0
    if texts == 1 and any(isinstance(part, Note) for part in optional):
        block = _BLOCK
    return TokenSize(openai, anthropic, gemini, max(counter.count(blocks), reasoning) + _SLACK + block)


_RECEIVED_FORMATS: tuple[ReceivedFormat, ...] = ("openai", "responses", "anthropic", "gemini")


def _received_tokens(message: Message, provider_format: ReceivedFormat, counter: TokenCounter) -> int:
    """Return the count of the message as received, without thinking; 0 if it was not received in this format."""
    items = received_items(message, provider_format, with_images=False)
    if items is None:
        return 0
    text = _canonical(items)
    images = sum(max_image_tokens(image) for image in images_with_data(message))
    addresses = sum(_non_text_tokens(part) for part in message.parts if isinstance(part, Image) and not part.data)
    runs = sum(len(match[0]) for match in _BASE64.finditer(text))
    encoded = -(-runs // _BASE64_CHARS_PER_TOKEN)
    return counter.count(_BASE64.sub("", text)) + _SLACK * (1 + len(items)) + images + addresses + encoded


def _reasoning_tokens(message: Message, counter: TokenCounter) -> int:
    """Return the count of a chat completion's fields with thinking; encrypted text counts by its length."""
    text = reasoning_json(message)
    sealed = sum(len(match[0]) for match in _BASE64.finditer(text))
    if text:
        return counter.count(_BASE64.sub("", text)) - (-sealed // _SEALED_CHARS_PER_TOKEN)
    return 0


def text_tokens_json(text: str, counter: TokenCounter) -> int:
    """Return the base count of a text that is sent as one JSON string, such as a system prompt."""
    return counter.count(_string(text)) + _SLACK


def tools_tokens(tools: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Return the base count of tool definitions: their canonical JSON in OpenAI's envelope, the longest; 0 for none.

    Providers render schemas more briefly, so this errs upwards. Keys are sorted in the counted text as in the sent one:
    in another order the same definition may be some tokens longer.
    """
    bodies = [
        _canonical(
            tool if "function" in tool or "functionDeclarations" in tool else {"type": "function", "function": tool}
        )
        for tool in tools
    ]
    if not bodies:
        return 0
    text = f"[{','.join(bodies)}]"
    return counter.count(text) + _SLACK * (1 + len(bodies)) + _exponents(text)


@lru_cache(maxsize=32)
def _exponents(text: str) -> int:
    """Return how many numbers may be a token longer when sent: `1e16` here is `1e+16` in Python's JSON."""
    return sum(1 for _ in _EXPONENT.finditer(text))


def _is_optional(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Note) and part.kind == "memory")


def _string(text: str) -> str:
    """Return the text as a JSON string, without ASCII escapes."""
    try:
        return _encode(text).decode()
    except UnicodeEncodeError:
        return _encode(without_surrogates(text)).decode()


def _canonical(value: object) -> str:
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, UnicodeEncodeError):
        return without_surrogates(
            json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
        )


def _openai(role: str, parts: tuple[Part, ...]) -> str:
    """Return chat completions JSON: a message for each result, arguments as a JSON string, one text as a plain string."""
    results = [part for part in parts if isinstance(part, ToolResult)]
    messages = [
        f'{{"role":"tool","tool_call_id":{_string(part.call_id)},"content":{_string(_result_text(part))}}}'
        for part in results
    ]
    calls = [
        f'{{"id":{_string(part.id)},"type":"function","function":'
        f'{{"name":{_string(part.name)},"arguments":{_string(part.arguments)}}}}}'
        for part in parts
        if isinstance(part, ToolCall)
    ]
    content = [_block(part) for part in parts if not isinstance(part, (ToolCall, ToolResult))]
    if content or calls or not results:
        texts = [part.text for part in parts if isinstance(part, (Text, Note))]
        is_plain = len(texts) == len(content) == 1
        if is_plain:
            body = _string(texts[0])
        elif content:
            body = f"[{','.join(content)}]"
        else:
            body = "null"
        tool_calls = ""
        if calls:
            tool_calls = f',"tool_calls":[{",".join(calls)}]'
        messages.append(f'{{"role":"{role}","content":{body}{tool_calls}}}')
    return ",".join(messages)


def _extra_in_responses(message: Message, counter: TokenCounter) -> int:
    """Return an upper bound of the tokens that the message has as Responses items beyond chat completions."""
    extra = 0
    pieces = sum(isinstance(part, (Text, Note, Image, Unknown)) for part in message.parts)
    if message.role == "assistant":
        extra += _EXTRA_PER_PHASE * sum(map(bool, phases(message)))
    elif pieces > 1:
        extra += _EXTRA_PER_TEXT * pieces
    for part in message.parts:
        if isinstance(part, ToolResult):
            images = sum(isinstance(item, Image) for item in part.content)
            extra += _EXTRA_PER_OUTPUT + (_EXTRA_PER_PIECE * (images + 1) if images else 0)
        elif isinstance(part, Thinking) and (item := returnable_reasoning(part)):
            sealed = item.pop("encrypted_content")
            extra += counter.count(_canonical(item)) + _SLACK - (-len(sealed) // _SEALED_CHARS_PER_TOKEN)
    return extra


def _anthropic(role: str, parts: tuple[Part, ...]) -> str:
    """Return messages JSON: every part is a block with a type, arguments are an object."""
    role = "assistant" if role == "assistant" else "user"
    return f'{{"role":"{role}","content":[{",".join(_block(part) for part in parts)}]}}'


def _gemini(role: str, parts: tuple[Part, ...]) -> str:
    """Return contents JSON: parts are named by their kind, results have the tool's name."""
    role = "model" if role == "assistant" else "user"
    return f'{{"role":"{role}","parts":[{",".join(_gemini_part(part) for part in parts)}]}}'


def _gemini_part(part: Part) -> str:
    match part:
        case ToolCall():
            header = f'"id":{_string(part.id)},"name":{_string(part.name)}'
            return f'{{"function_call":{{{header},"args":{_object(part.arguments)}}}}}'
        case Text() | Note():
            return f'{{"text":{_string(part.text)}}}'
        case ToolResult():
            header = f'"id":{_string(part.call_id)},"name":{_string(part.name or "tool")}'
            kind = "error" if part.is_error else "output"
            return f'{{"function_response":{{{header},"response":{{"{kind}":{_string(_result_text(part))}}}}}}}'
        case _:
            return _block(part)


def _block(part: Part) -> str:
    """Return the part as Anthropic's block; texts and images are longer in no other format."""
    match part:
        case Text() | Note():
            return f'{{"type":"text","text":{_string(part.text)}}}'
        case Thinking():
            return f'{{"type":"thinking","thinking":{_string(part.text)},"signature":""}}'
        case Image():
            address = "" if part.url.startswith("data:") else part.url
            source = f'"type":"base64","media_type":{_string(part.media_type)},"url":{_string(address)},"data":""'
            return f'{{"type":"image_url","source":{{{source},"detail":"auto"}}}}'
        case ToolCall():
            header = f'"id":{_string(part.id)},"name":{_string(part.name)}'
            return f'{{"type":"tool_use",{header},"input":{_object(part.arguments)}}}'
        case ToolResult():
            error = ',"is_error":true' if part.is_error else ""
            is_plain = len(part.content) == 1 and isinstance(part.content[0], Text)
            content = (
                _string(_result_text(part)) if is_plain else f"[{','.join(_block(block) for block in part.content)}]"
            )
            return f'{{"type":"tool_result","tool_use_id":{_string(part.call_id)},"content":{content}{error}}}'
        case Unknown():
            return f'{{"type":{_string(part.kind)},"text":{_string(_BASE64.sub("", part.raw))}}}'
        case _:
            assert_never(part)


def _result_text(result: ToolResult) -> str:
    """Return a result as one text, with a line in place of each image."""
    return "\n".join(block.text if isinstance(block, Text) else _IMAGE_LINE for block in result.content)


def _object(arguments: str) -> str:
    """Return arguments as a body has them: the object, or any other text wrapped in one."""
    if arguments.lstrip().startswith("{"):
        return arguments
    return f'{{"_unparsed":{_string(arguments)}}}'


def _non_text_tokens(part: Part) -> int:
    """Return the tokens of images, and of encoded data in parts of unknown kind."""
    match part:
        case Image():
            return max_image_tokens(part)
        case ToolResult():
            return sum(_non_text_tokens(block) for block in part.content)
        case Unknown():
            runs = sum(len(match[0]) for match in _BASE64.finditer(part.raw))
            return -(-runs // _BASE64_CHARS_PER_TOKEN)
        case _:
            return 0
