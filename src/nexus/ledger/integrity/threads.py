"""Damage as a value, and the integrity check of threads: entries, references, decisions, manifests. Pure.

13 bytes are kept for each entry (the start of its chain value, its kind, its number of messages), because later forks,
pins and undos refer back to it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterator
from typing import get_args

import msgspec
from msgspec import Struct, field

from nexus.ledger import chain
from nexus.ledger.codec import blobs_of, decode_body, decode_parts, inputs_of
from nexus.ledger.records import AssemblyRecord, DecisionRecord, EntryRecord, ThreadRecord
from nexus.ledger.text_encoding import decode_text, from_json
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Compaction, Cut, EntryKind

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Errors of decoding an invalid stored value."""


class Damage(Struct, frozen=True, omit_defaults=True):
    """One fault of a ledger."""

    record: str
    """Kind of the record that shows it."""
    place: str
    what: str
    """The fault, as the rest of a sentence about `place`."""
    loss: str = field(name="lost")
    """Content that cannot be served because of it."""
    thread: int | None = None
    seq: int = 0
    number: int = 0
    """Position of the record in the dump, from 1 (the header); 0 for other sources."""

    def __str__(self) -> str:
        return f"{self.place} {self.what} (lost: {self.loss})"


FARTHEST_GAP = 1_000_000
"""Entries that may be missing in a row; a number beyond that is itself the damage."""

_KINDS: tuple[str, ...] = get_args(EntryKind)
_LOST_KIND = _KINDS.index("lost")
_MISSING = 255
_payload = msgspec.msgpack.Encoder().encode


class _ReferencedPlace(Struct, frozen=True):
    """Entry or message that the body of an `undone`, `pin` or `unpin` refers to."""

    of: int = 0
    seq: int = 0
    ord: int = 0
    cut: int = 0
    """Number of the cut that an `undone` refers to, which names no entry then."""


_place = msgspec.json.Decoder(decodable(_ReferencedPlace))
_compaction = msgspec.json.Decoder(decodable(Compaction))
_cut = msgspec.json.Decoder(decodable(Cut))


class _ThreadState:
    """A thread, and of each of its entries that came so far its 13 bytes."""

    def __init__(self, row: ThreadRecord, parent: _ThreadState | None) -> None:
        self.row = row
        self.parent = parent
        self.last = row.root_hash
        self.turn = parent.turn if parent else 0
        self.digests = array("Q")
        self.counts = array("I")
        self.kinds = bytearray()

    @property
    def end(self) -> int:
        """The seq of the newest entry that came."""
        return self.row.fork_seq + len(self.kinds)

    def owner(self, seq: int) -> tuple[_ThreadState, int]:
        """Return the thread of the path that has the entry, and the entry's index there (below 0: before the first)."""
        state = self
        while seq <= state.row.fork_seq and state.parent is not None:
            state = state.parent
        return state, seq - state.row.fork_seq - 1

    def kind(self, seq: int) -> tuple[str, int] | None:
        """Return kind and number of messages of an entry on the path, or None."""
        state, index = self.owner(seq)
        if not 0 <= index < len(state.kinds) or state.kinds[index] == _MISSING:
            return None
        return _KINDS[state.kinds[index]], state.counts[index]

    def add(self, record: EntryRecord) -> None:
        """Record an entry and any gap before it."""
        for _ in range(record.seq - self.end - 1):
            self._append(0, _MISSING, 0)
        kind = _LOST_KIND
        if record.kind in _KINDS:
            kind = _KINDS.index(record.kind)
        self._append(_short(record.hash), kind, len(record.messages))
        self.last, self.turn = record.hash, max(self.turn, record.turn)

    def _append(self, digest: int, kind: int, count: int) -> None:
        self.digests.append(digest)
        self.kinds.append(kind)
        self.counts.append(count)


