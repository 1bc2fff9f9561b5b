"""The audit finds every changed column, every missing or misplaced record, every reference that leads nowhere."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import fields, replace

from ledger.everything import fill, rechained
from nexus.ledger import chain
from nexus.ledger.integrity import check
from nexus.ledger.integrity.threads import FARTHEST_GAP, Damage
from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    Header,
    KeyRecord,
    MoveRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.sqlite import SqliteLedger

T = TypeVar("T")

UNCHAINED = {("thread", "at_ms")}
"""What no hash covers, besides the names of keys: when a thread began.

(In SQLite, a thread's row has a hash over all of it.)
"""


@pytest.fixture(scope="module")
def sound() -> list[Record]:
    store = SqliteLedger()
    fill(store)
    return list(store.dump())


def found(records: Any) -> list[Damage]:
    return list(check(records))


def changed(records: list[Record], at: int, **values: Any) -> list[Record]:
    return [*records[:at], replace(records[at], **values), *records[at + 1 :]]


def index(records: list[Record], kind: type[T], fits: Callable[[T], bool] = lambda _: True) -> int:
    return next(at for at, record in enumerate(records) if isinstance(record, kind) and fits(record))


def flipped(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ 64
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    return chr(ord(value[0]) ^ 1) + value[1:] if value else "x"


@pytest.mark.parametrize("file", ["", "l.db"])
def test_ledger_with_every_kind_of_record_is_sound(tmp_path: Path, file: str) -> None:
    store = SqliteLedger(str(tmp_path / file) if file else ":memory:")
    fill(store)
    kinds = {type(record) for record in store.dump()}
    assert kinds == set(Record.__args__)
    assert found(store.dump()) == []


def test_an_empty_ledger_is_sound() -> None:
    assert found(SqliteLedger().dump()) == []


def test_changed_column_of_any_record_is_reported(sound: list[Record]) -> None:
    silent: set[tuple[str, str]] = set()
    for at, record in enumerate(sound):
        if isinstance(record, Header):
            continue
        kind = str(record.__struct_config__.tag)
        for field in fields(record):
            value = getattr(record, field.name)
            if isinstance(value, list):
                continue
            other = (1 if field.name in ("parent", "thread") else "x") if value is None else flipped(value)
            damages = found(changed(sound, at, **{field.name: other}))
            if not damages:
                silent.add((kind, field.name))
            else:
                assert all(damage.place and damage.what and damage.loss for damage in damages)
    assert silent == UNCHAINED


def test_every_column_of_every_message_and_key_that_changes_is_reported(sound: list[Record]) -> None:
    silent: set[str] = set()
    for at, record in enumerate(sound):
        if not isinstance(record, EntryRecord):
            continue
        for place, row in enumerate(record.messages):
            for column, value in enumerate(row):
                other = (*row[:column], flipped(value), *row[column + 1 :])
                messages = [*record.messages[:place], other, *record.messages[place + 1 :]]
                damages = found(changed(sound, at, messages=messages))
                assert (damages[0].thread, damages[0].seq) == (record.thread, record.seq), f"column {column}"
        for key in record.keys:
            if not found(changed(sound, at, keys=[KeyRecord(key.key, flipped(key.payload))])):
                silent.add("payload")
    assert silent == set()


@pytest.mark.parametrize("how", ["dropped", "doubled"])
def test_missing_or_repeated_record_is_reported(sound: list[Record], how: str) -> None:
    for at, record in enumerate(sound):
        if isinstance(record, (ThreadRecord, EntryRecord, BlobRecord)):
            middle = [] if how == "dropped" else [record, record]
            erased = isinstance(record, ThreadRecord) and record.erased
            assert found([*sound[:at], *middle, *sound[at + 1 :]]) or (erased and how == "dropped"), record


def test_neighbours_that_change_places_are_reported(sound: list[Record]) -> None:
    for at in range(len(sound) - 1):
        swapped = [*sound[:at], sound[at + 1], sound[at], *sound[at + 2 :]]
        assert found(swapped), (sound[at], sound[at + 1])


def test_a_message_that_is_added_taken_away_or_moved_is_reported(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: len(entry.messages) == 1)
    entry = sound[at]
    assert isinstance(entry, EntryRecord)
    for messages in ([], [*entry.messages, *entry.messages]):
        (damage, *_) = found(changed(sound, at, messages=messages))
        assert (damage.place, damage.what) == (f"entry {entry.seq} of thread {entry.thread}", "does not match its hash")


def test_each_damage_is_reported_once_and_names_its_record(sound: list[Record]) -> None:
    places = [at for at, record in enumerate(sound) if isinstance(record, EntryRecord) and record.messages]
    broken = list(sound)
    for at in places[::3]:
        record = broken[at]
        assert isinstance(record, EntryRecord)
        broken[at] = replace(record, at_ms=record.at_ms + 1)
    assert [damage.number for damage in found(broken)] == [at + 1 for at in places[::3]]


def test_damage_is_reported_before_the_rest_is_read(sound: list[Record]) -> None:
    at = index(sound, EntryRecord)
    read: list[Record] = []

    def stream() -> Iterator[Record]:
        for record in changed(sound, at, turn=99):
            read.append(record)
            yield record

    assert next(check(stream())).seq == 1
    assert len(read) == at + 1


def test_a_gap_says_what_is_missing(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: entry.seq == 3)
    (first, *_) = found([*sound[:at], *sound[at + 2 :]])
    assert (first.place, first.what) == ("entries 3 to 4 of thread 1", "are missing")


def test_impossible_number_is_reported_without_a_gap(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: entry.seq == 3)
    damages = found(changed(sound, at, seq=FARTHEST_GAP * 1_000_000))
    assert "impossible number" in damages[0].what


def test_lost_entry_keeps_its_chain_value(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: entry.seq == 4)
    lost = changed(sound, at, kind="lost", body="{}", messages=[], keys=[])
    assert found(lost) == []
    assert [damage.seq for damage in found(changed(lost, at + 1, turn=9))] == [5]
    assert found(changed(lost, at, hash=bytes(32)))


def test_the_end_of_a_dump_that_was_cut_off_is_reported(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: entry.seq == 4)
    (damage, *_) = found(sound[:at])
    assert (damage.place, damage.loss) == ("thread 1", f"entries 4 to {_head(sound, 1)}")


def _head(records: list[Record], thread: int) -> int:
    return next(record.head_seq for record in records if isinstance(record, ThreadRecord) and record.id == thread)


@pytest.mark.parametrize("records", [[], [ThreadRecord(1, None, 0, b"", 0, 0, b"")], [Header(format=99)]])
def test_records_without_a_header_of_this_form_are_refused_whole(records: list[Record]) -> None:
    (damage,) = found(records)
    assert (damage.record, damage.loss, damage.number) == ("ledger", "everything", 1)


def test_another_tenants_records_do_not_match(sound: list[Record]) -> None:
    assert found([Header(tenant="other"), *sound[1:]])


# ------------------------------------------------------------------- references, in records whose hashes are all right


def entry_with(sound: list[Record], kind: str, body: dict[str, Any]) -> list[Record]:
    at = index(sound, EntryRecord, lambda entry: entry.kind == kind)
    return list(rechained(changed(sound, at, body=msgspec.json.encode(body).decode())))


def test_hashes_made_anew_change_nothing_in_a_sound_ledger(sound: list[Record]) -> None:
    assert list(rechained(sound)) == sound


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("undone", {"of": 1}, "which is no compaction"),
        ("undone", {"of": 999}, "which is no compaction"),
        ("pin", {"seq": 1, "ord": 1}, "message 1 of entry 1, which is not there"),
        ("pin", {"seq": 999, "ord": 0}, "message 0 of entry 999, which is not there"),
        ("unpin", {"seq": 12, "ord": 0}, "message 0 of entry 12, which is not there"),
        ("compaction", {"covers_from": 1, "covers_to": 99, "first_kept": 6, "summary": ""}, "not there"),
        ("compaction", {"covers_from": 1, "covers_to": 2, "first_kept": -1, "summary": ""}, "not there"),
        ("compaction", {"covers_from": "one"}, "cannot be read"),
        ("pin", {"seq": "one"}, "cannot be read"),
    ],
)
def test_a_mark_that_names_what_is_not_there_is_reported(
    sound: list[Record], kind: str, body: dict[str, Any], says: str
) -> None:
    damages = found(entry_with(sound, kind, body))
    assert any(says in damage.what for damage in damages), damages
    assert all("hash" not in damage.what for damage in damages if damage.record == "entry")


def test_check_accepts_inherited_pins_and_rejects_pins_after_the_fork(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: entry.kind == "unpin")
    own = sound[at]
    assert isinstance(own, EntryRecord)
    assert own.thread == 2
    assert found(entry_with(sound, "unpin", {"seq": 7, "ord": 0})) == []
    assert found(entry_with(sound, "unpin", {"seq": own.seq + 1, "ord": 0}))


def test_an_idempotency_key_that_is_there_twice_in_a_thread_is_reported(sound: list[Record]) -> None:
    at = index(sound, EntryRecord, lambda entry: bool(entry.keys))
    record = sound[at]
    assert isinstance(record, EntryRecord)
    (damage,) = found(changed(sound, at, keys=[*record.keys, *record.keys]))
    assert damage.what == "has an idempotency key that was used before"


def test_a_thread_that_continues_nothing_is_reported(sound: list[Record]) -> None:
    at = index(sound, ThreadRecord, lambda thread: thread.parent is not None)
    for values, says in (
        ({"parent": 77}, "thread 77, which is not there"),
        ({"fork_seq": 3}, "does not continue thread 1 at entry 3"),
        ({"parent": None, "fork_seq": 0}, "chain value of its number"),
    ):
        assert says in found(changed(sound, at, **values))[0].what


def test_a_fork_of_a_thread_that_was_deleted_for_good_is_reported() -> None:
    root = chain.root_hash("local", 1)
    gone = ThreadRecord(1, None, 0, root, 5, 0, root, erased=True)
    fork = ThreadRecord(2, 1, 0, root, 6, 0, root)
    (damage,) = found(rechained([Header(), gone, fork, MoveRecord("s", 1, 2, "{}", "created", 5, b"")]))
    assert damage.what == "continues thread 1, which was deleted for good"
    move = MoveRecord("s", 1, 1, "{}", "created", 5, b"")
    (damage,) = found(rechained([Header(), gone, move]))
    assert damage.what == "points to thread 1, which was deleted for good"


def test_thread_without_a_session_is_reported(sound: list[Record]) -> None:
    """Also when another thread continues it: nothing shows its later entries any more."""
    records = [record for record in sound if not (isinstance(record, MoveRecord) and record.label == "main")]
    places = [damage.place for damage in found(records)]
    assert {"the session of thread 1", "the session of thread 3"} <= {*places}


def test_entries_of_a_thread_that_was_deleted_for_good_are_reported(sound: list[Record]) -> None:
    at = index(sound, ThreadRecord)
    assert {damage.what for damage in found(changed(sound, at, erased=True)) if damage.thread == 1} >= {
        "is not in its place"
    }


def session_with(sound: list[Record], label: str, **values: Any) -> list[Record]:
    at = index(sound, MoveRecord, lambda move: move.label == label)
    return list(rechained(changed(sound, at, **values)))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"thread": 99}, "points to thread 99, which is not there"),
        ({"metadata": '{"parent_session":"nobody"}'}, "has the parent session 'nobody', which is not there"),
        ({"metadata": '{"parent_session":"main","parent_turn":99}'}, "was spawned in turn 99 of 'main'"),
        ({"metadata": '{"parent_session":"side"}'}, "is its own ancestor"),
        ({"metadata": "[]"}, "cannot be read"),
    ],
)
def test_a_session_that_refers_to_what_is_not_there_is_reported(
    sound: list[Record], values: dict[str, Any], says: str
) -> None:
    whole = [record for record in sound if not (isinstance(record, ThreadRecord) and record.erased)]
    damages = found(session_with(whole, "side", **values))
    assert any(says in damage.what for damage in damages), damages


def test_a_parent_may_be_named_by_its_alias(sound: list[Record]) -> None:
    at = index(sound, MoveRecord, lambda move: move.label == "worker")
    named = changed(sound, at + 1, metadata='{"parent_session":"nick","parent_turn":2}')
    assert found(rechained(named)) == []


@pytest.mark.parametrize(
    ("target", "says"), [("nobody", "leads to 'nobody', which is not there"), ("nick", "leads back to itself")]
)
def test_an_alias_that_leads_nowhere_or_to_itself_is_reported(sound: list[Record], target: str, says: str) -> None:
    at = index(sound, AliasRecord, lambda alias: alias.name == "nick")
    damages = found(rechained(changed(sound, at, target=target)))
    assert [damage.what for damage in damages] == [says]


def test_misplaced_decisions_and_manifests_are_reported(sound: list[Record]) -> None:
    at = index(sound, DecisionRecord)
    damages = found(rechained(changed(sound, at, at_seq=999)))
    assert "after entry 999, which is not there" in damages[0].what
    assert "has another view" in found(rechained(changed(sound, at, at_seq=4)))[0].what
    at = index(sound, AssemblyRecord)
    record = sound[at]
    assert isinstance(record, AssemblyRecord)
    moved = replace(record, seq=999)
    broken = changed(sound, at, seq=999, hash=chain.assembly_hash("local", moved))
    assert any(damage.what == "is of an entry that is not there" for damage in found(broken))


def test_calibrations_stand_in_order(sound: list[Record]) -> None:
    at = index(sound, CalibrationRecord)
    assert found([*sound[:at], sound[at + 1], sound[at]])
    (damage,) = found([*sound[:at], *sound[at + 1 :]])
    assert (damage.place, damage.what) == ("calibration 2 of openai/gpt-5", "follows calibration 0")


def test_columns_of_another_type_or_over_64_bits_are_reported(sound: list[Record]) -> None:
    kinds = {type(record) for record in sound} - {Header}
    for kind in sorted(kinds, key=str):
        at = index(sound, kind)
        for name in set(kind.__struct_fields__) - {"keys"}:
            for value in (1.5, 1 << 64, None if "None" not in str(kind.__annotations__[name]) else 1.5):
                damages = found(changed(sound, at, **{name: value}))
                assert damages[0].number == at + 1, (kind, name)
                assert damages[0].what == "has columns that cannot be stored"
    at = index(sound, EntryRecord, lambda entry: bool(entry.messages) and bool(entry.keys))
    entry = sound[at]
    assert isinstance(entry, EntryRecord)
    for place in range(13):
        row = tuple(1.5 if at == place else value for at, value in enumerate(entry.messages[0]))
        assert found(changed(sound, at, messages=[row]))[0].what == "has columns that cannot be stored"
    assert found(changed(sound, at, keys=[replace(entry.keys[0], payload="text")]))[0].number == at + 1


def test_it_remembers_bytes_of_an_entry_and_not_its_text() -> None:
    entries, letters = 4_000, 4_000

    def stream() -> Iterator[Record]:
        digest = chain.root_hash("local", 1)
        yield Header()
        head = digest
        made: list[bytes] = []
        for seq in range(1, entries + 1):
            head = chain.entry_hash(head, "local", columns(seq), rows(seq))
            made.append(head)
        yield ThreadRecord(1, None, 0, digest, 1, entries, head)
        for seq, value in enumerate(made, 1):
            yield EntryRecord(*columns(seq), value, rows(seq))
        yield from rechained([MoveRecord("s", 1, 1, "{}", "created", 5, b"")])

    def columns(seq: int) -> tuple[int, int, str, int, int, str]:
        return 1, seq, "messages", seq, 5, "{}"

    def rows(seq: int) -> list[Any]:
        return [(0, "user", "", "", "", "", 0, f'[{{"type":"text","text":"{seq:0{letters}}"}}]', "", 1, 1, 1, 0)]

    tracemalloc.start()
    assert found(stream()) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < entries * letters / 10


def test_check_that_knows_the_parents_reports_the_same_damage(sound: list[Record]) -> None:
    parents = {record.parent for record in sound if isinstance(record, ThreadRecord) and record.parent is not None}

    assert parents
    for at in range(1, len(sound)):
        damaged = [*sound[:at], *sound[at + 1 :]]
        assert list(check(damaged, parents)) == list(check(damaged))


def test_check_that_knows_the_parents_forgets_the_entries_of_all_other_threads() -> None:
    threads, entries = 50, 400

    def stream() -> Iterator[Record]:
        yield Header()
        for thread in range(1, threads + 1):
            root = chain.root_hash("local", thread)
            made: list[EntryRecord] = []
            digest = root
            for seq in range(1, entries + 1):
                columns = (thread, seq, "messages", seq, 5, "{}")
                digest = chain.entry_hash(digest, "local", columns, [])
                made.append(EntryRecord(*columns, digest, []))
            yield ThreadRecord(thread, None, 0, root, 1, entries, digest)
            yield from made
        moves = [MoveRecord(f"s{thread:03}", 1, thread, "{}", "created", 5, b"") for thread in range(1, threads + 1)]
        yield from (record for move in moves for record in rechained([move]))

    def peak(parents: set[int]) -> int:
        tracemalloc.start()
        assert list(check(stream(), parents)) == []
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(set())  # what is made once
    assert peak(set()) + 12 * threads * entries < peak(set(range(1, threads + 1))) + 2 * 12 * entries
