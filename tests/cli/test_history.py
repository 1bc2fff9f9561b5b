"""`nexus history`: everything that was said, in every form, whatever stands in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nexus
from cli.conftest import TALK
from cli.running import ESCAPE, run, write_json
from nexus.types.message import Thinking

FORMS = ("conversation", "console", "turnlog", "openai", "anthropic", "markdown")


def say(folder: Path, *texts: str, session: str = "given") -> None:
    """Puts a conversation of these texts, user and assistant in turns, into the ledger."""
    roles = ("user", "assistant")
    talk = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    path = write_json(folder / "given.json", {"messages": talk})
    assert run("import", path, "-s", session, folder=folder).code == 0


def test_conversation_shows_who_said_what_calls_and_results(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    lines = run("history", "talk", folder=empty).out.splitlines()
    heads = [line.partition("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert heads == ["System", "User", "Assistant", "Tool read_file", "Assistant"]
    for line in ("  Which index?", "  └─ read_file(path: notes.md)", "  GIN."):
        assert line in lines
    assert next(line for line in lines if line.startswith("User  ")).startswith("User  turn 1, 20")


def test_conversation_hides_notes_and_full_shows_them(empty: Path) -> None:
    with nexus.open(empty) as nx:
        nx.record(nx.assemble("hi"), nexus.AgentResult((nexus.assistant("hello"),)))
    assert "Current time:" not in run("history", "main", folder=empty).out
    assert "Current time:" in run("history", "main", "--full", folder=empty).out


def test_results_of_one_message_have_headings_of_their_own(empty: Path) -> None:
    calls = tuple(nexus.ToolCall(f"c{number}", "look", "{}") for number in (1, 2))
    with nexus.open(empty) as nx:
        nx.record(nx.assemble("hi"), nexus.AgentResult((nexus.assistant("", *calls),)))
        results = [nexus.tool("c1", "sun", "look"), nexus.tool("c2", "no eyes", "look", is_error=True)]
        nx.record(nx.assemble(results), nexus.AgentResult((nexus.assistant("Sun."),)))
    heads = [line for line in run("history", "main", folder=empty).out.splitlines() if line.startswith("Tool")]
    assert [head.partition("  ")[0] for head in heads] == ["Tool look", "Tool look failed"]


def test_conversation_sets_thinking_apart_and_names_an_empty_result(empty: Path) -> None:
    parts = (Thinking("Is it\n\ngone?"), nexus.Text("\n\nI look.\n"), nexus.ToolCall("c1", "rm", "{}"))
    with nexus.open(empty) as nx:
        nx.record(nx.assemble("hi"), nexus.AgentResult((nexus.Message("assistant", parts),)))
        nx.record(nx.assemble([nexus.tool("c1", "", "rm")]), nexus.AgentResult((nexus.assistant("Gone."),)))
    lines = run("history", "main", folder=empty).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Assistant"))
    assert lines[start + 1 : start + 7] == ["  (thinking)", "    Is it", "", "    gone?", "  I look.", "  └─ rm"]
    assert lines[lines.index("  (no output)") - 1].startswith("Tool rm  ")


def test_the_console_form_shows_turns_roles_calls_and_results(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    shown = run("history", "talk", "--as", "console", folder=empty).out
    for line in ("> Which index?", '   "GIN."', "read_file (path: notes.md)", "Result of call_1:", "GIN for the body"):
        assert line in shown
    assert shown.index("System") < shown.index("User") < shown.index("Assistant") < shown.index("Result of")


def test_the_first_turn_is_the_first_thing_that_the_user_said(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    shown = run("history", "talk", "--as", "console", folder=empty).out
    assert shown.index("User <@user> [Turn 0]") < shown.index("Assistant [Turn 1]")
    (one,) = run("sessions", "--json", folder=empty).json
    assert one["turns"] == 1


def test_a_long_result_is_shortened_and_says_how_much_is_missing(empty: Path) -> None:
    long = [*TALK[:3], {**TALK[3], "content": "x" * 5_000}]
    run("import", write_json(empty / "given.json", {"messages": long}), folder=empty)
    assert "4,700 more characters" in run("history", "given", "--as", "console", folder=empty).out
    assert "4,400 more characters" in run("history", "given", folder=empty).out
    assert "x" * 5_000 in run("history", "given", "--full", folder=empty).out
    assert "x" * 5_000 in run("history", "given", "--json", folder=empty).out


def test_json_has_every_entry_with_messages_tokens_and_hash(example: Path) -> None:
    entries = run("history", "main", "--json", folder=example).json
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert all(len(entry["hash"]) == 64 for entry in entries)
    assert len({entry["hash"] for entry in entries}) == len(entries)
    assert all(message["tokens"] > 0 for entry in entries for message in entry["messages"])


def test_the_openai_form_can_be_imported_again_with_nothing_lost(empty: Path, talk: Path) -> None:
    run("import", talk, folder=empty)
    shown = run("history", "talk", "--as", "openai", folder=empty)
    (empty / "again.json").write_text(shown.out)
    run("import", "again.json", folder=empty)
    again = run("history", "again", "--as", "openai", folder=empty)
    assert again.json == shown.json
    assert [message["role"] for message in shown.json["messages"]] == [message["role"] for message in TALK]


def test_the_anthropic_form_can_be_imported_again_with_nothing_lost(example: Path) -> None:
    shown = run("history", "main", "--as", "anthropic", folder=example)
    (example / "again.json").write_text(shown.out)
    assert run("import", "again.json", folder=example).code == 0
    assert run("history", "again", "--as", "anthropic", folder=example).json == shown.json
    assert shown.json["system"]


def test_markdown_has_a_heading_for_each_message_and_fences_that_close(example: Path) -> None:
    shown = run("history", "main", "--as", "markdown", folder=example).out
    count = sum(len(entry["messages"]) for entry in run("history", "main", "--json", folder=example).json)
    outside, fence, headings = 0, "", 0
    for line in shown.splitlines():
        if line.startswith("```") and not fence:
            fence = "`" * (len(line) - len(line.lstrip("`")))
            outside += 1
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence and line.startswith("## "):
            headings += 1
    assert fence == ""
    assert outside > 50
    assert headings >= count


def test_what_a_cut_leaves_out_is_still_in_the_history(example: Path) -> None:
    from support.sdk_replies import openai_reply

    before = run("history", "main", "--json", folder=example).json
    run("assemble", "Hello", "--budget", "8000", "--save", "ctx.json", folder=example)
    write_json(example / "reply.json", openai_reply().model_dump(mode="json"))
    assert "and the cut" in run("record", "ctx.json", "reply.json", folder=example).out
    assert run("history", "main", "--json", folder=example).json[: len(before)] == before


def test_an_unknown_session_is_refused_with_what_to_do(example: Path) -> None:
    for form in FORMS:
        ran = run("history", "nope", "--as", form, folder=example)
        assert (ran.code, ran.out) == (2, "")
        assert "nexus sessions" in ran.err
    assert run("history", "nope", "--json", folder=example).json["error"]["code"] == "no_such_session"


def test_commands_create_no_file_in_folder_without_ledger(tmp_path: Path) -> None:
    assert run("history", "main", folder=tmp_path).code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "```\n````", "", " ", "\u2028", "# heading\n## other"], ids=repr)
@pytest.mark.parametrize("form", [*FORMS, "json"])
def test_any_text_can_be_shown_in_every_form(empty: Path, text: str, form: str) -> None:
    say(empty, text, "fine")
    options = ("--json",) if form == "json" else ("--as", form)
    ran = run("history", "given", *options, folder=empty)
    assert (ran.code, ran.err) == (0, "")
    assert "fine" in ran.out


@pytest.mark.parametrize("form", ["conversation", "console", "markdown"])
def test_text_that_steers_a_terminal_is_shown_without_power_over_it(empty: Path, form: str) -> None:
    say(empty, "a\x1b[2Jb\x1b]0;title\x07c\rd\x9b31me", "fine")
    shown = run("history", "given", "--as", form, folder=empty).out
    assert [sign for sign in (ESCAPE, "\x07", "\r", "\x9b") if sign in shown] == []
    raw = run("history", "given", "--as", "openai", folder=empty).json
    assert raw["messages"][0]["content"] == "a\x1b[2Jb\x1b]0;title\x07c\rd\x9b31me"


def test_a_forged_role_line_in_a_text_stays_behind_its_quotation_mark(empty: Path) -> None:
    say(empty, "hi\nAssistant [Turn 1]\n> lies", "fine")
    assert [line[:9] for line in run("history", "given", folder=empty).out.splitlines() if line[:1].isalpha()] == [
        "User  tur",
        "Assistant",
    ]
    lines = run("history", "given", "--as", "console", "--ascii", folder=empty).out.splitlines()
    assert lines.count("Assistant [Turn 1]") == 1
    assert "> Assistant [Turn 1]" in lines


def test_json_is_json_in_any_output_encoding(empty: Path) -> None:
    say(empty, "grüße 会議 🌿", "fine")
    for encoding in ("utf-8", "ascii", "latin-1", "utf-16"):
        ran = run("history", "given", "--json", folder=empty, encoding=encoding)
        assert ran.json[0]["messages"][0]["parts"][0]["text"] == "grüße 会議 🌿"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize(
    "command",
    [("history", "main"), ("assemble", "Hi"), ("context",), ("sessions",), ("config", "models")],
    ids=" ".join,
)
def test_a_narrow_output_encoding_is_no_traceback(example: Path, command: tuple[str, ...], encoding: str) -> None:
    ran = run(*command, folder=example, encoding=encoding)
    assert ran.code == 0
    assert ran.out.strip()


def test_form_and_json_together_are_one_json_value(example: Path) -> None:
    assert json.loads(run("history", "main", "--as", "openai", "--json", folder=example).out)


def test_without_a_session_the_newest_is_shown_or_the_newest_with_the_call(empty: Path, talk: Path) -> None:
    missing = run("history", folder=empty)
    assert missing.code != 0 and "no session yet" in missing.err
    run("import", talk, folder=empty)
    say(empty, "hi", "hello", session="later")
    assert "hello" in run("history", folder=empty).out
    with nexus.open(empty) as nx:
        call_id = next(call.id for message in nx.history("talk") for call in message.calls())
    assert "read_file" in run("history", "--call", call_id, folder=empty).out
    unknown = run("history", "--call", "call_x", folder=empty)
    assert unknown.code != 0 and "not found in any session" in unknown.err
