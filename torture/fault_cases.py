"""Faults at named points of the ledger, one after the other. Nothing is random, so each run meets the same faults.

A case tries each of its points once and returns how many there were. It raises AssertionError, with the point, when
something was lost. The processes that write and check are forked from one that never opens a ledger.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from nexus.errors import LedgerError
from nexus.ledger import maintenance
from nexus.ledger.sessions import EVENT_STATES, NewQueuedEvent, event_key
from nexus.ledger.sqlite import SqliteLedger, connection
from nexus.types.ledger_entries import Commit
from torture import (
    bit_flips,
    disk_full,
    io_errors,
    kill_compactions,
    library,
    pages,
    scenes,
    traffic,
    version_1,
    version_6,
)
from torture.bit_flips import PAGE, SILENT, Flip
from torture.disk import LOST, Disk
from torture.figures import require
from torture.io_errors import Place
from torture.kill_appends import ACKNOWLEDGED, BEGUN, CELLS, RETURNED, check_sessions
from torture.kill_compactions import REFUSED, STEPS_OF, check_session, next_step
from torture.kill_compactions import RETURNED as STEP_RETURNED
from torture.processes import Numbers, answer, ended, started
from torture.scenes import SCENES
from torture.statements import Counted, die, watch_statements

SESSION: Final = "s"
APPENDS: Final = 3
"""The third append has two entries, so its commit has more than one row of everything."""

STEPS: Final = 6
"""Steps of a process that compacts: appends, compactions at 2 and 4, an undo at 6."""

COPIED_APPENDS: Final = 40
LATER_APPENDS: Final = 9
"""Appends while a backup is made: one after each step of it, as long as they last."""

NAMED_BITS: Final = (
    ("entry", b'"append":4'),
    ("message", b"first-4 says"),
    ("idempotency", b"first/4"),
    ("session_move", b'"title":"A task'),
    ("decision", b"[left out, 1]"),
    ("alias", b"a name"),
)
"""Tables, and texts in them of which the last byte gets another bit."""

EVENTS: Final = tuple(NewQueuedEvent(f"event {number}", SESSION, '{"text":"hi"}') for number in range(3))
EVENT_KEYS: Final = tuple(event_key(event.id, SESSION, event.principal) for event in EVENTS)
QUEUE_STATES: Final = (("queued",) * 3, ("running", "running", "queued"), ("done", "running", "queued"))
"""States of the events after each call of a process that answers the first of them."""

MANY_POINTS: Final = 10_000
DONE: Final = 3
"""A cell after those of one thread: whether the process got to its end."""


def killed_appends(folder: Path) -> int:
    """Kill a process that appends, before each statement and after each commit; then repeat its last append."""
    path, cells, template = folder / "l.db", Numbers(CELLS), folder / "empty.db"
    answer(_make, template)
    for point in range(1, MANY_POINTS):
        _copy(template, path)
        cells.clear()
        code = ended(started(_append_until, path, cells, point))
        if code == 0:
            return point - 1
        require(code == -signal.SIGKILL, f"point {point}: the process ended with {code}; see its output above")
        state = (cells[BEGUN], cells[RETURNED], cells[ACKNOWLEDGED])
        with named(f"killed at point {point}"):
            answer(check_sessions, path, [SESSION], [state], whole=True, old=False)
    return MANY_POINTS


def _append_until(path: Path, cells: Numbers, point: int) -> None:
    counted = Counted(point, die)
    watch_statements(counted)
    counted.armed = True
    ledger = SqliteLedger(str(path))
    for number in range(1, APPENDS + 1):
        cells[BEGUN] = number
        traffic.write(ledger, SESSION, number)
        cells[RETURNED] = number
        counted("after commit returned")
        cells[ACKNOWLEDGED] = number
    counted.armed = False
    ledger.close()


def killed_migrations(folder: Path) -> int:
    """Kill a process that migrates a ledger of version 1, at each statement; then open it and check what it had."""
    path, template = folder / "l.db", folder / "old.db"
    answer(version_1.make, template, SESSION, APPENDS)
    for point in range(1, MANY_POINTS):
        _copy(template, path)
        code = ended(started(_open_until, path, point))
        if code == 0:
            return point - 1
        require(code == -signal.SIGKILL, f"point {point}: the process ended with {code}; see its output above")
        with named(f"killed at point {point}"):
            answer(_check_whole, path, APPENDS)
    return MANY_POINTS


def killed_moves_of_documents(folder: Path) -> int:
    """Kill a process that moves the documents of hidden sessions, at each statement; then open it again."""
    path, template = folder / "l.db", folder / "hidden.db"
    answer(version_6.make, template)
    for point in range(1, MANY_POINTS):
        _copy(template, path)
        code = ended(started(_open_until, path, point))
        if code == 0:
            return point - 1
        require(code == -signal.SIGKILL, f"point {point}: the process ended with {code}; see its output above")
        with named(f"killed at point {point}"):
            answer(version_6.check_moved, path)
    return MANY_POINTS


def _open_until(path: Path, point: int) -> None:
    counted = Counted(point, die)
    watch_statements(counted)
    counted.armed = True
    SqliteLedger(str(path))
    counted.armed = False


def killed_compactions(folder: Path) -> int:
    """Kill a process that appends, compacts and undoes, at each statement; then repeat its last step."""
    path, cells, template = folder / "l.db", Numbers(3 + 2 * kill_compactions.MOST_STEPS), folder / "begun.db"
    answer(_begin_session, template)
    for point in range(1, MANY_POINTS):
        _copy(template, path)
        cells.clear()
        code = ended(started(_step_until, path, cells, point))
        if code == 0:
            return point - 1
        require(code == -signal.SIGKILL, f"point {point}: the process ended with {code}; see its output above")
        with named(f"killed at point {point}"):
            answer(check_session, path, SESSION, cells, whole=True)
    return MANY_POINTS


def _begin_session(path: Path) -> None:
    ledger = SqliteLedger(str(path))
    for name in kill_compactions.PROCESSES:
        ledger.commit(SESSION, Commit((kill_compactions.append_of(SESSION, name, 0),)))
    ledger.close()


def _step_until(path: Path, cells: Numbers, point: int) -> None:
    counted = Counted(point, die)
    watch_statements(counted)
    ledger = SqliteLedger(str(path))
    for step in range(1, STEPS + 1):
        commit = next_step(ledger, SESSION, "a", step)
        counted.armed = True
        _take_step(ledger, commit, cells, 0, step)
        counted.armed = False
    ledger.close()


def _take_step(ledger: SqliteLedger, commit: Commit, cells: Numbers, which: int, step: int) -> None:
    cells[STEPS_OF[which] + step] = kill_compactions.BEGUN
    written = kill_compactions.was_written(ledger, SESSION, commit)
    cells[STEP_RETURNED + which] = step
    cells[STEPS_OF[which] + step] = kill_compactions.ACKNOWLEDGED if written else REFUSED


def killed_queues(folder: Path) -> int:
    """Kill a process that accepts, starts and finishes events, at each statement; then deliver the events again."""
    path, cells, template = folder / "l.db", Numbers(CELLS), folder / "empty.db"
    answer(_make, template)
    for point in range(1, MANY_POINTS):
        _copy(template, path)
        cells.clear()
        code = ended(started(_queue_until, path, cells, point))
        if code == 0:
            return point - 1
        require(code == -signal.SIGKILL, f"point {point}: the process ended with {code}; see its output above")
        with named(f"killed at point {point}"):
            answer(_check_queue, path, cells[ACKNOWLEDGED])
    return MANY_POINTS


def _queue_until(path: Path, cells: Numbers, point: int) -> None:
    counted = Counted(point, die)
    watch_statements(counted)
    ledger = SqliteLedger(str(path))
    counted.armed = True
    for call in (
        lambda: ledger.accept_events(EVENTS),
        lambda: ledger.update_events(EVENT_KEYS[:2], "running", expected=["queued"]),
        lambda: ledger.update_events(EVENT_KEYS[:1], "done", expected=["running"], turn=1),
    ):
        call()
        cells[ACKNOWLEDGED] += 1
    counted.armed = False
    ledger.close()


def _check_queue(path: Path, acknowledged: int) -> None:
    """Check that the calls are whole, the acknowledged ones and at most one more, and that no event is added twice."""
    ledger = SqliteLedger(str(path))
    rows = {event.key: event.state for event in ledger.queued_events(states=EVENT_STATES)}
    after = [{}, *(dict(zip(EVENT_KEYS, states, strict=True)) for states in QUEUE_STATES)]
    calls = after.index(rows) if rows in after else -1
    require(calls in (acknowledged, acknowledged + 1), f"{acknowledged} calls were acknowledged, and there is {rows}")
    added = sum(accepted.added for accepted in ledger.accept_events(EVENTS))
    require(added == (0 if rows else len(EVENTS)), f"events that were delivered again, added {added}")
    numbers = [event.number for event in ledger.queued_events(states=EVENT_STATES)]
    require(numbers == list(range(1, len(EVENTS) + 1)), f"the events have the numbers {numbers}")
    ledger.close()
    require(maintenance.verify(path) == [], "the ledger is damaged")


def overtaken_compactions(folder: Path) -> int:
    """Have another compaction committed between the planning and the commit of one: the later one is refused."""
    path, cells = folder / "l.db", Numbers(3 + 2 * kill_compactions.MOST_STEPS)
    answer(_begin_session, path)
    answer(_overtake, path, cells)
    answer(check_session, path, SESSION, cells, whole=True)
    require(cells[STEPS_OF[0] + 2] == REFUSED, "a compaction that another one overtook was not refused")
    return 1


def _overtake(path: Path, cells: Numbers) -> None:
    ledgers = [SqliteLedger(str(path)) for _ in kill_compactions.PROCESSES]
    for which, ledger in enumerate(ledgers):
        _take_step(ledger, next_step(ledger, SESSION, kill_compactions.PROCESSES[which], 1), cells, which, 1)
    planned = [next_step(ledger, SESSION, kill_compactions.PROCESSES[at], 2) for at, ledger in enumerate(ledgers)]
    for which in (1, 0):
        _take_step(ledgers[which], planned[which], cells, which, 2)
    for ledger in ledgers:
        ledger.close()


def power_cuts(folder: Path) -> int:
    """Cut the power before each sync and deletion: what was not synced is gone, and nothing acknowledged is."""
    whole, cells = 0, Numbers(DONE + 1)
    kinds = (("new", _make, 0, 1_000), ("old", lambda path: version_1.make(path, "old", APPENDS), APPENDS, 8))
    for name, make, old, checkpoint_pages in kinds:
        template, path = folder / f"{name}.db", folder / "l.db"
        answer(make, template)
        for point in range(1, MANY_POINTS):
            _copy(template, path)
            cells.clear()
            code = ended(started(_append_until_cut, path, cells, point, checkpoint_pages))
            require(code == LOST, f"sync {point}: the process ended with {code}; see its output above")
            state = (cells[BEGUN], cells[ACKNOWLEDGED])
            with named(f"{name} ledger, power cut before sync or deletion {point}"):
                answer(_check_cut, path, *state, old)
            whole += 1
            if cells[DONE]:
                break
    return whole


def _append_until_cut(path: Path, cells: Numbers, point: int, checkpoint_pages: int) -> None:
    traffic.frequent_checkpoints(checkpoint_pages)
    disk = Disk(random.Random(point), point, lambda _: None, unsynced=False)
    ledger = SqliteLedger(str(path))
    for number in range(1, APPENDS + 1):
        cells[BEGUN] = number
        traffic.write(ledger, SESSION, number)
        cells[ACKNOWLEDGED] = number
    cells[DONE] = 1
    disk.lose()


def _check_cut(path: Path, begun: int, acknowledged: int, old: int) -> None:
    ledger = SqliteLedger(str(path))
    if old:
        traffic.check(ledger, "old", old, old)
    traffic.check(ledger, SESSION, acknowledged, begun)
    ledger.close()
    traffic.sound(path)


def failing_disk(folder: Path) -> int:
    """Fail the first operation of each kind in each scene, once and from then on, and the last sync of an append."""
    whole = 0
    for scene in SCENES:
        answer(scenes.prepare, scene, folder / f"{scene.name}.db")
        names = answer(io_errors.operations, scene, folder / f"{scene.name}.db", io_errors.empty_room(folder))
        numbers = sorted({names.index(name) + 1 for name in names})
        numbers += [len(names) - names[::-1].index("fsync")] if "fsync" in names else []
        for number in numbers:
            for lasting in (False, True):
                io_errors.fail_once(scene, folder, Place(number, lasting))
                whole += 1
    return whole


def full_disk(folder: Path) -> int:
    """Leave each scene no room at all, and half of the room that it needs; reach the limits of pages and of file size."""
    whole = 0
    for scene in disk_full.WRITING:
        need = disk_full.growth(scene, folder)
        for left in (0, need // 2):
            room = io_errors.empty_room(folder).parent
            with named(f"{scene.name}, {left} bytes left"):
                disk_full.fill_scene(scene, folder, room, left)
            whole += 1
    for limit in (disk_full.page_limit, disk_full.file_limit):
        answer(limit, io_errors.empty_room(folder), 10)
        whole += 1
    return whole


def flipped_bits(folder: Path) -> int:
    """Flip a bit in the named texts, and in the first byte in use of every table."""
    original = folder / "original.db"
    answer(library.make, original)
    tables = answer(library.pages_of, original)
    content = original.read_bytes()
    offsets = [
        at + len(text) - 1
        for table, text in NAMED_BITS
        for page, of in sorted(tables.items())
        for at in [content.find(text, (page - 1) * PAGE, page * PAGE)]
        if of == table and at >= 0
    ]
    require(len(offsets) >= len(NAMED_BITS), "a text whose bits should be flipped is not in its table")
    for page in {table: page for page, table in sorted(tables.items(), reverse=True)}.values():
        start = (page - 1) * PAGE
        offsets.append(next(at for at in range(start + 100 * (page == 1), start + PAGE) if content[at]))
    flips = [Flip(at // PAGE + 1, at % PAGE, 0) for at in offsets]
    findings = answer(bit_flips.look, original, folder / "flipped.db", flips, tables)
    silent = [f"page {one.flip.page} ({one.table}): {one.what[:160]}" for one in findings if one.effect == SILENT]
    require(not silent, f"flipped bits changed something silently: {'; '.join(silent)}")
    return len(flips)


def damaged_pages(folder: Path) -> int:
    """Damage one page in each of the ways that there are."""
    return pages.run(len(pages.DAMAGES), 1, folder, lambda _done, _all: None).rounds


def held_lock(folder: Path) -> int:
    """Have another writer come at each statement of a commit: it waits for the lock, and neither one is refused."""
    path = folder / "l.db"
    answer(_make, path)
    return answer(_write_meanwhile, path)


def _write_meanwhile(path: Path) -> int:
    statements, others, writing = 0, 0, [False]
    ledger, other = SqliteLedger(str(path)), SqliteLedger(str(path))
    traffic.write(ledger, SESSION, 1)
    ledger.close()

    def write(point: str) -> None:
        nonlocal statements, others
        if not writing[0] or point == "before BEGIN IMMEDIATE":
            return
        statements += 1
        if not _locked(path):
            writing[0] = False
            others += 1
            traffic.write(other, "other", others)
            writing[0] = True

    watch_statements(write)
    ledger = SqliteLedger(str(path))
    for number in range(2, APPENDS + 1):
        writing[0] = True
        try:
            done = traffic.write(ledger, SESSION, number)
        except LedgerError as error:
            raise AssertionError(f"an append was refused as busy: {error}") from error
        finally:
            writing[0] = False
        require(done.added > 0, f"append {number} added nothing")
    traffic.check(ledger, SESSION, APPENDS, APPENDS)
    ledger.close()
    other.close()
    return statements


def _locked(path: Path) -> bool:
    """Return whether a writer that comes now would have to wait."""
    hooks, apsw.connection_hooks = apsw.connection_hooks, []
    db: Any = apsw.Connection(str(path))
    apsw.connection_hooks = hooks
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except apsw.BusyError:
        return True
    finally:
        db.close()
    return False


def backups_under_load(folder: Path) -> int:
    """Append after each step of a backup: it is whole, and has all that was acknowledged before it began."""
    path, copy = folder / "l.db", folder / "copy.db"
    appends = answer(_back_up, path, copy)
    answer(_check_whole, copy, COPIED_APPENDS, appends)
    return appends - COPIED_APPENDS


def _back_up(path: Path, copy: Path) -> int:
    connection.COPY_PAGES = 16
    ledger = SqliteLedger(str(path))
    appends = 0
    for appends in range(1, COPIED_APPENDS + 1):
        traffic.write(ledger, SESSION, appends)

    def append(_done: int, _all: int) -> None:
        nonlocal appends
        if appends < COPIED_APPENDS + LATER_APPENDS:
            appends += 1
            traffic.write(ledger, SESSION, appends)

    maintenance.backup(path, copy, progress=append)
    ledger.close()
    return appends


def _check_whole(path: Path, acknowledged: int, begun: int = 0) -> None:
    try:
        ledger = SqliteLedger(str(path), create=False)
        traffic.check(ledger, SESSION, acknowledged, max(begun, acknowledged))
        ledger.close()
    except LedgerError as error:
        raise AssertionError(f"{path.name} cannot be read: {error}") from error
    traffic.sound(path)


def _make(path: Path) -> None:
    SqliteLedger(str(path)).close()


def _copy(template: Path, path: Path) -> None:
    """Put a fresh copy of a closed ledger at the path, without the log of the one before."""
    library.leave_alone(path, template.read_bytes())


@contextmanager
def named(point: str) -> Generator[None]:
    """Add the point to what a check inside raises."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{point}: {error}") from error


def prepare() -> None:
    """Nothing is prepared: a process that forks often is kept small."""


CASES: Final = (
    killed_appends,
    killed_migrations,
    killed_moves_of_documents,
    killed_compactions,
    killed_queues,
    overtaken_compactions,
    power_cuts,
    failing_disk,
    full_disk,
    flipped_bits,
    damaged_pages,
    held_lock,
    backups_under_load,
)

FOUND_BY: Final = (
    ("synchronous_normal", power_cuts, "3 appends were acknowledged"),
    ("deferred_begin", held_lock, "refused as busy"),
    ("content_hashes", flipped_bits, "changed something silently"),
    ("copied_backup", backups_under_load, "40 appends were acknowledged"),
    ("forgotten_keys", killed_appends, "repeated, added"),
    ("split_commits", killed_appends, "doubled or in part"),
    ("split_acceptance", killed_queues, "0 calls were acknowledged"),
    ("unexpected_marks", overtaken_compactions, "was planned after"),
    ("swallowed_errors", failing_disk, "some are lost"),
    ("swallowed_errors", full_disk, "some are lost"),
)
"""Each broken build of `torture.broken`, the case that finds it, and a part of what that case reports."""
