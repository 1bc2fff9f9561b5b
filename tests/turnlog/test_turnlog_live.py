"""Live turn logs (document 001): an entry in the file and on the console with each step, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.agents import Agent
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import UnreadableFile
from nexus.testing.model_server import ModelServer, hang, model_server, reply
from nexus.turnlog.entries import SUMMARY
from nexus.turnlog.live import TurnLog
from nexus.turnlog.reader import read, violations
from nexus.turnlog.threads import thread_tools
from nexus.turnlog.write import log_entries, log_texts, strict_entries
from nexus.types.ledger_entries import Commit, Compaction, NewEntry
from nexus.types.stream_events import StreamEnd
from support.errors import has_code
from support.scripted_agent import ScriptedClient, said
from support.turn_log import DISPLAYED, LOG, PRINTED

HISTORY = nexus.ToolCall(
    "c1",
    "getThreadHistory",
    '{"ascending": false, "reasoning": "Checking for context about dietary preferences"}',
)
SUGGESTION = "Here are some lunch suggestions: 1) Mushroom risotto, 2) Caesar salad, 3) Vegetable curry"
POSTED = nexus.ToolCall(
    "c2", "postMessage", json.dumps({"text": SUGGESTION, "reasoning": "Providing diverse lunch options"})
)
FINISHED = nexus.ToolCall("c3", "finishRequest", '{"reasoning": "Answered"}')
LAST = {
    "index": 4,
    "turn": 1,
    "timestamp": "2023-04-04T12:33:40Z",
    "role": "assistant",
    "content": {"toolCall": "finishRequest", "reasoning": "Answered"},
}
LOGGED = json.dumps([*LOG, LAST], ensure_ascii=False, indent=2) + "\n"
SHOWN = f"{DISPLAYED}\n🤖 Assistant [Turn 1]\n🕐 2023-04-04T12:33:40Z\n✅ finishRequest\n   └─ Reason: Answered\n"


def start(folder: Path, server: ModelServer, calls: int = 0) -> subprocess.Popen[bytes]:
    """Start the program of `support.live_log`."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "support.live_log", str(folder), server.openai_url, str(calls)]
    environment = {**os.environ, "PYTHONPATH": str(tests), "NEXUS_HOME": str(folder), "PYTHONIOENCODING": "utf-8"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(program: subprocess.Popen[bytes]) -> str:
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err.decode()) == (0, "")
    return out.decode()


def test_live_session_is_the_documents_log_and_display(tmp_path: Path) -> None:
    """Document 001, "Complete Example": both forms, to the character; `finishRequest` ends the turn."""
    with model_server(reply("", HISTORY), reply("", POSTED), reply("", FINISHED)) as server:
        assert finish(start(tmp_path, server)) == SHOWN
        assert len(server.requests) == 3
    assert LOGGED.startswith(PRINTED.removesuffix("\n]\n"))
    assert (tmp_path / "log.json").read_text("utf-8") == LOGGED
    assert (tmp_path / "posts").read_text() == SUGGESTION
    sent = server.bodies[0]["messages"]
    assert sent[0] == {"role": "system", "content": LOG[0]["content"]}


def test_killed_session_leaves_a_valid_log_that_the_next_start_continues(tmp_path: Path) -> None:
    with model_server(reply("", HISTORY), hang()) as server:
        program = start(tmp_path, server)
        while len(server.requests) < 2 and program.poll() is None:
            time.sleep(0.01)
        program.send_signal(signal.SIGKILL)
        before, _ = program.communicate(timeout=60)
        text = (tmp_path / "log.json").read_text("utf-8")
        assert json.loads(text) == LOG[:3]
        assert [one for one in violations(text) if one.level == "error"] == []
        server.script(reply("", POSTED), reply("", FINISHED))
        after = finish(start(tmp_path, server, calls=1))
    assert (tmp_path / "log.json").read_text("utf-8") == LOGGED
    assert before.decode() + "\n" + after == SHOWN


async def converse(folder: Path, *steps: Any, text: str = "Hi", show: Any = None, **options: Any) -> TurnLog:
    async with nexus.open_async(ledger=folder / "ledger.db", model="gpt-4o") as nx:
        log = TurnLog(nx.engine, "main", folder / "log.json", show=show)
        agent = agent_with(nx, log, *steps)
        await agent.run(text, session="main", sink=log, profile="bare", **options)
        return log


def agent_with(nx: AsyncEngine, log: TurnLog, *steps: Any) -> Agent:
    tools = thread_tools(nx.engine, "main", lambda _: None)
    return Agent(nx, log.watch(ScriptedClient(*steps)), tools=tools, builtin=False)  # type: ignore[arg-type]


def logged(folder: Path) -> list[Any]:
    return json.loads((folder / "log.json").read_text("utf-8"))


