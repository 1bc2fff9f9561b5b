"""An export is whole or absent, the same content gives the same bytes, and a file that is not sound is never stored."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.everything import COUNTER, HOSTILE, fill, rechained
from ledger.stores import behind_its_back, texts
from nexus.assembly.record import with_sizes
from nexus.errors import LedgerDamaged, LedgerError, LedgerUnusable, UnreadableFile
from nexus.ledger.jsonl import export, load
from nexus.ledger.records import EntryRecord
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import user
from support.errors import has_code


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a ledger with something of everything."""
    store, path = SqliteLedger(), tmp_path_factory.mktemp("export") / "all.jsonl"
    fill(store)
    export(store, path)
    return path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("first", [":memory:", "first.db"])
@pytest.mark.parametrize("second", [":memory:", "second.db"])
def test_export_import_export_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = SqliteLedger(first), SqliteLedger(second)
    fill(one)
    done = export(one, tmp_path / "one.jsonl")
    loaded = load(two, tmp_path / "one.jsonl")
    export(two, tmp_path / "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert loaded.records == done.records
    assert loaded.added == sum(done.records.values()) - 1
    assert done.bytes == (tmp_path / "one.jsonl").stat().st_size


@pytest.mark.parametrize("file", [":memory:", "l.db"])
def test_importing_twice_adds_nothing(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteLedger(file)
    load(store, exported)
    before = list(store.dump())
    assert load(store, exported).added == 0
    assert list(store.dump()) == before


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=20), min_size=1, max_size=4))
def test_every_text_survives(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> None:
    store, other = SqliteLedger(), SqliteLedger()
    path = tmp_path_factory.mktemp("text") / "x.jsonl"
    for text in said:
        message = user(text, id=text, run_id=text, source=text, meta=text)
        store.commit(
            text or "empty", Commit((NewEntry(messages=with_sizes((message,), COUNTER), body={"note": text}),))
        )
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


def test_import_rejects_a_truncated_file(exported: Path, tmp_path: Path) -> None:
    data, path, store = exported.read_bytes(), tmp_path / "cut.jsonl", SqliteLedger()
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
            load(SqliteLedger(), path)


def test_a_changed_letter_anywhere_is_refused(exported: Path, tmp_path: Path) -> None:
    data, path, store = exported.read_bytes(), tmp_path / "changed.jsonl", SqliteLedger()
    for at in range(0, len(data), 211):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises((UnreadableFile, LedgerDamaged, LedgerUnusable)):
            load(store, path)
    assert len(list(store.dump())) == 1


def test_a_damaged_entry_is_named_by_line_and_place(exported: Path, tmp_path: Path) -> None:
    path, all_lines = tmp_path / "bad.jsonl", lines(exported)
    at = next(place for place, line in enumerate(all_lines) if b'"record":"entry"' in line)
    all_lines[at] = all_lines[at].replace(b"question 0", b"question 9")
    path.write_bytes(b"".join(all_lines))
    with pytest.raises(LedgerDamaged, match=rf"line {at + 1}: entry 1 of thread 1 does not match its hash"):
        load(SqliteLedger(), path)


@pytest.mark.parametrize(
    ("header", "error", "says"),
    [
        ({"record": "ledger", "format": 2, "tenant": "local", "new": 1}, LedgerUnusable, "format 2.*upgrade Nexus"),
        ({"record": "ledger", "format": 0, "tenant": "local"}, UnreadableFile, "format 0, which no Nexus wrote"),
        ({"record": "ledger", "format": 1, "tenant": 7}, UnreadableFile, "line 1 is no record"),
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
        load(SqliteLedger(), path)


def resealed(path: Path, changed: list[bytes]) -> Path:
    """A file of these lines whose last line counts and hashes them as it should."""
    end = {"record": "end", "records": len(changed), "sha256": hashlib.sha256(b"".join(changed)).hexdigest()}
    path.write_bytes(b"".join(changed) + json.dumps(end).encode() + b"\n")
    return path


def entry_at(all_lines: list[bytes], kind: str = "entry") -> int:
    return next(at for at, line in enumerate(all_lines) if f'"record":"{kind}"'.encode() in line)


KINDS = ["blob", "thread", "entry", "decision", "move", "alias", "calibration", "assembly"]
# Nothing names a manifest, so that one is missing shows only in the file's last line.
MISPLACED = [
    (kind, how) for how in ("twice", "swapped", "gone") for kind in KINDS if (kind, how) != ("assembly", "gone")
]


@pytest.mark.parametrize(("kind", "how"), MISPLACED)
def test_import_rejects_repeated_reordered_or_missing_lines(
    exported: Path, tmp_path: Path, kind: str, how: str
) -> None:
    kept = lines(exported)[:-1]
    at = entry_at(kept, kind)
    line = kept[at]
    if how == "twice":
        kept.insert(at, line)
    elif how == "swapped":
        kept[at : at + 2] = kept[at + 1], line
    else:
        del kept[at]
    for file in (":memory:", str(tmp_path / "l.db")):
        store = SqliteLedger(file)
        with pytest.raises(LedgerDamaged, match=r"line \d+: .*nothing was stored"):
            load(store, resealed(tmp_path / "x.jsonl", kept))
        assert len(list(store.dump())) == 1


def test_another_tenants_lines_do_not_match(exported: Path, tmp_path: Path) -> None:
    other = SqliteLedger(tenant="other")
    fill(other)
    export(other, tmp_path / "other.jsonl")
    kept = [lines(exported)[0], *lines(tmp_path / "other.jsonl")[1:-1]]
    store = SqliteLedger()
    with pytest.raises(LedgerDamaged, match="does not begin with the chain value of its number"):
        load(store, resealed(tmp_path / "x.jsonl", kept))
    assert len(list(store.dump())) == 1


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("entry", {"body": "no json"}, "cannot be read"), ("entry", {"body": "[1]"}, "cannot be read"),
        ("entry", {"content": '[{"type":"text"}]'}, "cannot be read"), ("entry", {"content": "{"}, "cannot be read"),
        ("entry", {"content": "[" * 5_000 + "]" * 5_000}, "cannot be read"),
        ("entry", {"at_ms": 1 << 70}, "cannot be stored"), ("move", {"metadata": '{"title":7}'}, "cannot be read"),
        ("move", {"metadata": "["}, "cannot be read"), ("decision", {"body": "7"}, "cannot be read"),
    ],
)  # fmt: skip
def test_unreadable_records_with_right_hashes_are_rejected(
    tmp_path: Path, kind: str, changes: dict[str, Any], says: str
) -> None:
    store = SqliteLedger()
    fill(store)
    records = list(store.dump())
    at = next(at for at, record in enumerate(records) if record.__struct_config__.tag == kind)
    record = records[at]
    if "content" in changes:
        assert isinstance(record, EntryRecord)
        row = record.messages[0]
        changes = {"messages": [(*row[:7], changes["content"], *row[8:])]}
    records[at] = replace(record, **changes)
    if says != "cannot be stored":
        records = list(rechained(records))
    path = resealed(tmp_path / "x.jsonl", [msgspec.json.encode(one) + b"\n" for one in records])
    for file in (":memory:", str(tmp_path / "l.db")):
        into = SqliteLedger(file)
        with pytest.raises(LedgerDamaged, match=says):
            load(into, path)
        assert len(list(into.dump())) == 1


@pytest.mark.slow
def test_import_reads_a_50_megabyte_line_and_rejects_an_endless_one(tmp_path: Path) -> None:
    store, text = SqliteLedger(), "x" * 50_000_000
    store.commit("main", Commit((NewEntry(body={"note": text}),)))
    export(store, tmp_path / "x.jsonl")
    into = SqliteLedger()
    load(into, tmp_path / "x.jsonl")
    assert next(iter(into.entries(1))).body == {"note": text}
    into.close()
    (tmp_path / "x.jsonl").write_bytes(text.encode())
    with pytest.raises(UnreadableFile, match="line 1 is longer than 65,536 bytes"):
        load(SqliteLedger(), tmp_path / "x.jsonl")


def test_a_binary_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(bytes(range(256)) * 1_000)
    with pytest.raises(UnreadableFile, match="line 1"):
        load(SqliteLedger(), tmp_path / "x.db")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(SqliteLedger(), tmp_path / "absent")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(SqliteLedger(), tmp_path)


def test_import_rejects_content_after_the_end(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "two.jsonl").write_bytes(exported.read_bytes() * 2)
    with pytest.raises(UnreadableFile, match="comes after the end"):
        load(SqliteLedger(), tmp_path / "two.jsonl")


def test_import_conflicts_with_other_rows_and_stores_nothing(exported: Path) -> None:
    store = SqliteLedger()
    store.commit("else", Commit((NewEntry(messages=with_sizes((user("mine"),), COUNTER)),)))
    before = list(store.dump())
    with pytest.raises(LedgerError, check=has_code("ledger_conflict")):
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
    store, path = SqliteLedger(), tmp_path / "x.jsonl"
    fill(store)
    path.write_text("mine")
    with pytest.raises(UnreadableFile, match=r"exists and was not touched.*--force"):
        export(store, path)
    assert path.read_text() == "mine"
    export(store, path, force=True)
    assert load(SqliteLedger(), path).added
    with pytest.raises(UnreadableFile, match="not a regular file"):
        export(store, tmp_path, force=True)
    with pytest.raises(UnreadableFile, match=r"folder .* not found"):
        export(store, tmp_path / "no" / "x.jsonl")


def test_dashes_are_the_standard_streams(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, out = SqliteLedger(), io.BytesIO()
    load(store, exported)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    export(store, "-")
    assert out.getvalue() == exported.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.getvalue())))
    other = SqliteLedger()
    assert load(other, "-").added == len(lines(exported)) - 2
    assert HOSTILE in {move.label for move in map(other.session, [HOSTILE]) if move}


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    store = SqliteLedger()
    store.commit("main", Commit(tuple(NewEntry(messages=with_sizes((user("x"),), COUNTER)) for _ in range(2_500))))
    told: list[tuple[int, int]] = []
    export(store, tmp_path / "x.jsonl", progress=lambda done, total: told.append((done, total)))
    assert told == [(1_000, 0), (2_000, 0)]
    told.clear()
    load(SqliteLedger(), tmp_path / "x.jsonl", progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert {total for _, total in told} == {2 * (tmp_path / "x.jsonl").stat().st_size}
    assert 0 < told[-1][0] <= told[-1][1]
    assert len(texts(store, "main")) == 2_500
