"""Sessions and threads that belong to another one, each found by an index."""

from __future__ import annotations

import json

from nexus.ledger.sessions import RefUpdate, SessionInfo
from nexus.ledger.shared_sql.queue import names_of as encoded_names_of
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.session_list import after, session_info
from nexus.ledger.text_encoding import decode_text, encode_text, to_json

_KEY_CHARS = 64
"""Characters that the indexes have of a name in stored metadata."""


def spawned(reader: Reader, label: str) -> list[SessionInfo]:
    """Return the sessions that a session spawned; see `LedgerStore.spawned`."""
    infos = [session_info(reader, update.label) for update in _naming(reader, "parent_session", label)]
    return sorted((info for info in infos if info is not None), key=lambda info: (-info.last_ms, info.label))


def owned(reader: Reader, label: str) -> list[RefUpdate]:
    """Return the newest updates of the sessions that a session owns; see `LedgerStore.owned`."""
    return _naming(reader, "owner_session", label)


def _naming(reader: Reader, field: str, label: str) -> list[RefUpdate]:
    """Return the newest updates of the sessions whose metadata name a session in a field, by label."""
    dialect = reader.db.dialect
    mark = f'"{field}":"'
    key = dialect.following.format("facts", mark, len(mark))
    is_there = dialect.contains.format("facts", f"'{mark}'")
    where = f"tenant=? AND {is_there} AND {key}>=? AND {key}<?"  # the expressions of the indexes
    sql = f"SELECT DISTINCT label FROM session_move WHERE {where}"  # noqa: S608 - constants
    found = set[str]()
    for name in names_of(reader, label):
        for text in {to_json(name), json.dumps(name)}:  # the two forms in which metadata are stored
            stem = text[1:][:_KEY_CHARS]
            found.update(str(row[0]) for row in reader.db.rows(sql, (reader.tenant, stem, after(stem))))
    updates = [reader.session(decode_text(name)) for name in sorted(found)]
    with_thread = [update for update in updates if update is not None and update.thread is not None]
    stored = encode_text(label)
    return [update for update in with_thread if reader.resolve(encode_text(getattr(update.metadata, field))) == stored]


def names_of(reader: Reader, label: str) -> list[str]:
    """Return the names of a session; see `LedgerStore.names_of`."""
    return [decode_text(name) for name in encoded_names_of(reader, encode_text(label))]


def labels_of(reader: Reader, thread: int, *, every: bool = False) -> list[str]:
    """Return the labels of a thread; see `LedgerStore.labels_of`."""
    sql = "SELECT label FROM session WHERE tenant=? AND thread=?"  # with the status, SQLite would read all sessions
    labels = [decode_text(str(label)) for (label,) in reader.db.rows(sql, (reader.tenant, thread))]
    found = [update for label in labels if (update := reader.session(label)) is not None and update.thread == thread]
    listed = [update for update in found if every or update.metadata.status != "deleted"]
    return [update.label for update in sorted(listed, key=lambda update: -update.at_ms)]


def former_labels_of(reader: Reader, thread: int) -> list[str]:
    """Return the labels that once pointed to a thread; see `LedgerStore.former_labels_of`."""
    sql = "SELECT DISTINCT label FROM session_move WHERE tenant=? AND thread=? ORDER BY label"
    labels = [decode_text(str(label)) for (label,) in reader.db.rows(sql, (reader.tenant, thread))]
    newest = [update for label in labels if (update := reader.session(label)) is not None]
    return [update.label for update in newest if update.thread not in (None, thread)]


def forks(reader: Reader, thread: int) -> list[int]:
    """Return the threads that continue a thread; see `LedgerStore.forks`."""
    sql = "SELECT id FROM thread WHERE tenant=? AND parent=?"  # with another column, SQLite would read all threads
    threads = [number for (number,) in reader.db.rows(sql, (reader.tenant, thread))]
    reader.whole_numbers(*threads)
    return [number for number in sorted(threads) if not reader.thread(number).erased]
