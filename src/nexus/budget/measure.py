"""The base count of a message: o200k tokens of its JSON wire form, an upper bound over the three providers' forms.

Counting what is sent, and not the raw text, is what makes the count hold: escapes, call ids and framing are a fifth of
an agent's context. One text in the most verbose form stands for all three: tool calls with their arguments as a JSON
string (OpenAI), texts as blocks with a type (Anthropic), results with both the call's id and the tool's name (Gemini).
Its tokens and a few for each part, since tokens merge differently where the forms' marks differ, are the count. It is
taken once, when a message is written; a model's `token_factor` and the calibration divide the room, never the counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from nexus.budget.counter import TokenCounter, without_surrogates
from nexus.budget.images import most_image_tokens
from nexus.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

# Tokens merge differently where a form's marks meet a text. With these the count was 3 tokens or more above the largest
# of the three forms for 20,000 random messages, and 16 above in the median.
_MESSAGE_SLACK, _PART_SLACK = 6, 2
# A long run of base64 in a part of unknown kind is a document or a sound, not text: a page of PDF is about 50 kB and
# 3,000 tokens (17 characters a token), so one token for eight characters errs upwards by far and is still bounded.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{1000,}={0,2}")
_BASE64_CHARS_A_TOKEN = 8

_encode = msgspec.json.Encoder().encode


class MessageTokens(Struct, frozen=True):
    """The base count of one message: `tokens` of what is always sent, `aside` of its thinking and memory notes.

    These are sent only in some calls; they are never part of `tokens`.
    """

    tokens: int
    aside: int = 0


def message_tokens(message: Message, counter: TokenCounter) -> MessageTokens:
    """The base count of a message, with one call of the counter, or two if it has thinking or memory notes.

    Images cost what `most_image_tokens` says; their data, signatures of thinking and redacted thinking are not text and
    are left out.
    """
    sent = [part for part in message.parts if not _is_aside(part)]
    aside = [part for part in message.parts if _is_aside(part)]
    bodies = [_wire(part) for part in sent]
    text = f'{{"role":"{message.role}","content":[{",".join(bodies)}]}}'
    tokens = counter.count(text) + _MESSAGE_SLACK + _PART_SLACK * len(sent) + sum(_beside_text(part) for part in sent)
    if not aside:
        return MessageTokens(tokens)
    return MessageTokens(tokens, counter.count(",".join(_wire(part) for part in aside)) + _PART_SLACK * len(aside))


def text_tokens_json(text: str, counter: TokenCounter) -> int:
    """The base count of a text that is sent as one JSON string, such as a system prompt."""
    return counter.count(_string(text)) + _PART_SLACK


def tools_tokens(tools: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """The base count of tool definitions: of their canonical JSON (keys sorted, no spaces) in OpenAI's envelope, which
    is the longest. 0 if there are none. Providers render schemas more briefly, so this errs upwards.
    """
    bodies: list[str] = []
    for tool in tools:
        wrapped = (
            tool if "function" in tool or "functionDeclarations" in tool else {"type": "function", "function": tool}
        )
        bodies.append(_canonical(wrapped))
    return counter.count(f"[{','.join(bodies)}]") + _MESSAGE_SLACK + _PART_SLACK * len(bodies) if bodies else 0


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


def _wire(part: Part) -> str:
    """The part in the representative form."""
    match part:
        case Text() | Note():
            return f'{{"type":"text","text":{_string(part.text)}}}'
        case Thinking():
            return f'{{"type":"thinking","thinking":{_string(part.text)},"signature":""}}'
        case Image():
            return _image(part)
        case ToolCall():
            body = f'{{"name":{_string(part.name)},"arguments":{_string(part.arguments)}}}'
            return f'{{"type":"function","id":{_string(part.id)},"function":{body}}}'
        case ToolResult():
            blocks = ",".join(_wire(block) for block in part.content)
            names = f'"tool_use_id":{_string(part.call_id)},"name":{_string(part.name)}'
            return f'{{"type":"tool_result",{names},"content":[{blocks}],"is_error":{str(part.is_error).lower()}}}'
        case Unknown():
            return f'{{"type":{_string(part.kind)},"text":{_string(_BASE64.sub("", part.raw))}}}'
        case _:
            assert_never(part)


def _image(image: Image) -> str:
    address = "" if image.url.startswith("data:") else image.url
    source = f'"media_type":{_string(image.media_type)},"url":{_string(address)},"data":""'
    return f'{{"type":"image_url","source":{{"type":"base64",{source},"detail":"auto"}}}}'


def _beside_text(part: Part) -> int:
    """Tokens of what is no text (images, encoded data in parts of unknown kind), and slack for a result's pieces."""
    match part:
        case Image():
            return most_image_tokens(part)
        case ToolResult():
            return sum(_beside_text(block) + _PART_SLACK for block in part.content)
        case Unknown():
            runs = sum(len(match[0]) for match in _BASE64.finditer(part.raw))
            return -(-runs // _BASE64_CHARS_A_TOKEN)
        case _:
            return 0
