"""What a session file is, is told by its content, and every file gives transcripts or a typed error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nexus.errors import UnreadableFile
from nexus.interop import detect
from support.errors import has_code

EVENT = {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": "go"}}
PLAIN: list[Any] = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "yes"}]
USE: dict[str, Any] = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
TOOL = {"role": "tool", "tool_call_id": "c", "content": "x"}
PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}

LOGGED: dict[str, Any] = {
    "index": 0,
    "turn": 0,
    "timestamp": "2023-04-04T12:33:00Z",
    "role": "system",
    "content": "You're Aya.",
}


def write(folder: Path, data: bytes | str) -> Path:
    file = folder / "anything.txt"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def by_line(*items: Any) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (by_line(EVENT), "claude_code"),
        (by_line({"type": "summary", "summary": "T", "leafUuid": "x"}), "claude_code"),
        (by_line({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}, EVENT), "claude_code"),
        ("\ufeff" + by_line(EVENT).replace("\n", "\r\n"), "claude_code"),
        ("\x00\x00\n{torn\n" + by_line(EVENT), "claude_code"),
        (json.dumps(PLAIN), "openai"),
        (by_line(*PLAIN), "openai"),
        (json.dumps({"messages": [*PLAIN, TOOL]}, indent=2), "openai"),
        (json.dumps({"messages": [PICTURE]}), "openai"),
        (json.dumps({"system": "S", "messages": PLAIN}), "anthropic"),
        (json.dumps([*PLAIN, USE, RESULT]), "anthropic"),
        (by_line({"messages": PLAIN}, {"messages": [USE]}), "anthropic"),
        (by_line(*PLAIN, RESULT), "anthropic"),
        (json.dumps([LOGGED]), "turnlog"),
        (json.dumps([{**item, "index": 0, "turn": 0} for item in PLAIN]), "openai"),
        (json.dumps([LOGGED], indent=2), "turnlog"),
    ],
)
def test_format_is_detected_by_content(tmp_path: Path, data: str, name: str) -> None:
    file = write(tmp_path, data)
    assert detect.detect(file) == name
    assert [transcript.format for transcript in detect.read(file)][:1] == [name]


@pytest.mark.parametrize("data", [b"{}\n[]\n7\n", b'{"type": "user"}', b"null"])
def test_other_json_is_an_unknown_format(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableFile, match="--format", check=has_code("unknown_format")):
        detect.detect(write(tmp_path, data))


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00", b"hello\n", b"\x00\n{"])
def test_files_without_json_are_reported(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableFile, match="contains no JSON"):
        detect.detect(write(tmp_path, data))


def test_empty_missing_and_special_files_are_rejected(tmp_path: Path) -> None:
    for path, why in ((write(tmp_path, b""), "empty"), (tmp_path / "none", "regular"), (tmp_path, "regular")):
        with pytest.raises(UnreadableFile, match=why):
            detect.detect(path)


def test_given_format_is_used_and_unknown_one_is_rejected(tmp_path: Path) -> None:
    file = write(tmp_path, json.dumps(PLAIN))
    assert [transcript.format for transcript in detect.read(file, "anthropic")] == ["anthropic"]
    with pytest.raises(
        UnreadableFile,
        match=r"formats: anthropic, claude_code, dialogue, .*openai, responses, turnlog",
        check=has_code("unknown_format"),
    ):
        detect.read(file, "word")


@pytest.mark.slow
def test_line_of_fifty_megabytes_is_read(tmp_path: Path) -> None:
    long = {**EVENT, "message": {"role": "user", "content": "x" * 50_000_000}}
    (found,) = detect.read(write(tmp_path, by_line(long, {**EVENT, "uuid": "u2", "parentUuid": "u1"})))
    assert [len(message.text()) for step in found.steps for message in step.messages] == [50_000_000, 2]


def test_line_over_cap_is_skipped_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.interop.json_lines.MAX_LINE_BYTES", 1000)
    long = {**EVENT, "uuid": "u0", "message": {"role": "user", "content": "x" * 5000}}
    (found,) = detect.read(write(tmp_path, by_line(long, EVENT)))
    assert found.report.counted == {"(line too long)": 1}
    assert found.report.message_lines == 1


def test_bytes_that_are_not_utf8_are_kept_and_reported(tmp_path: Path) -> None:
    (found,) = detect.read(write(tmp_path, by_line(EVENT).encode().replace(b'"go"', b'"g\xff"')))
    (message,) = found.steps[0].messages
    assert message.text().encode("utf-8", "surrogateescape") == b"g\xff"
    assert [problem.kind for problem in found.report.problems] == ["not UTF-8"]


def test_turn_log_that_breaks_off_is_detected(tmp_path: Path) -> None:
    whole = json.dumps([LOGGED, {**LOGGED, "index": 1}])
    assert detect.detect(write(tmp_path, whole[:-9].encode())) == "turnlog"
    with pytest.raises(UnreadableFile, match="contains no JSON"):
        detect.detect(write(tmp_path, json.dumps(PLAIN)[:-9].encode()))


LINES: st.SearchStrategy[bytes] = st.sampled_from(
    [by_line(item).encode() for item in (EVENT, *PLAIN, USE, RESULT, TOOL, {"messages": PLAIN})]
)
JUNK = st.sampled_from(
    [b"\x00", b"\n", b"\r\n", b"{", b"}", b'"', b"[", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf"]
)


@settings(max_examples=400, deadline=None)
@example([b"[" * 100_000])
@example([b'{"role":"user","content":' + b"[" * 900 + b"]" * 900 + b"}"])
@example([b'{"type":"user","uuid":"u","message":{"content":[' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"]}}"])
@example([b'{"messages":[{"role":"user","content":"x"}],"meta":' + b"[" * 950 + b"]" * 950 + b"}"])
@given(st.lists(st.one_of(LINES, JUNK, st.binary(max_size=8)), max_size=8))
def test_any_bytes_yield_transcripts_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    file = write(tmp_path_factory.getbasetemp(), b"".join(pieces))
    for name in (None, *detect.READERS):
        try:
            found = list(detect.read(file, name))
        except UnreadableFile as error:
            assert str(file) in str(error)
            continue
        assert found
        for transcript in found:
            assert sum(transcript.report.counted.values()) + transcript.report.message_lines == transcript.report.lines
