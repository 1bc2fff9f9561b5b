"""`nexus record`: the reply to a saved context becomes a turn, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import Ran, run, write_json
from cli.stored import rows_of
from support.sdk_replies import REPLIES

PROVIDERS = sorted(REPLIES)


def saved(folder: Path, message: str = "Which index?", *more: str, name: str = "ctx.json") -> str:
    assert run("assemble", message, "--save", name, *more, folder=folder).code == 0
    return name


def reply(folder: Path, provider: str = "openai", text: str = "GIN.", *, call: bool = False) -> str:
    value = REPLIES[provider](text, call=call).model_dump(mode="json")
    return str(write_json(folder / f"reply-{provider}-{text[:5]}.json", value))


def entries(folder: Path, session: str = "main") -> list[dict[str, Any]]:
    return run("history", session, "--json", folder=folder).json


def messages(folder: Path, session: str = "main") -> list[dict[str, Any]]:
    return [message for entry in entries(folder, session) for message in entry["messages"]]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_context_and_its_reply_become_a_turn_that_the_next_call_sees(empty: Path, provider: str) -> None:
    ran = run("record", saved(empty), reply(empty, provider), folder=empty)
    assert ran.code == 0, ran.err
    assert "Recorded turn 1" in ran.out
    asked, answered = messages(empty)
    assert (asked["role"], asked["parts"][-1]["text"]) == ("user", "Which index?")
    assert (answered["role"], answered["parts"][-1]["text"]) == ("assistant", "GIN.")
    (one,) = run("sessions", "--json", folder=empty).json
    assert (one["turns"], one["messages"], one["open_turn"]) == (1, 2, False)
    for wire in PROVIDERS:
        body = run("assemble", "Why?", "--as", wire, folder=empty).out
        assert "Which index?" in body
        assert "GIN." in body


@pytest.mark.parametrize("provider", PROVIDERS)
def test_reported_usage_and_the_answering_model_are_kept(empty: Path, provider: str) -> None:
    run("record", saved(empty), reply(empty, provider), folder=empty)
    body = entries(empty)[0]["body"]
    assert body["usage"]["input_tokens"] == 120
    assert body["usage"]["cache_read_tokens"] == 64
    assert body["usage"]["output_tokens"] >= 7
    assert messages(empty)[-1]["model"].startswith(("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_with_a_tool_call_leaves_the_turn_open(empty: Path, provider: str) -> None:
    assert run("record", saved(empty), reply(empty, provider, call=True), folder=empty).code == 0
    (one,) = run("sessions", "--json", folder=empty).json
    assert one["open_turn"] is True
    (call,) = [part for part in messages(empty)[-1]["parts"] if part["type"] == "tool_call"]
    assert (call["name"], json.loads(call["arguments"])) == ("read_file", {"path": "notes.md"})
    assert "(open turn)" in run("sessions", folder=empty).out


@pytest.mark.parametrize("provider", PROVIDERS)
def test_recording_twice_adds_nothing_and_says_so(empty: Path, provider: str) -> None:
    ctx, answer = saved(empty), reply(empty, provider)
    run("record", ctx, answer, folder=empty)
    before = rows_of(empty)
    again = run("record", ctx, answer, folder=empty)
    assert again.code == 0
    assert "Nothing new" in again.out
    assert run("record", ctx, answer, "--json", folder=empty).json["added"] == 0
    assert rows_of(empty) == before


def test_another_reply_to_the_same_context_is_refused_and_adds_nothing(empty: Path) -> None:
    ctx = saved(empty)
    run("record", ctx, reply(empty), folder=empty)
    before = rows_of(empty)
    ran = run("record", ctx, reply(empty, text="Other."), folder=empty)
    assert (ran.code, ran.out) == (5, "")
    assert "main" in ran.err
    assert rows_of(empty) == before


def test_a_cut_is_stored_with_the_turn_that_it_was_made_for(example: Path) -> None:
    ctx = saved(example, "Hello", "--budget", "8000")
    ran = run("record", ctx, reply(example), folder=example)
    assert "and the cut" in ran.out
    assert len(rows_of(example)["decision"]) == 1
    after = run("assemble", "Next", "--budget", "8000", "--json", folder=example).json
    assert after["nexus"]["cut"] is None
    assert "Earlier messages left out" in json.dumps(after["history"])
    assert len(run("history", "main", "--json", folder=example).out) > 100_000


def test_the_next_call_extends_the_recorded_one(example: Path) -> None:
    run("record", saved(example, "Hello"), reply(example), folder=example)
    assert "extend the last call" in run("assemble", "Next", folder=example).out


def test_record_rejects_outdated_context_or_reports_moved_prefix(empty: Path) -> None:
    """Two contexts from one head: the second was never sent with the first one's turn in it."""
    run("record", saved(empty, "Start"), reply(empty), folder=empty)
    one, two = saved(empty, "One", name="one.json"), saved(empty, "Two", name="two.json")
    assert run("record", one, reply(empty, text="First"), folder=empty).code == 0
    late = run("record", two, reply(empty, text="Second"), folder=empty)
    if late.code == 0:
        assert "extend the last call" not in run("assemble", "Next", folder=empty).out
    else:
        assert late.code == 5
        assert "assemble again" in late.err


