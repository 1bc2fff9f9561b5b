"""`nexus session show` prints the sessions that a session spawned as a tree, whatever is in their names and tasks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nexus
from cli.running import run
from nexus import ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.context import AssembledContext
from nexus.ledger.sessions import SessionMetadata
from support.scripted_agent import Scenario, said

EVIL = "\x1b[31m\x07\x9b\u202e\nx"
WIDTH, DEPTH = 20, 3


def spawn(id_: str, task: str) -> ToolCall:
    return ToolCall(id_, "spawn_worker", json.dumps({"task": task}))


def answer(ctx: AssembledContext) -> list[Any]:
    """Twenty workers at the top; the first has a worker, which has one too."""
    text = ctx.current_message.text()
    if ctx.current_message.role == "tool":
        return said("Done.")
    if ctx.role != "worker":
        return said("", *(spawn(f"c{number}", f"level 1 {number}") for number in range(WIDTH)))
    level = int(text.split()[1])
    if text.endswith(" 0") and level < DEPTH:
        return said("", spawn(f"deeper{level}", f"level {level + 1} 0"))
    return said("Report.")


def shown(folder: Path, name: str) -> list[str]:
    ran = run("session", "show", name, folder=folder)
    assert ran.code == 0, ran.err
    return ran.out.splitlines()


def test_wide_and_deep_workers_are_a_tree_with_state_tokens_and_cost(empty: Path) -> None:
    async def main() -> None:
        async with nexus.open_async(empty, model="gpt-4o") as nx:
            await Agent(nx, Scenario(answer), workers=WorkerLimits(depth=DEPTH)).run("Go.", session="boss")

    asyncio.run(main())
    lines = shown(empty, "boss")
    top = lines.index(f"spawned        {WIDTH + DEPTH - 1} sessions")
    first = lines[top + 1]
    label = first.split(":")[1]
    assert first == f"  worker:{label}: completed, turn 1, call c0, 20 + 10 tokens, 0.0001 USD"
    assert lines[top + 2] == "      level 1 0"
    assert lines[top + 3].startswith(f"    worker:{label}.1.")
    assert lines[top + 3].endswith(": completed, turn 1, call deeper1, 20 + 10 tokens, 0.0001 USD")
    assert (lines[top + 4], lines[top + 6]) == ("        level 2 0", "          level 3 0")
    tasks = [line.strip() for line in lines[top + 1 :] if line.startswith("      level")]
    assert tasks == [f"level 1 {number}" for number in range(WIDTH)]

    found = run("session", "show", "boss", "--json", folder=empty).json
    workers = found["workers"]
    assert sorted(found["spawned"]) == sorted(worker["session"] for worker in workers)
    assert [worker["parent_call_id"] for worker in workers] == [f"c{number}" for number in range(WIDTH)]
    assert {(worker["parent_turn"], worker["state"], worker["turns"]) for worker in workers} == {(1, "completed", 1)}
    (second,) = workers[0]["workers"]
    (third,) = second["workers"]
    assert (second["task"], third["task"], third["workers"]) == ("level 2 0", "level 3 0", [])
    assert third["reported"]["models"][0]["output_tokens"] == 5
    assert shown(empty, third["session"])[-1].startswith("cost ")


def test_hostile_names_tasks_and_calls_are_escaped_and_shortened(empty: Path) -> None:
    with nexus.open(empty) as nx:
        nx.ledger.sessions.create("boss")
        long = SessionMetadata(parent_session="boss", task="y" * 1_000_000, task_status=EVIL)
        nx.ledger.sessions.create(f"a{EVIL}", SessionMetadata(parent_session="boss", task=EVIL))
        nx.ledger.sessions.create("b" * 900, long)
        nx.ledger.sessions.archive("b" * 900)
        nx.ledger.sessions.create("c", SessionMetadata(parent_session="b" * 900))
    lines = shown(empty, "boss")
    assert lines[-6:] == [
        "spawned        3 sessions",
        r"  a\x1b[31m\x07\x9b\u202e\nx: no turn yet",
        r"      \x1b[31m\x07\x9b\u202e\nx",
        f"  {'b' * 59}…: no turn yet, archived",
        f"      {'y' * 59}…",
        "    c: no turn yet",
    ]
    workers = run("session", "show", "boss", "--json", folder=empty).json["workers"]
    assert [(worker["session"], worker["state"]) for worker in workers] == [(f"a{EVIL}", None), ("b" * 900, None)]


def test_tree_ends_at_the_deepest_level_and_names_the_rest(empty: Path) -> None:
    with nexus.open(empty) as nx:
        nx.ledger.sessions.create("s0")
        for number in range(1, 200):
            nx.ledger.sessions.create(f"s{number}", SessionMetadata(parent_session=f"s{number - 1}"))
    lines = shown(empty, "s0")
    assert [line.strip() for line in lines[-2:]] == ["s20: no turn yet", "1 more: nexus session show s20"]
    found = run("session", "show", "s0", "--json", folder=empty).json
    for _ in range(20):
        (found,) = found["workers"]
    assert (found["session"], found["spawned"], found["workers"]) == ("s20", ["s21"], [])