def test_log_can_be_read_after_a_kill_at_any_byte_and_is_repaired(tmp_path: Path) -> None:
    """The last write is cut off after each of its bytes, over the end of the array that it replaces."""
    asyncio.run(converse(tmp_path, said("One."), system="Be brief."))
    file = tmp_path / "log.json"
    old = file.read_bytes()
    asyncio.run(converse(tmp_path, said("Two."), text="And?", system="Be brief."))
    new = file.read_bytes()
    first = len(old) - len(b"\n]\n")
    assert new[:first] == old[:first]
    entries = logged(tmp_path)
    for end in range(first + 1, len(new)):
        torn = new[:end] + old[end:]
        file.write_bytes(torn)
        (read_back,) = read(file)
        texts = [piece.messages[0] for step in read_back.steps for piece in step.pieces if piece.messages]
        assert len(texts) >= 3
        with nexus.open(ledger=tmp_path / "ledger.db") as nx:
            log = TurnLog(nx, "main", file)
            log(StreamEnd())
        assert logged(tmp_path) == entries


def test_log_has_a_system_entry_for_each_prompt_that_differs(tmp_path: Path) -> None:
    asyncio.run(converse(tmp_path, said("One."), system="Be brief."))
    asyncio.run(converse(tmp_path, said("Two."), system="Be brief."))
    asyncio.run(converse(tmp_path, said("Three."), system="Be wordy."))
    asyncio.run(converse(tmp_path, said("Four."), system="Be wordy."))
    entries = logged(tmp_path)
    assert [entry["role"][0] for entry in entries] == [*"suauausaua"]
    assert [entry["content"] for entry in entries if entry["role"] == "system"] == ["Be brief.", "Be wordy."]
    assert [entry["index"] for entry in entries] == list(range(10))
    assert not [one for one in violations((tmp_path / "log.json").read_text("utf-8")) if one.level == "error"]


def test_console_shows_new_steps_only(tmp_path: Path) -> None:
    asyncio.run(converse(tmp_path, said("One."), system="Be brief."))
    lines: list[str] = []
    asyncio.run(converse(tmp_path, said("Two."), text="And?", show=lines.append, system="Be brief."))
    assert lines[0] == "👤 User <@user> [Turn 1]"
    assert lines[-2:] == ["✅ finishRequest", "   └─ Reason: Two."]
    assert "" in lines
    assert "One." not in "".join(lines)


def test_failed_turn_is_on_the_console_and_the_log_goes_on(tmp_path: Path) -> None:
    lines: list[str] = []
    failure = nexus.errors.ModelCallFailed("overloaded", "error")
    asyncio.run(converse(tmp_path, [failure], show=lines.append, system="Be brief."))
    assert lines[-1] == "── turn 1 failed: overloaded ──"
    asyncio.run(converse(tmp_path, said("Two."), text="And?", system="Be brief."))
    assert [entry["role"][0] for entry in logged(tmp_path)] == [*"suua"]


def test_log_follows_a_rewind_of_its_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
            lines: list[str] = []
            log = TurnLog(nx.engine, "main", tmp_path / "log.json", show=lines.append)
            agent = agent_with(nx, log, said("One."), said("Two."), said("Three."))
            for text in ("a", "b"):
                await agent.run(text, session="main", sink=log, profile="bare", system="Be brief.")
            nx.engine.ledger.rewind("main", turn=1)
            await agent.run("c", session="main", sink=log, profile="bare", system="Be brief.")
            assert [line for line in lines if line.startswith(">")] == ["> a", "> b", "> c"]

    asyncio.run(main())
    texts = [entry["content"].get("text") or entry["content"]["reasoning"] for entry in logged(tmp_path)[1:]]
    assert texts == ["a", "One.", "c", "Three."]


