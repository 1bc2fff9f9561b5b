"""What the tortured processes write, and the check that all of it is there: the same values from the same numbers.

Append number k of a session is known from its label and k, so what must be stored is known without having seen it.
Every third append has two entries (a commit is more than one row of anything) and closes a turn; others leave it open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from nexus.ledger.replay import turns
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import files
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, Entry, MessageRef, NewEntry, SizedMessage
from nexus.types.message import Image, Message, Text, TokenSize, ToolCall, ToolResult, assistant, user
from torture.figures import require

VIEW = "torture"
FIRST_MS = 1_700_000_000_000


class Stored(Struct, frozen=True):
    """What a check found of a session: how many of its appends, and in how many entries."""

    appends: int
    entries: int


def append(session: str, number: int) -> Commit:
    """The commit of append `number` (from 1) of a session."""
    key = f"{session}/{number}"
    entries = [_entry(session, number, key)]
    if number % 3 == 0:
        entries.append(NewEntry("completed", body={"stop": number}, at_ms=FIRST_MS + number, keys=(f"{key}/end",)))
    head = entries_of(number - 1)
    cut = None
    if number % 5 == 0:
        cut = _cut(number // 5, head)
    return Commit(tuple(entries), cut, AssemblyRow(VIEW, {"append": number, "of": session}, FIRST_MS + number))


def entries_of(appends: int) -> int:
    """How many entries so many appends have."""
    return appends + appends // 3


def write(ledger: SqlLedger, session: str, number: int) -> Committed:
    """Appends it."""
    return ledger.commit(session, append(session, number))


def check(ledger: SqlLedger, session: str, acknowledged: int, attempted: int) -> Stored:
    """What the session has: all acknowledged appends, whole, in order, once, and none that was not attempted.

    Raises AssertionError otherwise.
    """
    thread = ledger.thread_of(session)
    if thread is None:
        require(acknowledged == 0, f"session {session} is gone; {acknowledged} appends were acknowledged")
        return Stored(0, 0)
    entries = list(ledger.entries(thread))
    found = len(entries)
    appends = next((k for k in range(acknowledged, attempted + 1) if entries_of(k) == found), -1)
    require(
        appends >= 0,
        f"session {session} has {found} entries; {acknowledged} appends were acknowledged and {attempted} attempted, "
        f"which are {entries_of(acknowledged)} to {entries_of(attempted)} entries: some are lost, doubled or in part",
    )
    require(
        [one.seq for one in entries] == list(range(1, found + 1)), f"session {session}: seq has gaps: {_seqs(entries)}"
    )
    _check_contents(session, entries, appends)
    _check_end(ledger, session, thread, entries, appends)
    return Stored(appends, found)


def frequent_checkpoints(pages: int) -> None:
    """Has every ledger that this process opens from now on move its log into the file each so many pages."""
    settle = files.settle

    def often(db: Any) -> None:
        settle(db)
        db.run(f"PRAGMA wal_autocheckpoint={pages}")

    files.settle = often


def sound(path: Path) -> None:
    """Raises AssertionError when SQLite finds its own structures damaged, or rows that refer to none."""
    import apsw

    db: Any = apsw.Connection(str(path))
    try:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check")]
        require(found == ["ok"], f"integrity_check: {'; '.join(found[:3])}")
        orphans = list(db.execute("PRAGMA foreign_key_check"))
        require(not orphans, f"{len(orphans)} rows refer to rows that are not there, the first: {orphans[:1]}")
        for what, sql in _ORPHANS.items():
            count = db.execute(sql).fetchone()
            require(count is not None and count[0] == 0, f"{count} {what}")
    finally:
        db.close()


_ORPHANS = {
    "uses of images that are not there": (
        "SELECT count(*) FROM blob_use u WHERE NOT EXISTS"
        " (SELECT 1 FROM blob b WHERE b.tenant=u.tenant AND b.sha256=u.sha256)"
    ),
    "images that nothing uses": (
        "SELECT count(*) FROM blob b WHERE NOT EXISTS"
        " (SELECT 1 FROM blob_use u WHERE b.tenant=u.tenant AND b.sha256=u.sha256)"
    ),
    "tool calls without their message": (
        "SELECT count(*) FROM tool_call c WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.tenant=c.tenant"
        " AND m.thread=c.thread AND m.seq=c.seq AND m.ord=c.ord)"
    ),
    "session pointers whose move is not there": (
        "SELECT count(*) FROM session s WHERE s.status<>'alias' AND NOT EXISTS (SELECT 1 FROM session_move m"
        " WHERE m.tenant=s.tenant AND m.label=s.label AND m.number=s.number AND m.hash=s.hash)"
    ),
    "threads whose newest entry is not there": (
        "SELECT count(*) FROM thread t WHERE t.head_seq>t.fork_seq AND NOT EXISTS (SELECT 1 FROM entry e"
        " WHERE e.tenant=t.tenant AND e.thread=t.id AND e.seq=t.head_seq AND e.hash=t.head_hash)"
    ),
}


def _entry(session: str, number: int, key: str) -> NewEntry:
    said = tuple(
        SizedMessage(one, TokenSize(number, number + 1, number + 2, number % 4)) for one in _messages(session, number)
    )
    return NewEntry(
        messages=said,
        body={"append": number, "of": session},
        at_ms=FIRST_MS + number,
        starts_turn=number % 3 == 1,
        keys=(key,),
    )


def _messages(session: str, number: int) -> tuple[Message, ...]:
    name = f"{session}-{number}"
    text = f"{name} says " + "x" * (number * 1_237 % 5_000)
    if number % 3 == 1:
        call = ToolCall(f"c-{name}", "look", f'{{"at": {number}}}')
        return (user(text, id=name, at_ms=FIRST_MS + number), assistant("I look.", call))
    if number % 3 == 2:
        image = Image("image/png", data=f"{number % 6:04d}" * 300, width=3, height=3)
        result = ToolResult(f"c-{session}-{number - 1}", (Text(text), image), "look")
        return (Message("tool", (result,), id=name), assistant("I see."))
    return (assistant(text, id=name, model="a-model"),)


def _cut(number: int, head: int) -> Cut:
    return Cut(VIEW, number, head, MessageRef(max(head - 2, 1), 0), f"[left out, {number}]", head, 10 * head, 0)


def _check_contents(session: str, entries: list[Entry], appends: int) -> None:
    place = 0
    for number in range(1, appends + 1):
        turn = (number + 2) // 3
        for wanted in append(session, number).entries:
            found, place = entries[place], place + 1
            same = (found.kind, found.body, found.at_ms, found.turn) == (wanted.kind, wanted.body, wanted.at_ms, turn)
            said = [(row.message, row.size) for row in found.rows]
            same = same and said == [(one.message, one.size) for one in wanted.messages]
            require(same, f"append {number} of session {session} is not as it was written (entry {found.seq})")


def _check_end(ledger: SqlLedger, session: str, thread: int, entries: list[Entry], appends: int) -> None:
    if not appends:
        return
    require(
        ledger.head(thread) == (entries[-1].seq, entries[-1].hash), f"session {session}: head is not the last entry"
    )
    cut, manifest = ledger.last_cut(thread, VIEW), ledger.last_assembly(thread, VIEW)
    number = appends // 5
    wanted = _cut(number, entries_of(5 * number - 1)) if number else None
    require(cut == wanted, f"session {session}: after append {appends} the newest cut is {cut}")
    told = manifest.manifest["append"] if manifest else None
    require(told == appends, f"session {session}: after append {appends} the newest manifest is of append {told}")
    keys = {
        key: None for number in range(1, appends + 1) for one in append(session, number).entries for key in one.keys
    }
    known = ledger.known_keys(session)
    require(known.keys() == keys.keys(), f"session {session} has {len(known)} idempotency keys and not {len(keys)}")
    status = turns(entries)[-1].status
    require(
        status == ("completed" if appends % 3 == 0 else "interrupted"),
        f"session {session}: after append {appends} its last turn is {status}",
    )


def _seqs(entries: list[Entry]) -> str:
    return ", ".join(str(one.seq) for one in entries[:20])
