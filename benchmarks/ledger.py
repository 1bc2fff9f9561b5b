"""Cost of the ledger: appends, reads, file size, forks, search and several threads.

The other side of appends and reads is plain APSW on a second file with the ledger's own tables, settings and rows, but
without hashing, encoding, checks and verification. Both sides take turns in one process; then their rows are compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import msgspec

from benchmarks.bare import SESSION, Bare, check_same, finished, in_turns
from benchmarks.ledger_uses import COMMAND, WINDOW_ROUNDS, forks, many_threads, searches
from benchmarks.measure import Spent, middle, timed
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.turns import DATA, TURN_MESSAGES, TURNS, WINDOW_TURNS, Turns, open_ledger
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, Entry

WARM_UP = 100
PREPARED = 100
WALK_ROUNDS = 7
MOST_APPEND, MOST_WINDOW_MS, MOST_WALK_MS, MOST_SIZE = 1.4, 1.0, 300.0, 2.0


def run() -> Outcome:
    """All of it, on one ledger of 10,000 turns."""
    with TemporaryDirectory() as folder:
        ours, bare = Path(folder, "ledger.db"), Path(folder, "bare.db")
        parts = (
            appends(ours, bare),
            reads(ours, bare),
            size(ours),
            searches(ours),
            forks(ours),
            many_threads(Path(folder, "threads.db")),
        )
    tables = tuple(table for part in parts for table in part.tables)
    return Outcome(tables, tuple(target for part in parts for target in part.targets))


def appends(ours: Path, bare: Path) -> Outcome:
    """Fills both files, one turn here and the same one there; who is first changes with every turn."""
    turns = finished(Turns().take(TURNS))
    begun = open_ledger(ours)
    begun.commit(SESSION, Commit((next(turns)[0],)))
    begun.close()
    shutil.copyfile(ours, bare)
    ledger, plain = open_ledger(ours), Bare(bare)
    runs: tuple[list[Spent], list[Spent]] = ([], [])
    while prepared := list(islice(turns, PREPARED)):
        for number, (entry, rows) in enumerate(prepared):
            works = (partial(ledger.commit, SESSION, Commit((entry,))), partial(plain.append, rows))
            for side in (number % 2, 1 - number % 2):
                runs[side].append(timed(works[side])[1])
    ledger.close()
    plain.close()
    check_same(ours, bare)
    nexus, other = (found[WARM_UP:] for found in runs)
    ratio = median(one.wall_ms / two.wall_ms for one, two in zip(nexus, other, strict=True))
    cells = (_append("Nexus, SqliteLedger.commit", nexus), _append("bare APSW transaction", other))
    note = (
        f"Nexus / bare, wall: {ratio:.2f} (median of pairs), "
        f"{middle(nexus).wall_ms / middle(other).wall_ms:.2f} (ratio of medians)."
    )
    columns = ("append of a turn", "p50 ms", "p99 ms", "CPU p50 ms")
    name = "append of a turn, Nexus / bare APSW transaction"
    target = Target(name, f"at most {MOST_APPEND}", f"{ratio:.2f}", ratio <= MOST_APPEND)
    return Outcome((Table("Appends", COMMAND, DATA, columns, cells, (note, *_APPEND_NOTES)),), (target,))


_APPEND_NOTES = (
    "bare: the same finished rows in one transaction, with the ledger's tables and settings (WAL, synchronous=FULL, …).",
    "  Both sides take turns; afterwards all rows were compared.",
)


def _append(what: str, runs: Sequence[Spent]) -> tuple[Cell, ...]:
    walls = sorted(run.wall_ms for run in runs)
    spent = middle(runs)
    return what, spent.wall_ms, walls[len(walls) * 99 // 100], spent.cpu_ms


def reads(ours: Path, bare: Path) -> Outcome:
    """The newest 50 turns, and all of them: by the ledger, and by what one would write without it."""
    ledger, plain = open_ledger(ours), Bare(bare)
    thread = ledger.thread_of(SESSION) or 0
    rows: list[tuple[Cell, ...]] = []
    cpu_ms: list[float] = []
    for what, after, rounds in (("window", TURNS - WINDOW_TURNS, WINDOW_ROUNDS), ("walk", 0, WALK_ROUNDS)):
        messages = (TURNS - after) * TURN_MESSAGES
        seen = sum(len(entry.rows) for entry in ledger.entries(thread, after))
        if not seen == len(plain.with_json(after, TURNS)[1]) == messages:
            raise AssertionError(f"the {what} has not {messages} messages on both sides")
        works = {
            "Nexus, verified": partial(_read, ledger, thread, after),
            "plain SELECT + json.loads": partial(plain.with_json, after, TURNS),
            "plain SELECT + msgspec, to dicts": partial(plain.with_msgspec, after, TURNS),
        }
        spent = in_turns(works, rounds)
        rows += [(what, messages, name, one.wall_ms, one.cpu_ms) for name, one in spent.items()]
        cpu_ms.append(spent["Nexus, verified"].cpu_ms)
    ledger.close()
    plain.close()
    columns = ("range", "messages", "what", "wall ms", "CPU ms")
    table = Table("Reads", COMMAND, DATA, columns, tuple(rows), _READ_NOTES)
    window, walk = cpu_ms
    names = [f"{what}, verified and decoded, CPU" for what in ("window of 50 turns", f"walk over {TURNS:,} turns")]
    targets = (
        Target(names[0], f"under {MOST_WINDOW_MS:.0f} ms", f"{window:.2f} ms", window < MOST_WINDOW_MS),
        Target(names[1], f"under {MOST_WALK_MS:.0f} ms", f"{walk:.0f} ms", walk < MOST_WALK_MS),
    )
    return Outcome((table,), targets)


_READ_NOTES = (
    f"window: the newest {WINDOW_TURNS} turns of {TURNS:,}. walk: all of them. Medians; files are in the system's cache.",
    "Nexus checks every hash and decodes to typed values. plain: the same columns, decoded without checks.",
)


def _read(ledger: SqliteLedger, thread: int, after: int) -> list[Entry]:
    return list(ledger.entries(thread, after))


def size(ours: Path) -> Outcome:
    """The closed file, by table, beside JSON lines of the same messages."""
    if Path(f"{ours}-wal").exists():
        raise AssertionError("closing has not emptied the log")
    encode = msgspec.json.Encoder().encode
    lines = sum(len(encode(sized.message)) + 1 for entry in Turns().take(TURNS) for sized in entry.messages)
    sql = (
        "SELECT ifnull(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat d LEFT JOIN sqlite_schema s ON s.name=d.name"
        " GROUP BY 1 ORDER BY 2 DESC"
    )
    db: Any = apsw.Connection(str(ours), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [(str(name), int(used)) for name, used in db.execute(sql)]
    db.close()
    whole = ours.stat().st_size
    rest = sum(used for _, used in tables[6:])
    rows = [("whole file", whole), *tables[:6], ("all others", rest), ("JSON lines of the messages", lines)]
    cells = tuple((name, used / 1e6, used / lines) for name, used in rows)
    notes = (
        "After closing, by dbstat; indexes count with their table. search_…: the search index.",
        "JSON lines: one compact message per line, without entries, counts, hashes, keys or search.",
    )
    table = Table("Size", COMMAND, DATA, ("what", "MB", "/ JSON lines"), cells, notes)
    ratio = whole / lines
    name = f"file of {TURNS:,} turns / JSON lines of the messages"
    return Outcome((table,), (Target(name, f"at most {MOST_SIZE:.0f}", f"{ratio:.2f}", ratio <= MOST_SIZE),))
