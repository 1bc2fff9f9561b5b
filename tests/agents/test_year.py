"""A year in one session: `python -m torture year` plays 5,000 turns; here are 300, and what a turn must not leave behind."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import typing
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import nexus
from nexus.agents import Agent
from nexus.agents.turn_tools import TurnTools
from nexus.engine import Engine
from nexus.ledger.recorded_calls import last_call
from nexus.models import ModelReply
from nexus.types.ledger_entries import Commit, Compaction, NewEntry

ROOT = Path(__file__).parents[2]
TURNS = 300


class Echo:
    """Answers each call with a word."""

    async def stream(self, _ctx: nexus.AssembledContext) -> AsyncGenerator[Any]:
        yield ModelReply(nexus.AgentResult((nexus.assistant("Yes."),)))


@pytest.mark.slow
def test_year_of_turns_keeps_all_promises(tmp_path: Path, record_property: Any) -> None:
    command = [sys.executable, "-W", "error", "-m", "torture", "year", "--turns", str(TURNS), "--json"]
    done = subprocess.run([*command, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["failed"] == {}
    assert done.returncode == 0
    counts = report["tortures"][0]["counts"]
    assert counts["turns whose end is stored"] == TURNS
    assert counts["compactions"] >= TURNS // 4
    assert counts["facts found with recall"] >= 12
    assert counts["questions for facts that a summary replaced"] >= 8
    assert counts["facts that the prompt had before"] < counts["facts found with recall"]
    assert counts["bodies over the window by another tokenizer"] == counts["overflows that the engine met"] == 0
    assert counts["contexts replayed byte for byte"] == 200
    record_property("figures", {"turns of a year in one session": TURNS})


def test_turn_leaves_none_of_its_tools_in_memory() -> None:
    async def run_turns() -> int:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
            agent = Agent(nx, Echo())
            for _ in range(4):
                await agent.run("Ready?", session="main")
            gc.collect()
            return sum(type(item) is TurnTools for item in gc.get_objects())

    before = sum(type(item) is TurnTools for item in gc.get_objects())
    assert asyncio.run(run_turns()) <= before + 1  # an idle thread may still have the last one


def test_structs_without_garbage_collection_contain_no_functions() -> None:
    """A function may refer to the struct that contains it, and such a cycle would never be freed."""
    found, waiting = list[type[msgspec.Struct]](), [msgspec.Struct]
    while waiting:
        waiting += (kinds := waiting.pop().__subclasses__())
        found += [kind for kind in kinds if kind.__module__.startswith("nexus.") and not kind.__struct_config__.gc]
    assert found
    wrong = {
        f"{kind.__module__}.{kind.__name__}.{name}": hint
        for kind in found
        for name, hint in typing.get_type_hints(kind).items()
        if "Callable" in str(hint)
    }
    assert wrong == {}


def answer(nx: Engine, number: int) -> None:
    """Make a call that is answered with a word."""
    nexus.call(nx, f"Question {number}?", lambda _ctx: nexus.AgentResult((nexus.assistant("Yes."),)), session="main")


def test_reads_of_a_call_do_not_grow_with_earlier_calls(tmp_path: Path) -> None:
    """Counted are the steps of SQLite's virtual machine, which are the same in every run."""
    steps: list[int] = []

    def count(event: dict[str, Any]) -> None:
        if event["sql"].lstrip().startswith(("SELECT", "WITH")):
            steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def watch(db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)

    def most_steps(nx: Engine) -> int:
        answer(nx, 0)  # the first call after a compaction reads the window again
        sums: list[int] = []
        for number in range(10):
            steps.clear()
            answer(nx, number)
            last_call(nx.ledger.store, 1)  # as the calls behind a turn's first one
            sums.append(sum(steps))
        return max(sums)

    apsw.connection_hooks.append(watch)
    try:
        with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
            few = most_steps(nx)
            for number in range(200):
                answer(nx, number)
                head = nx.ledger.store.head(1)[0]
                body = msgspec.to_builtins(Compaction(1, head, head + 2, "So far."))
                nx.ledger.store.commit("main", Commit((NewEntry("compaction", body=body),)))
            assert most_steps(nx) < 1.5 * few
    finally:
        apsw.connection_hooks.remove(watch)


def test_replaced_summaries_are_not_read_for_the_current_one() -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        for number in range(5):
            answer(nx, number)
            head = nx.ledger.store.head(1)[0]
            body = msgspec.to_builtins(Compaction(1, head, head + 2, f"Summary {number}."))
            nx.ledger.store.commit("main", Commit((NewEntry("compaction", body=body),)))
        nx.ledger.undo("main")
        summaries = [mark.body.get("summary", "") for mark in nx.ledger.store.checkpoints(1, replaced=False)]
        assert summaries == ["", "Summary 4.", "Summary 3."]
        mark = nx.ledger.live("main").checkpoint
        assert mark is not None
        assert mark.body["summary"] == "Summary 3."
