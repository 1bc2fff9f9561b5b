"""Look-ups of document 002's ledger: the messages of one turn, and one compaction."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from nexus.engine import Engine
from nexus.errors import BadReference, NoSuchSession
from nexus.ledger.replay import conversation_rows, entries_from_turn, live_checkpoints
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Compaction, Entry
from nexus.types.message import Message


class CompactionTurn(Struct, frozen=True):
    """A compaction of a thread."""

    id: str
    """Thread and entry, `1.57`."""
    at_ms: int
    details: Compaction
    """Its summary, what it covers and its tokens."""

    @property
    def summary(self) -> str:
        """The summary that replaces older messages."""
        return self.details.summary


def get_messages_by_turn_id(nx: Engine, turn_id: str) -> list[Message]:
    """Return the stored messages of a turn, oldest first, whether later calls show them or not.

    Args:
        nx: The engine.
        turn_id: Thread and number of the turn, as in `ctx.parent_turn_id`: `1.3`.

    Raises:
        BadReference: The turn does not exist.
    """
    thread, number = _parse(nx, turn_id, "turn")
    with nx.ledger.store.snapshot():
        entries = [entry for entry in entries_from_turn(nx.ledger.store, thread, number) if entry.turn == number]
    if not entries or not number:
        raise BadReference(f"turn {turn_id!r} not found (ids are THREAD.TURN, as in ctx.parent_turn_id)")
    return [row.message for entry in entries for row in conversation_rows(entry)]


def find_latest_compaction(nx: Engine, thread: str | int) -> CompactionTurn | None:
    """Return the current compaction of a session, or of a thread by its number; None without one.

    A compaction that was undone, or followed by a clear, is not current. Raises NoSuchSession.
    """
    if isinstance(thread, int):
        number = thread
    else:
        number = nx.ledger.thread(thread)
    mark = live_checkpoints(nx.ledger.store.checkpoints(number, replaced=False)).checkpoint
    if mark is not None and mark.kind == "compaction":
        return _compaction_turn(number, mark)
    return None


def get_compaction(nx: Engine, compaction_id: str) -> CompactionTurn:
    """Return a compaction by its id, also one that was undone or replaced. Raises BadReference."""
    thread, seq = _parse(nx, compaction_id, "compaction")
    entries = (
        entry for entry in nx.ledger.store.checkpoints(thread) if entry.seq == seq and entry.kind == "compaction"
    )
    entry = next(entries, None)
    if entry is None:
        raise BadReference(
            f"compaction {compaction_id!r} not found (ids are THREAD.ENTRY, as find_latest_compaction has)"
        )
    return _compaction_turn(thread, entry)


def _compaction_turn(thread: int, entry: Entry) -> CompactionTurn:
    body: dict[str, Any] = entry.body
    return CompactionTurn(f"{thread}.{entry.seq}", entry.at_ms, msgspec.convert(body, decodable(Compaction)))


def _parse(nx: Engine, name: str, kind: str) -> tuple[int, int]:
    """Return thread and number of an id. Raises BadReference."""
    thread, _, number = name.partition(".")
    try:
        if thread.isdecimal() and number.isdecimal() and nx.ledger.store.thread(int(thread)):
            return int(thread), int(number)
    except NoSuchSession:
        pass
    raise BadReference(f"{kind} {name[:80]!r} not found (ids have the form 1.3: thread and number)")