def test_log_of_a_session_with_history_begins_with_that(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
        nx.record(nx.assemble("Before", profile="bare"), nexus.AgentResult((nexus.assistant("Yes."),)))
    lines: list[str] = []
    asyncio.run(converse(tmp_path, said("Two."), text="And?", show=lines.append, system="Be brief."))
    entries = logged(tmp_path)
    assert [entry["role"][0] for entry in entries] == [*"suaua"]
    assert entries[0]["content"] == "Be brief."
    assert lines[0] == "🧠 System: Be brief."
    assert "Before" not in "\n".join(lines)


def test_file_of_another_conversation_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(PRINTED, "utf-8")
    with pytest.raises(UnreadableFile, match="another conversation", check=has_code("bad_turn_log")):
        asyncio.run(converse(tmp_path, said("One.")))
    assert (tmp_path / "log.json").read_text("utf-8") == PRINTED
    (tmp_path / "log.json").write_text("name = 1\n")
    with pytest.raises(UnreadableFile, match="not a turn log", check=has_code("bad_turn_log")):
        asyncio.run(converse(tmp_path, said("One.")))
    (tmp_path / "log.json").unlink()
    (tmp_path / "log.json").mkdir()
    with pytest.raises(UnreadableFile, match="cannot be written"):
        asyncio.run(converse(tmp_path, said("One.")))


def test_write_that_fails_breaks_no_turn_and_is_made_up_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
            folder = tmp_path / "logs"
            log = TurnLog(nx.engine, "main", folder / "log.json")
            agent = agent_with(nx, log, said("One."), said("Two."))
            (folder / "log.json").unlink()
            folder.rmdir()
            folder.write_text("in the way")
            result = await agent.run("a", session="main", sink=log, profile="bare", system="Be brief.")
            assert (result.error, "log.json" in log.error) == (None, True)
            folder.unlink()
            await agent.run("b", session="main", sink=log, profile="bare", system="Be brief.")
            assert log.error == ""
            assert [entry["role"][0] for entry in logged(folder)] == [*"suaua"]

    asyncio.run(main())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["turn", "tool", "fail", "compact", "clear", "rewind", "prompt", "delete"]),
            st.booleans(),
            st.integers(1, 40),
        ),
        max_size=8,
    )
)
def test_law_log_is_the_sessions_whatever_happens(steps: list[tuple[str, bool, int]]) -> None:
    """After each step; some steps are followed by a kill within the write, and a restart."""
    with TemporaryDirectory() as folder, nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        file, prompt = Path(folder, "log.json"), "Be brief."
        log = TurnLog(nx, "main", file)
        log.watch(ScriptedClient())  # type: ignore[arg-type]
        for number, (kind, restarts, cut) in enumerate(steps):
            if kind == "prompt":
                prompt = f"Be {number}."
            elif kind == "delete":
                file.unlink(missing_ok=True)
            elif kind in ("compact", "clear", "rewind"):
                change(nx, kind)
            else:
                turn = nx.begin(f"text {number}", session="main", profile="bare", system=prompt)
                log.add_prompt(turn.assemble())
                if kind == "fail":
                    turn.fail("error", "no reply", partial="Half")
                else:
                    calls = [HISTORY] if kind == "tool" else []
                    turn.record(nexus.AgentResult((nexus.assistant("I answer.", *calls),)))
            log(StreamEnd())
            if restarts and file.exists():
                file.write_bytes(file.read_bytes()[:-cut])
                log = TurnLog(nx, "main", file)
                log.watch(ScriptedClient())  # type: ignore[arg-type]
                log(StreamEnd())
        if not nx.sessions():
            return
        text = file.read_text("utf-8")
        assert [one for one in violations(text) if one.level == "error"] == []
        expected = json.loads("".join(log_texts(strict_entries(log_entries(nx.ledger.entries("main")), Counter()))))
        assert shown(json.loads(text)) == shown(expected)
        TurnLog(nx, "main", file)(StreamEnd())
        assert file.read_text("utf-8") == text


def change(nx: nexus.Engine, kind: str) -> None:
    if not nx.sessions():
        return
    head = nx.ledger.thread_info("main").head_seq
    if kind == "clear":
        nx.ledger.commit("main", Commit((NewEntry("clear"),)))
    elif kind == "rewind":
        nx.ledger.rewind("main", turn=1)
    else:
        after = max((entry.seq for entry in nx.ledger.checkpoints("main")), default=0)
        nx.ledger.compact("main", Compaction(1, head, head + 1, "A summary."), after_checkpoint=after)


def shown(entries: list[Any]) -> list[Any]:
    """The entries but the prompts, which the ledger's log does not have."""
    kept = [entry for entry in entries if entry["role"] != "system" or str(entry["content"]).startswith(SUMMARY)]
    return [(entry["turn"], entry["role"], entry["content"]) for entry in kept]


def test_thread_history_has_the_messages_that_users_see(tmp_path: Path) -> None:
    posts: list[str] = []

    async def post(text: str) -> None:
        posts.append(text)

    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
        nx.record(nx.assemble("Hi", profile="bare"), nexus.AgentResult((nexus.assistant("", POSTED),)))
        tools = thread_tools(nx, "main", post)
        shown = tools.call("getThreadHistory", '{"reasoning": "r"}').split("\n")
        assert [json.loads(line)["content"]["text"] for line in shown] == ["Hi", SUGGESTION]
        newest = tools.call("getThreadHistory", '{"reasoning": "r", "ascending": false, "limit": 1}')
        assert json.loads(newest)["content"]["text"] == SUGGESTION
        assert tools.call("postMessage", '{"text": "Hello", "reasoning": "r"}') == "posted"
        assert posts == ["Hello"]


def test_finish_request_ends_the_turn_after_a_crash_too(tmp_path: Path) -> None:
    """The program stops when the result of `finishRequest` is stored and its turn is still open."""
    event = nexus.Event((nexus.Text("Hi"),), id="e1")
    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
        turn = nx.begin(event, session="main", profile="bare")
        turn.assemble()
        turn.record(nexus.AgentResult((nexus.assistant("", FINISHED),)))
        turn.result("c3", nexus.tool("c3", "finished", name="finishRequest"))

    async def main() -> None:
        async with nexus.open_async(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
            log = TurnLog(nx.engine, "main")
            result = await agent_with(nx, log).run(event, session="main", profile="bare")
            assert (result.error, result.stop_reason) == (None, "end_turn")
            assert nx.engine.ledger.turns("main")[0].status == "completed"

    asyncio.run(main())
