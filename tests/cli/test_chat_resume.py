"""What `nexus chat` shows where a session continues, and how messages with files and odd sizes are answered."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from PIL import Image as PillowImage

import nexus
from cli.chatting import PROMPT, Start, turns
from cli.running import run
from cli.terminal import plain
from nexus.cli.chat_files import file_mentions, missing_mentions, path_to_complete, quote_file, read_text_file
from nexus.cli.chat_resume import ANSWER_LINES, describe_age
from nexus.cli.chat_terminal import WrappedStream
from nexus.ledger.lease import session_lease
from nexus.testing.model_server import ModelServer, reply

OLD_MODEL = "gpt-3.5-turbo"
"""A model of the table that reads no images and has a small window."""


def test_chat_says_how_to_continue_and_shows_the_last_exchange(chat: Start, server: ModelServer) -> None:
    server.script(reply("It is GIN.", input_tokens=7))
    talk = chat("--session", "plan b")
    talk.say("Which index?", "7 tokens in", PROMPT)
    talk.send("\x04")
    talk.wait_for(f"nexus chat --base-url {server.openai_url} --model gpt-4o --session 'plan b'")
    assert talk.end() == 0
    shown = chat("--session", "plan b").output.decode()
    assert "Last turn, just now:" in shown
    assert "> Which index?" in shown
    assert "It is GIN." in shown


def test_new_session_has_nothing_to_continue(chat: Start) -> None:
    talk = chat()
    talk.send("\x04")
    assert talk.end() == 0
    assert b"Continue this session" not in talk.output
    assert b"Last turn" not in talk.output


def test_image_path_for_a_model_without_images_is_reported(chat: Start, server: ModelServer, empty: Path) -> None:
    PillowImage.new("RGB", (8, 8), "red").save(empty / "a.png")
    talk = chat("-m", OLD_MODEL, ready=f"{OLD_MODEL} · context")
    talk.say(f"See {empty / 'a.png'}", f"{OLD_MODEL} reads no images")
    talk.wait_for("tokens in")
    assert "image_url" not in str(server.bodies)
    talk.wait_for(f"{OLD_MODEL} · context")
    talk.say("/image a.png", "reads no images (another one: --model, or /model)")


def test_compact_of_two_short_messages_changes_nothing(chat: Start, empty: Path) -> None:
    talk = chat()
    talk.say("Hello", "Good morning.", PROMPT)
    shown = talk.say("/compact", "ot compacted: ", PROMPT)
    assert "1 messages" not in shown
    assert turns(empty) == [("completed", ["Hello", "Good morning."])]


def test_message_too_long_for_a_model_is_a_sentence(chat: Start, server: ModelServer) -> None:
    talk = chat("-m", OLD_MODEL, ready=f"{OLD_MODEL} · context")
    talk.send("\x1b[200~" + "some words here\r" * 6_000 + "\x1b[201~")
    talk.wait_for("[Pasted 6,000 lines]")
    talk.say("", f"the message is too long for {OLD_MODEL}: about")
    talk.wait_for(f"{OLD_MODEL} · context")
    assert b"never cut" not in talk.output
    assert not server.requests


def test_file_behind_an_at_sign_is_sent(chat: Start, server: ModelServer, empty: Path) -> None:
    (empty / "notes.md").write_text("We chose GIN.\n")
    talk = chat()
    talk.say("What is in @notes.md?", "File notes.md: sent with the message")
    talk.wait_for("tokens in", PROMPT)
    assert "We chose GIN." in str(server.bodies[-1]["messages"][-1])
    talk.send("\x1b[200~" + "see @notes.md\r" * 20 + "\x1b[201~")
    talk.say("", "tokens in")
    assert "We chose GIN." not in str(server.bodies[-1]["messages"][-1])


def test_missing_file_behind_an_at_sign_is_reported(chat: Start, server: ModelServer) -> None:
    talk = chat()
    talk.say("Ask @ana about @nofile.txt.", "@nofile.txt: no such file, sent as text", "tokens in")
    assert b"@ana: no such file" not in talk.output
    assert "@nofile.txt" in str(server.bodies[-1]["messages"][-1])


def test_last_reply_keeps_its_lines(chat: Start, server: ModelServer) -> None:
    server.script(reply("| a | b |\n|---|---|\n| 1 | 2 |\n\n" + "line\n" * 20, input_tokens=7))
    talk = chat()
    talk.say("A table", "7 tokens in", PROMPT)
    talk.send("\x04")
    talk.end()
    shown = plain(chat().output)
    assert "  | a | b |\n  |---|---|\n  | 1 | 2 |\n  line\n" in shown
    assert "  …\n" in shown
    assert shown.count("  line\n") == ANSWER_LINES - 3


def test_turn_of_another_program_is_waited_for_by_name(chat: Start, server: ModelServer, empty: Path) -> None:
    talk = chat()
    with nexus.open(empty) as nx:
        with session_lease(nx.ledger.store, "main"):
            talk.say("Hello", "waiting for another turn of this session")
            assert not server.requests
        talk.wait_for("Good morning.", PROMPT)


def test_unreachable_server_is_named_once_with_its_port(empty: Path) -> None:
    ran = run("run", "Hi", "--base-url", "http://127.0.0.1:9/v1", "-m", "gpt-4o", folder=empty)
    assert ran.code == 6
    text = "no connection to 127.0.0.1:9: Connection error (is the server running?)"
    lines = ran.err.splitlines()
    assert [text in line for line in lines] == [True, *[False] * (len(lines) - 2), True]
    assert re.search(r"^\[trying again in \d+ s\]$", ran.err, re.MULTILINE)


@pytest.mark.parametrize(("word", "command"), [("usage", "session"), ("exit", "quit"), ("contxt", "context")])
def test_unknown_command_names_the_one_that_was_meant(chat: Start, word: str, command: str) -> None:
    chat().say(f"/{word}", f"did you mean /{command}?")


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(0, "just now"), (59, "just now"), (60, "1 minute ago"), (7_300, "2 hours ago"), (86_400 * 400, "400 days ago")],
)
def test_age_has_one_unit(seconds: int, age: str) -> None:
    assert describe_age(seconds * 1_000) == age


def test_mentions_are_existing_files(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("x")
    (tmp_path / "c.py").write_text("x")
    text = 'see @"a b.txt", (no@c.py) @c.py, @missing @. @/ and @c.py.'
    assert file_mentions(text, tmp_path) == {"a b.txt": tmp_path / "a b.txt", "c.py": tmp_path / "c.py"}
    assert missing_mentions("@c.py @no.py, @a/b @missing @. a@b.c", tmp_path) == ["no.py", "a/b"]
    assert [path_to_complete(line) for line in ("a @src/n", "@", "mail@x", "a @b c")] == ["src/n", "", None, None]


def test_file_that_is_no_text_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\0b")
    (tmp_path / "b").write_bytes(b"\xff")
    (tmp_path / "c").write_bytes(b"x" * 1_000_001)
    problems = [read_text_file(tmp_path / name)[1] for name in ("a", "b", "c", "d")]
    assert all(problems)
    assert quote_file("a", "```\nx\n```\n") == "a:\n````\n```\nx\n```\n````"


def test_long_lines_are_wrapped_at_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = StringIO()
    stream = WrappedStream(out)
    stream.write("  a line of several words\n")
    stream.write("\x1b[1ma line with colors that is long\x1b[0m\n")
    assert out.getvalue() == "  a line of several\n  words\n\x1b[1ma line with colors that is long\x1b[0m\n"