class ThreadAudit:
    """Check of threads in the order of a dump. `blobs` are the hashes of the images that are there.

    `parents` are the threads that others continue. Without it each thread is remembered, because one may come.
    """

    def __init__(self, tenant: str, blobs: Collection[str], parents: Collection[int] | None = None) -> None:
        self._tenant = tenant
        self._blobs = blobs
        self._parents = parents
        self._threads: dict[int, _ThreadState] = {}
        self._turns: dict[int, int] = {}
        """The newest turn of each thread that came."""
        self._erased: set[int] = set()
        self._now: _ThreadState | None = None
        self._last_id = 0
        self._keys: set[int] = set()
        self._views: dict[str, tuple[int, bytes]] = {}
        self._key = ("", "", 0)

    def erased(self, thread: int) -> bool | None:
        """Return True if the thread was erased, None if it does not exist."""
        if thread in self._turns:
            return thread in self._erased
        return None

    @property
    def some_erased(self) -> bool:
        """True if any thread was erased."""
        return bool(self._erased)

    @property
    def unerased(self) -> Iterator[int]:
        """The threads that were not erased."""
        return (thread for thread in self._turns if thread not in self._erased)

    def turn(self, thread: int) -> int:
        """Return the number of the newest turn on the thread's path."""
        return self._turns[thread]

    def begin(self, row: ThreadRecord) -> Iterator[Damage]:
        """Check the next thread's row and its joint with the parent."""
        yield from self.finish()
        if row.id <= self._last_id:
            yield Damage("thread", f"thread {row.id}", "is not in its place", "the order of the dump", row.id)
        parent = None
        if row.parent is not None:
            parent = self._threads.get(row.parent)
        wrong = self._wrong_start(row, parent)
        if wrong:
            yield Damage("thread", f"thread {row.id}", wrong, "what it shares with its parent", row.id)
        self._now = self._threads[row.id] = _ThreadState(row, parent)
        self._turns[row.id] = self._now.turn
        self._last_id = max(row.id, self._last_id)
        self._erased.discard(row.id)
        if row.erased:
            self._erased.add(row.id)
        self._keys.clear()
        self._views.clear()
        self._key = ("", "", 0)

    def _wrong_start(self, row: ThreadRecord, parent: _ThreadState | None) -> str:
        """Return the fault of a thread's starting point, or an empty string."""
        if row.parent is None:
            right = row.fork_seq == 0 and row.root_hash == chain.root_hash(self._tenant, row.id)
            if right:
                return ""
            return "does not begin with the chain value of its number"
        if parent is None:
            return f"continues thread {row.parent}, which is not there"
        if parent.row.erased:
            if row.erased:
                return ""
            return f"continues thread {row.parent}, which was deleted for good"
        state, index = parent.owner(row.fork_seq)
        there = None
        if 0 <= index < len(state.digests):
            there = state.digests[index]
        if index == -1:
            there = _short(state.row.root_hash)
        if there == _short(row.root_hash):
            return ""
        return f"does not continue thread {row.parent} at entry {row.fork_seq}"

    def finish(self) -> Iterator[Damage]:
        """Check the end of a thread against the newest entry that its row names."""
        state = self._now
        self._now = None
        if state is not None:
            self._turns[state.row.id] = state.turn
            if self._parents is not None and state.row.id not in self._parents:
                del self._threads[state.row.id]
        if state is None or (state.end, state.last) == (state.row.head_seq, state.row.head_hash):
            return
        head = state.row.head_seq
        end = state.end
        if end < head:
            what = f"ends with entry {end}, but its newest one is entry {head}"
            if end + 1 < head:
                loss = f"entries {end + 1} to {head}"
            else:
                loss = f"entry {head}"
        else:
            what = "does not name its newest entry"
            loss = "the certainty that nothing is missing at its end"
        yield Damage("thread", f"thread {state.row.id}", what, loss, state.row.id, end)

    # entries -----------------------------------------------------------------------------------------------------

    def entry(self, record: EntryRecord) -> Iterator[Damage]:
        """Check the next entry of the current thread."""
        state = self._now
        placed = state is not None and state.row.id == record.thread and not state.row.erased and not self._key[0]
        if state is None or not placed or record.seq <= state.end:
            yield _entry(record, "is not in its place", "the order of the dump")
            return
        missing = record.seq - state.end - 1
        columns = (record.thread, record.seq, record.kind, record.turn, record.at_ms, record.body)
        if missing > FARTHEST_GAP:
            yield _entry(record, f"has an impossible number after entry {state.end}", _content_lost(record))
            return
        if missing:
            if missing == 1:
                gap = f"entry {state.end + 1}"
            else:
                gap = f"entries {state.end + 1} to {record.seq - 1}"
            place = f"{gap} of thread {record.thread}"
            what = "is missing" if missing == 1 else "are missing"
            loss = f"{gap}, and whether entry {record.seq} is sound"
            yield Damage("entry", place, what, loss, record.thread, state.end + 1)
        elif record.kind == "lost" and not record.messages and len(record.hash) == len(state.last):
            yield from self._refers(record, state)  # a lost entry has no content, its chain value is proven by the next
        elif chain.entry_hash(state.last, self._tenant, columns, record.messages) != record.hash:
            yield _entry(record, "does not match its hash", _content_lost(record))
        else:
            yield from self._refers(record, state)
        if record.keys:
            yield from self._used(record)
        state.add(record)

    def _refers(self, record: EntryRecord, state: _ThreadState) -> Iterator[Damage]:
        """Check the references of an entry that matches its hash: images and earlier entries."""
        try:
            decode_body(record.body)
            for row in record.messages:
                decode_parts(row[7], lambda _: b"")
            blobs = {sha256 for row in record.messages if '"sha256"' in row[7] for sha256 in blobs_of(row[7])}
            wrong = _wrong_mark(record, state)
        except UNREADABLE as error:
            yield _entry(record, f"cannot be read ({error})", _content_lost(record))
            return
        for sha256 in sorted(blobs):
            if sha256 not in self._blobs:
                yield _entry(record, f"shows image {sha256[:12]}, which is not there", _content_lost(record))
        if wrong:
            yield _entry(record, wrong, "what it changes")

    def _used(self, record: EntryRecord) -> Iterator[Damage]:
        """Check that each idempotency key occurs once and is bound to the entry's payload."""
        columns = [row[:-4] for row in record.messages]
        payload = hashlib.sha256(_payload((record.kind, record.body, columns))).digest()
        for key in record.keys:
            name = _short(hashlib.sha256(key.key.encode("utf-8", "surrogatepass")).digest())
            loss = f"that the key {decode_text(key.key)!r} works once"
            if name in self._keys:
                yield _entry(record, "has an idempotency key that was used before", loss)
            elif record.kind != "lost" and key.payload != payload:
                yield _entry(record, "has an idempotency key for something else", loss)
            self._keys.add(name)

    # views -------------------------------------------------------------------------------------------------------

    def decision(self, record: DecisionRecord) -> Iterator[Damage]:
        """Check the next decision of a view. A fork continues its parent's numbers with a chain of its own."""
        place = f"decision {record.number} of view {decode_text(record.view)} on thread {record.thread}"
        number, before = self._views.get(record.view, (0, b""))
        columns = (record.view, record.number, record.kind, record.at_seq, record.body, record.at_ms)
        digest = chain.decision_hash(before, (self._tenant, record.thread, *columns))
        state = self._placed(record.thread, ("decision", record.view, record.number))
        if state is None or record.number <= number:
            wrong = "is not in its place"
        elif digest != record.hash:
            wrong = "does not match its hash"
        else:
            wrong = _wrong_cut(record, state)
        if wrong:
            yield Damage("decision", place, wrong, "what this view left out", record.thread, record.at_seq)
        self._views[record.view] = (record.number, record.hash)

    def manifest(self, record: AssemblyRecord) -> Iterator[Damage]:
        """Check the next manifest."""
        place = f"manifest of view {decode_text(record.view)} at entry {record.seq} of thread {record.thread}"
        state = self._placed(record.thread, ("manifest", record.view, record.seq))
        if state is None:
            wrong = "is not in its place"
        elif chain.assembly_hash(self._tenant, record) != record.hash:
            wrong = "does not match its hash"
        elif not state.row.fork_seq < record.seq <= state.end:
            wrong = "is of an entry that is not there"
        else:
            try:
                missing = [sha256 for sha256 in inputs_of(record.manifest) if sha256 not in self._blobs]
                wrong = ""
                if missing:
                    wrong = f"names an input {missing[0][:12]}, which is not there"
            except UNREADABLE as error:
                wrong = f"cannot be read ({error})"
        if wrong:
            yield Damage("assembly", place, wrong, "what was sent there", record.thread, record.seq)

    def _placed(self, thread: int, key: tuple[str, str, int]) -> _ThreadState | None:
        """Return the thread if a decision or manifest comes in order after its entries."""
        state = self._now
        if state is None or state.row.id != thread or state.row.erased or key <= self._key:
            return None
        self._key = key
        return state


