"""Deleting threads, labels and documents of an SQL ledger for good."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nexus.errors import LedgerError
from nexus.ledger import chain
from nexus.ledger.documents import PROXY_CALL
from nexus.ledger.sessions import EraseResult, Thread
from nexus.ledger.shared_sql import queue
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.related_sessions import forks
from nexus.ledger.shared_sql.unused_blobs import delete_unused_blobs
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text

OF_THREADS = ("blob_use", "tool_call", "idempotency", "message", "assembly", "decision", "view_head", "entry")
"""The tables whose rows belong to a thread, in the order in which they can be emptied."""

TABLES = (
    *OF_THREADS, "session", "session_move", "alias", "calibration", "calibration_head", "lease", "event", "document", "thread", "blob",
)  # fmt: skip
"""All tables with rows of a tenant, in the same order."""


def erase(
    writing: Writing,
    threads: Sequence[int] | None,
    labels: Sequence[str],
    events: Sequence[str] = (),
    erased_documents: Sequence[tuple[str, str]] = (),
    unused_since_ms: int | None = None,
    *,
    scrub: bool = True,
) -> tuple[EraseResult, list[str]]:
    """Delete rows. Returns their numbers and pieces of their text to search the storage for.

    Without `scrub` the blobs that nothing uses any more stay: to find them all manifests are read.
    """
    db, tenant = writing.db, writing.tenant
    db.forget_writes()
    everything = threads is None
    chosen = [row.id for row in writing.reader.threads() if not row.erased] if threads is None else sorted(set(threads))
    stored = [encode_text(label) for label in labels]
    if not everything:
        _check_free(writing, chosen, stored)
        if unused_since_ms is not None:
            _check_unused(writing, chosen, unused_since_ms)
        # Labels that pointed to one of the threads and point to none now go with them.
        sql = (
            "SELECT DISTINCT m.label FROM session_move m JOIN session s ON s.tenant=m.tenant AND s.label=m.label"
            " WHERE m.tenant=? AND m.thread=? AND s.thread IS NULL"
        )
        retired = {str(label) for thread in chosen for (label,) in db.rows(sql, (tenant, thread))}
        stored = sorted({*stored, *retired})
    names = sorted({name for label in stored for name in queue.names_of(writing.reader, label)})
    keys = [encode_text(key) for key in events]
    names_of_documents = [(encode_text(kind), encode_text(name)) for kind, name in erased_documents]
    with_text = [names for names in names_of_documents if names[0] != PROXY_CALL]  # what others' reports have too
    texts = _texts_of_rows(db, tenant, keys, with_text)
    needles = _needles([*texts, *_texts_of_sessions(db, tenant, chosen, stored, None if everything else names)])
    count = "SELECT count(*) FROM {0} WHERE tenant=? AND thread=?"
    entries_deleted, messages_deleted = (
        sum(int(db.value(count.format(table), (tenant, thread))) for thread in chosen) for table in ("entry", "message")
    )
    before = int(db.value("SELECT count(*) FROM blob WHERE tenant=?", (tenant,)))
    for thread in chosen:
        for table in OF_THREADS:
            if table == "message":
                db.delete_messages(tenant, thread)
                continue
            db.run(f"DELETE FROM {table} WHERE tenant=? AND thread=?", (tenant, thread))  # noqa: S608 - constants
        row = writing.reader.thread(thread)
        empty = Thread(row.id, row.parent, row.fork_seq, row.root_hash, row.at_ms, row.fork_seq, row.root_hash)
        writing.put_thread(replace(empty, erased=True))
    db.run(f"DELETE FROM event WHERE tenant=? AND session IN ({queue.marks(names)})", (tenant, *names))  # noqa: S608
    for key in keys:
        db.run("DELETE FROM event WHERE tenant=? AND id=?", (tenant, key))
    for kind, name in names_of_documents:
        db.run("DELETE FROM document WHERE tenant=? AND kind=? AND name=?", (tenant, kind, name))
    for label in stored:
        _delete_label(writing, label)
    if everything:
        _delete_everything(writing)
    if scrub:
        delete_unused_blobs(db, tenant)
    after = int(db.value("SELECT count(*) FROM blob WHERE tenant=?", (tenant,)))
    return EraseResult(tuple(chosen), entries_deleted, messages_deleted, before - after), needles


def _check_free(writing: Writing, threads: list[int], labels: list[str]) -> None:
    """Raise LedgerError when a remaining row needs one of the threads, NoSuchSession for unknown ones."""
    dependent: set[str] = set()
    for thread in threads:
        writing.reader.thread(thread)
        for fork in forks(writing.reader, thread):
            if fork not in threads:
                dependent.update(_labels(writing, fork) or (f"thread {fork}",))
        dependent.update(label for label in _labels(writing, thread) if encode_text(label) not in labels)
    if dependent:
        names = ", ".join(sorted(dependent))
        raise LedgerError(
            f"{names} still needs these threads (nothing was deleted; erase it first or with them)", code="forks_depend"
        )


def _check_unused(writing: Writing, threads: list[int], since_ms: int) -> None:
    """Raise LedgerError if one of the threads has an entry from after a time."""
    for thread in threads:
        if writing.reader.thread(thread).last_ms > since_ms:
            names = ", ".join(_labels(writing, thread)) or f"thread {thread}"
            raise LedgerError(f"{names} is in use again (nothing was deleted)", code="session_in_use")


def _labels(writing: Writing, thread: int) -> list[str]:
    """Return the labels that point to a thread."""
    sql = "SELECT label FROM session WHERE tenant=? AND thread=? ORDER BY label"
    return [decode_text(str(label)) for (label,) in writing.db.rows(sql, (writing.tenant, thread))]


_OWNER = re.compile(r'"owner_session":"(?:[^"\\]|\\.)*"')


def _without_owner(metadata: str) -> str:
    """Return metadata as it is stored, without the session that owns it, which is another session's label."""
    return _OWNER.sub("", metadata)


