"""`nexus chat` while a turn runs: drafts, pastes, queued messages and Ctrl-C, on a real terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.chatting import PROMPT, Start, turns
from cli.terminal import plain, wait_until
from nexus.cli.chat_paste import Pastes
from nexus.testing.model_server import ModelServer, hang, reply
from nexus.types.message import ToolCall

LINES = [f"line {number} of the log" for number in range(400)]
TEXT = "\n".join(LINES)
PASTE = f"\x1b[200~{TEXT}\x1b[201~".replace("\n", "\r")
SHOWN = "[Pasted 400 lines]"
TALKING = reply("word " * 4_000, event_interval_s=0.05)
KEYS = "Enter queues a message"


def last_message(server: ModelServer) -> str:
    return str(server.bodies[-1]["messages"][-1]["content"])


def test_paste_during_a_reply_is_a_draft_and_ctrl_c_arrives(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(TALKING, TALKING, reply("The third."))
    talk = chat()
    for number in (1, 2):
        talk.say(f"Talk {number}", "word word")
        talk.send(PASTE)
        talk.wait_for(SHOWN)
        talk.send("\x03")
        assert "interrupted" in talk.wait_for(PROMPT)
        assert len(server.requests) == number
        talk.send("\x03")
        talk.wait_for(PROMPT)
    talk.say(PASTE, "The third.", PROMPT)
    assert TEXT in last_message(server)
    assert len(server.requests) == 3
    assert [status for status, _ in turns(empty)] == ["interrupted", "interrupted", "completed"]


def test_draft_of_a_turn_is_in_the_next_input_line(chat: Start, server: ModelServer) -> None:
    server.script(reply("word " * 40, event_interval_s=0.05, input_tokens=7), reply("Read."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.send("Look at ")
    talk.send(PASTE)
    talk.wait_for(SHOWN)
    talk.wait_for("7 tokens in", PROMPT)
    talk.say(" please", "Read.")
    assert last_message(server).endswith(f"Look at {TEXT} please")
    assert len(server.requests) == 2


def test_enter_during_a_turn_queues_one_message(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(reply("word " * 40, event_interval_s=0.05), reply("Second."), reply("Third."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.say(PASTE, f"queued: {SHOWN}")
    talk.say("And this", "queued: And this")
    talk.wait_for("Second.")
    talk.wait_for("Third.", PROMPT)
    assert [texts[0] for _, texts in turns(empty)] == ["Talk", TEXT, "And this"]
    assert len(server.requests) == 3


def test_ctrl_c_takes_queued_messages_back_one_by_one(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(TALKING, reply("Sent now."), reply("Sent too.", input_tokens=7))
    talk = chat()
    talk.say("Talk", "word word")
    talk.say("Later", "queued: Later")
    talk.say("/session", "queued: /session")
    talk.send("A draft")
    talk.send("\x03")
    shown = talk.wait_for("2 more messages", PROMPT)
    assert "is in the input line, and 1 more will follow it there" in " ".join(shown.split())
    assert len(server.requests) == 1
    talk.say("", "Sent now.", "1 more message ·", PROMPT)
    talk.say("", "messages  ", PROMPT)
    talk.say(" too", "Sent too.", "7 tokens in")
    assert [texts[0] for _, texts in turns(empty)] == ["Talk", "Later", "A draft too"]


def test_up_takes_the_last_queued_message_back(chat: Start, server: ModelServer) -> None:
    server.script(reply("word " * 60, event_interval_s=0.05, input_tokens=7), reply("Sent now."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.say("Later", "queued: Later")
    talk.send("\x1b[A")
    talk.wait_for("7 tokens in", PROMPT)
    talk.say(" on", "Sent now.")
    assert last_message(server).endswith("Later on")


def test_ctrl_s_lets_a_message_join_the_running_turn(chat: Start, server: ModelServer, empty: Path) -> None:
    look = reply("word " * 40, ToolCall("c1", "list_files", "{}"), event_interval_s=0.05)
    server.script(look, reply("With the note."))
    talk = chat()
    talk.say("Look", "word word")
    talk.wait_for("Ctrl-S")
    talk.send("Mind the note\x13")
    talk.wait_for("joins the turn: Mind the note")
    talk.wait_for("With the note.", PROMPT)
    assert len(server.requests) == 2
    assert "Mind the note" in str(server.bodies[1]["messages"])
    assert len(turns(empty)) == 1


def test_message_that_cannot_join_a_turn_follows_it(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(reply("word " * 40, event_interval_s=0.05), reply("Afterward."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.send("Too late\x13")
    talk.wait_for("Afterward.", PROMPT)
    assert [texts[0] for _, texts in turns(empty)] == ["Talk", "Too late"]


@pytest.mark.parametrize("paste", [TEXT.replace("\n", "\r"), f"\x1b[200~{TEXT}"], ids=["no brackets", "no end"])
def test_paste_of_a_poor_terminal_starts_no_call(chat: Start, server: ModelServer, paste: str) -> None:
    server.script(TALKING, reply("Still here."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.send(paste)
    talk.send("\x03")
    assert "interrupted" in talk.wait_for(PROMPT)
    assert len(server.requests) == 1
    if "Pasted" not in plain(talk.output):
        talk.wait_for("Pasted")
    talk.send("\x03")
    talk.wait_for(PROMPT)
    talk.say("Hello?", "Still here.")
    assert last_message(server).endswith("Hello?")


def test_resize_and_tools_keep_the_draft(chat: Start, server: ModelServer) -> None:
    look = reply("word " * 40, ToolCall("c1", "list_files", "{}"), event_interval_s=0.05)
    server.script(look, reply("word " * 40, event_interval_s=0.05, input_tokens=7), reply("Fine."))
    talk = chat()
    talk.say("Look", "word word")
    talk.send("a draft")
    talk.resize(12, 40)
    talk.wait_for("✓ list_files")
    talk.resize(30, 100)
    talk.wait_for("2 calls", PROMPT)
    talk.say(" of mine", "Fine.")
    assert last_message(server).endswith("a draft of mine")
    assert b"Traceback" not in talk.output


def test_turn_without_colors_has_none(chat: Start, server: ModelServer) -> None:
    server.script(reply("# Head\n\n**bold** `code`", input_tokens=7))
    talk = chat(env={"NO_COLOR": "1"})
    talk.say("Talk", "7 tokens in", PROMPT)
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m", talk.output)


def test_queued_message_of_a_killed_chat_is_in_the_input_history(chat: Start, server: ModelServer) -> None:
    server.script(hang(), reply("Again."))
    talk = chat()
    talk.say("Question", KEYS)
    talk.say("Not lost", "queued: Not lost")
    wait_until(lambda: bool(server.requests))
    talk.kill()
    again = chat(ready="Continue it? [Y/n]")
    again.say("n", PROMPT)
    again.send("\x1b[A")
    again.wait_for("Not lost")
    again.say("", "Again.")
    assert last_message(server).endswith("Not lost")


def test_ctrl_d_during_a_turn_ends_the_chat_after_it(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(reply("word " * 40, event_interval_s=0.05, input_tokens=7))
    talk = chat()
    talk.say("Talk", "word word")
    talk.send("\x04")
    assert talk.end() == 0
    assert "7 tokens in" in plain(talk.output)
    assert [status for status, _ in turns(empty)] == ["completed"]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("\x7fOnly this", "Only this"),
        ("\x1b[D" * 3 + "see ", f"see {TEXT}"),
        ("\x1b[D\x1b[3~Only this", "Only this"),
        ("\x1bbsee ", f"see {TEXT}"),
        ("\x01\x1bu", TEXT),
        ("\x17Only this", "Only this"),
        ("\x1a now", f"{TEXT} now"),
    ],
    ids=["backspace", "left", "delete", "word left", "upper case", "Ctrl-W", "Ctrl-Z"],
)
def test_no_key_breaks_a_paste(chat: Start, server: ModelServer, keys: str, text: str) -> None:
    talk = chat()
    talk.send(PASTE)
    talk.wait_for(SHOWN)
    talk.say(keys, "Good morning.")
    assert last_message(server).endswith(f"\n{text}")


def test_paste_joins_a_turn_whole(chat: Start, server: ModelServer) -> None:
    look = reply("word " * 40, ToolCall("c1", "list_files", "{}"), event_interval_s=0.05)
    server.script(look, reply("With the note."))
    talk = chat()
    talk.say("Look", "word word")
    talk.send(PASTE)
    talk.send("\x13")
    talk.wait_for(f"joins the turn: {SHOWN}")
    talk.wait_for("With the note.", PROMPT)
    assert TEXT in "\n".join(str(message["content"]) for message in server.bodies[1]["messages"])


def test_editor_gets_the_text_of_a_paste_and_sends_nothing(
    chat: Start, server: ModelServer, empty: Path, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\ncp "$1" seen.txt\nprintf " (edited)" >> "$1"\n')
    editor.chmod(0o700)
    talk = chat(env={"EDITOR": str(editor), "VISUAL": ""})
    talk.send(f"{PASTE} and")
    talk.wait_for(SHOWN)
    talk.send("\x18\x05")
    talk.wait_for("(edited)")
    assert (empty / "seen.txt").read_text() == f"{TEXT} and"
    assert not server.requests
    talk.say(" by me", "Good morning.")
    assert last_message(server).endswith(f"{TEXT} and (edited) by me")


def test_keys_of_a_turn_fit_a_narrow_terminal(chat: Start, server: ModelServer) -> None:
    server.script(TALKING)
    talk = chat()
    talk.resize(24, 60)
    talk.say("Talk", "Ctrl-C stops · Enter queues · Ctrl-S joins")
    talk.resize(24, 100)
    talk.wait_for("Ctrl-C stops · Enter queues a message · Ctrl-S lets it join the running turn")


def test_pastes_are_one_character_each() -> None:
    pastes = Pastes()
    texts = ["\n".join([word] * 400) for word in ("one", "two")]
    first, second = (pastes.shorten(text.replace("\n", "\r\n")) for text in texts)
    assert pastes.shorten("a\rb") == "a\nb"
    assert pastes.show(pastes.shorten("x" * 2_000)) == "[Pasted 2,000 characters]"
    line = f"{second} and {first}"
    assert (len(line), pastes.show(line)) == (7, "[Pasted 400 lines] and [Pasted 400 lines]")
    assert pastes.expand(line) == f"{texts[1]} and {texts[0]}"
    assert pastes.shorten_known(pastes.expand(line)) == line
    assert pastes.expand("[Pasted 400 lines]") == "[Pasted 400 lines]"