def _entry(record: EntryRecord, what: str, loss: str) -> Damage:
    place = f"entry {record.seq} of thread {record.thread}"
    return Damage("entry", place, what, loss, record.thread, record.seq)


def _content_lost(record: EntryRecord) -> str:
    count = len(record.messages)
    if count > 1:
        return f"its {count} messages"
    if count:
        return "its message"
    return f"the {record.kind} mark"


def _wrong_mark(record: EntryRecord, state: _ThreadState) -> str:
    """Return the fault of a checkpoint's references, or an empty string."""
    if record.kind == "compaction":
        body = from_json(record.body, _compaction)
        fits = all(0 <= seq <= record.seq + 1 for seq in (body.covers_from, body.covers_to, body.first_kept))
        if fits:
            return ""
        return "covers or keeps entries that are not there"
    if record.kind == "undone":
        place = from_json(record.body, _place)
        of = place.of
        if place.cut and not of:
            return ""
        there = state.kind(of)
        undoable = there is not None and there[0] in ("compaction", "undone", "lost")
        if undoable:
            return ""
        return f"undoes entry {of}, which is no compaction"
    if record.kind in ("pin", "unpin"):
        place = from_json(record.body, _place)
        there = state.kind(place.seq)
        if there is None or (there[0] != "lost" and not 0 <= place.ord < there[1]):
            return f"names message {place.ord} of entry {place.seq}, which is not there"
    return ""


def _wrong_cut(record: DecisionRecord, state: _ThreadState) -> str:
    """Return the fault of a cut's references, or an empty string."""
    if not 0 <= record.at_seq <= state.end:
        return f"was made after entry {record.at_seq}, which is not there"
    if record.kind != "cut":
        return ""
    try:
        cut = from_json(record.body, _cut)
    except UNREADABLE as error:
        return f"cannot be read ({error})"
    same = (cut.number, cut.at_seq) == (record.number, record.at_seq) and cut.view == decode_text(record.view)
    if same:
        return ""
    return "has another view, number or place than its row"


def _short(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")
