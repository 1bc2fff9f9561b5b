"""A repair of a sound ledger is the same ledger, whatever was done to it: no record is missing, and nothing is reported."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.everything import HOSTILE, picture, said
from ledger.files import dumped
from nexus.errors import LedgerError
from nexus.ledger import maintenance as care
from nexus.ledger.history_operations import Ledger
from nexus.ledger.sessions import EventState, NewQueuedEvent, SessionMetadata
from nexus.ledger.shared_sql.erase import erase
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import AssemblyRow, Commit, Compaction, Cut, MessageRef, NewEntry, StoredCalibration
from nexus.types.message import user

LABELS = ("a", "b", "c", HOSTILE)
TENANTS = ("local", "other\x00")


def append(ledger: Ledger, name: str, other: str, number: int) -> None:
    shown = picture(f"QUJD{number}" * 400) if number % 3 == 0 else user(f"text {number} " + "x" * 40 * number)
    keys = (f"k{number}",) if number % 2 else ()
    new = SessionMetadata(parent_session=other) if number % 4 == 1 else None
    ledger.store.commit(name, Commit((said(shown, keys=keys, starts_turn=True),)), new)


def accept(ledger: Ledger, name: str, other: str, number: int) -> None:
    ids = (f"e{number}", f"{other}{number}")
    ledger.store.accept_events([NewQueuedEvent(id_, name, f'{{"text":"{id_}"}}' + " " * 1_500 * number) for id_ in ids])


def change(ledger: Ledger, ids: Collection[str], state: EventState) -> None:
    keys = [event.key for event in ledger.store.queued_events() if event.id in ids]
    expected: EventState = "queued" if state == "running" else "running"
    ledger.store.update_events(keys, state, expected=[expected], turn=1)


def put(ledger: Ledger, name: str, other: str, number: int) -> None:
    ledger.store.put_document(name, other, {"text": f"document {number} " + "x" * 1_500 * number})


def cut(ledger: Ledger, name: str, _: str, number: int) -> None:
    made = Cut("v", number, 1, MessageRef(1, 0), "[left out]", 1, 10, 1)
    ledger.store.commit(name, Commit((said(user("cut")),), made, AssemblyRow("v", {"n": number}, 0)))


def compact(ledger: Ledger, name: str, *_: Any) -> None:
    marks = ledger.store.checkpoints(ledger.thread(name))
    ledger.compact(name, Compaction(1, 1, 2, "summary"), after_checkpoint=marks[0].seq if marks else 0)


def erase_and_be_killed(ledger: Ledger, name: str, *_: Any) -> None:
    """The rows are deleted, and the process ends before it has emptied the log."""
    store = ledger.store
    assert isinstance(store, SqliteLedger)
    label = ledger.resolve(name) or name
    threads = {move.thread for move in store.ref_updates(label) if move.thread is not None}
    threads -= {one.thread for one in store.sessions(every=True) if one.label != label}
    store._write(lambda writing: erase(writing, sorted(threads), [label]), alone=True)


def erase_all_and_be_killed(ledger: Ledger, *_: Any) -> None:
    store = ledger.store
    assert isinstance(store, SqliteLedger)
    store._write(lambda writing: erase(writing, None, []), alone=True)


DONE: dict[str, Callable[[Ledger, str, str, int], Any]] = {
    "append": append, "append again": append, "cut": cut, "compact": compact,
    "complete": lambda ledger, name, _, __: ledger.close_turn(name),
    "clear": lambda ledger, name, _, __: ledger.store.commit(name, Commit((NewEntry("clear"),))),
    "undo": lambda ledger, name, _, __: ledger.undo(name),
    "redo": lambda ledger, name, _, __: ledger.redo(name),
    "pin": lambda ledger, name, _, number: ledger.pin(name, MessageRef(number, 0)),
    "unpin": lambda ledger, name, _, number: ledger.unpin(name, MessageRef(number, 0)),
    "fork": lambda ledger, name, other, _: ledger.fork(other, name),
    "rewind": lambda ledger, name, _, number: ledger.rewind(name, seq=number),
    "rename": lambda ledger, name, other, _: ledger.sessions.rename(name, other),
    "merge": lambda ledger, name, other, _: ledger.sessions.merge(name, other),
    "alias": lambda ledger, name, other, _: ledger.sessions.alias(other, name),
    "unalias": lambda ledger, name, _, __: ledger.sessions.unalias(name),
    "update": lambda ledger, name, _, number: ledger.sessions.update(name, title=f"title {number}"),
    "delete": lambda ledger, name, _, __: ledger.sessions.delete(name),
    "restore": lambda ledger, name, _, __: ledger.sessions.restore(name),
    "erase": lambda ledger, name, _, __: ledger.upkeep.erase(name, with_forks=True),
    "erase a merged one": lambda ledger, name, _, __: ledger.upkeep.erase(f"{name}~merged", with_forks=True),
    "erase and be killed": erase_and_be_killed,
    "erase all and be killed": erase_all_and_be_killed,
    "accept": accept, "accept again": accept,
    "start": lambda ledger, *_: change(ledger, ("e0", "e1", "e2"), "running"),
    "finish": lambda ledger, *_: change(ledger, ("e0", "e1"), "done"),
    "forget": lambda ledger, *_: ledger.store.delete_finished_events(-1),
    "put": put, "put again": put,
    "take away": lambda ledger, name, other, _: ledger.store.delete_document(name, other),
    "calibrate": lambda ledger, name, _, number: ledger.store.calibrate("p", name, StoredCalibration(64, number)),
}  # fmt: skip

STEPS = st.tuples(
    st.sampled_from(TENANTS), st.sampled_from(sorted(DONE)), st.sampled_from(LABELS), st.sampled_from(LABELS),
    st.integers(0, 6),
)  # fmt: skip


def here(*steps: tuple[Any, ...]) -> list[Any]:
    """Steps of one tenant, each with what it needs."""
    return [("local", *step, *("b", 2)[len(step) - 2 :]) for step in steps]


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=40))
@example(
    here(
        ("append", "a"), ("append", "b"), ("merge", "a"), ("unalias", "a"), ("append again", "a"),
        ("erase a merged one", "a"),
    )
)  # fmt: skip
@example(here(("append", "a"), ("update", "a"), ("update", "a"), ("erase and be killed", "a"), ("append", "a")))
@example(here(("append", "a"), ("alias", "a"), ("unalias", "b"), ("erase and be killed", "a"), ("append", "b")))
@example(here(("append", "a", "b", 3), ("cut", "a"), ("calibrate", "a"), ("erase all and be killed", "a")))
@example(here(("append", "a"), ("append", "b", "a", 1), ("erase", "a"), ("append", "c", "b", 1)))
def test_a_repair_of_any_sound_ledger_loses_nothing_and_reports_nothing(steps: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        stores = {tenant: SqliteLedger(str(folder / "l.db"), tenant=tenant) for tenant in TENANTS}
        for tenant, what, name, other, number in steps:
            with suppress(LedgerError):
                DONE[what](Ledger(stores[tenant]), name, other, number)
        records = {tenant: list(store.dump()) for tenant, store in stores.items()}
        for end in ("", "-wal"):
            shutil.copy(f"{folder / 'l.db'}{end}", f"{folder / 'killed.db'}{end}")
        for store in stores.values():
            store.close()
        assert care.verify(folder / "l.db") == []
        if not any(len(found) > 1 for found in records.values()):
            return
        for name in ("killed.db", "l.db"):
            done = care.repair(folder / name, folder / "new.db", force=True)
            assert (done.damages, done.lost_entries) == ((), 0)
            for tenant, found in records.items():
                assert dumped(folder / "new.db", tenant) == found
    finally:
        shutil.rmtree(folder)
