"""Summaries by a model in `nexus chat`, `nexus run` and `nexus compact`, against the scripted model server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nexus
from cli.running import Ran, program, run
from cli.terminal import Terminal, wait_until
from nexus.cli.chat_agent import ChatAgent, new_event
from nexus.testing.model_server import ModelServer, Step, hang, model_server, reply

MODEL = "gpt-4o"
NOTES = (
    "## Task\n> Answer the questions.\n\n## Facts\n- The answers are about words.\n\n## Identifiers\n- release 4.7.1\n\n"
    "## Recent\n- The last answer was short."
)
PROMPT = f"{MODEL} · context"
Start = Callable[..., Terminal]


def is_summary(body: dict[str, Any]) -> bool:
    return "Now write the notes." in str(body)


def answering(answer: Step, summary: Step) -> Step:
    """Return a step that answers messages in one way, and requests for a summary in another."""
    return lambda request: (summary if is_summary(request.body) else answer)(request)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(
        answering(reply("Short.", input_tokens=7), reply(NOTES, input_tokens=900_000, output_tokens=100))
    ) as running:
        yield running


def talked(folder: Path, words: int = 400, turns: int = 40) -> None:
    """Import a conversation as session main: turns with answers of a size."""
    said: list[dict[str, str]] = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"Question {turn} about release 4.7.1?"})
        said.append({"role": "assistant", "content": f"Answer {turn}: " + "words " * words})
    (folder / "talk.json").write_text(json.dumps({"messages": said}))
    assert run("import", "talk.json", "--session", "main", folder=folder).code == 0


def full(folder: Path) -> None:
    """Fill session main beyond the window of gpt-4o."""
    talked(folder, words=6_000, turns=24)


@pytest.fixture
def chat(empty: Path, server: ModelServer) -> Iterator[Start]:
    started: list[Terminal] = []

    def start(*args: str | Path, ready: str = PROMPT) -> Terminal:
        started.append(Terminal("chat", "--base-url", server.openai_url, "-m", MODEL, *args, folder=empty))
        started[-1].wait_for(ready)
        return started[-1]

    yield start
    for one in started:
        if one.code is None:
            one.kill()


def compactions(folder: Path) -> list[dict[str, Any]]:
    with nexus.open(folder) as nx:
        return [entry.body for entry in nx.ledger.entries("main") if entry.kind == "compaction"]


def statuses(folder: Path) -> list[str]:
    with nexus.open(folder) as nx:
        return [turn.status for turn in nx.ledger.turns("main")]


def test_compact_in_a_chat_is_by_its_model_and_its_cost_is_in_the_facts(
    chat: Start, server: ModelServer, empty: Path
) -> None:
    talked(empty)
    talk = chat()
    talk.say("/model", "summaries by gpt-4o", PROMPT)
    shown = talk.say("/compact the release", "Revert it: /undo", PROMPT)
    assert "(by gpt-4o, for 900,100 tokens" in " ".join(shown.split())
    (body,) = filter(is_summary, server.bodies)
    assert "which the user named: the release" in str(body)
    (stored,) = compactions(empty)
    assert (stored["model"], stored["call_tokens"], stored["call_output_tokens"]) == (MODEL, 900_100, 100)
    talk.say("/session", "2.2510 for 1 summary by gpt-4o")


def test_turn_that_overflows_is_summarized_by_the_chats_model(chat: Start, server: ModelServer, empty: Path) -> None:
    full(empty)
    talk = chat()
    talk.say("And now?", "older messages are now a summary by gpt-4o")
    talk.wait_for("7 tokens in")
    (stored,) = compactions(empty)
    assert (stored["model"], stored["trigger"]) == (MODEL, "context_limit")
    assert sum(map(is_summary, server.bodies)) >= 1


@pytest.mark.parametrize("keys", ["\x03", "\x03\x03"], ids=["once", "twice"])
def test_ctrl_c_during_a_slow_summary_interrupts_the_turn_at_once(
    chat: Start, server: ModelServer, empty: Path, keys: str
) -> None:
    full(empty)
    server.script(answering(reply("Short.", input_tokens=7), hang()))
    talk = chat()
    talk.say("And now?", "compacting")  # only cells that change are drawn
    wait_until(lambda: bool(server.requests))
    talk.send(keys)
    talk.wait_for("interrupted", PROMPT)
    assert statuses(empty)[-1] == "interrupted"
    assert compactions(empty) == []
    for _ in range(100):
        if server.abandoned:
            break
        talk.wait_for("")
    server.script(answering(reply("Short.", input_tokens=7), reply(NOTES)))
    talk.say("Once more?", "7 tokens in")
    assert (statuses(empty)[-1], len(compactions(empty))) == ("completed", 1)
    assert run("ledger", "verify", folder=empty).code == 0


def test_two_interrupts_in_the_same_moment_are_a_keyboard_interrupt() -> None:
    """The second one comes before the turn has ended by the first."""
    ended: list[bool] = []

    async def run_turn(*_: object, cancel: asyncio.Event, **__: object) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(cancel.is_set())

    with asyncio.Runner() as runner:
        agent = ChatAgent.__new__(ChatAgent)
        agent._runner, agent._agent, agent.session, agent.turn_log = runner, SimpleNamespace(run=run_turn), "main", None
        with pytest.raises(KeyboardInterrupt):
            agent.run(new_event("Hi"), lambda _: None)
    assert ended == [True]


def test_ctrl_c_during_compact_leaves_the_session_unchanged(chat: Start, server: ModelServer, empty: Path) -> None:
    talked(empty)
    server.script(hang())
    talk = chat()
    talk.send("/compact\r")
    while not server.requests:
        talk.wait_for("Summarizing")
    talk.send("\x03")
    talk.wait_for("Stopped; the session is unchanged.", PROMPT)
    assert compactions(empty) == []


def test_rejected_summary_is_reported_and_the_turn_goes_on(chat: Start, server: ModelServer, empty: Path) -> None:
    full(empty)
    server.script(answering(reply("Short.", input_tokens=7), reply("Sure! I will do that.")))
    talk = chat()
    shown = " ".join(talk.say("And now?", "7 tokens in").split())
    assert "now an extractive summary: " in shown
    assert "a model's summary was rejected: " in shown
    assert statuses(empty)[-1] == "completed"
    cost = " ".join(run("session", "show", "main", folder=empty).out.split())
    assert re.search(r"\d\.\d{4} for 1 rejected summary by gpt-4o", cost)
    assert "unknown for" not in cost


def test_summarizer_extractive_calls_no_model(chat: Start, server: ModelServer, empty: Path) -> None:
    full(empty)
    talk = chat("--summarizer", "extractive")
    talk.say("And now?", "now an extractive summary: ")
    talk.wait_for("7 tokens in")
    assert not any(map(is_summary, server.bodies))


def run_task(empty: Path, server: ModelServer, *args: str, **options: Any) -> Ran:
    done = program("run", "And now?", "--base-url", server.openai_url, "-m", MODEL, *args, folder=empty, **options)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_summarizer_option_names_another_model_of_the_server(server: ModelServer, empty: Path) -> None:
    full(empty)
    ran = run_task(empty, server, "--summarizer", "gpt-4o-mini")
    assert (ran.code, ran.out) == (0, "Short.\n")
    assert "summary by gpt-4o-mini" in ran.err
    assert {body["model"] for body in server.bodies if is_summary(body)} == {"gpt-4o-mini"}


def test_configured_summarizer_is_used(server: ModelServer, empty: Path, tmp_path: Path) -> None:
    full(empty)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('summarizer = "extractive"\n')
    ran = run_task(empty, server, "--json", env={"NEXUS_HOME": str(home)})
    events = [json.loads(line) for line in ran.out.splitlines()]
    (end,) = [event for event in events if event["type"] == "compaction_end"]
    assert (ran.code, end["method"], end["problem"]) == (0, "extractive", "")


def test_summarizer_without_a_key_is_refused_at_the_start(empty: Path) -> None:
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": ""}
    ran = program("run", "Hi", "-m", "claude-sonnet-5-5", "--summarizer", "gpt-4o", folder=empty, env=keys)
    assert ran.returncode == 2
    assert b"summarizer: no key for gpt-4o: set OPENAI_API_KEY" in ran.stderr


def test_compact_command_takes_a_model_and_reports_its_tokens(server: ModelServer, empty: Path) -> None:
    talked(empty)
    done = run("compact", "main", "--summarizer", MODEL, "--base-url", server.openai_url, folder=empty)
    assert (done.code, "(by gpt-4o, for 900,100 tokens" in done.out) == (0, True)
    shown = run("session", "show", "main", folder=empty)
    assert "2.2510 for 1 summary by gpt-4o" in " ".join(shown.out.split())


def test_messages_of_a_session_stay_after_a_summary(server: ModelServer, empty: Path) -> None:
    talked(empty)
    run("compact", "main", "--summarizer", MODEL, "--base-url", server.openai_url, folder=empty)
    with nexus.open(empty) as nx:
        assert nx.history("main")[0].text() == "Question 0 about release 4.7.1?"
        assert NOTES.splitlines()[-1] in nx.ledger.visible("main").summary
