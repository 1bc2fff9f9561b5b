"""Checks of documents: JSON objects by kind and name, of which the newest version is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReference, HeadMoved, LedgerDamaged, LedgerError, LedgerUnusable
from nexus.ledger import chain
from nexus.ledger.records import DocumentRecord, Header
from nexus.ledger.sessions import Document
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    HOSTILE,
    START_MS,
    LedgerCase,
    append,
    equal,
    holds,
    raises,
    texts,
    together,
)


def _documents(store: LedgerStore) -> list[DocumentRecord]:
    return [record for record in store.dump() if isinstance(record, DocumentRecord)]


def check_stored_documents(case: LedgerCase) -> None:
    """A document is read back as it was written, by kind and name; those of a kind are listed by name."""
    store = case.store
    body: dict[str, Any] = {"name": "Ann", "tags": ["a", None, True, 1.5, -7], "more": {"b": {}, "a": []}}
    equal((store.document("agent", "ann"), store.documents("agent")), (None, []), "what an empty ledger has")
    put = store.put_document("agent", "ann", body)
    equal(put, Document("agent", "ann", 1, body, START_MS), "the document")
    equal((store.document("agent", "ann"), list(put.body)), (put, list(body)), "the document read, and its fields")
    others = [store.put_document(kind, name, {}) for kind, name in (("agent", "Zoe"), ("agents", "ann"), ("agent", ""))]
    equal(store.documents("agent"), [others[2], others[0], put], "the documents of a kind")
    equal(store.documents("agents"), [others[1]], "the documents of another kind")
    equal((store.document("agent", "zoe"), store.documents("none")), (None, []), "what is not there")
    equal(len(store.documents()), 4, "how many documents of all kinds there are")


def check_pages_of_documents(case: LedgerCase) -> None:
    """The documents of one kind are listed in pages, each behind a name."""
    store = case.store
    names = [f"{number:03x}" for number in range(0, 100, 7)]
    for kind in ("a", "agent", "b"):
        for name in reversed(names):
            store.put_document(kind, name, {})
    listed: list[str] = []
    while page := store.documents("agent", after=listed[-1] if listed else "", limit=4):
        equal({document.kind for document in page}, {"agent"}, "the kind of a page")
        holds(len(page) <= 4, "a page has at most as many as the limit")
        listed += [document.name for document in page]
    equal(listed, names, "the names of all pages")
    equal([document.name for document in store.documents("agent", after="00f", limit=2)], names[3:5], "a page between")
    equal(store.documents("agent", limit=0), [], "a page of nothing")


def check_versions_of_documents(case: LedgerCase) -> None:
    """Each change of a document has the next number and its time, and replaces the one before."""
    store = case.store
    for number in range(1, 4):
        case.clock.now_ms += 5
        put = store.put_document("agent", "ann", {"number": number})
        equal(put, Document("agent", "ann", number, {"number": number}, START_MS + 5 * number), "the document")
        equal(store.document("agent", "ann"), put, "the document read")
    equal([record.number for record in _documents(store)], [3], "the versions stored")


def check_expected_versions(case: LedgerCase) -> None:
    """A change that expects another version is refused and changes nothing; 0 expects no document."""
    store = case.store
    for number in range(3):
        before = list(store.dump())
        for wrong in {0, 1, 2, 3, -1} - {number}:
            with raises(HeadMoved, f"a change of version {wrong}", code="document_changed") as caught:
                store.put_document("agent", "ann", {"wrong": wrong}, expected_number=wrong)
            equal((caught[0].expected, caught[0].actual, isinstance(caught[0], HeadMoved)), (wrong, number, True), "it")
        equal(list(store.dump()), before, "what is stored")
        equal(store.put_document("agent", "ann", {}, expected_number=number).number, number + 1, "the new version")


def check_deleted_documents(case: LedgerCase) -> None:
    """A deleted document is gone, others stay, and another one of its name begins at number 1."""
    store = case.store
    for name in ("ann", "ann", "bob"):
        store.put_document("agent", name, {})
    equal([store.delete_document("agent", "ann") for _ in range(2)], [True, False], "whether there was one")
    equal([document.name for document in store.documents("agent")], ["bob"], "the documents left")
    equal(store.put_document("agent", "ann", {}, expected_number=0).number, 1, "the number of a new one")


def check_hostile_documents(case: LedgerCase) -> None:
    """Kinds, names and values of any text and size are returned unchanged."""
    store = case.store
    names = (HOSTILE, "\ud83d\ude00", "\U0001f600", "\x00", "\x1a0000", "'; --", " ", "%", "é" * 400)
    body = {HOSTILE: [HOSTILE, {"": HOSTILE}], "large": 2**70, "text": "x" * 300_000, "least": -(2**63), "real": 1e-300}
    put = [store.put_document(kind, name, {**body, "at": [kind, name]}) for kind in names for name in names]
    equal([store.document(document.kind, document.name) for document in put], put, "the documents")
    for kind in names:
        equal({document.name for document in store.documents(kind)}, set(names), f"the names of kind {kind!r}")
    equal(put[0].body, {**body, "at": [HOSTILE, HOSTILE]}, "the first body")


def check_refused_documents(case: LedgerCase) -> None:
    """A document without a kind, or whose body has no exact JSON form, is refused."""
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"deeper": deep}
    wrong: tuple[Any, ...] = ({"x": float("nan")}, {"x": float("inf")}, {"x": object()}, deep, ["x"], "x", None, 7)
    wrong += ({"x": b"1"}, {"x": {1: "y"}}, {1: "x"}, {"x": {"y"}}, {"x": [datetime.now(UTC)]})
    case.store.put_document("agent", "ann", {})
    before = list(case.store.dump())
    for body in wrong:
        with raises(BadReference, f"the body {str(body)[:50]}", code="bad_entry"):
            case.store.put_document("agent", "ann", body)
    with raises(BadReference, "a document without a kind", code="bad_entry"):
        case.store.put_document("", "ann", {})
    equal(list(case.store.dump()), before, "what is stored")


def check_documents_changed_at_once(case: LedgerCase) -> None:
    """Of threads that change the same version at once, one does."""
    stores = (case.store, case.open())

    def call(worker: int) -> Callable[[], object]:
        def count() -> None:
            for _ in range(5):
                while True:
                    old = stores[worker % 2].document("counter", "x") or Document("counter", "x", 0, {"at": 0}, 0)
                    body = {"at": old.body["at"] + 1}
                    try:
                        stores[worker % 2].put_document("counter", "x", body, expected_number=old.number)
                    except HeadMoved:
                        continue
                    break

        return count

    equal(together(*(call(worker) for worker in range(4))), [None] * 4, "the errors")
    counter = case.store.document("counter", "x")
    equal((counter.number, counter.body) if counter else None, (20, {"at": 20}), "number and body")


def check_documents_written_at_once(case: LedgerCase) -> None:
    """Threads that write a document at once get a number each, and the last one is stored."""
    stores = (case.store, case.open())
    put: list[Document] = []

    def call(worker: int) -> Callable[[], object]:
        return lambda: put.extend(stores[worker % 2].put_document("agent", "ann", {"by": worker}) for _ in range(5))

    equal(together(*(call(worker) for worker in range(6))), [None] * 6, "the errors")
    put.sort(key=lambda document: document.number)
    equal([document.number for document in put], list(range(1, 31)), "the numbers")
    equal(case.store.document("agent", "ann"), put[-1], "the document")


def check_documents_of_tenants(case: LedgerCase) -> None:
    """No tenant sees or changes another one's documents."""
    other = case.open("other")
    put = case.store.put_document("agent", "ann", {"secret": 1})
    visible = (other.document("agent", "ann"), other.documents("agent"), list(other.dump()))
    equal(visible, (None, [], [Header(tenant="other")]), "what another tenant sees")
    holds(not other.delete_document("agent", "ann"), "expected no document to delete, found one")
    equal(other.put_document("agent", "ann", {}, expected_number=0).number, 1, "the number of its own")
    other.erase([], documents=[("agent", "ann")])
    other.erase(None)
    equal((other.documents("agent"), case.store.documents("agent")), ([], [put]), "the documents after it erased all")


