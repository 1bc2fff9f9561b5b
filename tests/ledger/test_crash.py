"""A process that is killed at any moment loses nothing that was acknowledged, and leaves no append in part.

The moments here are random. `torture.faults` kills at each statement, one after the other.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from ledger import appending
from ledger.stores import append, behind_its_back, replay
from ledger.test_sqlite import started
from nexus.ledger.sqlite import SqliteLedger

ROUNDS = 30


@pytest.mark.slow
def test_kills_lose_no_acknowledged_append_and_leave_none_partial(tmp_path: Path) -> None:
    path, dice = tmp_path / "l.db", random.Random(11)
    acknowledged: dict[str, int] = {}
    waiting = [started(path, "main", "r0", 10_000)]
    for number in range(ROUNDS):
        process = waiting.pop()
        waiting.append(started(path, "main", f"r{number + 1}", 10_000))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        first = process.stdout.readline()
        assert first == "0\n", process.stderr.read() if process.stderr else ""
        time.sleep(dice.random() * 0.02)
        process.kill()
        rest = process.stdout.read()  # not `communicate`, which loses what was read ahead
        process.communicate(timeout=600)
        acknowledged[f"r{number}"] = 1 + len([line for line in rest.split("\n")[:-1] if line])
    spare = waiting.pop()
    spare.kill()
    spare.communicate(timeout=600)

    ledger = SqliteLedger(str(path))
    entries = replay(ledger, "main")
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    for name, count in acknowledged.items():
        own = [entry for entry in entries if entry.rows[0].message.id.startswith(f"{name}-")]
        assert count <= len(own) <= count + 1, f"{name}: {count} were acknowledged, {len(own)} are there"
        assert [tuple(row.message for row in entry.rows) for entry in own] == [
            appending.messages(name, number) for number in range(len(own))
        ]
    assert sum(acknowledged.values()) > ROUNDS
    with behind_its_back(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    append(ledger, "main", *appending.messages("after", 0))
    assert replay(ledger, "main")[-1].seq == len(entries) + 1
