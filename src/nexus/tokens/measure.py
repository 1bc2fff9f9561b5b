"""The base count of a message: o200k tokens of its JSON wire form, for each of the three providers' forms.

OpenAI's count is that of chat completions, and what the Responses form has more than it, item by item, is added.

Counting what is sent, and not the raw text, is what makes the count hold: escapes, call ids and framing are a fifth of
an agent's context. Each form weighs differently: OpenAI puts arguments as a JSON string into JSON, Anthropic gives every
text a block with a type, Gemini repeats the tool's name beside a result. All three counts are taken once, when a message
is written. A model's `token_factor` and the calibration divide the room, never the counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, assert_never

import msgspec

from nexus.text.frames.beside import escape_message
from nexus.tokens.counter import TokenCounter, without_surrogates
from nexus.tokens.images import max_image_tokens
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, TokenSize, ToolCall, ToolResult, Unknown
from nexus.types.openai_reasoning import phases, returnable_reasoning

# Tokens merge differently where messages meet: over 13,500 cuts a whole had at most three tokens more than its parts.
_SLACK = 3
_BLOCK = 9  # tokens of [{"type":"text","text":}]
# What an item of the Responses form has more than the same in chat completions: `function_call_output` than a message of
# role `tool`, `input_text` than `text`, a phase than none; and one piece of a result that is a list, for its images.
_OUTPUT_MORE = 1
_TEXT_MORE = 1
_PHASE_MORE = 5
_PIECE_MORE = 12
# Encrypted reasoning is base64 of what the model wrote, so a token for four of its characters is one for three bytes.
_SEALED_CHARS_A_TOKEN = 4
# A long run of base64 in a part of unknown kind is a document or a sound, not text: a page of PDF is about 50 kB and
# 3,000 tokens (17 characters a token), so one token for eight characters errs upwards by far and is still bounded.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{1000,}={0,2}")
_BASE64_CHARS_A_TOKEN = 8

_EXPONENT = re.compile("[0-9]e[0-9]")

_IMAGE_LINE = "[image left out here: image/jpeg 12000x12000; this provider's tool results hold text only]"
_encode = msgspec.json.Encoder().encode


def message_tokens(message: Message, counter: TokenCounter) -> TokenSize:
    """The base counts of a message, with three calls of the counter, one more for thinking and memory notes.

    Images cost what `most_image_tokens` says; their data, signatures of thinking and redacted thinking are not text and
    are left out.
    """
    message = escape_message(message)
    sent = tuple(part for part in message.parts if not _is_aside(part))
    aside = [part for part in message.parts if _is_aside(part)]
    beside = _SLACK + sum(_beside_text(part) for part in sent)
    openai, anthropic, gemini = (
        counter.count(form(message.role, sent)) + beside for form in (_openai, _anthropic, _gemini)
    )
    openai += _more_in_responses(message, counter)
    if not aside:
        return TokenSize(openai, anthropic, gemini)
    blocks = ",".join(_block(part) for part in aside)
    # Beside a note, OpenAI's form has blocks for what alone would be a plain string.
    texts = sum(isinstance(part, (Text, Note)) for part in sent)
    block = _BLOCK if texts == 1 and any(isinstance(part, Note) for part in aside) else 0
    return TokenSize(openai, anthropic, gemini, counter.count(blocks) + _SLACK + block)


def text_tokens_json(text: str, counter: TokenCounter) -> int:
    """The base count of a text that is sent as one JSON string, such as a system prompt."""
    return counter.count(_string(text)) + _SLACK


def tools_tokens(tools: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """The base count of tool definitions: of their canonical JSON in OpenAI's envelope, the longest.

    0 if there are none. Providers render schemas more briefly, so this errs upwards. What is counted has sorted keys, as
    what is sent has: in another order the same definition may be some tokens longer.
    """
    bodies: list[str] = []
    for tool in tools:
        wrapped = (
            tool if "function" in tool or "functionDeclarations" in tool else {"type": "function", "function": tool}
        )
        bodies.append(_canonical(wrapped))
    if not bodies:
        return 0
    text = f"[{','.join(bodies)}]"
    return counter.count(text) + _SLACK * (1 + len(bodies)) + _exponents(text)


@lru_cache(maxsize=32)
def _exponents(text: str) -> int:
    """How many numbers may be a token longer when they are sent: `1e16` here is `1e+16` in Python's JSON."""
    return sum(1 for _ in _EXPONENT.finditer(text))


def _is_aside(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Note) and part.kind == "memory")


