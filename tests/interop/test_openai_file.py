"""Files of conversations in OpenAI's chat form, in each layout that is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.errors import UnreadableFile
from nexus.interop.chat_files import read_openai
from nexus.interop.transcript import Transcript
from nexus.types.message import Text, ToolCall, ToolResult

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"b": 1,  "a": 2}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "go", "_dia_id": "D1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "assistant", "content": "done"},
]


def read(folder: Path, data: bytes | str, name: str = "chat.json") -> list[Transcript]:
    file = folder / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    found = list(read_openai(file))
    for transcript in found:
        assert sum(transcript.report.counted.values()) + transcript.report.message_lines == transcript.report.lines
    return found


def texts(transcript: Transcript) -> list[str]:
    return [message.text() for step in transcript.steps for message in step.messages]


def by_line(items: list[Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"messages": CHAT}),
        json.dumps({"messages": CHAT}, indent=2),
        json.dumps(CHAT),
        json.dumps(CHAT, indent=1).replace("\n", "\r\n"),
        by_line([{"messages": CHAT}]),
        by_line(CHAT),
        "\ufeff" + by_line(CHAT),
        by_line(CHAT).replace("\n", "\r\n"),
    ],
    ids=["object", "indented", "list", "list CRLF", "a line each", "message lines", "byte order mark", "CRLF"],
)
def test_every_json_layout_yields_the_same_conversation(tmp_path: Path, data: str) -> None:
    (found,) = read(tmp_path, data)
    messages = [message for step in found.steps for message in step.messages]
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2].parts == (ToolCall("c1", "look", '{"b": 1,  "a": 2}'),)
    assert messages[3].parts == (ToolResult("c1", (Text("one"),), "look"),)
    assert found.report.problems == ()
    assert [step.starts_turn for step in found.steps] == [False, True, False, False, False]
    assert [step.closes_turn for step in found.steps] == [False, False, False, False, True]


def test_extra_fields_are_kept_in_meta_and_not_in_the_key(tmp_path: Path) -> None:
    (with_extra,) = read(tmp_path, json.dumps({"messages": CHAT, "reward": 1, "title": "T", "model": "m"}))
    (without,) = read(tmp_path, json.dumps([{k: v for k, v in m.items() if k != "_dia_id"} for m in CHAT]))
    assert json.loads(with_extra.steps[1].messages[0].meta) == {"_dia_id": "D1"}
    assert (json.loads(with_extra.meta), with_extra.title, with_extra.model) == ({"reward": 1}, "T", "m")
    assert with_extra.all_keys() == without.all_keys()


def test_each_line_is_a_conversation_with_its_own_id(tmp_path: Path) -> None:
    data = by_line([{"id": "a", "messages": CHAT}, {"messages": CHAT[:2]}, {"id": "a", "messages": CHAT[:1]}])
    found = read(tmp_path, data)
    assert [(t.source_id, len(t.steps)) for t in found] == [("a", 5), ("chat:2", 2), ("a#2", 1)]
    assert len({key for transcript in found for key in transcript.all_keys()}) == 8


def test_array_of_conversations_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps([{"messages": CHAT}, 7, {"id": "b", "messages": CHAT[:1]}], indent=1))
    assert [(t.source_id, len(t.steps), len(t.report.problems)) for t in found] == [
        ("chat", 5, 0),
        ("chat:2", 0, 1),
        ("b", 1, 0),
    ]


def test_grown_file_keeps_its_keys(tmp_path: Path) -> None:
    (before,), (after,) = read(tmp_path, by_line(CHAT[:3])), read(tmp_path, by_line(CHAT))
    assert after.all_keys()[:3] == before.all_keys()
    assert len(set(after.all_keys())) == 5


def test_bad_lines_and_messages_are_problems_with_their_line(tmp_path: Path) -> None:
    data = "oops\n" + by_line([CHAT[1], {"role": "wizard", "content": "x"}, 7, CHAT[4]]) + '{"role": "us'
    (found,) = read(tmp_path, data)
    assert texts(found) == ["go", "done"]
    assert [(problem.line, problem.kind) for problem in found.report.problems] == [
        (1, "not JSON"),
        (4, "no message"),
        (6, "torn last line"),
        (3, "damaged message"),
    ]
    (inside,) = read(tmp_path, json.dumps({"messages": [CHAT[1], 7, {"role": "user", "content": 5}, CHAT[4]]}))
    assert texts(inside) == ["go", "done"]
    assert [problem.kind for problem in inside.report.problems] == ["damaged message"] * 2


def test_lines_between_conversations_count_for_the_previous(tmp_path: Path) -> None:
    data = "\n" + by_line([{"messages": CHAT[:1]}]) + "oops\n" + by_line([{"messages": CHAT[:2]}]) + "{torn"
    first, second = read(tmp_path, data)
    assert first.report.counted == {"(blank)": 1, "conversation": 1, "(not JSON)": 1}
    assert second.report.counted == {"conversation": 1, "(torn last line)": 1}


@pytest.mark.parametrize("data", [b"", b"\n\n", b"{}", b"[]", b"7\n", b"\x89PNG\r\n\x1a\n\x00\x00"])
def test_file_without_messages_is_rejected(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableFile):
        read(tmp_path, data)


SCALARS: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
PARTS: st.SearchStrategy[Any] = st.one_of(
    VALUES,
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "refusal", "file"]), "text": VALUES}),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": VALUES})}),
)
ITEMS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer", "function", "?"])},
    optional={
        "content": st.one_of(st.text(max_size=4), st.lists(PARTS, max_size=3), VALUES),
        "tool_calls": st.one_of(VALUES, st.lists(st.fixed_dictionaries({"id": VALUES, "function": VALUES}))),
        "function_call": st.one_of(VALUES, st.fixed_dictionaries({"name": VALUES, "arguments": VALUES})),
        "tool_call_id": VALUES,
        "name": VALUES,
        "refusal": VALUES,
        "_extra": VALUES,
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(ITEMS, VALUES), min_size=1, max_size=6))
def test_any_message_is_read_or_reported(tmp_path_factory: pytest.TempPathFactory, items: list[Any]) -> None:
    (found,) = read(tmp_path_factory.getbasetemp(), json.dumps({"messages": items}))
    assert len(found.steps) + len(found.report.problems) == len(items)
    assert len(set(found.all_keys())) == len(found.steps)