def check_documents_opened_again(case: LedgerCase) -> None:
    """Documents are intact after closing and opening again."""
    if not case.backend.durable:
        return
    put = case.store.put_document("agent", "ann", {"x": HOSTILE})
    case.close()
    equal(case.open().document("agent", "ann"), put, "the document")


def check_erased_documents(case: LedgerCase) -> None:
    """Erasing documents deletes these and no other; erasing everything deletes all."""
    store = case.store
    append(store, "main", "one")
    for kind, name in (("agent", "ann"), ("agent", "bob"), ("profile", "ann"), (HOSTILE, HOSTILE)):
        store.put_document(kind, name, {"text": f"a secret of {kind} {name}"})
    erased = store.erase([], documents=[("agent", "ann"), (HOSTILE, HOSTILE), ("agent", "nobody")])
    equal((erased.threads, erased.remaining), ((), 0), "the proof")
    equal([(row.kind, row.name) for row in _documents(store)], [("agent", "bob"), ("profile", "ann")], "what is left")
    equal(texts(store, "main"), ["one"], "the session")
    store.erase([1], ["main"])
    equal(len(_documents(store)), 2, "how many documents are left with no session")
    store.erase(None)
    equal(_documents(store), [], "the documents after everything was erased")


def _source(case: LedgerCase) -> SqliteLedger:
    """Return a ledger in memory with a session, an event and documents, in no order."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    append(source, "main", "one")
    for kind, name in (("b", "x"), ("a", "y"), ("b", HOSTILE), ("a", "Y"), ("b", "x")):
        source.put_document(kind, name, {"text": HOSTILE})
    return source


def check_records_of_documents(case: LedgerCase) -> None:
    """Documents are the last records of a dump, by kind and name, and are loaded once."""
    source = _source(case)
    records = list(source.dump())
    names = [(row.kind, row.name) for row in records[-4:] if isinstance(row, DocumentRecord)]
    equal((len(names), names), (4, sorted(names)), "the last records")
    equal(case.store.load(records), len(records) - 1, "how many records were new")
    equal(list(case.store.dump()), records, "the records of the copy")
    equal(case.store.documents("b"), source.documents("b"), "the documents of the copy")
    equal(case.store.load(records), 0, "how many records were new the second time")


def check_documents_loaded_later(case: LedgerCase) -> None:
    """Of a document that is loaded again, the later version stays."""
    source = _source(case)
    before = list(source.dump())
    case.store.load(before)
    source.put_document("b", "x", {"text": "later"})
    source.put_document("c", "new", {})
    equal(case.store.load(source.dump()), 2, "how many records of a later dump were new")
    equal(list(case.store.dump()), list(source.dump()), "the records after that")
    equal(case.store.load(before), 0, "how many records of the earlier dump were new")
    equal(list(case.store.dump()), list(source.dump()), "the records after both")


def check_conflicting_documents(case: LedgerCase) -> None:
    """A record of another document with the same number is refused with all others."""
    case.store.put_document("agent", "ann", {"by": 1})
    before = list(case.store.dump())
    other = SqliteLedger(":memory:", clock_ms=case.clock)
    other.put_document("agent", "aaa", {})
    other.put_document("agent", "ann", {"by": 2})
    with raises(LedgerError, "loading another document", code="ledger_conflict"):
        case.store.load(other.dump())
    equal(list(case.store.dump()), before, "what is stored")


def check_damaged_documents(case: LedgerCase) -> None:
    """A document that does not match its hash, or is not a JSON object, is never served or changed; others are."""
    store = case.store
    good = _record("agent", "good", "{}")
    wrong = {
        "body": replace(_record("agent", "body", '{"a":1}'), body='{"a":2}'),
        "number": replace(_record("agent", "number", "{}"), number=2),
        "list": _record("agent", "list", "[]"),
        "text": _record("agent", "text", "{"),
    }
    store.load([Header(tenant="local"), good, *(wrong[name] for name in sorted(wrong))])
    for name in wrong:
        calls: dict[str, Callable[[], object]] = {
            "reading": lambda name=name: store.document("agent", name),
            "changing": lambda name=name: store.put_document("agent", name, {}),
        }
        for what, call in calls.items():
            with raises(LedgerDamaged, f"{what} a document with a damaged {name}"):
                call()
    with raises(LedgerDamaged, "listing damaged documents"):
        store.documents("agent")
    read = store.document("agent", "good")
    equal(read.body if read else None, {}, "the other document")
    for name in wrong:
        holds(store.delete_document("agent", name), f"expected a damaged {name} to be deleted, found none")
    equal([document.name for document in store.documents("agent")], ["good"], "the documents left")


def _record(kind: str, name: str, body: str) -> DocumentRecord:
    record = DocumentRecord(kind, name, 1, body, START_MS, b"")
    return replace(record, hash=chain.document_hash("local", record))


def check_documents_of_a_closed_store(case: LedgerCase) -> None:
    """Every call for documents on a closed store raises LedgerUnusable."""
    store = case.open()
    store.close()
    calls: dict[str, Callable[[], object]] = {
        "put_document": lambda: store.put_document("agent", "ann", {}),
        "delete_document": lambda: store.delete_document("agent", "ann"),
        "document": lambda: store.document("agent", "ann"),
        "documents": lambda: store.documents("agent"),
    }
    for method, call in calls.items():
        with raises(LedgerUnusable, f"{method} on a closed store", code="ledger_closed"):
            call()
