"""What a session goes on with, where its profile keeps it as it began: the first line of its history, its system slot.

It stands in the manifest of the session's last call, so that every later call has the same bytes. A session that another
profile began has no first line: nobody knows what its user was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nexus.ledger.recorded_calls import last_call
from nexus.ledger.store import LedgerStore
from nexus.ledger.text_encoding import from_json
from nexus.types.block import Block
from nexus.types.history import CONTEXT_SUMMARY, GENERATED, PLAIN, HistoryHeader
from nexus.types.ledger_entries import Entry
from nexus.types.profile import Profile
from nexus.workspace.source_context import SourceContext
from nexus.workspace.times import session_start, stamp_of

_blocks = msgspec.json.Decoder(tuple[Block, ...])

Last = Mapping[str, Any] | None
"""The manifest of the last call of a view."""


def is_new(store: LedgerStore, thread: int | None) -> bool:
    """Whether nothing was ever said on a thread."""
    return thread is None or store.head(thread)[0] == 0


def history_header(
    profile: Profile, store: LedgerStore, thread: int | None, last: Last, mark: Entry | None, desk: SourceContext
) -> HistoryHeader:
    """How the history of a session opens, in the profile's words."""
    begun = heading = ""
    if profile.session_header:
        begun = session_start(desk) if is_new(store, thread) else _begun(store, thread, last)
    if profile.summary == "context" and mark is not None and mark.kind == "compaction":
        told = str(last.get("heading") or "") if last is not None and last.get("mark") == mark.seq else ""
        heading = told or f"{CONTEXT_SUMMARY}{GENERATED}{stamp_of(desk, mark.at_ms)}\n"
    return HistoryHeader(begun, heading or PLAIN.summary_heading)


def frozen_blocks(profile: Profile, store: LedgerStore, last: Last, mark: Entry | None) -> tuple[Block, ...] | None:
    """The blocks of the system slot as the last call had them; None where they are to be made anew."""
    if not profile.freeze_system_prompt or last is None or last.get("mark") != (mark.seq if mark else 0):
        return None
    inputs: dict[str, str] = last.get("inputs") or {}
    data = store.blob(inputs["blocks"]) if "blocks" in inputs else None
    return from_json(data.decode(), _blocks) if data is not None else None


def _begun(store: LedgerStore, thread: int | None, last: Last) -> str:
    """The first line as the last call of this view had it, else as that of another model's had."""
    if last is not None:
        return str(last.get("begun") or "")
    row = last_call(store, thread) if thread is not None else None
    return str(row.manifest.get("begun") or "") if row is not None else ""
