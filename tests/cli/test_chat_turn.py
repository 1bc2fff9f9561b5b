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
    talk.say(PASTE, "The third.")
    assert TEXT in last_message(server)
    assert len(server.requests) == 3
    talk.wait_for(PROMPT)
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


def test_ctrl_c_takes_queued_messages_back(chat: Start, server: ModelServer) -> None:
    server.script(TALKING, reply("Sent now."))
    talk = chat()
    talk.say("Talk", "word word")
    talk.say("Later", "queued: Later")
    talk.send("\x03")
    assert "1 queued message is in the input line" in talk.wait_for(PROMPT)
    assert len(server.requests) == 1
    talk.say("", "Sent now.")
    assert last_message(server).endswith("Later")


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


def test_backspace_deletes_a_whole_paste(chat: Start, server: ModelServer) -> None:
    talk = chat()
    talk.send(PASTE)
    talk.wait_for(SHOWN)
    talk.say("\x7fOnly this", "Good morning.")
    assert last_message(server).endswith("Only this")
    assert "line 7" not in last_message(server)


def test_pastes_are_told_apart_and_expanded() -> None:
    pastes = Pastes()
    first, second = (pastes.shorten("\r\n".join([text] * 400)) for text in ("one", "two"))
    assert (first, second) == ("[Pasted 400 lines]", "[Pasted 400 lines, 2]")
    assert pastes.shorten("\n".join(["one"] * 400)) == first
    assert pastes.shorten("a\rb") == "a\nb"
    assert pastes.shorten("x" * 2_000) == "[Pasted 2,000 characters]"
    assert pastes.expand(f"{second} and {first}") == "\n".join(["two"] * 400) + " and " + "\n".join(["one"] * 400)
    assert pastes.expand("[Pasted 7 lines]") == "[Pasted 7 lines]"
    assert pastes.placeholder_before(f"a {second}") == second
