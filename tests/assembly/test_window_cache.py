"""The cache of windows: sessions that take turns, and the entries that their calls read from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.assembly import window_cache
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Entry, MessageRef

EARLIER_TURNS = 6
"""Their twelve entries; a call with a cached window reads the two of the turn before."""


def most_entries_read(sessions: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many entries the calls of the last round read, at most, when the sessions take turns."""
    read: list[Entry] = []
    stored_entries = SqliteLedger.entries

    def entries(store: SqliteLedger, *args: Any, **options: Any) -> Iterator[Entry]:
        for entry in stored_entries(store, *args, **options):
            read.append(entry)
            yield entry

    monkeypatch.setattr(SqliteLedger, "entries", entries)
    numbers: list[int] = []
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        for turn in range(EARLIER_TURNS + 1):
            for number in range(sessions):
                read.clear()
                ctx = nx.assemble(f"Question {turn}", session=f"s{number}")
                if turn == EARLIER_TURNS:
                    numbers.append(len(read))
                nx.record(ctx, nexus.AgentResult((nexus.assistant(f"Answer {turn}"),)))
    return max(numbers)


SESSIONS = 84


def test_many_short_sessions_keep_their_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_entries_read(SESSIONS, monkeypatch) <= 2


def test_least_recent_windows_go_when_there_are_too_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_cache, "MAX_TOKENS", 10_000)
    assert most_entries_read(SESSIONS, monkeypatch) >= 2 * EARLIER_TURNS
    assert most_entries_read(4, monkeypatch) <= 2


def test_calibrations_of_a_session_leave_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[window_cache.WindowCache] = []
    made = window_cache.WindowCache.__init__
    monkeypatch.setattr(
        window_cache.WindowCache, "__init__", lambda cache, *args: (caches.append(cache), made(cache, *args))[1]
    )
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        factors: set[float] = set()
        for turn in range(12):
            ctx = nx.assemble(f"Question {turn} " * 500, session="s")
            factors.add(ctx.provenance.manifest.images.factor)
            tokens = int(ctx.token_budget.used.total * (0.4 + turn / 40))
            usage = nexus.TokenUsage(input_tokens=tokens, output_tokens=5)
            nx.record(ctx, nexus.AgentResult((nexus.assistant(f"Answer {turn}"),), usage))
    assert len(factors) > 1
    assert [len(cache._windows) for cache in caches] == [1]


def talk(nx: nexus.Engine, turns: int) -> None:
    """Record turns of about 170 tokens."""
    for turn in range(turns):
        answer = nexus.assistant(f"Answer {turn} " * 20)
        nx.record(nx.assemble(f"Question {turn} " * 20, session="s"), nexus.AgentResult((answer,)))


def record(nx: nexus.Engine, ctx: nexus.AssembledContext) -> None:
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Done."),)))


def test_cut_that_another_process_stored_first_is_the_one_that_later_calls_apply(tmp_path: Path) -> None:
    with (
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o") as nx,
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o") as other,
    ):
        talk(nx, 12)
        late, first = (
            nx.assemble("long " * 400, session="s", budget=2_000),
            other.assemble("Hi.", session="s", budget=1_500),
        )
        assert late.cut is not None and first.cut is not None
        assert late.cut != first.cut
        record(other, first)
        record(nx, late)
        after = nx.assemble("And now?", session="s", budget=2_000)
        assert (after.cut, after.provenance.manifest.cut) == (None, 1)
        record(nx, after)
        assert MessageRef(*after.provenance.manifest.first) == first.cut.first
        assert [nx.replay("s", turn).body_hash for turn in (13, 14, 15)] == [
            ctx.body_hash for ctx in (first, late, after)
        ]


def test_window_of_a_call_that_lacks_its_own_event_is_not_kept(tmp_path: Path) -> None:
    with (
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o") as nx,
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o") as other,
    ):
        talk(other, 6)
        nx.assemble("Hi.", session="s", budget=2_000)
        talk(other, 6)
        other.begin("long " * 1_700, session="s", budget=2_000)
        assert other.compact("s", budget=2_000)
        turn = nx.current_turn("s", budget=2_000)
        assert turn is not None
        ctx = turn.assemble()
        assert ctx.cut is not None
        turn.record(nexus.AgentResult((nexus.assistant("Done."),)))
        after = nx.assemble("And now?", session="s", budget=2_000)
        assert after.provenance.manifest.mark > 0
        record(nx, after)
        assert [nx.replay("s", turn).body_hash for turn in (13, 14)] == [ctx.body_hash, after.body_hash]
