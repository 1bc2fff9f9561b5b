"""What nothing uses any more is deleted in steps, and what is stored between two steps is not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nexus
from laws.mutants import Fault, broken_by
from nexus.ledger.records import BlobRecord
from nexus.ledger.shared_sql import unused_blobs

OLD = "Instructions of the old session."


@pytest.fixture
def nx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nexus.Engine]:
    monkeypatch.setattr(unused_blobs, "PAGE", 2)
    monkeypatch.setattr(unused_blobs, "STEP", 1)
    with nexus.open(ledger=tmp_path / "l.db", model="gpt-4o") as engine:
        yield engine


def call(nx: nexus.Engine, session: str, system: str) -> None:
    ctx = nx.assemble("Hello.", session=session, system=system)
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Yes."),)))


def blobs(nx: nexus.Engine) -> set[str]:
    return {record.sha256 for record in nx.ledger.store.dump() if isinstance(record, BlobRecord)}


def erase_old(nx: nexus.Engine) -> set[str]:
    """Record and erase calls, and return the blobs that only they used."""
    for number in range(5):
        call(nx, f"new {number}", f"Instructions {number}.")
    before = blobs(nx)
    for number in range(3):
        call(nx, f"old {number}", f"{OLD} {number}")
    unused = blobs(nx) - before
    assert len(unused) >= 3
    nx.ledger.upkeep.erase_unused([f"old {number}" for number in range(3)], 10**15)
    assert unused <= blobs(nx)
    return unused


def test_what_nothing_uses_goes_and_all_else_stays(nx: nexus.Engine) -> None:
    unused = erase_old(nx)
    before = blobs(nx)
    nx.ledger.upkeep.scrub()
    assert blobs(nx) == before - unused
    assert nx.ledger.store.erase([]).blobs == 0
    for number in range(5):
        assert f"Instructions {number}." in str(nx.replay(f"new {number}", 1).to_openai())


def scrub_while_a_call_is_stored(nx: nexus.Engine) -> None:
    """Do what `scrub` does, and record a call that uses what it found unused."""
    store: Any = nx.ledger.store
    unused, ends = store.read_alone(unused_blobs.unused_by_messages)
    found = [*unused_blobs.steps(partial(store.read_alone, unused_blobs.named_on_page), unused)]
    call(nx, "new 0", f"{OLD} 0")
    call(nx, "another", f"{OLD} 1")
    for names in found:
        store._write(partial(unused_blobs.delete_blobs, blobs=names, ends=ends), alone=True)
    for session, turn, number in (("new 0", 2, 0), ("another", 1, 1)):
        assert f"{OLD} {number}" in str(nx.replay(session, turn).to_openai())


def test_what_was_deleted_is_stored_again_for_the_next_call(nx: nexus.Engine) -> None:
    unused = erase_old(nx)
    nx.ledger.upkeep.scrub()
    call(nx, "next", f"{OLD} 0")
    assert unused & blobs(nx)
    assert OLD in str(nx.replay("next", 1).to_openai())


def test_what_a_call_uses_again_meanwhile_stays(nx: nexus.Engine) -> None:
    unused = erase_old(nx)
    scrub_while_a_call_is_stored(nx)
    assert 0 < len(unused & blobs(nx)) < len(unused)


@pytest.mark.parametrize(
    ("old", "new"), [("seq != after", "False"), ("ends.get((thread, view), 0)", "ends.get((thread, view), seq)")]
)
def test_build_that_forgets_new_calls_is_found(nx: nexus.Engine, old: str, new: str) -> None:
    erase_old(nx)
    fault = Fault("new calls are not read", "nexus.ledger.shared_sql.unused_blobs:delete_blobs", old, new)
    with broken_by(fault), pytest.raises((nexus.NexusError, AssertionError)):
        scrub_while_a_call_is_stored(nx)


def test_scrub_that_was_killed_between_two_steps_is_completed_by_the_next(nx: nexus.Engine) -> None:
    unused = erase_old(nx)
    store: Any = nx.ledger.store
    found, ends = store.read_alone(unused_blobs.unused_by_messages)
    first = next(unused_blobs.steps(partial(store.read_alone, unused_blobs.named_on_page), found))
    store._write(partial(unused_blobs.delete_blobs, blobs=first, ends=ends), alone=True)
    assert len(unused & blobs(nx)) == len(unused) - 1
    nx.ledger.upkeep.scrub()
    assert not unused & blobs(nx)
