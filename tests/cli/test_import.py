"""`nexus import`: real sessions, each message once, whatever state the file is in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import EXAMPLES, TALK
from cli.running import run, write_json
from cli.stored import rows_of

LINES = [
    {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s1", "timestamp": "2026-01-05T10:00:00Z",
     "message": {"role": "user", "content": "Which index?"}},
    {"type": "assistant", "uuid": "a1", "parentUuid": "u1", "sessionId": "s1", "timestamp": "2026-01-05T10:00:05Z",
     "message": {"id": "m1", "role": "assistant", "model": "claude-opus-4-6", "content": [{"type": "text", "text": "GIN."}]}},
    {"type": "user", "uuid": "u2", "parentUuid": "a1", "sessionId": "s1", "timestamp": "2026-01-05T10:01:00Z",
     "message": {"role": "user", "content": "Why?"}},
    {"type": "assistant", "uuid": "a2", "parentUuid": "u2", "sessionId": "s1", "timestamp": "2026-01-05T10:01:05Z",
     "message": {"id": "m2", "role": "assistant", "model": "claude-opus-4-6", "content": [{"type": "text", "text": "Size."}]}},
]  # fmt: skip


def texts(folder: Path, session: str) -> list[str]:
    entries = run("history", session, "--json", folder=folder).json
    return [
        part["text"]
        for entry in entries
        for message in entry["messages"]
        for part in message["parts"]
        if part["type"] == "text"
    ]


def json_lines(path: Path, count: int) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES[:count]), "utf-8")
    return path


def test_a_file_becomes_a_session_and_the_output_says_how_much_was_in_it(empty: Path, talk: Path) -> None:
    ran = run("import", talk, "--session", "index", folder=empty)
    assert ran.code == 0
    assert "index (openai): added 5 steps: 5 messages, 1 call, 1 result" in ran.out
    (one,) = run("sessions", "--json", folder=empty).json
    assert (one["label"], one["messages"]) == ("index", 5)


def test_the_example_session_is_read_whole(example: Path) -> None:
    source = json.loads((EXAMPLES / "session.json").read_bytes())
    wanted = sum(
        block["type"] == "tool_use" for m in source["messages"] for block in m["content"] if isinstance(block, dict)
    )
    entries = run("history", "main", "--json", folder=example).json
    parts = [part for entry in entries for message in entry["messages"] for part in message["parts"]]
    assert sum(part["type"] == "tool_call" for part in parts) == wanted
    assert len({entry["turn"] for entry in entries}) > 20


def test_without_a_name_the_session_is_called_as_the_file_says(empty: Path, talk: Path, tmp_path: Path) -> None:
    run("import", talk, json_lines(tmp_path / "log.jsonl", 4), folder=empty)
    assert {one["label"] for one in run("sessions", "--json", folder=empty).json} == {"talk", "s1"}


def test_json_lists_what_was_imported_and_what_was_not(empty: Path, talk: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{bad")
    ran = run("import", talk, tmp_path / "bad.json", "--json", folder=empty)
    assert ran.code == 4
    assert [(one["session"], one["added_entries"], one["dry_run"]) for one in ran.json["imported"]] == [
        ("talk", 5, False)
    ]
    assert [Path(one["file"]).name for one in ran.json["failed"]] == ["bad.json"]


def test_importing_twice_adds_nothing(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    before = rows_of(empty)
    again = run("import", talk, "--json", folder=empty)
    assert [(one["added_entries"], one["known_entries"]) for one in again.json["imported"]] == [(0, 5)]
    assert rows_of(empty) == before


def test_a_dry_run_says_the_same_and_writes_nothing(empty: Path, talk: Path) -> None:
    run("sessions", folder=empty)
    before = rows_of(empty)
    dry = run("import", talk, "--dry-run", folder=empty)
    assert "would add 5 steps: 5 messages" in dry.out
    assert rows_of(empty) == before
    real = run("import", talk, folder=empty)
    assert real.out == dry.out.replace("would add", "added")


def test_a_dry_run_in_a_folder_that_is_no_workspace_leaves_no_file(tmp_path: Path, talk: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert run("import", talk, "--dry-run", folder=folder).code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_file_that_grew_adds_just_the_rest(empty: Path, tmp_path: Path, before: int) -> None:
    path = json_lines(tmp_path / "log.jsonl", before)
    run("import", path, folder=empty)
    ran = run("import", json_lines(path, 4), "--json", folder=empty)
    assert [(one["added_entries"], one["known_entries"]) for one in ran.json["imported"]] == [(4 - before, before)]
    assert texts(empty, "s1") == ["Which index?", "GIN.", "Why?", "Size."]


def test_a_conversation_that_grew_adds_just_the_rest(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    write_json(
        talk, {"messages": [*TALK, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]}
    )
    ran = run("import", talk, "--json", folder=empty)
    assert [(one["added_entries"], one["known_entries"]) for one in ran.json["imported"]] == [(2, 5)]
    assert texts(empty, "talk")[-3:] == ["GIN.", "Sure?", "Yes."]


def test_new_messages_become_separate_session_after_local_continuation(empty: Path, talk: Path, tmp_path: Path) -> None:
    run("import", talk, folder=empty)
    run("assemble", "Here", "-s", "talk", "--save", "ctx.json", folder=empty)
    from support.sdk_replies import openai_reply

    write_json(tmp_path / "reply.json", openai_reply("Said here.").model_dump(mode="json"))
    assert run("record", "ctx.json", tmp_path / "reply.json", folder=empty).code == 0
    write_json(talk, {"messages": [*TALK, {"role": "user", "content": "There"}]})
    ran = run("import", talk, folder=empty)
    assert "talk~continued" in ran.out
    assert texts(empty, "talk")[-2:] == ["Here", "Said here."]
    assert texts(empty, "talk~continued")[-2:] == ["GIN.", "There"]


@pytest.mark.parametrize("form", ["console", "openai", "anthropic", "markdown"])
def test_an_import_by_a_forced_format_can_be_shown_in_every_form(empty: Path, form: str) -> None:
    assert run("import", EXAMPLES / "session.json", "--format", "openai", "-s", "forced", folder=empty).code == 0
    assert run("history", "forced", "--as", form, folder=empty).code == 0


def test_folder_import_reads_all_sessions_and_lists_other_files(empty: Path, tmp_path: Path) -> None:
    box = tmp_path / "box" / "deeper"
    box.mkdir(parents=True)
    write_json(box / "one.json", {"messages": TALK})
    json_lines(box.parent / "two.jsonl", 4)
    (box / "bad.json").write_text("{bad")
    (box / "picture.png").write_bytes(b"\x89PNG")
    ran = run("import", tmp_path / "box", folder=empty)
    assert ran.code == 4
    assert "bad.json" in ran.err
    assert "picture" not in ran.err
    assert {one["label"] for one in run("sessions", "--json", folder=empty).json} == {"one", "s1"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "file"),
        (b"", "empty"),
        (b"{bad", "json"),
        (b"just text\n", "json"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "json"),
        (b"{}", "format"),
        (b"[]", "format"),
        (b"[" * 100_000, "json"),
        (b"null", "format"),
        (b'{"messages": 3}', "format"),
    ],
    ids=["absent", "empty", "malformed", "text", "picture", "object", "list", "deep", "null", "number"],
)
def test_a_file_that_is_no_session_is_refused_with_its_name_and_the_reason(
    empty: Path, tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "given.json"
    if content is not None:
        path.write_bytes(content)
    ran = run("import", path, folder=empty)
    assert (ran.code, ran.out) == (4, "")
    assert str(path) in ran.err
    assert says in ran.err.replace(str(path), "").lower()
    assert run("sessions", "--json", folder=empty).json == []


def test_a_folder_without_session_files_is_refused(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    ran = run("import", tmp_path / "box", folder=empty)
    assert ran.code == 4
    assert "no .json or .jsonl files" in ran.err


def test_a_format_that_the_file_does_not_have_is_refused(empty: Path, talk: Path) -> None:
    ran = run("import", talk, "--format", "claude_code", folder=empty)
    assert ran.code == 4
    assert str(talk) in ran.err


def test_one_name_for_several_sessions_is_wrong_usage_and_adds_nothing(empty: Path, talk: Path, tmp_path: Path) -> None:
    other = json_lines(tmp_path / "log.jsonl", 4)
    ran = run("import", talk, other, "--session", "both", folder=empty)
    assert ran.code == 2
    assert run("sessions", "--json", folder=empty).json == []


def test_a_torn_last_line_is_reported_and_read_when_it_is_whole(empty: Path, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "log.jsonl", 4)
    whole = path.read_text()
    path.write_text(whole[:-40])
    torn = run("import", path, folder=empty)
    assert torn.code == 0
    assert "line 4" in torn.out
    path.write_text(whole)
    run("import", path, folder=empty)
    assert texts(empty, "s1") == ["Which index?", "GIN.", "Why?", "Size."]


@pytest.mark.parametrize(
    "text",
    ["a\u0000b", "\ud800", "<|endoftext|>", " ", "\u202etxt", "👩‍👩‍👧", "\x1b[31mred", "a\r\nb"],
    ids=["nul", "surrogate", "special", "space", "override", "emoji", "escape", "crlf"],
)
def test_hostile_text_in_a_session_comes_back_as_it_was(empty: Path, tmp_path: Path, text: str) -> None:
    path = write_json(tmp_path / "given.json", {"messages": [{"role": "user", "content": text}]})
    assert run("import", path, folder=empty).code == 0
    assert texts(empty, "given") == [text]
    assert run("history", "given", folder=empty).code == 0
    assert run("assemble", "Next", "-s", "given", "--as", "openai", folder=empty).code == 0


def test_a_message_of_five_megabytes_is_imported_whole(empty: Path, tmp_path: Path) -> None:
    text = "word " * 1_000_000
    path = write_json(tmp_path / "given.json", {"messages": [{"role": "user", "content": text}]})
    assert run("import", path, folder=empty).code == 0
    assert texts(empty, "given") == [text]


def test_two_files_of_one_name_are_two_conversations_and_never_mixed(empty: Path, tmp_path: Path) -> None:
    for number, (asked, answered) in enumerate((("alpha", "A"), ("beta", "B"))):
        (tmp_path / f"d{number}").mkdir()
        talk = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        write_json(tmp_path / f"d{number}" / "same.json", {"messages": talk})
        run("import", tmp_path / f"d{number}" / "same.json", folder=empty)
    histories = [texts(empty, one["label"]) for one in run("sessions", "--json", folder=empty).json]
    assert ["alpha", "A", "beta", "B"] not in histories
    assert ["alpha", "A"] in histories


def test_unrelated_file_with_known_session_name_is_not_appended(empty: Path, talk: Path, tmp_path: Path) -> None:
    run("import", talk, "-s", "main", folder=empty)
    other = write_json(tmp_path / "other.json", {"messages": [{"role": "user", "content": "beta"}]})
    run("import", other, "-s", "main", folder=empty)
    assert texts(empty, "main")[-1] == "GIN."


def test_what_a_conversation_holds_beside_its_messages_is_kept_or_named(empty: Path) -> None:
    value = {"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "customer": {"id": 7}}
    path = write_json(empty / "given.json", value)
    ran = run("import", path, "--json", folder=empty)
    everything = ran.out + run("history", "given", "--json", folder=empty).out
    assert [name for name in ("temperature", "customer") if name not in everything] == []


def test_files_of_one_session_are_joined_in_the_order_of_their_times(empty: Path, tmp_path: Path) -> None:
    for name, hour in (("z", 10), ("a", 11)):
        event = {"type": "user", "uuid": f"u{hour}", "parentUuid": None, "sessionId": "s"}
        event |= {"timestamp": f"2026-01-05T{hour}:00:00Z", "message": {"role": "user", "content": f"at {hour}"}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(event) + "\n", "utf-8")
    ran = run("import", tmp_path / "a.jsonl", tmp_path / "z.jsonl", folder=empty)
    assert ran.code == 0
    assert texts(empty, "s") == ["at 10", "at 11"]
