"""Documents in files: care finds damage and keeps the others, and what was replaced or erased leaves no text."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.files import dumped, names, sql
from nexus.errors import LedgerDamaged, LedgerUnusable
from nexus.ledger import jsonl
from nexus.ledger import maintenance as care
from nexus.ledger.overlay import PathOverlay
from nexus.ledger.records import DocumentRecord
from nexus.ledger.sqlite import SqliteLedger
from support.errors import has_code

PLACE = "agent 'bob'"


def documents(path: Path) -> list[DocumentRecord]:
    return [record for record in dumped(path) if isinstance(record, DocumentRecord)]


@pytest.mark.parametrize("change", ["body='{}'", "number=9", "name='eve'", "kind='agents'", "at_ms=1", "hash=x'00'"])
def test_changed_document_is_reported_and_never_returned(path: Path, change: str) -> None:
    sql(path, f"UPDATE document SET {change} WHERE name='bob'")
    (damage,) = care.verify(path)
    assert (damage.record, damage.what) == ("document", "does not match its hash")
    ledger = SqliteLedger(str(path))
    kind = "agents" if change.startswith("kind") else "agent"
    with pytest.raises(LedgerDamaged, match="does not match its hash"):
        ledger.documents(kind)
    assert ledger.document("agent", "ann") is not None
    ledger.close()


def test_export_backup_and_repair_keep_the_documents(path: Path, tmp_path: Path) -> None:
    wanted = documents(path)
    assert [record.number for record in wanted if record.name == "ann"] == [2] and len(wanted) == 3
    ledger = SqliteLedger(str(path))
    jsonl.export(ledger, tmp_path / "l.jsonl")
    ledger.close()
    care.backup(path, tmp_path / "backup.db")
    assert care.repair(path, tmp_path / "repaired.db").damages == ()
    imported = SqliteLedger(str(tmp_path / "imported.db"))
    assert jsonl.load(imported, tmp_path / "l.jsonl").records["document"] == 3
    assert jsonl.load(imported, tmp_path / "l.jsonl").added == 0
    imported.close()
    for name in ("backup", "repaired", "imported"):
        assert documents(tmp_path / f"{name}.db") == wanted


def test_repair_reports_a_damaged_document_and_keeps_the_others(path: Path, tmp_path: Path) -> None:
    sql(path, "UPDATE document SET body='{}' WHERE name='bob'")
    result = care.repair(path, tmp_path / "new.db")
    assert [(damage.record, damage.place) for damage in result.damages] == [("document", PLACE)]
    assert documents(tmp_path / "new.db") == [record for record in documents(path) if record.name != "bob"]
    assert care.verify(tmp_path / "new.db") == []


def test_repair_saves_a_ledger_that_has_documents_only(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"), tenant="acme")
    for number in range(40):
        ledger.put_document("agent", f"a{number % 20}", {"n": number, "text": "x" * 300})
    ledger.delete_document("agent", "a0")
    for end in ("", "-wal"):  # as a killed process leaves it
        shutil.copy(tmp_path / f"l.db{end}", tmp_path / f"killed.db{end}")
    assert care.repair(tmp_path / "killed.db", tmp_path / "new.db").damages == ()
    saved = SqliteLedger(str(tmp_path / "new.db"), tenant="acme", create=False)
    assert saved.documents("agent") == ledger.documents("agent")
    assert len(saved.documents("agent")) == 19


def test_replaced_and_erased_documents_leave_no_text(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    for number in range(50):
        ledger.put_document("agent", "ann", {"text": f"a secret of version {number}" * 99})
        ledger.put_document("agent", f"secret name {number}", {"text": f"secret text {number}"})
    ledger.put_document("agent", "bob", {"text": "harmless"})
    every = [("agent", document.name) for document in ledger.documents("agent") if document.name != "bob"]
    erased = ledger.erase([], documents=every)
    assert erased.remaining == 0 < erased.needles
    ledger.close()
    assert names(tmp_path) == ["l.db"]
    assert b"secret" not in path.read_bytes()
    assert b"harmless" in path.read_bytes()


def test_untrusted_ledger_refuses_documents() -> None:
    ledger = SqliteLedger()
    put = ledger.put_document("agent", "ann", {})
    ledger.trusted = False
    for call in (
        lambda: ledger.put_document("agent", "ann", {}),
        lambda: ledger.delete_document("agent", "ann"),
        lambda: ledger.erase([], documents=[("agent", "ann")]),
    ):
        with pytest.raises(LedgerUnusable, check=has_code("ledger_not_trusted")):
            call()
    assert ledger.documents("agent") == [put]


def test_overlay_of_a_path_passes_documents_through() -> None:
    ledger = SqliteLedger()
    overlay: Any = PathOverlay(ledger, None, 0)
    assert overlay.put_document("agent", "ann", {}) == ledger.document("agent", "ann")


COUNTING = """
import sys
from nexus.errors import HeadMoved
from nexus.ledger.sqlite import SqliteLedger

ledger = SqliteLedger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
done = 0
while done < 50:
    old = ledger.document("counter", "x")
    try:
        ledger.put_document("counter", "x", {"n": old.body["n"] + 1}, expected_number=old.number)
    except HeadMoved:
        continue
    done += 1
"""


def test_processes_that_change_a_document_at_once_lose_no_change(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    ledger.put_document("counter", "x", {"n": 0})
    command = [sys.executable, "-c", COUNTING, str(tmp_path / "l.db")]
    processes: list[Any] = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("\n", timeout=600)
        assert process.returncode == 0
    counter = ledger.document("counter", "x")
    assert counter is not None
    assert (counter.number, counter.body) == (101, {"n": 100})
