"""JSON documents in the ledger: one session per document, whose newest entry is the current version.

The ledger keeps every version, and a tenant reads its own documents only. The sessions are archived, so that the list of
sessions does not show them; `nexus history LABEL` shows the versions of a document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.errors import BadConfig, HeadMoved
from nexus.ledger.sessions import SessionMetadata
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, Text
from nexus.types.sanitize import sanitize_text

SOURCE = "configuration"
"""Source of the messages that are versions of documents. Other messages of their sessions are ignored."""

CONFIGURATION_SESSION, IDENTITY_PREFIX = "configuration:default", "identity:"
"""Label of the session with the stored configuration, and beginning of those in which earlier versions kept overrides."""

MAX_TRIES = 1_000
"""Tries of a change that other writers overtake. Each overtaking is a change that got through."""

_BLOCK = 16


def read_document(nx: Engine, label: str) -> dict[str, Any]:
    """Return the current version of a document; empty if it does not exist. Raises BadConfig, LedgerError."""
    return _read(nx, label)[0]


def change_document(
    nx: Engine, label: str, title: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Replace a document by the result of `change`; return it, and whether it is another one.

    `change` is called again with the newer version if another writer came first, so it must not have side effects.
    Raises BadConfig, LedgerError, and the errors of `change`.
    """
    for attempt in range(1, MAX_TRIES + 1):
        with nx.ledger.snapshot():
            document, head = _read(nx, label)
        new = change(document)
        if new == document:
            return document, False
        text = sanitize_text(msgspec.json.encode(new, order="sorted").decode())
        message = Message("system", (Text(text),), at_ms=nx.clock_ms(), source=SOURCE)
        commit = Commit((NewEntry(messages=with_sizes((message,), nx.counter)),), expected_head=head)
        try:
            nx.ledger.commit(label, commit, SessionMetadata(title=title, status="archived"))
        except HeadMoved:
            if attempt == MAX_TRIES:
                raise
        else:
            return new, True
    raise AssertionError  # the last try returns or raises


def is_document(nx: Engine, name: str) -> bool:
    """Return whether a label or alias leads to a document: a session whose newest entry is a version of it.

    Raises LedgerError.
    """
    thread = nx.store.thread_of(name)
    if thread is None:
        return False
    head = nx.store.thread(thread).head_seq
    entries = nx.store.entries(thread, head - 1, head) if head else ()
    return any(_is_version(row.message) for entry in entries for row in entry.rows)


def _is_version(message: Message) -> bool:
    return message.source == SOURCE and message.role == "system"


def _read(nx: Engine, label: str) -> tuple[dict[str, Any], int]:
    """Return the document and the seq of the session's newest entry."""
    thread = nx.store.thread_of(label)
    if thread is None:
        return {}, 0
    head = end = nx.store.thread(thread).head_seq
    while end > 0:
        entries = list(nx.store.entries(thread, max(end - _BLOCK, 0), end))
        for entry in reversed(entries):
            for row in reversed(entry.rows):
                if _is_version(row.message):
                    return _parsed(label, row.message.text()), head
        end -= _BLOCK
    return {}, head


def _parsed(label: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        advice = f"go back to an older version: nexus session rewind {label} --help"
        raise BadConfig(label, "", f"stored document is not a JSON object: {error} ({advice})") from error
