"""nanobot's session files, and times of messages in chat files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.interop.detect import detect, read
from nexus.interop.importing import import_transcript
from nexus.interop.transcript import Transcript, time_ms

METADATA = {
    "_type": "metadata",
    "key": "telegram:42",
    "created_at": "2026-03-06T14:00:00",
    "updated_at": "2026-03-06T14:30:00",
    "metadata": {"title": "Index", "labels": ["work"]},
    "last_consolidated": 2,
}


def talk(count: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[at % 2], "content": f"text {at}", "timestamp": f"2026-03-06T14:{at:02d}:00.500000"}
        for at in range(count)
    ]


def transcript(folder: Path, *lines: dict[str, Any], name: str = "telegram_42.jsonl") -> Transcript:
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (found,) = read(file)
    assert sum(found.report.counted.values()) + found.report.message_lines == found.report.lines
    return found


def test_nanobot_session_keeps_label_times_and_metadata(tmp_path: Path) -> None:
    found = transcript(tmp_path, METADATA, *talk(4))
    assert (found.format, found.source_id, found.title) == ("nanobot", "telegram:42", "Index")
    assert json.loads(found.meta)["metadata"]["labels"] == ["work"]
    assert json.loads(found.meta)["created_at"] == "2026-03-06T14:00:00"
    assert json.loads(found.meta)["last_consolidated"] == 2
    assert [step.kind for step in found.steps] == ["messages", "messages", "clear", "messages", "messages"]
    assert found.steps[0].messages[0].at_ms == 1772805600500


def test_consolidated_messages_are_kept_and_not_sent(tmp_path: Path) -> None:
    with nexus.open(ledger=":memory:") as nx:
        import_transcript(nx, transcript(tmp_path, METADATA, *talk(4)))
        contents = [message.text() for message in nx.assemble("next", session="telegram:42").history]
        assert contents == ["text 2", "text 3"]
        assert len(nx.history("telegram:42")) == 4
        metadata = nx.ledger.sessions.metadata("telegram:42")
        assert (metadata.routing_key, metadata.title, metadata.origin) == ("telegram:42", "Index", "nanobot")


def test_growing_nanobot_session_follows_its_consolidation(tmp_path: Path) -> None:
    with nexus.open(ledger=":memory:") as nx:
        for count, consolidated in ((4, 0), (6, 0), (8, 6)):
            line = {**METADATA, "last_consolidated": consolidated}
            import_transcript(nx, transcript(tmp_path, line, *talk(count)))
        history = nx.assemble("next", session="telegram:42").history
        assert [message.text() for message in history] == ["text 6", "text 7"]
        assert len(nx.history("telegram:42")) == 8


def test_nanobot_file_without_key_or_messages_is_named_by_its_file(tmp_path: Path) -> None:
    older = {name: value for name, value in METADATA.items() if name != "key"}
    assert transcript(tmp_path, older, name="cli_direct.jsonl").source_id == "cli_direct"
    assert detect(tmp_path / "cli_direct.jsonl") == "nanobot"


@pytest.mark.parametrize("form", [lambda lines: lines, lambda lines: [{"messages": lines}]], ids=["lines", "object"])
def test_messages_of_chat_files_keep_their_times(tmp_path: Path, form: Any) -> None:
    found = transcript(tmp_path, *form(talk(2)), name="chat.jsonl")
    assert found.format == "openai"
    assert [step.at_ms for step in found.steps] == [1772805600500, 1772805660500]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-06T15:00:00+01:00", 1772805600000), ("2026-03-06T14:00:00Z", 1772805600000), (1772805600, 1772805600000),
        (1772805600.5, 1772805600500), (1772805600500, 1772805600500), ("never", 0), (None, 0), (True, 0),
        (float("nan"), 0), (-5, 0), (1e300, 0), ("0001-01-01", 0),
    ],
)  # fmt: skip
def test_time_is_read_from_text_and_numbers(value: object, expected: int) -> None:
    assert time_ms(value) == expected


RUNTIME = "[Runtime Context — metadata only, not instructions]\nCurrent Time: 2026-03-06 14:30 (Friday)\nTimezone: PST"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("with_metadata", [True, False], ids=["nanobot", "openai"])
@pytest.mark.parametrize(
    ("contents", "typed"),
    [
        ([f"{RUNTIME}\n\nWhich index?"], "Which index?"),
        ([[{"type": "text", "text": RUNTIME}, IMAGE, {"type": "text", "text": "What is it?"}]], "What is it?"),
        ([[{"type": "text", "text": RUNTIME}, {"type": "text", "text": "Which index?"}]], "Which index?"),
        ([RUNTIME, "Which index?"], "Which index?"),
        ([f"Is this right?\n{RUNTIME}"], f"Is this right?\n{RUNTIME}"),
    ],
    ids=["string", "image", "parts", "message of its own", "quoted"],
)
def test_runtime_context_of_a_file_is_no_text_of_the_user(
    tmp_path: Path, contents: list[Any], typed: str, with_metadata: bool
) -> None:
    """Document 003, "Runtime Context": "metadata only, not instructions"; a program wrote it, and the user did not."""
    users = [{"role": "user", "content": content} for content in contents]
    lines = [*([METADATA | {"last_consolidated": 0}] if with_metadata else []), *users, talk(2)[1]]
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        import_transcript(nx, transcript(tmp_path, *lines), session="s")
        assert "\n".join(filter(None, (m.text() for m in nx.history("s") if m.role == "user"))) == typed
        assert [turn.number for turn in nx.ledger.turns("s")] == [1]
        sent = json.dumps(nx.assemble("Next.", session="s", profile="bare").to_openai()["messages"])
        assert sent.count("[Runtime Context") == 1, "the model still gets it"
