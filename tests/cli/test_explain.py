"""`nexus explain`, `replay`, `diff` and `assemble --turn`: what they print, and what they do with bad input."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import nexus
from cli.running import run, write_json
from nexus.assembly.record import with_sizes
from nexus.ledger.recorded_calls import recorded_call
from nexus.types.message import ToolCall, assistant, tool
from nexus.types.profile import Profile


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A workspace with a session of a long talk, a cut, and a turn of two calls; its last turn follows a changed file."""
    (tmp_path / "AGENTS.md").write_text("Be good. " * 300)
    (tmp_path / ".nexus").mkdir()
    with nexus.open(tmp_path) as nx:
        for number in range(14):
            ctx = nx.assemble(f"question {number} " * 20, budget=3_000)
            nx.record(ctx, nexus.AgentResult((assistant("answer " * 60),)))
        ctx = nx.assemble("go \x1b[31m", budget=3_000)
        nx.record(ctx, nexus.AgentResult((assistant("", ToolCall("a", "look", "{}")),)))
        nx.record(nx.assemble([tool("a", "seen")], budget=3_000), nexus.AgentResult((assistant("done"),)))
        (tmp_path / "AGENTS.md").write_text("Be good. " * 299 + "Be brief.")
        nx.record(nx.assemble("bye", budget=3_000), nexus.AgentResult((assistant("bye"),)))
    return tmp_path


def test_replay_prints_body_and_reports_verification_on_stderr(talk: Path) -> None:
    done = run("replay", "main", "15", "--call", "1", folder=talk)
    assert done.code == 0
    assert json.loads(done.out)["messages"][-1]["content"][-1]["text"].endswith("go \x1b[31m")
    assert "call 1 of 2 of turn 15 of session 'main'" in done.err
    assert "verified" in done.err
    told = json.loads(run("replay", "main", "15", "--json", folder=talk).out)
    assert (told["proven"], told["call"], told["calls"], told["form"]) == (True, 2, 2, "anthropic")
    assert "input" in json.loads(run("replay", "main", "15", "--as", "responses", folder=talk).out)
    exact = run("replay", "main", "15", "--bytes", folder=talk).out
    assert hashlib.sha256(exact.encode()).hexdigest() == told["sha256"]


@pytest.mark.parametrize("words", [("replay", "main"), ("explain", "main"), ("session", "diff", "main")])
def test_turns_that_are_not_there_are_refused_by_name(talk: Path, words: tuple[str, str]) -> None:
    for more in (("99",), ("0",), ("-1",), ("x",), ("15", "--call", "3"), ("1e3",), ("9" * 40,)):
        done = run(*words, *more, folder=talk)
        assert done.code == 2
        assert "Traceback" not in done.err
    assert run(words[0], "nobody", "1", folder=talk).code == 2
    assert run(words[0], "\x1b[31m", "1", folder=talk).code == 2


def test_explain_lists_every_message_and_its_json_adds_up(talk: Path) -> None:
    done = run("explain", "main", "14", folder=talk)
    assert done.code == 0
    assert "over the budget" in done.out
    assert "\x1b" not in run("explain", "main", "--all", folder=talk).out
    for more in ((), ("15",), ("14", "--all"), ("--budget", "3000", "--model", "gpt-4o")):
        told = json.loads(run("explain", "main", *more, "--json", folder=talk).out)
        assert sum(line["tokens"] for line in told["lines"]) == told["used"] <= told["available"]
    with nexus.open(talk) as nx:
        event: object = "Read them."
        for number in range(14):
            ctx = nx.assemble(event, session="loop", budget=3_000)  # pyright: ignore[reportArgumentType]
            nx.record(ctx, nexus.AgentResult((assistant("", ToolCall(f"c{number}", "look", "{}")),)))
            event = [tool(f"c{number}", "line " * 150)]
    folded, every = (run("explain", "loop", *more, folder=talk).out for more in ((), ("--all",)))
    assert len(every.splitlines()) > len(folded.splitlines())
    assert run("explain", "main", "--call", "1", folder=talk).code == 2
    assert run("explain", "main", "--budget", "10", folder=talk).code == 3


def test_diff_names_the_cause_and_the_first_byte(talk: Path) -> None:
    done = run("session", "diff", "main", "16", folder=talk)
    assert done.code == 0
    assert "Broken at AGENTS.md (rules) in the system slot" in done.out
    assert "because AGENTS.md (rules) changed" in done.out
    told = json.loads(run("session", "diff", "main", "16", "--json", folder=talk).out)
    assert (told["state"], told["earlier"][:5], told["later"][:6]) == ("broken", "good.", "brief.")
    assert "Extends" in run("session", "diff", "main", "2", folder=talk).out
    calls = run("session", "diff", "main", "15", "15", "--call", "1", "--later-call", "2", folder=talk).out
    assert calls.startswith("call 2 of 2 of turn 15 of session 'main', after call 1 of 2 of turn 15")
    assert "The same" in run("session", "diff", "main", "3", "3", folder=talk).out
    assert run("session", "diff", "main", "1", folder=talk).code == 2
    assert run("session", "diff", "main", "3", "--later-call", "1", folder=talk).code == 2


