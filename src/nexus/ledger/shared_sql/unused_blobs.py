"""Deletion of the blobs that nothing uses any more, in short transactions: images, and inputs of manifests.

All manifests have to be read to know which blobs they name. They are read a page at a time, while others write. What was
stored since then is read in the transaction that deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from nexus.ledger.codec import inputs_of
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.write import Writing

PAGE = 500
"""Manifests that are read in one transaction."""

STEP = 500
"""Blobs that are deleted in one transaction."""

Position: TypeAlias = tuple[int, str, int]
"""Thread, view and seq of a manifest."""

ViewEnds: TypeAlias = Mapping[tuple[int, str], int]
"""Seq of the newest manifest by thread and view. New ones of a view always come behind it."""

_UNUSED = "SELECT sha256 FROM blob WHERE tenant=?1 AND sha256 NOT IN (SELECT sha256 FROM blob_use WHERE tenant=?1)"
_START = (0, "", 0)


def delete_unused_blobs(db: Connection, tenant: str) -> None:
    """Delete them all in the transaction that runs: it takes as long as reading all manifests."""
    unused = {str(sha256) for (sha256,) in db.rows(_UNUSED, (tenant,))}
    if not unused:
        return
    for (manifest,) in db.stream("SELECT manifest FROM assembly WHERE tenant=?", (tenant,)):
        unused.difference_update(_blobs_of(manifest))
    db.run_many("DELETE FROM blob WHERE tenant=? AND sha256=?", [(tenant, sha256) for sha256 in sorted(unused)])


def steps(read_page: Callable[[Position], tuple[list[str], Position | None]], unused: set[str]) -> Iterator[list[str]]:
    """Yield the blobs that no manifest names, some at a time. `read_page` is `named_on_page` in a snapshot of its own."""
    after: Position | None = _START
    while unused and after is not None:
        names, after = read_page(after)
        unused.difference_update(names)
    ordered = sorted(unused)
    for start in range(0, len(ordered), STEP):
        yield ordered[start : start + STEP]


def unused_by_messages(reader: Reader) -> tuple[set[str], ViewEnds]:
    """Return the blobs that no message shows, and the ends of all views at that time."""
    rows = reader.db.rows(_UNUSED, (reader.tenant,))
    return {str(sha256) for (sha256,) in rows}, _view_ends(reader.db, reader.tenant)


def named_on_page(reader: Reader, after: Position) -> tuple[list[str], Position | None]:
    """Return the blobs that the next manifests name, and the position of the last of these; None at the end."""
    sql = (
        "SELECT thread, view, seq, manifest FROM assembly WHERE tenant=? AND (thread, view, seq) > (?, ?, ?)"
        " ORDER BY thread, view, seq LIMIT ?"
    )
    rows = reader.db.rows(sql, (reader.tenant, *after, PAGE))
    names = [name for *_, manifest in rows for name in _blobs_of(manifest)]
    if len(rows) < PAGE:
        return names, None
    thread, view, seq, _ = rows[-1]
    return names, (thread, view, seq)


def delete_blobs(writing: Writing, blobs: Sequence[str], ends: ViewEnds) -> int:
    """Delete those of the blobs that nothing uses since `ends` either, and return their number."""
    db, tenant = writing.db, writing.tenant
    used: set[str] = set()
    for (thread, view), seq in _view_ends(db, tenant).items():
        after = ends.get((thread, view), 0)
        if seq != after:
            sql = "SELECT manifest FROM assembly WHERE tenant=? AND thread=? AND view=? AND seq>?"
            for (manifest,) in db.stream(sql, (tenant, thread, view, after)):
                used.update(_blobs_of(manifest))
    deleted = 0
    for sha256 in blobs:
        key = (tenant, sha256)
        is_shown = db.row("SELECT 1 FROM blob_use WHERE tenant=? AND sha256=? LIMIT 1", key) is not None
        if sha256 in used or is_shown or db.row("SELECT 1 FROM blob WHERE tenant=? AND sha256=?", key) is None:
            continue
        db.run("DELETE FROM blob WHERE tenant=? AND sha256=?", key)
        deleted += 1
    return deleted


def _view_ends(db: Connection, tenant: str) -> dict[tuple[int, str], int]:
    rows = db.rows("SELECT thread, view, assembly_seq FROM view_head WHERE tenant=?", (tenant,))
    return {(thread, view): seq for thread, view, seq in rows}


def _blobs_of(manifest: str) -> list[str]:
    with suppress(ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return inputs_of(manifest)
    return []  # a damaged manifest names nothing