def test_a_context_is_recorded_where_it_was_assembled(empty: Path, tmp_path: Path) -> None:
    """A ledger that lacks what the model was shown must not get the turn as if nothing stood before it."""
    run("record", saved(empty, "Start"), reply(empty), folder=empty)
    ctx = saved(empty, "Next")
    ran = run("record", ctx, reply(empty), "--ledger", tmp_path / "other.db", folder=empty)
    assert (ran.code, ran.out) == (5, "")


def test_json_says_session_turn_and_head(empty: Path) -> None:
    ran = run("record", saved(empty), reply(empty), "--json", folder=empty)
    assert (ran.json["session"], ran.json["turn"], ran.json["head"]) == ("main", 1, 2)
    assert ran.json["added"] == 2


def test_the_reply_can_come_from_standard_input(empty: Path) -> None:
    answer = Path(reply(empty)).read_bytes()
    assert run("record", saved(empty), "-", folder=empty, stdin=answer).code == 0
    assert messages(empty)[-1]["parts"][-1]["text"] == "GIN."


@pytest.mark.parametrize(
    "session", ["a/b", "ünïcode 会議", "two\nlines", "n" * 5_000, "[/x]", "[red]x", ":smile:", "tab\tx"]
)
def test_any_session_name_works_from_first_to_last(empty: Path, session: str) -> None:
    ctx = saved(empty, "Hello", "-s", session)
    assert run("record", ctx, reply(empty), folder=empty).code == 0
    assert len(messages(empty, session)) == 2
    assert [one["label"] for one in run("sessions", "--json", folder=empty).json] == [session]
    assert run("sessions", folder=empty).code == 0
    assert run("context", session, folder=empty).code == 0
    assert run("history", session, "--as", "markdown", folder=empty).code == 0


@pytest.mark.parametrize(
    "message", ["a\0b", "\udcff", "<|endoftext|>", "x" * 1_000_000], ids=["nul", "surrogate", "special", "megabyte"]
)
def test_a_hostile_message_is_saved_recorded_and_read_back_as_it_was(empty: Path, message: str) -> None:
    ctx = saved(empty, message, "-m", "gemini-2.5-pro")
    assert run("record", ctx, reply(empty), folder=empty).code == 0
    assert messages(empty)[0]["parts"][-1]["text"] == message
    assert run("history", "main", folder=empty).code == 0


def refused(ran: Ran, word: str) -> bool:
    """One line on standard error that says which of the two files is meant, without Python's own errors."""
    python = ("KeyError", "TypeError", "object is not", "NoneType")
    one_line = ran.code == 4 and ran.out == "" and len(ran.err.splitlines()) == 1
    return one_line and word in ran.err and not any(one in ran.err for one in python)


@pytest.mark.parametrize(
    "content", ["{bad", "", "[]", "3", "{}", '{"nexus": {}}', '{"nexus": {"form": 1}}', '{"nexus": 3}']
)
def test_a_file_that_is_no_saved_context_is_refused_in_one_clear_line(empty: Path, content: str) -> None:
    (empty / "context.json").write_text(content)
    ran = run("record", "context.json", reply(empty), folder=empty)
    assert refused(ran, "context"), ran.err


@pytest.mark.parametrize("content", ["{bad", "", "[]", "3", "{}", '{"choices": []}', '{"choices": 3}'])
def test_record_rejects_invalid_reply_and_stores_nothing(empty: Path, content: str) -> None:
    ctx = saved(empty)
    (empty / "response.json").write_text(content)
    ran = run("record", ctx, "response.json", folder=empty)
    assert refused(ran, "response"), ran.err
    assert run("sessions", "--json", folder=empty).json == []


def test_record_reports_a_providers_error_in_place_of_a_reply(empty: Path) -> None:
    ctx = saved(empty)
    (empty / "response.json").write_text('{"error": {"message": "x"}}')
    ran = run("record", ctx, "response.json", folder=empty)
    assert ran.code == 4
    assert ran.err == "nexus: no reply: the provider reported: x (nothing was stored)\n"
    assert run("sessions", "--json", folder=empty).json == []


def test_files_that_are_not_there_are_refused_by_name(empty: Path) -> None:
    assert refused(run("record", "absent.json", reply(empty), folder=empty), "absent.json")
    assert refused(run("record", saved(empty), "absent.json", folder=empty), "absent.json")


@pytest.mark.parametrize(
    "path", ["systemPrompt", "history", "tools", "sessionLabel", "nexus.manifest", "nexus.event", "nexus.cut"]
)
@pytest.mark.parametrize("value", [None, 3, "text", [1], {"a": 1}])
def test_a_saved_context_with_a_damaged_field_is_refused_or_harmless(empty: Path, path: str, value: object) -> None:
    ctx = json.loads((empty / saved(empty)).read_text())
    *outer, last = path.split(".")
    place = ctx[outer[0]] if outer else ctx
    place[last] = value
    write_json(empty / "ctx.json", ctx)
    ran = run("record", "ctx.json", reply(empty), folder=empty)
    assert ran.code in (0, 4)


def test_a_context_of_another_form_says_to_assemble_again(empty: Path) -> None:
    ctx = json.loads((empty / saved(empty)).read_text())
    ctx["nexus"]["form"] = 99
    write_json(empty / "ctx.json", ctx)
    ran = run("record", "ctx.json", reply(empty), folder=empty)
    assert ran.code == 4
    assert "assemble it again" in ran.err