def _string(text: str) -> str:
    """The text as a JSON string, other scripts left as they are."""
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
    """Chat completions: one message for each result, arguments as a JSON string, one text as a plain string."""
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
        one_text = len(texts) == len(content) == 1
        body = _string(texts[0]) if one_text else f"[{','.join(content)}]" if content else "null"
        called = f',"tool_calls":[{",".join(calls)}]' if calls else ""
        messages.append(f'{{"role":"{role}","content":{body}{called}}}')
    return ",".join(messages)


def _more_in_responses(message: Message, counter: TokenCounter) -> int:
    """At most how many tokens more than in chat completions the message has as items of the Responses API."""
    more = 0
    shown = sum(isinstance(part, (Text, Note, Image, Unknown)) for part in message.parts)
    if message.role == "assistant":
        more += _PHASE_MORE * sum(map(bool, phases(message)))
    elif shown > 1:
        more += _TEXT_MORE * shown
    for part in message.parts:
        if isinstance(part, ToolResult):
            images = sum(isinstance(item, Image) for item in part.content)
            more += _OUTPUT_MORE + (_PIECE_MORE * (images + 1) if images else 0)
        elif isinstance(part, Thinking) and (item := returnable_reasoning(part)):
            sealed = item.pop("encrypted_content")
            more += counter.count(_canonical(item)) + _SLACK - (-len(sealed) // _SEALED_CHARS_A_TOKEN)
    return more


def _anthropic(role: str, parts: tuple[Part, ...]) -> str:
    """Messages: every part is a block with a type, arguments are an object."""
    role = "assistant" if role == "assistant" else "user"
    return f'{{"role":"{role}","content":[{",".join(_block(part) for part in parts)}]}}'


def _gemini(role: str, parts: tuple[Part, ...]) -> str:
    """Contents: parts named by their kind, results under the tool's name."""
    role = "model" if role == "assistant" else "user"
    return f'{{"role":"{role}","parts":[{",".join(_gemini_part(part) for part in parts)}]}}'


def _gemini_part(part: Part) -> str:
    match part:
        case ToolCall():
            named = f'"id":{_string(part.id)},"name":{_string(part.name)}'
            return f'{{"function_call":{{{named},"args":{_object(part.arguments)}}}}}'
        case Text() | Note():
            return f'{{"text":{_string(part.text)}}}'
        case ToolResult():
            named = f'"id":{_string(part.call_id)},"name":{_string(part.name or "tool")}'
            kind = "error" if part.is_error else "output"
            return f'{{"function_response":{{{named},"response":{{"{kind}":{_string(_result_text(part))}}}}}}}'
        case _:
            return _block(part)


def _block(part: Part) -> str:
    """The part as Anthropic sends it; texts and images are nowhere longer."""
    match part:
        case Text() | Note():
            return f'{{"type":"text","text":{_string(part.text)}}}'
        case Thinking():
            return f'{{"type":"thinking","thinking":{_string(part.text)},"signature":""}}'
        case Image():
            return _image(part)
        case ToolCall():
            named = f'"id":{_string(part.id)},"name":{_string(part.name)}'
            return f'{{"type":"tool_use",{named},"input":{_object(part.arguments)}}}'
        case ToolResult():
            error = ',"is_error":true' if part.is_error else ""
            plain = len(part.content) == 1 and isinstance(part.content[0], Text)
            content = _string(_result_text(part)) if plain else f"[{','.join(_block(block) for block in part.content)}]"
            return f'{{"type":"tool_result","tool_use_id":{_string(part.call_id)},"content":{content}{error}}}'
        case Unknown():
            return f'{{"type":{_string(part.kind)},"text":{_string(_BASE64.sub("", part.raw))}}}'
        case _:
            assert_never(part)


def _result_text(result: ToolResult) -> str:
    """A result as one text, with a line for each image that cannot stand in it."""
    return "\n".join(block.text if isinstance(block, Text) else _IMAGE_LINE for block in result.content)


def _object(arguments: str) -> str:
    """Arguments as they stand in a body: the object, or whatever else as a text that an object wraps."""
    return arguments if arguments.lstrip().startswith("{") else f'{{"_unparsed":{_string(arguments)}}}'


def _image(image: Image) -> str:
    address = "" if image.url.startswith("data:") else image.url
    source = f'"type":"base64","media_type":{_string(image.media_type)},"url":{_string(address)},"data":""'
    return f'{{"type":"image_url","source":{{{source},"detail":"auto"}}}}'


def _beside_text(part: Part) -> int:
    """Tokens of what is no text: images, encoded data in parts of unknown kind."""
    match part:
        case Image():
            return max_image_tokens(part)
        case ToolResult():
            return sum(_beside_text(block) for block in part.content)
        case Unknown():
            runs = sum(len(match[0]) for match in _BASE64.finditer(part.raw))
            return -(-runs // _BASE64_CHARS_A_TOKEN)
        case _:
            return 0