NEEDLE = 24
"""Length in characters of a piece of text that is looked for after a deletion."""

MOST_NEEDLES = 96


def _texts_of_rows(
    db: Connection, tenant: str, events: Sequence[str], documents: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the texts of queued events by key, and of documents by kind and name, as stored."""
    body = "SELECT body FROM {} WHERE tenant=? AND {}"
    texts = [db.value(body.format("event", "id=?"), (tenant, key)) for key in events]
    texts += [db.value(body.format("document", "kind=? AND name=?"), (tenant, *names)) for names in documents]
    return [text for text in texts if isinstance(text, str)]


def _texts_of_sessions(
    db: Connection, tenant: str, threads: list[int], labels: list[str], event_sessions: list[str] | None
) -> list[str]:
    """Return random messages, summaries, titles and queued events (None: of all sessions), as stored."""
    where = "WHERE tenant=?"
    names = event_sessions or ()
    if event_sessions is not None:
        where += f" AND session IN ({queue.marks(names)})"
    bodies = f"SELECT body FROM event {where} ORDER BY random() LIMIT 8"  # noqa: S608 - constants
    texts = [str(text) for (text,) in db.rows(bodies, (tenant, *names))]
    for thread in threads:
        for sql in (
            "SELECT content FROM message WHERE tenant=? AND thread=? ORDER BY random() LIMIT 24",
            "SELECT body FROM entry WHERE tenant=? AND thread=? AND kind='compaction' ORDER BY random() LIMIT 8",
        ):
            texts += [str(text) for (text,) in db.rows(sql, (tenant, thread))]
    for label in labels:
        rows = db.rows("SELECT facts FROM session_move WHERE tenant=? AND label=?", (tenant, label))
        texts += [_without_owner(str(text)) for (text,) in rows]
    return texts


def _needles(texts: Iterable[str]) -> list[str]:
    """Return pieces of texts, to look for them after they were deleted."""
    pieces: set[str] = set()
    for text in texts:
        size = len(text)
        for at in {20, size // 2, size - NEEDLE - 4}:
            piece = text[max(at, 0) : max(at, 0) + NEEDLE]
            if len(piece) == NEEDLE and len(pieces) < MOST_NEEDLES:
                pieces.add(piece)
    return sorted(pieces)


def _delete_label(writing: Writing, label: str) -> None:
    """Delete a session's rows by its label, with its aliases."""
    db = writing.db
    tenant = writing.tenant
    db.run("DELETE FROM lease WHERE tenant=? AND label=?", (tenant, label))
    db.run("DELETE FROM session WHERE tenant=? AND label=?", (tenant, label))
    db.run("DELETE FROM session_move WHERE tenant=? AND label=?", (tenant, label))
    sql = "SELECT DISTINCT name FROM alias WHERE tenant=?1 AND (name=?2 OR target=?2)"
    for (name,) in db.rows(sql, (tenant, label)):
        db.run("DELETE FROM alias WHERE tenant=? AND name=?", (tenant, name))
        db.run("DELETE FROM session WHERE tenant=? AND label=? AND status='alias'", (tenant, name))
        writing.point_again(name)


def _delete_everything(writing: Writing) -> None:
    """Delete all rows of a tenant but the number of its last thread."""
    db = writing.db
    tenant = writing.tenant
    last = max(writing.reader.threads(), key=lambda row: row.id, default=None)
    for table in TABLES:
        db.run(f"DELETE FROM {table} WHERE tenant=?", (tenant,))  # noqa: S608 - constants
    if last is not None:  # so that no number is used again, for what others still remember of it
        root = chain.root_hash(tenant, last.id)
        writing.put_new_thread(Thread(last.id, None, 0, root, last.at_ms, 0, root, erased=True))
