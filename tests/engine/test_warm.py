"""`warm` loads what a first call needs: after it, a first `assemble` loads no more than a later one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nexus

PROGRAM = """
import functools, gc, json, sys
import nexus

nx = nexus.open(**json.loads(sys.argv[1]))
if sys.argv[2] == "warm":
    nx.warm()


def loaded():
    caches = [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]
    tables = {
        f"{one.__module__}.{one.__qualname__}"
        for one in caches
        if one.__module__.startswith("nexus.")
        and not getattr(one.__wrapped__, "__code__", nexus.open.__code__).co_argcount
        and one.cache_info().currsize
    }
    return set(sys.modules), tables


def new_in_call(text):
    modules, tables = loaded()
    ctx = nx.assemble(text, session=text)
    ctx.to_anthropic()
    now = loaded()
    return sorted(now[0] - modules), sorted(now[1] - tables)


print(json.dumps([new_in_call("first"), new_in_call("second")]))
"""


def new_in_calls(mode: str, **options: Any) -> list[Any]:
    """Return modules and tables that the first and the second call of a program load."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(options), mode]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_first_assemble_after_warm_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.\n")
    options = {"workspace": str(tmp_path), "ledger": ":memory:"}
    first, _ = new_in_calls("cold", **options)
    assert first[0], "the first call loads modules"
    assert first[1], "the first call fills tables"
    assert new_in_calls("warm", **options) == [[[], []], [[], []]]


def test_warm_writes_nothing(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        nx.warm()
        assert nx.sessions(include_inactive=True) == []


def test_warm_accepts_a_model_without_room() -> None:
    models = {"tiny": {"context_tokens": 300, "max_output_tokens": 100}}
    with nexus.open(ledger=":memory:", model="tiny", models=models) as nx:
        nx.warm()


def test_async_engine_is_warmed_off_the_event_loop() -> None:
    async def program() -> str:
        async with nexus.open_async(ledger=":memory:") as nx:
            await nx.warm()
            return (await nx.assemble("Hi.", session="s")).model

    assert asyncio.run(program())
