"""Session state that later calls must repeat byte for byte: the header of the history and the frozen system prompt.

The manifest of the session's last call holds it. Sessions started under another profile have no header.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from nexus.assembly.manifest_store import StoredManifest, manifest_of
from nexus.ledger.recorded_calls import last_call
from nexus.ledger.store import HistoryStore
from nexus.ledger.text_encoding import from_json
from nexus.types.block import Block
from nexus.types.decoding import decodable
from nexus.types.history import CONTEXT_SUMMARY, GENERATED, PLAIN, SESSION_START, HistoryHeader
from nexus.types.ledger_entries import Entry
from nexus.types.profile import Profile
from nexus.workspace.source_context import SourceContext
from nexus.workspace.times import session_start, stamp_of

_OPENING_ENTRIES = 8
"""Entries of a session that may precede its first message and contain its header."""

_blocks = msgspec.json.Decoder(decodable(tuple[Block, ...]))


def is_new(store: HistoryStore, thread: int | None) -> bool:
    """Return True if a thread has no entries."""
    return thread is None or store.head(thread)[0] == 0


def history_header(
    profile: Profile,
    store: HistoryStore,
    thread: int | None,
    last: StoredManifest | None,
    mark: Entry | None,
    sources: SourceContext,
) -> HistoryHeader:
    """Return the header of a session's history. `last` is the manifest of the view's last call."""
    started = heading = ""
    if profile.session_header:
        if is_new(store, thread):
            started = session_start(sources)
        else:
            started = _stored_header(store, thread, last)
    if profile.summary == "context" and mark is not None and mark.kind == "compaction":
        stored = ""
        if last is not None and last.mark == mark.seq:
            stored = last.summary_heading
        heading = stored or f"{CONTEXT_SUMMARY}{GENERATED}{stamp_of(sources, mark.at_ms)}\n"
    return HistoryHeader(started, heading or PLAIN.summary_heading)


def frozen_blocks(
    profile: Profile, store: HistoryStore, last: StoredManifest | None, mark: Entry | None
) -> tuple[Block, ...] | None:
    """Return the blocks of the last call's system prompt; None if they are not frozen, or there is a new checkpoint."""
    if not profile.freeze_system_prompt or last is None or last.mark != (mark.seq if mark else 0):
        return None
    return _stored_blocks(store, last)


def last_blocks(store: HistoryStore, thread: int | None, last: StoredManifest | None) -> tuple[Block, ...]:
    """Return the blocks of the view's last call, else of the thread's last call; none if there is none."""
    if last is None and thread is not None:
        last = manifest_of(last_call(store, thread))
    if last is not None:
        return _stored_blocks(store, last) or ()
    return ()


def _stored_blocks(store: HistoryStore, manifest: StoredManifest) -> tuple[Block, ...] | None:
    data = None
    if "blocks" in manifest.blob_hashes:
        data = store.blob(manifest.blob_hashes["blocks"])
    if data is not None:
        return from_json(data.decode(), _blocks)
    return None


def _stored_header(store: HistoryStore, thread: int | None, last: StoredManifest | None) -> str:
    """Return the header of the view's last call, else of the thread's last call, which was for another model.

    Before the first call it is the one that a logger stored in front of all messages.
    """
    if last is None and thread is not None:
        last = manifest_of(last_call(store, thread))
    if last is None and thread is not None:
        opening = takewhile(lambda entry: not entry.rows, store.entries(thread, 0, _OPENING_ENTRIES))
        return next((str(entry.body[SESSION_START]) for entry in opening if SESSION_START in entry.body), "")
    if last is not None:
        return last.session_header
    return ""
