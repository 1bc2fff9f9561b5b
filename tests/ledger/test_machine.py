"""Any calls in any order, on every store at once: the same answers, the same errors, the same records, and the same
history as a plain list of texts has. Crashes and reopening come in between."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nexus.errors import LedgerError
from nexus.ledger import replay
from nexus.ledger.documents import AGENT
from nexus.ledger.history_operations import Ledger
from nexus.ledger.sessions import Query
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import entry
from nexus.types.ledger_entries import AssemblyRow, Commit, Compaction, Cut, MessageRef, NewEntry, StoredCalibration

LABELS = st.sampled_from(["a", "b", "c", "d"])
NAMES = st.sampled_from(["a", "b", "c", "d", "x", "y"])
KINDS = st.sampled_from(["agent", AGENT])
TEXTS = st.lists(st.sampled_from(["red", "green", "blue", "你好", "Привет", "\x00", "\ud800"]), min_size=1, max_size=3)


@dataclass
class Plain:
    """A session as a plain model has it: what was said, entry by entry, and which marks there are."""

    said: list[list[str]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    of: list[Any] = field(default_factory=list)
    keys: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    before: list[tuple[str, list[str], int]] = field(default_factory=list)

    def add(self, kind: str, texts: list[str], of: Any = None) -> None:
        self.said.append(texts)
        self.kinds.append(kind)
        self.of.append(of)

    def first_parts(self, at: int) -> Plain:
        used = self.before + [(key, *use) for key, use in self.keys.items()]
        kept = [one for one in used if one[2] <= at]
        return Plain(self.said[:at], self.kinds[:at], self.of[:at], before=kept)

    def knows(self, key: str, texts: list[str]) -> bool | None:
        """Whether a key stands for these texts; None if it may be used for them."""
        if key in self.keys:
            return self.keys[key][0] == texts
        return True if any((one, said) == (key, texts) for one, said, _ in self.before) else None

    def compaction(self) -> int | None:
        """The seq of the newest compaction that no undo takes away, unless a clear came after it."""
        out: set[int] = set()
        for seq in range(len(self.kinds), 0, -1):
            kind = self.kinds[seq - 1]
            if kind == "undone" and seq not in out:
                out.add(self.of[seq - 1])
            if kind == "clear" or (kind == "compaction" and seq not in out):
                return seq
        return None

    def pins(self) -> tuple[MessageRef, ...]:
        held: set[MessageRef] = set()
        for kind, place in zip(self.kinds, self.of, strict=True):
            if kind == "pin":
                held.add(place)
            elif kind == "unpin":
                held.discard(place)
        return tuple(sorted(held))


class EveryStore(RuleBasedStateMachine):
    """The same calls on a ledger in a file, on one in memory, and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ticks: dict[str, int] = {}
        self.stores: dict[str, LedgerStore] = {
            "file": self.opened(),
            "memory": SqliteLedger(clock_ms=self.clock("memory")),
        }
        self.model: dict[str, Plain] = {}
        self.names: dict[str, str] = {}
        self.documents: dict[tuple[str, str], tuple[int, str]] = {}

    def teardown(self) -> None:
        for store in self.stores.values():
            store.close()
        shutil.rmtree(self.folder)

    def clock(self, name: str) -> Callable[[], int]:
        self.ticks.setdefault(name, 0)

        def now() -> int:
            return 1_000 + self.step

        return now

    step = 0

    def opened(self) -> SqliteLedger:
        return SqliteLedger(str(self.folder / "l.db"), clock_ms=self.clock("file"))

    def everywhere(self, call: Callable[[Ledger], Any]) -> Any:
        """The answer that all stores give; None if all refuse it with the same error."""
        self.step += 1
        answers: dict[str, Any] = {}
        for name, store in self.stores.items():
            try:
                answers[name] = call(Ledger(store))
            except LedgerError as error:
                answers[name] = type(error)
        first = answers["file"]
        assert all(answer == first for answer in answers.values()), answers
        return None if isinstance(first, type) else (first,)

    def label(self, name: str) -> str:
        while name not in self.model and name in self.names:
            name = self.names[name]
        return name

    # what is done ------------------------------------------------------------------------------------------------

    @rule(name=NAMES, texts=TEXTS, opens=st.booleans(), key=st.sampled_from(["", "", "k1", "k2"]))
    def appends(self, name: str, texts: list[str], opens: bool, key: str) -> None:
        new = NewEntry(messages=entry(*texts).messages, starts_turn=opens, keys=(key,) if key else ())
        done = self.everywhere(lambda ledger: ledger.store.commit(name, Commit((new,))))
        session = self.model.get(self.label(name))
        known = session.knows(key, texts) if session is not None and key else None
        if known is not None:
            assert (done is not None) == known
            return
        assert done is not None
        session = self.model.setdefault(self.label(name), Plain())
        session.add("messages", texts)
        if key:
            session.keys[key] = (texts, len(session.said))

    @rule(name=LABELS, kind=st.sampled_from(["completed", "failed", "clear"]))
    def closes(self, name: str, kind: Any) -> None:
        done = self.everywhere(lambda ledger: ledger.store.commit(name, Commit((NewEntry(kind),))))
        assert done is not None
        self.model.setdefault(self.label(name), Plain()).add(kind, [])

    @rule(name=LABELS, after=st.integers(0, 2), stale=st.booleans())
    def compacts(self, name: str, after: int, stale: bool) -> None:
        session = self.model.get(self.label(name))
        if session is None or not session.said:
            return
        marks = [seq for seq, kind in enumerate(session.kinds, 1) if kind not in ("messages", "completed", "failed")]
        newest = marks[-1] if marks else 0
        end = max(len(session.said) - after, 0)
        made = Compaction(1, end, end + 1, "summary")
        expected = newest + 1 if stale else newest
        done = self.everywhere(lambda ledger: ledger.compact(name, made, after_checkpoint=expected))
        assert (done is None) == stale
        if done:
            session.add("compaction", [])

    @rule(name=LABELS, what=st.sampled_from(["undo", "redo"]))
    def undoes(self, name: str, what: str) -> None:
        done = self.everywhere(lambda ledger: getattr(ledger, what)(name).seq)
        if done is not None:
            session = self.model[self.label(name)]
            target = done[0]
            if what == "redo":
                undos = [
                    seq
                    for seq, kind in enumerate(session.kinds, 1)
                    if kind == "undone" and session.of[seq - 1] == target
                ]
                target = max(seq for seq in undos if not self.out(session, seq))
            assert self.out(session, done[0]) == (what == "redo")
            session.add("undone", [], target)
            assert self.out(session, done[0]) == (what == "undo")

    @staticmethod
    def out(session: Plain, seq: int) -> bool:
        """Whether a compaction is undone, or an undo was taken back."""
        revoked: set[int] = set()
        for at in range(len(session.kinds), 0, -1):
            if session.kinds[at - 1] == "undone" and at not in revoked:
                revoked.add(session.of[at - 1])
        return seq in revoked

    @rule(name=LABELS, seq=st.integers(0, 6), kind=st.sampled_from(["pin", "unpin"]))
    def pins(self, name: str, seq: int, kind: str) -> None:
        place = MessageRef(seq, 0)
        done = self.everywhere(lambda ledger: getattr(ledger, kind)(name, place).added)
        session = self.model.get(self.label(name))
        there = session is not None and 0 < seq <= len(session.said) and bool(session.said[seq - 1])
        wanted = there if kind == "pin" else session is not None and place in session.pins()
        assert (done is not None) == wanted
        if done and session is not None:
            session.add(kind, [], place)

    @rule(name=LABELS, source=LABELS, at=st.integers(0, 8))
    def forks(self, name: str, source: str, at: int) -> None:
        done = self.everywhere(lambda ledger: ledger.fork(name, source, seq=at))
        parent = self.model.get(self.label(source))
        free = self.label(name) not in self.model
        assert (done is not None) == (free and parent is not None and at <= len(parent.said))
        if done and parent is not None:
            self.model[self.label(name)] = parent.first_parts(at)

    @rule(name=LABELS, at=st.integers(0, 8))
    def rewinds(self, name: str, at: int) -> None:
        done = self.everywhere(lambda ledger: ledger.rewind(name, seq=at))
        session = self.model.get(self.label(name))
        assert (done is not None) == (session is not None and at <= len(session.said))
        if done and session is not None:
            self.model[self.label(name)] = session.first_parts(at)

    @rule(name=LABELS, new=NAMES)
    def renames(self, name: str, new: str) -> None:
        done = self.everywhere(lambda ledger: ledger.sessions.rename(name, new).label)
        old = self.label(name)
        free = self.label(new) not in self.model or (self.label(new) == old and new != old)
        assert (done is not None) == (old in self.model and free)
        if done:
            self.model[new] = self.model.pop(old)
            self.names.pop(new, None)
            self.names[old] = new

    @rule(name=LABELS, into=LABELS)
    def merges(self, name: str, into: str) -> None:
        done = self.everywhere(lambda ledger: ledger.sessions.merge(name, into).label)
        old, target = self.label(name), self.label(into)
        assert (done is not None) == (old in self.model and target in self.model and old != target)
        if done:
            self.model[done[0]] = self.model.pop(old)
            self.names[old] = target

    @rule(name=LABELS, what=st.sampled_from(["archive", "delete", "restore"]))
    def archives(self, name: str, what: str) -> None:
        done = self.everywhere(lambda ledger: getattr(ledger.sessions, what)(name).metadata.status)
        assert (done is not None) == (self.label(name) in self.model)

    @rule(name=LABELS, number=st.integers(1, 3))
    def cuts(self, name: str, number: int) -> None:
        cut = Cut("v", number, 1, MessageRef(1, 0), "[left out]", 1, 10, 1)
        commit = Commit((entry("cut"),), cut, AssemblyRow("v", {"n": number}, 0))
        assert self.everywhere(lambda ledger: ledger.store.commit(name, commit)) is not None
        self.model.setdefault(self.label(name), Plain()).add("messages", ["cut"])

    @rule(name=LABELS, with_forks=st.booleans())
    def erases(self, name: str, with_forks: bool) -> None:
        gone = self.everywhere(lambda ledger: ledger.upkeep.erase(name, with_forks=with_forks).threads)
        if gone is not None:
            left = {one.label for one in self.stores["memory"].sessions(every=True)}
            assert self.label(name) not in left
            erased = set(self.model) - left
            agents = [key for key in self.documents if key[0] == AGENT and self.label(key[1]) in erased]
            for key in agents:
                del self.documents[key]
            self.model = {label: session for label, session in self.model.items() if label in left}
            kept = {alias.name: alias.target or "" for alias in self.stores["memory"].aliases()}
            self.names = {old: kept[old] for old in self.names if old in kept}

    @rule(
        kind=KINDS,
        name=NAMES,
        text=st.sampled_from(["red", "\x00", "\ud800"]),
        expected=st.sampled_from([None, 0, 1, 2]),
    )
    def puts_a_document(self, kind: str, name: str, text: str, expected: int | None) -> None:
        put = self.everywhere(
            lambda ledger: ledger.store.put_document(kind, name, {"text": text}, expected_number=expected).number
        )
        number = self.documents.get((kind, name), (0, ""))[0]
        assert put == ((number + 1,) if expected in (None, number) else None)
        if put:
            self.documents[kind, name] = (number + 1, text)

    @rule(kind=KINDS, name=NAMES)
    def deletes_a_document(self, kind: str, name: str) -> None:
        was_there = self.documents.pop((kind, name), None) is not None
        assert self.everywhere(lambda ledger: ledger.store.delete_document(kind, name)) == (was_there,)

    @rule(factor=st.integers(32, 128))
    def calibrates(self, factor: int) -> None:
        self.everywhere(lambda ledger: ledger.store.calibrate("openai", "gpt", StoredCalibration(factor, 3)))

    @rule()
    def crashes(self) -> None:
        """The file is opened again without having been closed, as after a kill."""
        self.stores["file"] = self.opened()

    @rule()
    def reopens(self) -> None:
        self.stores["file"].close()
        self.stores["file"] = self.opened()

    @rule()
    def loads_its_own_records_again(self) -> None:
        assert self.everywhere(lambda ledger: ledger.store.load(list(ledger.store.dump()))) == (0,)

    # what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def every_session_reads_like_its_model(self) -> None:
        listed = {one.label for one in self.stores["file"].sessions(every=True)}
        assert listed == set(self.model)
        for label, session in self.model.items():
            for store in self.stores.values():
                ledger = Ledger(store)
                entries = ledger.entries(label)
                assert [[row.message.text() for row in one.rows] for one in entries] == session.said
                assert [one.kind for one in entries] == session.kinds
                live = ledger.live(label)
                assert (live.checkpoint.seq if live.checkpoint else None) == session.compaction()
                assert live.pins == session.pins()
                assert {turn.status for turn in replay.turns(entries)} <= {"completed", "failed", "interrupted"}

    @invariant()
    def documents_read_like_their_model(self) -> None:
        for store in self.stores.values():
            for kind in ("agent", AGENT):
                listed = [(row.name, row.number, row.body["text"]) for row in store.documents(kind)]
                assert listed == sorted((key[1], *row) for key, row in self.documents.items() if key[0] == kind)
            for (kind, name), (number, text) in self.documents.items():
                document = store.document(kind, name)
                assert document is not None and (document.number, document.body) == (number, {"text": text})

    @invariant()
    def all_stores_have_the_same_records(self) -> None:
        records = {name: list(store.dump()) for name, store in self.stores.items()}
        assert records["file"] == records["memory"]

    @invariant()
    def all_stores_find_the_same(self) -> None:
        for word in ("blue", "你", "приве́т"):
            found = [
                sorted((hit.thread, hit.ref) for hit in store.search(Query(word, limit=99, every=True)))
                for store in self.stores.values()
            ]
            assert found[0] == found[1]
            said = {text for session in self.model.values() for texts in session.said for text in texts}
            assert bool(found[0]) or not any(word.casefold() in text.casefold() for text in said)


TestEveryStore = EveryStore.TestCase
TestEveryStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
