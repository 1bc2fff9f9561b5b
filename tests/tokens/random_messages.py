"""Random messages of the kinds that agents exchange: prose, code, JSON, CJK, emoji, encoded data, broken arguments."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from nexus.types.message import Image, Message, Note, Text, Thinking, ToolCall, ToolResult, Unknown

_SCRAPS = (
    "The quick brown fox", " jumps over", "\n", "\n\n", "\t", "    ", '"', "\\", "\\n", '\\"', "{", "}", "[", "]",
    ":", ",",
    "def count(self, text: str) -> int:\n", "return {'a': [1, 2.5, None]}", "if (x >= 10 && y != 'z') {", "/* … */",
    '{"path":"src/app.py","lines":[1,50]}', '{"a":{"b":{"c":"\\u00e9"}}}', "</human_input>", "<|endoftext|>", "\r\n",
    "今日は天気がいいですね。", "数据库迁移已经完成，", "안녕하세요", "Привет, мир", "مرحبا", "नमस्ते", "สวัสดี", "Ünïcödé",
    "👩‍👩‍👧‍👦", "🎉", "🏳️‍🌈", "https://example.org/a?b=c&d=%20#e", "550e8400-e29b-41d4-a716-446655440000",
    "2026-11-12T09:15:33.123Z", "0x7fff5fbff8c0", "aGVsbG8gd29ybGQhIQ==", "3.14159265358979", "1e-300",
    "a" * 200,
    " " * 120, "-" * 80, "\x00", "\x07", "\x7f", "\u2028", "\ufeff", "C:\\Users\\me\\file.txt",
    "$ ls -la | grep -v '^d'",
)  # fmt: skip


def _unknown(kind: str, fields: dict[str, object]) -> Unknown:
    return Unknown(kind, json.dumps({**fields, "type": kind}, ensure_ascii=False, separators=(",", ":")))


pieces = st.lists(st.one_of(st.sampled_from(_SCRAPS), st.text(max_size=12)), max_size=14).map("".join)
# Lone surrogates are no JSON text at all; how they count is said in the tests of the counters.
texts = pieces.filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text)
names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,24}", fullmatch=True)
ids = st.one_of(
    st.from_regex(r"(call_|toolu_01)[A-Za-z0-9]{22}", fullmatch=True),
    st.from_regex(r"[a-zA-Z0-9_.|:-]{1,40}", fullmatch=True),
)
_plain = st.one_of(st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(-1e6, 1e6), texts)
_values = st.recursive(
    _plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(names, _values, max_size=4)
arguments = st.one_of(
    objects.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
    objects.map(lambda value: json.dumps(value, ensure_ascii=False)),
    objects.map(lambda value: json.dumps(value, ensure_ascii=False, indent=2)),
    texts,
    st.just(""),
)

images = st.builds(
    Image,
    media_type=st.sampled_from(["image/png", "image/jpeg", "image/webp"]),
    data=st.sampled_from(["", "iVBORw0KGgo=" * 400]),
    url=st.sampled_from(["", "https://example.org/picture.png"]),
    width=st.integers(0, 5000),
    height=st.integers(0, 5000),
)
calls = st.builds(ToolCall, id=ids, name=names, arguments=arguments)
results = st.builds(
    ToolResult,
    call_id=ids,
    content=st.lists(st.one_of(st.builds(Text, texts), images), max_size=3).map(tuple),
    name=names,
    is_error=st.booleans(),
)
moments = st.builds(Note, kind=st.just("moment"), text=texts)
memories = st.builds(Note, kind=st.just("memory"), text=texts)
thoughts = st.builds(Thinking, text=texts, signature=st.just("EqQB" * 100))
unknowns = st.builds(_unknown, names, objects)

user_messages = st.builds(
    Message,
    st.just("user"),
    st.lists(st.one_of(moments, st.builds(Text, texts), images, unknowns), max_size=4).map(tuple),
)
assistant_messages = st.builds(
    Message, st.just("assistant"), st.lists(st.one_of(st.builds(Text, texts), calls), max_size=4).map(tuple)
)
tool_messages = st.builds(Message, st.just("tool"), st.lists(results, min_size=1, max_size=3).map(tuple))
mixed_messages = st.builds(
    Message, st.just("user"), st.lists(st.one_of(results, st.builds(Text, texts)), min_size=1, max_size=4).map(tuple)
)
sent_messages = st.one_of(user_messages, assistant_messages, tool_messages, mixed_messages)
thinking_messages = st.builds(
    Message,
    st.just("assistant"),
    st.lists(st.one_of(thoughts, memories, st.builds(Text, texts), calls), min_size=1, max_size=5).map(tuple),
)
