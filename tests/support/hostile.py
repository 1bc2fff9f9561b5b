"""Random histories that nobody should have to send: orphans, duplicates, broken arguments, empty texts, odd roles."""

from __future__ import annotations

from hypothesis import strategies as st

from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "\n\t", "ok", "你好，世界", "🙂👩‍👩‍👧", "\x00", "\ud800", "a\udc00b", "<|endoftext|>", "{}", '"}]']
    )
    | st.text(max_size=40)
)
IDS = st.sampled_from(["a", "b", "c", "", "call 1", "call_1", "é", "x" * 70, "a_2", "toolu_01AbC"])
NAMES = st.sampled_from(["read_file", "", "bad name!", "9lives", "n" * 80, "日本"])
ARGUMENTS = st.sampled_from(
    ['{"path": "x"}', "{}", "", "null", "[1]", '{"a": NaN}', '{"cut": "of', '"text"', '{"n": 1' + "0" * 5000 + "}",
     '{"s": "\\ud800"}', '{"deep": ' + "[" * 2000 + "]" * 2000 + "}", "\ud800", '{"a": 1, "a": 2}']
)  # fmt: skip
IMAGES = st.sampled_from(
    [Image("image/png", PIXEL, width=1, height=1), Image("image/png", url="https://example.com/a.png")]
)
CONTENT = st.lists(TEXTS.map(Text) | IMAGES, max_size=3).map(tuple)
RESULTS = st.builds(ToolResult, IDS, CONTENT, NAMES, st.booleans())
CALLS = st.builds(ToolCall, IDS, NAMES, ARGUMENTS)
SEALED = '{"type":"reasoning","id":"rs_1","summary":[{"text":"hm"}],"encrypted_content":"c2VhbGVk"}'
SIGNATURES = ["", "c2ln", SEALED, '{"type":"reasoning","id":"rs_2"}', '{"type":"reasoning","id":']
THINKING = st.builds(Thinking, TEXTS, st.sampled_from(SIGNATURES), st.sampled_from(["", "ZGF0YQ=="]))
NOTES = st.builds(Note, st.sampled_from(["moment", "memory"]), TEXTS)
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(Text), IMAGES, THINKING, CALLS, RESULTS, NOTES, st.just(Unknown("video", "{}"))
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(PARTS, max_size=4).map(tuple),
    st.sampled_from(["", "m1", "m2", "m3"]),
    model=st.sampled_from(["", "gpt-4o", "claude-sonnet-4-5"]),
    meta=st.sampled_from(["", '{"phases":["commentary"]}', '{"phases":[null,"final_answer"]}', '{"phases":']),
)
LIKELY = st.one_of(
    st.builds(Message, st.just("user"), TEXTS.map(lambda text: (Text(text),))),
    st.builds(Message, st.just("assistant"), st.lists(TEXTS.map(Text) | CALLS, max_size=4).map(tuple), st.just("m9")),
    st.builds(Message, st.just("tool"), st.lists(RESULTS, min_size=1, max_size=3).map(tuple)),
)
HISTORIES = st.lists(st.one_of(LIKELY, MESSAGES), max_size=14)
SPOKEN = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    st.lists(TEXTS.map(Text) | NOTES | st.just(Text("ok")), min_size=1, max_size=2).map(tuple),
    st.sampled_from(["", "m1"]),
    source=st.sampled_from(["", "nexus:late-result"]),
)
"""Messages of text and notes, as most of a long session are."""
