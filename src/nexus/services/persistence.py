"""Document 000's PersistenceService: the messages of a user as rows, read from the session of that user in the ledger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.engine.preparation import check_trusted
from nexus.errors import BadSetting, NotAllowed
from nexus.ledger.history_operations import Ledger
from nexus.ledger.replay import conversation_rows
from nexus.services.tagged_blocks import message_row
from nexus.types import session_key
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Text

MAX_READ = 256
"""Entries that are read at a time, from the newest back."""

_ROLES = ("human", "ai", "tool", "system")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def owner_session(owner_key: str) -> str:
    """Return the label of the session with a user's conversation: `dm:` and the owner key.

    Raises BadSetting for a key that no label can contain.
    """
    return session_key.key("dm", owner_key).label


def session_owner(label: str) -> str:
    """Return the owner key of a label of `owner_session`; "" for other labels."""
    parsed = session_key.parse(label)
    if parsed is not None and parsed.kind == "dm":
        return parsed.name
    return ""


def owns(nx: Engine, owner_key: str, session: str) -> bool:
    """Return whether a session has a user's conversation, maybe under an alias."""
    label = owner_session(owner_key)
    return session == (nx.ledger.store.resolve(label) or label)


def check_owner(nx: Engine, owner_key: str, session: str) -> None:
    """Raise NotAllowed if a session is another user's."""
    if not owns(nx, owner_key, session):
        raise NotAllowed(f"session {session!r} is not of the user {owner_key!r} (name the session's owner)")


class PersistenceService:
    """Reader of the users' histories. Turns are written by the engine: `nx.begin(Event(…, id=run_id), session=…)`.

    Args:
        nx: Engine with the ledger; its threads do the reading.
    """

    def __init__(self, nx: AsyncEngine) -> None:
        self.nx = nx

    async def get_history(self, owner_key: str, limit: int = 20) -> list[dict[str, Any]]:
        """Return at most `limit` rows of a user, newest first; none for an unknown user.

        A row has `role` (human, ai, tool, system), `content`, `run_id` (the imported one, the id of the turn's event, or `turn N`),
        `timestamp` (ISO 8601, UTC; None if it is outside the calendar) and `metadata`, which has the `tool_calls` of an
        AI row and the `tool_call_id` and `tool_name` of a tool row. Messages before the newest clear are not returned,
        those before a compaction are. Raises BadSetting, LedgerError, such as LedgerUnusable.
        """
        if type(limit) is not int:
            raise BadSetting("limit is no number of rows (pass an int)")
        return await self.nx.run(_newest_rows, self.nx.engine, owner_session(owner_key), limit)


def _newest_rows(nx: Engine, label: str, limit: int) -> list[dict[str, Any]]:
    check_trusted(nx.ledger.store)
    ledger = nx.ledger
    with ledger.snapshot():
        if limit <= 0 or ledger.store.thread_of(label) is None:
            return []
        entries: list[Entry] = []
        messages: list[tuple[Entry, Message]] = []
        for entry in _newest_entries(ledger, label, limit):
            entries.append(entry)
            messages += [(entry, row.message) for row in reversed(conversation_rows(entry)) if _is_row(row.message)]
            if len(messages) >= limit:
                break
        run_ids = _run_ids(ledger, label, entries)
    return [
        _row(message, _own_run_id(message) or run_ids[entry.turn], message.at_ms or entry.at_ms)
        for entry, message in messages[:limit]
    ]


def _run_ids(ledger: Ledger, label: str, entries: Sequence[Entry]) -> dict[int, str]:
    """Return the ids of the events that began the turns of entries, newest first; `turn N` for one without an id."""
    if not entries:
        return {}
    first_of = {entry.turn: entry for entry in entries}
    oldest = entries[-1]
    # The oldest turn may have begun before these entries, and may be long.
    first = bisect_left(range(1, oldest.seq + 1), oldest.turn, key=lambda seq: _entry_at(ledger, label, seq).turn) + 1
    first_of[oldest.turn] = _entry_at(ledger, label, first)
    run_ids: dict[int, str] = {}
    for turn, entry in first_of.items():
        ids = (row.message.id for row in entry.rows if row.message.role == "user")
        run_ids[turn] = next(filter(None, ids), f"turn {turn}")
    return run_ids


def _entry_at(ledger: Ledger, label: str, seq: int) -> Entry:
    return ledger.entries(label, seq - 1, seq)[0]


def _newest_entries(ledger: Ledger, label: str, limit: int) -> Iterator[Entry]:
    """Yield the entries after the newest clear, newest first. `limit` is the number of rows that are wanted."""
    end = ledger.thread_info(label).head_seq
    begin = ledger.live(label).cleared_at
    while end > begin:
        after = max(end - min(limit, MAX_READ), begin)
        yield from reversed(ledger.entries(label, after, end))
        end = after


def _own_run_id(message: Message) -> str:
    """Return the run that a message names itself, as imported rows do in their other fields; empty for none."""
    if message.run_id or '"run_id"' not in message.meta:
        return message.run_id
    try:
        run_id = msgspec.json.decode(message.meta, type=dict[str, Any]).get("run_id")
    except (msgspec.DecodeError, RecursionError):
        return ""
    if isinstance(run_id, (str, int)):
        return str(run_id)
    return ""


def _is_row(message: Message) -> bool:
    """Return false for a message that Nexus has written for itself, such as a session's header."""
    return message_row(message, "").role in _ROLES


def _row(message: Message, run_id: str, at_ms: int) -> dict[str, Any]:
    row = message_row(message, run_id)
    metadata: dict[str, Any] = {}
    content = row.text
    if calls := [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls()]:
        metadata["tool_calls"] = calls
    if results := list(message.results()):
        content = "\n".join(part.text for result in results for part in result.content if isinstance(part, Text))
        metadata |= {"tool_call_id": results[0].call_id, "tool_name": results[0].name}
    return {
        "role": row.role,
        "content": content,
        "run_id": run_id,
        "timestamp": utc_time(at_ms),
        "metadata": metadata,
    }


def utc_time(at_ms: int) -> str | None:
    """Return Unix time in milliseconds as ISO 8601 in UTC; None if it is outside the calendar."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=at_ms)).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    except OverflowError:
        return None