def test_assemble_rebuilds_recorded_call_with_changes_and_writes_nothing(talk: Path) -> None:
    ledger = talk / ".nexus" / "ledger.db"
    before = ledger.read_bytes()
    body = json.loads(run("assemble", "--turn", "10", "--as", "anthropic", folder=talk).out)
    assert body == json.loads(run("replay", "main", "10", folder=talk).out)
    told = json.loads(run("explain", "main", "10", "--budget", "2500", "--json", folder=talk).out)
    assert told["available"] == 2_500
    other = json.loads(run("assemble", "another", "--turn", "10", "-m", "gpt-4o", "--as", "openai", folder=talk).out)
    assert other["messages"][-1]["content"].endswith("another")
    assert run("assemble", "--turn", "10", "--strategy", "middle_out", "--budget", "2500", folder=talk).code == 0
    assert "middle_out" in run("explain", "main", "--strategy", "middle_ou", folder=talk).err
    assert run("explain", "main", "10", "--budget", "2500", "--unverified", folder=talk).code == 2
    assert run("assemble", folder=talk).code == 2
    assert run("assemble", "x", "--call", "1", folder=talk).code == 2
    assert run("assemble", "--turn", "3", "--save", "x.json", folder=talk).code == 2
    assert run("assemble", "--turn", "3", "--profile", "none", folder=talk).code == 2
    assert run("assemble", "--turn", "3", "--budget", "5", folder=talk).code == 3
    assert ledger.read_bytes() == before


def test_unverified_call_exits_5_and_is_printed_with_unverified(talk: Path) -> None:
    with nexus.open(talk, models={}) as nx:
        call = recorded_call(nx.ledger.store, "main", 3)
        records = [
            r for r in nx.ledger.store.dump() if getattr(r, "sha256", "") != call.row.manifest["inputs"]["blocks"]
        ]
    with nexus.open(ledger=talk / "other.db") as nx:
        nx.ledger.store.load(records)
    done = run("replay", "main", "3", "--ledger", "other.db", folder=talk)
    assert (done.code, done.out) == (5, "")
    assert "blocks (" in done.err
    shown = run("replay", "main", "3", "--ledger", "other.db", "--unverified", folder=talk)
    assert shown.code == 0
    assert "NOT VERIFIED" in shown.err
    assert "Warning" in run("explain", "main", "3", "--ledger", "other.db", "--unverified", folder=talk).out
    assert run("session", "diff", "main", "3", "--ledger", "other.db", folder=talk).code == 5
    assert (
        "not verified" in run("session", "diff", "main", "3", "--ledger", "other.db", "--unverified", folder=talk).err
    )


def test_next_call_has_model_and_profile_of_the_last_one(empty: Path) -> None:
    with nexus.open(empty) as nx:
        nx.record(nx.assemble("hi", model="gpt-4o", profile="repl"), nexus.AgentResult((nexus.assistant("hello"),)))
        assert nx.calls.last_settings("main") == ("gpt-4o", "repl")
        assert nx.explain("main").model == "gpt-4o"
        with pytest.raises(nexus.NexusError):
            nx.calls.last_settings("nobody")
    told = run("explain", "main", "--json", folder=empty).json
    assert told["model"] == "gpt-4o"
    assert "surroundings" in run("explain", "main", folder=empty).out
    assert "gpt-4o (openai), profile repl" in run("context", "main", folder=empty).out
    assert "o3 (openai), profile bare" in run("context", "main", "-m", "o3", "--profile", "bare", folder=empty).out


def test_unknown_profile_of_the_last_call_is_the_default_one(empty: Path) -> None:
    profile = Profile("mine", "", system=(), current=())
    with nexus.open(empty, profiles={"mine": profile}) as nx:
        nx.record(nx.assemble("hi", profile="mine"), nexus.AgentResult((nexus.assistant("hello"),)))
    with nexus.open(empty) as nx:
        assert nx.calls.last_settings("main")[1] == "layered"
    assert run("explain", "main", folder=empty).code == 0


def test_imported_session_without_calls_has_the_default_settings(empty: Path) -> None:
    path = write_json(empty / "given.json", {"messages": [{"role": "user", "content": "hi"}]})
    assert run("import", path, folder=empty).code == 0
    with nexus.open(empty) as nx:
        assert nx.calls.last_settings("given") == (nx.model, "layered")


def test_imported_session_has_the_model_of_its_newest_reply(empty: Path) -> None:
    messages = [nexus.user("hi"), replace(assistant("hello"), model="claude-opus-4-6"), nexus.user("more")]
    with nexus.open(empty) as nx:
        nx.ledger.append("given", with_sizes(messages, nx.counter))
        assert nx.calls.last_settings("given") == ("claude-opus-4-6", "layered")
    assert "claude-opus-4-6 (anthropic)" in run("explain", "given", folder=empty).out
    assert "next call to claude-opus-4-6" in run("context", "given", folder=empty).out
