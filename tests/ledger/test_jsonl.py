"""An export is whole or absent, the same content gives the same bytes, and a file that is not sound is never stored."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.everything import COUNTER, HOSTILE, fill
from ledger.stores import behind_its_back, texts
from nexus.errors import LedgerConflict, LedgerDamaged, LedgerTooNew, UnreadableFile
from nexus.ledger.entries import Commit, NewEntry
from nexus.ledger.jsonl import export, load
from nexus.ledger.memory import MemoryLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.message import user
from nexus.record import sized

STORES: list[Callable[[], Any]] = [MemoryLedger, SqliteLedger]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a ledger with something of everything."""
    store, path = MemoryLedger(), tmp_path_factory.mktemp("export") / "all.jsonl"
    fill(store)
    export(store, path)
    return path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("first", STORES)
@pytest.mark.parametrize("second", STORES)
def test_export_import_export_gives_the_same_bytes(
    tmp_path: Path, first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    one, two = first(), second()
    fill(one)
    done = export(one, tmp_path / "one.jsonl")
    loaded = load(two, tmp_path / "one.jsonl")
    export(two, tmp_path / "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert loaded.records == done.records
    assert loaded.added == sum(done.records.values()) - 1
    assert done.bytes == (tmp_path / "one.jsonl").stat().st_size


@pytest.mark.parametrize("make", STORES)
def test_importing_twice_adds_nothing(exported: Path, make: Callable[[], Any]) -> None:
    store = make()
    load(store, exported)
    before = list(store.dump())
    assert load(store, exported).added == 0
    assert list(store.dump()) == before


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=20), min_size=1, max_size=4))
def test_every_text_survives(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> None:
    store, other = MemoryLedger(), SqliteLedger()
    path = tmp_path_factory.mktemp("text") / "x.jsonl"
    for text in said:
        message = user(text, id=text, run_id=text, source=text, meta=text)
        store.commit(text or "empty", Commit((NewEntry(messages=sized((message,), COUNTER), body={"note": text}),)))
    export(store, path)
    load(other, path)
    for text in said:
        thread = other.thread_of(text or "empty") or 0
        message = next(iter(other.entries(thread))).rows[0].message
        assert (message.text(), message.id, message.run_id, message.source, message.meta) == (text,) * 5
    other.close()


def test_the_file_is_text_of_one_record_a_line_that_any_tool_reads(exported: Path) -> None:
    records = [json.loads(line) for line in exported.read_text("utf-8").split("\n")[:-1]]
    assert records[0] == {"record": "ledger", "format": 1, "tenant": "local"}
    assert [record["record"] for record in records].count("entry") > 10
    assert records[-1]["record"] == "end"
    assert records[-1]["records"] == len(records) - 1


def test_a_file_that_was_cut_off_anywhere_is_refused_and_nothing_is_stored(exported: Path, tmp_path: Path) -> None:
    data, path, store = exported.read_bytes(), tmp_path / "cut.jsonl", MemoryLedger()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10][:-1]
    for size in (0, *ends, *range(1, len(data), len(data) // 40), len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(UnreadableFile) as raised:
            load(store, path)
        assert " line " in str(raised.value)
        assert str(path) in str(raised.value)
        assert len(list(store.dump())) == 1


def test_a_line_that_is_no_record_is_named(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "junk.jsonl"
    for junk in (b"junk\n", b"{}\n", b'{"record":"entry"}\n', b"\n", b'{"record":"other"}\n', b"\xff\n", b"[1]\n"):
        path.write_bytes(b"".join([*lines(exported)[:4], junk, *lines(exported)[4:]]))
        with pytest.raises(UnreadableFile, match=r"junk\.jsonl line 5 is no record"):
            load(MemoryLedger(), path)


def test_a_changed_letter_anywhere_is_refused(exported: Path, tmp_path: Path) -> None:
    data, path, store = exported.read_bytes(), tmp_path / "changed.jsonl", MemoryLedger()
    for at in range(0, len(data), 211):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises((UnreadableFile, LedgerDamaged, LedgerTooNew)):
            load(store, path)
    assert len(list(store.dump())) == 1


def test_a_damaged_entry_is_named_by_line_and_place(exported: Path, tmp_path: Path) -> None:
    path, all_lines = tmp_path / "bad.jsonl", lines(exported)
    at = next(place for place, line in enumerate(all_lines) if b'"record":"entry"' in line)
    all_lines[at] = all_lines[at].replace(b"question 0", b"question 9")
    path.write_bytes(b"".join(all_lines))
    with pytest.raises(LedgerDamaged, match=rf"line {at + 1}: entry 1 of thread 1 does not match its hash"):
        load(MemoryLedger(), path)


@pytest.mark.parametrize(
    ("header", "error", "says"),
    [
        ({"record": "ledger", "format": 2, "tenant": "local", "new": 1}, LedgerTooNew, "format 2.*Upgrade Nexus"),
        ({"record": "ledger", "format": 1, "tenant": "else"}, UnreadableFile, "tenant 'else'"),
        ({"record": "entry"}, UnreadableFile, "is no export of a ledger"),
        ({"messages": []}, UnreadableFile, "is no export of a ledger"),
    ],
)
def test_a_first_line_of_something_else_says_what_it_is(
    exported: Path, tmp_path: Path, header: dict[str, Any], error: type[Exception], says: str
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(b"".join([json.dumps(header).encode() + b"\n", *lines(exported)[1:]]))
    with pytest.raises(error, match=says):
        load(MemoryLedger(), path)


def test_a_binary_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(bytes(range(256)) * 1_000)
    with pytest.raises(UnreadableFile, match="line 1"):
        load(MemoryLedger(), tmp_path / "x.db")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(MemoryLedger(), tmp_path / "absent")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(MemoryLedger(), tmp_path)


def test_what_comes_after_the_end_is_refused(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "two.jsonl").write_bytes(exported.read_bytes() * 2)
    with pytest.raises(UnreadableFile, match="comes after the end"):
        load(MemoryLedger(), tmp_path / "two.jsonl")


def test_an_import_into_a_ledger_with_other_rows_there_is_a_conflict_and_stores_nothing(exported: Path) -> None:
    store = MemoryLedger()
    store.commit("else", Commit((NewEntry(messages=sized((user("mine"),), COUNTER)),)))
    before = list(store.dump())
    with pytest.raises(LedgerConflict):
        load(store, exported)
    assert list(store.dump()) == before


def test_a_damaged_ledger_is_not_exported_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    store = SqliteLedger(str(path))
    fill(store)
    with behind_its_back(path) as db:
        db.execute("UPDATE message SET meta='x' WHERE thread=1 AND seq=9")
    (tmp_path / "kept.jsonl").write_text("mine")
    for name in ("new.jsonl", "kept.jsonl"):
        with pytest.raises(LedgerDamaged, match="entry 9 of thread 1 does not match its hash"):
            export(store, tmp_path / name, force=True)
    store.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kept.jsonl", "l.db"]
    assert (tmp_path / "kept.jsonl").read_text() == "mine"


def test_an_existing_file_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    store, path = MemoryLedger(), tmp_path / "x.jsonl"
    fill(store)
    path.write_text("mine")
    with pytest.raises(UnreadableFile, match=r"exists already and was not touched.*--force"):
        export(store, path)
    assert path.read_text() == "mine"
    export(store, path, force=True)
    assert load(MemoryLedger(), path).added
    with pytest.raises(UnreadableFile, match="no regular file"):
        export(store, tmp_path, force=True)
    with pytest.raises(UnreadableFile, match="no folder"):
        export(store, tmp_path / "no" / "x.jsonl")


def test_dashes_are_the_standard_streams(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, out = MemoryLedger(), io.BytesIO()
    load(store, exported)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    export(store, "-")
    assert out.getvalue() == exported.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.getvalue())))
    other = MemoryLedger()
    assert load(other, "-").added == len(lines(exported)) - 2
    assert HOSTILE in {move.label for move in map(other.session, [HOSTILE]) if move}


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    store = SqliteLedger()
    store.commit("main", Commit(tuple(NewEntry(messages=sized((user("x"),), COUNTER)) for _ in range(2_500))))
    told: list[tuple[int, int]] = []
    export(store, tmp_path / "x.jsonl", progress=lambda done, total: told.append((done, total)))
    assert told == [(1_000, 0), (2_000, 0)]
    told.clear()
    load(MemoryLedger(), tmp_path / "x.jsonl", progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert {total for _, total in told} == {2 * (tmp_path / "x.jsonl").stat().st_size}
    assert 0 < told[-1][0] <= told[-1][1]
    assert len(texts(store, "main")) == 2_500
