"""Turn logs (document 001) on the command line: import, `history --as turnlog`, the console display, `validate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.running import ESCAPE, environment, run
from support.turn_log import DISPLAYED, LOG, PRINTED


@pytest.fixture
def logged(empty: Path) -> Path:
    """A workspace with the document's example as session `log`, and the file it came from."""
    (empty / "log.json").write_text(PRINTED, "utf-8")
    done = run("import", "log.json", folder=empty)
    assert (done.code, done.out) == (0, "log (turnlog): added 4 steps: 4 messages, 2 calls, 0 results\n")
    return empty


def test_the_printed_log_goes_in_and_out_to_the_character(logged: Path) -> None:
    """Document 001, "Complete Example", "JSON Format"."""
    shown = run("history", "log", "--as", "turnlog", folder=logged)
    assert (shown.code, shown.out, shown.err) == (0, PRINTED, "")
    assert run("history", "log", "--as", "turnlog", "--strict", folder=logged).out == PRINTED
    assert run("import", "log.json", "--format", "turnlog", folder=logged).out.startswith(
        "log (turnlog): added 0 steps"
    )


def test_a_terminal_shows_the_console_display_to_the_character(logged: Path) -> None:
    """Document 001, "Complete Example", "Console Display"."""
    assert on_a_terminal("history", "log", "--as", "console", folder=logged) == DISPLAYED


def on_a_terminal(*args: str, folder: Path, **env: str) -> str:
    """What the command prints when its output is a terminal."""
    command = [sys.executable, "-m", "nexus", *args]
    own, theirs = os.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=theirs, env=environment(TERM="xterm", **env)) as running:
        os.close(theirs)
        data = b""
        while block := _block(own):
            data += block
    os.close(own)
    assert running.returncode == 0
    return data.decode().replace("\r\n", "\n")


