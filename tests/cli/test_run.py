"""`nexus run`: the reply, the status lines, the exit code and the events of one task."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image as PillowImage

import nexus
from cli.running import Ran, environment, program
from nexus.testing.model_server import ModelServer, Step, break_stream, fail, model_server, reply
from nexus.types.message import ToolCall

MODEL = "gpt-4o"
LOOK = ToolCall("c1", "list_files", '{"pattern": "*"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(reply("Good morning.")) as running:
        yield running


def task(folder: Path, server: ModelServer, *args: str | Path, stdin: bytes = b"") -> Ran:
    """Runs `nexus run` with the scripted server."""
    done = program("run", *args, "--base-url", server.openai_url, "-m", MODEL, folder=folder, input=stdin)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_run_prints_the_reply_alone_and_exits_with_0(empty: Path, server: ModelServer) -> None:
    assert task(empty, server, "Hello") == Ran(0, "Good morning.\n", "")


def test_status_lines_are_on_standard_error(empty: Path, server: ModelServer) -> None:
    server.script(reply("I look.", LOOK), reply("Nothing."))
    ran = task(empty, server, "Any files?")
    assert (ran.code, ran.out) == (0, "I look.\nNothing.\n")
    assert ran.err == "[list_files (pattern: *)]\n"


@pytest.mark.parametrize("args", [("-",), ()], ids=["dash", "none"])
def test_task_is_read_from_standard_input(empty: Path, server: ModelServer, args: tuple[str, ...]) -> None:
    assert task(empty, server, *args, stdin=b"Line one\nLine two\n").code == 0
    assert "Line one\nLine two" in str(server.bodies[-1]["messages"][-1]["content"]).replace("\\n", "\n")


def test_empty_task_is_wrong_usage(empty: Path, server: ModelServer) -> None:
    assert task(empty, server, stdin=b" \n").code == 2


@pytest.mark.parametrize(
    ("steps", "args", "code"),
    [
        ((fail(401, "bad key"),), (), 6),
        ((reply("", LOOK),), ("--max-steps", "2"), 7),
        ((reply("", LOOK, input_tokens=900_000),), ("--max-cost", "0.01"), 7),
        ((reply("word " * 2_000, event_interval_s=0.1),), ("--timeout", "2"), 7),
    ],
    ids=["failure", "steps", "cost", "time"],
)
def test_exit_code_names_the_outcome(
    empty: Path, server: ModelServer, steps: tuple[Step, ...], args: tuple[str, ...], code: int
) -> None:
    server.script(*steps)
    ran = task(empty, server, "Go", *args)
    assert ran.code == code
    assert ran.err.splitlines()[-1].startswith("nexus: ")
    assert not args or args[0] in ran.err
    with nexus.open(empty) as nx:
        assert [turn.status for turn in nx.ledger.turns("main")] == ["failed"]


def test_interrupted_task_exits_with_130_and_keeps_its_partial_reply(empty: Path, server: ModelServer) -> None:
    server.script(reply("word " * 2_000, event_interval_s=0.05))
    command = [sys.executable, "-m", "nexus", "run", "Go", "--base-url", server.openai_url, "-m", MODEL]
    with subprocess.Popen(
        command, cwd=empty, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        assert running.stdout.read(10) == b"word word "  # text is printed while the reply still comes
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        assert (running.returncode, err) == (130, b"nexus: interrupted\n")
    with nexus.open(empty) as nx:
        (turn,) = nx.ledger.turns("main")
        assert turn.status == "interrupted"
        assert nx.history("main")[1].text().startswith("word word")


def test_json_prints_the_events_of_the_turn_and_nothing_else(empty: Path, server: ModelServer) -> None:
    server.script(reply("Evil \x9b31m", LOOK), reply("Done.", input_tokens=5))
    ran = task(empty, server, "Go", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "token"] == [
        "stream_start",
        "tool_status",
        "tool_status",
        "stream_end",
    ]
    assert "".join(event["text"] for event in events if event["type"] == "token") == "Evil \x9b31mDone."
    assert "\x9b" not in ran.out
    assert ran.err == ""


def test_error_of_a_turn_that_cannot_begin_is_its_last_event(empty: Path, server: ModelServer) -> None:
    ran = task(empty, server, "Go", "--json", "--profile", "missing")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, [event["type"] for event in events]) == (2, ["stream_start", "stream_error"])
    assert "profile 'missing' not found" in events[-1]["text"]


@pytest.mark.parametrize("other", [("-m", MODEL), ("--base-url", "http://127.0.0.1:9/v1")], ids=lambda words: words[0])
def test_local_model_excludes_another_one(empty: Path, other: tuple[str, str]) -> None:
    assert program("run", "Go", "--local", *other, folder=empty).returncode == 2


def test_missing_workspace_is_an_error_as_json(empty: Path, server: ModelServer) -> None:
    ran = task(empty, server, "Go", "--json", "-w", "nowhere")
    assert (ran.code, ran.json["error"]["code"]) == (4, "workspace_missing")


def test_a_reply_that_breaks_off_is_noted_before_it_comes_again(empty: Path, server: ModelServer) -> None:
    whole = reply("One two three four five six.")
    server.script(break_stream(whole, "disconnect", after=4), whole)
    ran = task(empty, server, "Count")
    assert ran.code == 0
    assert ran.out.endswith("\nOne two three four five six.\n")
    assert "the text above is withdrawn" in ran.err


def test_image_session_and_toolset_reach_the_call(empty: Path, server: ModelServer) -> None:
    PillowImage.new("RGB", (8, 8)).save(empty / "dot.png")
    assert task(empty, server, "See", "--image", "dot.png", "--session", "pictures").code == 0
    assert "image_url" in str(server.bodies[-1]["messages"][-1])
    with nexus.open(empty) as nx:
        assert [info.label for info in nx.sessions()] == ["pictures"]
    assert task(empty, server, "See", "--image", "missing.png").code == 4


def test_hostile_reply_is_printed_as_escapes(empty: Path, server: ModelServer) -> None:
    server.script(reply("a\x1b[2J\x07\u202eb\tc"))
    assert task(empty, server, "Go").out == "a\\x1b[2J\\x07\\u202eb    c\n"


def test_turn_log_has_an_entry_for_each_step_and_the_console_shows_them(empty: Path, server: ModelServer) -> None:
    server.script(reply("I look.", LOOK), reply("Nothing."))
    log = empty / "log.json"
    ran = task(empty, server, "Any files?", "--turn-log", log, "--console")
    assert (ran.code, ran.err) == (0, "")
    lines = [line for line in ran.out.splitlines() if line]
    assert "> Any files?" in lines
    assert "🔧 list_files (pattern: *)" in lines
    assert lines[-1].strip() == '"Nothing."'
    entries = json.loads(log.read_text("utf-8"))
    assert [entry["role"] for entry in entries][:2] == ["system", "user"]
    assert entries[0]["content"] == server.bodies[0]["messages"][0]["content"]
    assert task(empty, server, "And now?", "--turn-log", log).out == "Nothing.\n"
    longer = json.loads(log.read_text("utf-8"))
    assert longer[: len(entries)] == entries
    assert len(longer) > len(entries)


def test_turn_log_of_another_conversation_is_refused_before_the_turn(empty: Path, server: ModelServer) -> None:
    log = empty / "log.json"
    log.write_text("no log", "utf-8")
    ran = task(empty, server, "Hello", "--turn-log", log)
    assert (ran.code, server.requests) == (4, [])
    assert "is not a turn log" in ran.err
    assert log.read_text("utf-8") == "no log"
    assert task(empty, server, "Hello", "--console", "--json").code == 2
