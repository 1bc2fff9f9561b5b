"""Files of conversations in Anthropic's form: blocks, results inside user messages, the system text beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nexus.errors import UnreadableFile
from nexus.interop.chat_files import read_anthropic
from nexus.interop.transcript import Transcript
from nexus.types.message import Message, Text, ToolCall, ToolResult

CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"b": 1, "a": "ü"}}]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "one", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "and now?"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
]


def read(folder: Path, data: str) -> list[Transcript]:
    file = folder / "chat.json"
    file.write_text(data)
    return list(read_anthropic(file))


def messages(transcript: Transcript) -> list[Message]:
    return [message for step in transcript.steps for message in step.messages]


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_system_text_is_the_first_message(tmp_path: Path, system: Any) -> None:
    (found,) = read(tmp_path, json.dumps({"system": system, "messages": CHAT}))
    assert messages(found)[0].role == "system"
    assert messages(found)[0].parts == (Text("Be brief."),)
    assert found.meta == ""


def test_results_and_user_text_are_two_messages_of_one_piece(tmp_path: Path) -> None:
    (found,) = read(tmp_path, json.dumps(CHAT))
    assert [message.role for message in messages(found)] == ["user", "assistant", "tool", "user", "assistant"]
    assert messages(found)[1].parts == (ToolCall("c1", "look", '{"b":1,"a":"ü"}'),)
    assert messages(found)[2].parts == (ToolResult("c1", (Text("one"),), "look"),)
    assert len(found.all_keys()) == 4
    ids = [message.id for message in messages(found)]
    assert len(set(ids)) == 5


def test_each_line_is_a_conversation(tmp_path: Path) -> None:
    lines = [{"id": "a", "system": "S", "messages": CHAT}, {"id": "b", "messages": CHAT[:1]}]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [(t.source_id, len(messages(t))) for t in found] == [("a", 6), ("b", 1)]


def test_message_keys_are_independent_of_system_text(tmp_path: Path) -> None:
    one, two = (read(tmp_path, json.dumps({"system": s, "messages": CHAT}))[0].all_keys() for s in ("S", "T"))
    assert one[0] != two[0]
    assert one[1:] == two[1:]


def test_damaged_message_is_reported_and_rest_is_read(tmp_path: Path) -> None:
    (found,) = read(tmp_path, json.dumps({"messages": [CHAT[0], {"role": "tool"}, CHAT[3]]}))
    assert [message.text() for message in messages(found)] == ["go", "done"]
    assert [problem.text for problem in found.report.problems] == ["message 1: not a message: 'role' is 'tool'"]


def test_file_without_messages_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="contains no messages"):
        read(tmp_path, '{"completion": "x"}')