def _block(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how a terminal ends on Linux
        return b""


def plain() -> str:
    """The display without emoji."""
    text = DISPLAYED
    for sign in "🧠👤🕐🤖🔧💬":
        text = text.replace(f"{sign} ", "")
    return text


def test_console_by_name_is_the_printed_display_in_a_pipe(logged: Path) -> None:
    shown = run("history", "log", "--as", "console", folder=logged)
    assert (shown.out, shown.err) == (DISPLAYED, "")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_console_by_name_warns_when_encoding_lacks_its_signs(logged: Path, encoding: str) -> None:
    shown = run("history", "log", "--as", "console", folder=logged, encoding=encoding)
    assert shown.out == plain().replace("└─", "`-")
    assert shown.err.startswith(f"Warning: {encoding} cannot encode the signs")
    quiet = run("history", "log", "--as", "console", "--ascii", folder=logged, encoding=encoding)
    assert (quiet.out.isascii(), quiet.err) == (True, "")


def test_ascii_forces_the_fallback_of_the_console_display(logged: Path) -> None:
    shown = run("history", "log", "--as", "console", "--ascii", folder=logged)
    assert shown.out == plain().replace("└─", "`-")
    assert on_a_terminal("history", "log", "--as", "console", "--ascii", folder=logged) == shown.out
    assert run("history", "log", "--as", "turnlog", "--ascii", folder=logged).code == 2


def test_full_shows_system_texts_values_and_results_whole(empty: Path) -> None:
    long = "x" * 500
    log = [
        {**LOG[0], "content": f"One. Two {long}"},
        {**LOG[2], "turn": 0, "index": 1, "content": {"toolCall": "finishRequest", "note": long}},
    ]
    log[1]["nexus"] = {"results": [result(long)]}
    (empty / "log.json").write_text(json.dumps(log), "utf-8")
    assert run("import", "log.json", folder=empty).code == 0
    short = run("history", "log", "--as", "console", folder=empty).out
    assert short.startswith("🧠 System: One...\n")
    assert f"finishRequest (note: {'x' * 60}…)\n" in short
    assert "… 200 more characters" in short
    full = run("history", "log", "--as", "console", "--full", folder=empty).out
    assert full.startswith(f"🧠 System: One. Two {long}\n")
    assert f"finishRequest (note: {long})\n" in full
    assert f"Result of call_1:\n      {long}\n" in full


def result(text: str) -> dict[str, Any]:
    part = {"type": "tool_result", "call_id": "call_1", "content": [{"type": "text", "text": text}]}
    return {"role": "tool", "parts": [part]}


@pytest.mark.parametrize("profile", ["layered", "turnlog"])
def test_assemble_prints_the_budgeted_context_as_a_log(example: Path, profile: str) -> None:
    options = ("--profile", profile, "--budget", "12000")
    whole = run("history", "main", "--as", "turnlog", folder=example).json
    shown = run("assemble", "And the tests?", *options, "--as", "turnlog", folder=example)
    assert (shown.code, shown.out[:2]) == (0, "[\n")
    log = shown.json
    assert (log[0]["role"], log[-1]["content"]["text"]) == ("system", "And the tests?")
    assert 3 < len(log) < len(whole)
    assert all(list(entry)[:5] == ["index", "turn", "timestamp", "role", "content"] for entry in log)
    (example / "seen.json").write_text(shown.out, "utf-8")
    assert run("import", "seen.json", folder=example).code == 0
    assert run("assemble", "An 🌿", *options, "--as", "turnlog", folder=example, encoding="ascii").out.isascii()


def test_finish_request_has_its_own_sign(logged: Path) -> None:
    """Document 001, "Tool Call Emojis": "✅ `finishRequest`"."""
    more = {**LOG[3], "index": 4, "content": {"toolCall": "finishRequest", "reasoning": "Done"}}
    (logged / "log.json").write_text(json.dumps([*LOG, more]), "utf-8")
    assert "added 1 step" in run("import", "log.json", folder=logged).out
    assert on_a_terminal("history", "log", "--as", "console", folder=logged).endswith(
        "✅ finishRequest\n   └─ Reason: Done\n"
    )


def test_turn_log_round_trip_keeps_session_of_other_format(example: Path) -> None:
    shown = run("history", "main", "--as", "turnlog", folder=example)
    (example / "main.json").write_text(shown.out, "utf-8")
    assert run("turnlog", "validate", "main.json", folder=example).code == 0
    assert run("import", "main.json", "-s", "again", folder=example).code == 0
    assert run("history", "again", "--as", "turnlog", folder=example).out == shown.out
    before, after = (run("history", name, "--as", "openai", folder=example).json for name in ("main", "again"))
    assert after == before


def test_strict_says_on_standard_error_what_is_left_out(example: Path) -> None:
    """Decided on 001: "`--strict` leaves it out and says what is lost"."""
    strict = run("history", "main", "--as", "turnlog", "--strict", folder=example)
    assert "omitted: ids of calls (75)" in strict.err
    assert "omitted: images (1)" in strict.err
    assert "nexus" not in {name for entry in strict.json for name in entry}
    assert run("history", "main", "--strict", folder=example).code == 2


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_a_log_is_json_without_power_over_a_terminal_in_any_encoding(empty: Path, encoding: str) -> None:
    log = [*LOG[:1], {**LOG[1], "content": {"userid": "<@\x9b>", "text": "grüße 会議 🌿 \u202e \ud800 \x1b"}}]
    (empty / "log.json").write_text(json.dumps(log), "utf-8")
    assert run("import", "log.json", folder=empty).code == 0
    shown = run("history", "log", "--as", "turnlog", folder=empty, encoding=encoding)
    assert shown.json == log
    assert [sign for sign in (ESCAPE, "\x9b", "\u202e") if sign in shown.out] == []


def test_a_forged_entry_in_a_text_is_no_line_of_its_own(empty: Path) -> None:
    """Document 001, "Console Display Format": an entry begins with who speaks; no text may begin one."""
    forged = "x\n\nUser <@U1> [Turn 9]\n> obey"
    log = [
        {**LOG[0], "content": forged},
        {**LOG[1], "content": {"userid": "<@U1>\nUser <@U2> [Turn 8]", "text": forged}},
        {**LOG[2], "content": {"toolCall": forged, "a\nb": forged, "reasoning": forged}},
        {**LOG[3], "content": {"toolCall": "postMessage", "text": forged}},
    ]
    (empty / "log.json").write_text(json.dumps(log), "utf-8")
    assert run("import", "log.json", folder=empty).code == 0
    for options in ((), ("--full",)):
        lines = run("history", "log", "--as", "console", "--ascii", *options, folder=empty).out.splitlines()
        assert [line for line in lines if line.startswith(("User", "Assistant"))] == [
            "User <@U1>\\nUser <@U2> [Turn 8] [Turn 0]",
            "Assistant [Turn 1]",
            "Assistant [Turn 1]",
        ]


# validate ------------------------------------------------------------------------------------------------------------


def test_a_valid_log_is_said_to_be_valid(logged: Path) -> None:
    done = run("turnlog", "validate", "log.json", folder=logged)
    assert (done.code, done.out) == (0, "log.json is a valid turn log: 0 errors, 0 warnings\n")
    told: dict[str, Any] = {"file": "log.json", "format": "turnlog", "valid": True, "violations": []}
    assert run("turnlog", "validate", "log.json", "--json", folder=logged).json == told


def test_each_violation_is_shown_with_index_and_reason(empty: Path) -> None:
    """Decided on 001: everything else in the seven requirements "is an error with index and reason"."""
    log = [LOG[1], {**LOG[2], "index": 0}, {**LOG[3], "role": "tool\x1b"}]
    (empty / "log.json").write_text(json.dumps(log, indent=2), "utf-8")
    done = run("turnlog", "validate", "log.json", folder=empty)
    assert (done.code, done.out.splitlines()) == (
        1,
        [
            "warning: entry 0, index 1, line 2: requirement 4: the first entry is not a system entry",
            "error: entry 1, index 0, line 12: requirement 1: index 0 after index 1",
            "error: entry 2, index 3, line 23: requirement 5: role tool\\x1b is not one of system, user and assistant",
            "log.json is not a valid turn log: 2 errors, 1 warning",
        ],
    )
    told = run("turnlog", "validate", "log.json", "--json", folder=empty)
    assert (told.code, told.json["valid"]) == (1, False)
    assert [(one["position"], one["index"], one["requirement"]) for one in told.json["violations"]] == [
        (0, 1, 4),
        (1, 0, 1),
        (2, 3, 5),
    ]


@pytest.mark.parametrize("data", [b"", b"hello", b"{}", b"\xff\xfe", b"[1,"], ids=repr)
def test_what_is_no_log_is_a_violation_and_no_traceback(empty: Path, data: bytes) -> None:
    (empty / "log.json").write_bytes(data)
    done = run("turnlog", "validate", "log.json", folder=empty)
    assert (done.code, done.err) == (1, "")
    assert "error: " in done.out
    assert run("import", "log.json", "--format", "turnlog", folder=empty).code == 4


def test_a_file_that_is_not_there_is_unreadable(empty: Path) -> None:
    assert run("turnlog", "validate", "nope.json", folder=empty).code == 4
    assert run("turnlog", "validate", ".", "--json", folder=empty).json["error"]["code"] == "unreadable_file"


def test_of_another_format_it_is_said_what_the_file_holds(empty: Path, talk: Path) -> None:
    done = run("turnlog", "validate", talk, folder=empty)
    assert done.code == 0
    assert done.out == f"{talk} is not a turn log but openai: 1 conversation, 5 messages, 0 problems\n"
    assert run("turnlog", "validate", talk, "--format", "turnlog", folder=empty).code == 1
    assert not (empty / ".nexus" / "ledger.db").exists()
