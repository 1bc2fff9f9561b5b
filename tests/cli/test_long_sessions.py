"""Sessions of many blocks: the output is that of one that is read at once, and damage comes before any of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import nexus
from cli.running import run
from nexus.cli import _tables
from nexus.ledger import history_operations as operations
from nexus.ledger import replay
from nexus.ledger.replay import RecordedToolCall, RecordedTurn
from nexus.render.export import as_values

FORMS = [("history", "main"), ("history", "main", "--json"), ("history", "main", "--from-summary", "--json"),
         ("history", "main", "--as", "openai"), ("history", "main", "--as", "anthropic"), ("session", "turns", "main"),
         ("history", "main", "--as", "markdown"), ("history", "main", "--from-summary"), ("session", "calls", "main"),
         ("session", "turns", "main", "--json"), ("session", "calls", "main", "--json")]  # fmt: skip


@pytest.mark.parametrize("command", FORMS, ids=" ".join)
def test_the_size_of_a_block_does_not_show(
    example: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(*command, folder=example)
    assert whole.code == 0
    monkeypatch.setattr(operations, "READ_ENTRIES", 7)
    monkeypatch.setattr(_tables, "ROWS_PER_BLOCK", 1_000)
    assert run(*command, folder=example) == whole


def test_turns_calls_and_entries_are_those_of_the_ledger(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nexus.open(workspace=example) as nx:
        entries = nx.ledger.entries("main")
    monkeypatch.setattr(operations, "READ_ENTRIES", 5)
    shown = {name: run("session", name, "main", "--json", folder=example).json for name in ("turns", "calls")}
    assert msgspec.convert(shown["turns"], list[RecordedTurn]) == replay.turns(entries)
    assert msgspec.convert(shown["calls"], list[RecordedToolCall]) == replay.calls(entries)
    assert run("history", "main", "--json", folder=example).json == json.loads(json.dumps(as_values(entries)))


@pytest.mark.parametrize("last", [1, 2, 10, 72, 73, 74, 1_000])
def test_the_last_turns_are_the_end_of_all_turns(example: Path, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = run("session", "turns", "main", "--json", folder=example).json
    monkeypatch.setattr(operations, "READ_ENTRIES", 3)
    shown = run("session", "turns", "main", "--last", str(last), "--json", folder=example).json
    assert shown == everything[-last:]


@pytest.mark.parametrize("command", FORMS, ids=" ".join)
def test_damage_near_the_end_is_said_before_anything_is_shown(
    example: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    db: Any = apsw.Connection(str(example / ".nexus" / "ledger.db"))
    db.execute("UPDATE entry SET at_ms=at_ms+1 WHERE seq=300").fetchall()
    db.close()
    monkeypatch.setattr(operations, "READ_ENTRIES", 50)
    ran = run(*command, folder=example)
    assert ran.code == 5
    assert "entry 300 of thread 1" in ran.err
    assert ran.out == "" or ran.json["error"]["code"] == "ledger_damaged"


def test_a_session_without_messages_says_so(empty: Path) -> None:
    with nexus.open(workspace=empty) as nx:
        nx.ledger.sessions.create("bare")
    assert run("history", "bare", folder=empty).out.strip() == "Session 'bare' has no messages yet."
    assert run("history", "bare", "--json", folder=empty).json == []
    assert run("session", "turns", "bare", "--json", folder=empty).json == []
