"""Salvage of a thread's entries, from the first to the newest.

An entry is kept when its chain value follows from the entry before it. Another one is kept as `lost`, with a chain
value that the next entry proves, so everything after it stays verifiable. Unproven content is never kept.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.codec import blobs_of, decode_body, decode_parts
from nexus.ledger.integrity.threads import UNREADABLE, Damage
from nexus.ledger.maintenance.rows import LedgerRows, ThreadRow, ThreadRows, Where
from nexus.ledger.records import EntryRecord, KeyRecord, MessageRow

UNKNOWN = bytes(32)
"""The chain value of a lost entry that nothing proves. The entry after it is lost too, so nothing rests on it."""

MOST_VARIANTS = 64
"""Ways to put an entry's rows together that are tried, where several rows claim the same place."""

FARTHEST = 1_000
"""Entries in a row that may be missing at the end of what a thread's row proves."""

MOST_SEARCHES = 1_000
"""Chain values that are looked for among the bytes of pages, in one repair."""

LARGEST_SEARCHED = 65_536
"""Bytes of an entry that is hashed once for each place where the value before it might stand."""

_payload = msgspec.msgpack.Encoder().encode


class Proofs:
    """Evidence from the rows of threads about each other and about entries.

    `hints` are chain values by thread and seq, `reach` is the newest entry that a thread is known to have had.
    """

    def __init__(self, tenant: str, rows: ThreadRows) -> None:
        self._tenant = tenant
        self._rows = rows
        self.hints: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.reach: dict[int, int] = defaultdict(int)
        self._sure: dict[tuple[int, int], bytes] = {}
        for row in itertools.chain.from_iterable(rows.threads.values()):
            # A thread's row names the chain values at its newest entry and at its fork.
            ends = [(row.id, row.head_seq, row.head_hash)]
            if row.parent is not None:
                ends.append((row.parent, row.fork_seq, row.root_hash))
            proven = self.proven(row) and not row.erased
            for thread, seq, digest in ends:
                self.hints[thread, seq].add(digest)
                if proven:
                    self._sure[thread, seq] = digest
                    self.reach[thread] = max(seq, self.reach[thread])

    def proven(self, row: ThreadRow) -> bool:
        """Return True if a row matches its own hash. Version 1 had no hash."""
        return bool(row.hash) and chain.columns_hash("thread", (self._tenant, *row.columns)) == row.hash

    def sure(self, thread: int, seq: int) -> bytes | None:
        """Return the chain value after an entry as a proven row has it."""
        return self._sure.get((thread, seq))

    def trust(self, row: ThreadRow) -> None:
        """Trust a row of version 1, which has no hash, for at most one entry beyond the existing ones."""
        newest = max(self._rows.entries.get(row.id, ()), default=row.fork_seq)
        if not row.hash and row.head_seq <= newest + 1:
            self.reach[row.id] = max(row.head_seq, self.reach[row.id])


class Entries:
    """Salvage of the entries of one thread after the other. Losses are added to `damages`."""

    def __init__(self, tenant: str, ledger_rows: LedgerRows, proofs: Proofs, damages: list[Damage]) -> None:
        self._tenant = tenant
        self._ledger_rows = ledger_rows
        self._rows = ledger_rows.threads[tenant]
        self._proofs = proofs
        self.damages = damages
        self.shown: dict[str, Where | None] = {}
        """The images that entries show, each with where its data stands whole; None for one that is lost."""
        self._variants: dict[int, list[EntryRecord]] = {}
        self._seqs: list[int] = []
        self._claims: Counter[str] = Counter()
        self._searches = 0

    def begin(self, thread: int) -> list[int]:
        """Start a thread and return the seqs under which it has rows."""
        self._variants.clear()
        self._seqs = sorted(self._rows.entries.get(thread, ()))
        by_seq = self._rows.keys.get(thread, {})
        self._claims = Counter(name for keys in by_seq.values() for name in {key.key for key in keys})
        return self._seqs

    def walk(self, row: ThreadRow, turn: int) -> list[EntryRecord]:
        """Return the thread's entries from its first on, as far as any row proves them.

        `turn` is the number of the newest turn before them.
        """
        self.begin(row.id)
        records: list[EntryRecord] = []
        at_ms = row.at_ms
        before: bytes | None = row.root_hash
        for seq in itertools.count(row.fork_seq + 1):
            self._variants.pop(seq - 2, None)
            record = None
            if before is not None:
                record = self.matching(row.id, seq, before)
            if record is None and before is not None:
                # An entry that an earlier repair left as lost keeps its value.
                lost_records = (r for r in self.candidates(row.id, seq) if r.kind == "lost" and not r.messages)
                record = next(lost_records, None)
            if record is None and seq > self._proofs.reach[row.id]:
                later = [at for at in self._seqs[bisect_left(self._seqs, seq) :] if at <= seq + FARTHEST]
                resumed = next((at for at in later if self.following(row.id, at) is not None), None)
                if resumed is None:
                    self._proofs.reach[row.id] = 0
                    break
                self._proofs.reach[row.id] = resumed + 1
            record = self._servable(record or self._repaired(row, seq, before, turn, at_ms))
            records.append(replace(record, keys=self._keys(record)))
            before = None if record.hash == UNKNOWN else record.hash
            turn = record.turn
            at_ms = record.at_ms
        unproven = [seq for seq in self._seqs if seq > row.fork_seq + len(records)]
        if unproven:
            what = "stands behind the newest entry that anything proves"
            self._report(row.id, unproven[0], what, "it was not complete")
        return records

    def _report(self, thread: int, seq: int, what: str, loss: str) -> None:
        self.damages.append(Damage("entry", f"entry {seq} of thread {thread}", what, loss, thread, seq))

    def candidates(self, thread: int, seq: int) -> list[EntryRecord]:
        """Return the rows that claim to be an entry, with every combination of their messages."""
        variants = self._variants.get(seq)
        if variants is None:
            heads = [self._ledger_rows.entry(where) for where in self._rows.entries.get(thread, {}).get(seq, ())]
            by_order: dict[int, list[MessageRow]] = defaultdict(list)
            for where in self._rows.messages.get(thread, {}).get(seq, ()) if heads else ():
                message = self._ledger_rows.message(where)
                by_order[message[0]].append(message)
            message_lists = list(itertools.islice(_lists(by_order), MOST_VARIANTS // max(len(heads), 1)))
            variants = [replace(head, messages=messages) for head in heads for messages in message_lists]
            self._variants[seq] = variants
        return variants

    def matching(self, thread: int, seq: int, before: bytes) -> EntryRecord | None:
        """Return the entry that the chain value before it proves; None if no rows do."""
        matches = (record for record in self.candidates(thread, seq) if self._digest(before, record) == record.hash)
        return next(matches, None)

    def _digest(self, before: bytes, record: EntryRecord) -> bytes:
        columns = (record.thread, record.seq, record.kind, record.turn, record.at_ms, record.body)
        return chain.entry_hash(before, self._tenant, columns, record.messages)

    def following(self, thread: int, seq: int) -> bytes | None:
        """Return a chain value that a row of the entry has and that the next entry proves."""
        for record in self.candidates(thread, seq):
            if self.matching(thread, seq + 1, record.hash) is not None:
                return record.hash
        return None

    def _repaired(self, row: ThreadRow, seq: int, before: bytes | None, turn: int, at_ms: int) -> EntryRecord:
        """Return an entry that does not follow: with its correct chain value if only that was damaged, else as lost."""
        hints = self._proofs.hints.get((row.id, seq), set[bytes]())
        for record in self.candidates(row.id, seq) if before is not None else ():
            digest = self._digest(before or b"", record)
            if digest in hints or self.matching(row.id, seq + 1, digest) is not None:
                return replace(record, hash=digest)
        candidates = self.candidates(row.id, seq)
        turns = {record.turn for record in candidates if turn <= record.turn <= turn + 1}
        if row.hash and seq == row.head_seq:
            turns = {max(row.turn, turn)}
        digest = self._lost_value(row, seq, {record.hash for record in candidates}, hints)
        if not candidates:
            what = "is missing"
        elif before is not None:
            what = "is damaged"
        else:
            what = "cannot be proven"
        count = len(candidates[0].messages) if candidates else 0
        loss = f"its {count} messages" if count > 1 else "its content"
        self._report(row.id, seq, what, loss)
        return EntryRecord(row.id, seq, "lost", max(turns, default=turn), at_ms, "{}", digest)

    def _lost_value(self, row: ThreadRow, seq: int, stored: set[bytes], hints: set[bytes]) -> bytes:
        """Return the chain value after a lost entry, proven by the next entry or another row, else `UNKNOWN`."""
        if stored & hints:
            return min(stored & hints)
        for digest in itertools.chain(sorted(stored | hints), self._neighboring_bytes(row.id, seq)):
            if self.matching(row.id, seq + 1, digest) is not None:
                return digest
        return self._proofs.sure(row.id, seq) or UNKNOWN

    def _neighboring_bytes(self, thread: int, seq: int) -> Iterator[bytes]:
        """Yield candidates for the chain value after an entry: any 32 bytes on its neighbors' pages."""
        following = self.candidates(thread, seq + 1)
        size = sum(len(record.body) + sum(len(row[7]) for row in record.messages) for record in following)
        if not following or size > LARGEST_SEARCHED or self._searches == MOST_SEARCHES:
            return
        self._searches += 1
        places = self._rows.entries.get(thread, {})
        yield from self._ledger_rows.windows(
            {where >> 16 for at in (seq - 1, seq, seq + 1) for where in places.get(at, ())}
        )

    def _servable(self, record: EntryRecord) -> EntryRecord:
        """Return the entry, or a lost one if it cannot be read or shows a lost image."""
        wanted: list[str] = []
        try:
            decode_body(record.body)
            for row in record.messages:
                decode_parts(row[7], lambda _: b"")
                wanted += blobs_of(row[7])
            missing = next((sha256 for sha256 in wanted if self.image(sha256) is None), "")
            what = ""
            if missing:
                what = f"shows image {missing[:12]}, which is lost"
        except UNREADABLE as error:
            what = f"cannot be read ({error})"
        if not what:
            return record
        loss = "its content"
        if len(record.messages) > 1:
            loss = f"its {len(record.messages)} messages"
        self._report(record.thread, record.seq, what, loss)
        return EntryRecord(record.thread, record.seq, "lost", record.turn, record.at_ms, "{}", record.hash)

    def image(self, sha256: str) -> Where | None:
        """Return the position of an image's or input's intact data; None if it is lost, which is reported once."""
        if sha256 not in self.shown:
            places = self._rows.blobs.get(sha256, ())
            intact = (at for at in places if hashlib.sha256(self._ledger_rows.blob(at)).hexdigest() == sha256)
            self.shown[sha256] = next(intact, None)
            if self.shown[sha256] is None:
                what = "does not match its hash" if places else "is not there"
                loss = "the image, and each message that shows it"
                self.damages.append(Damage("blob", f"image {sha256[:12]}", what, loss))
        return self.shown[sha256]

    def _keys(self, record: EntryRecord) -> list[KeyRecord]:
        """Return the entry's idempotency keys that are bound to its payload."""
        keys = self._rows.keys.get(record.thread, {}).get(record.seq, [])
        if not keys:
            return []
        columns = [row[:-4] for row in record.messages]
        payload = hashlib.sha256(_payload((record.kind, record.body, columns))).digest()
        is_lost = record.kind == "lost"
        right = [key for key in keys if key.payload == payload or (is_lost and self._claims[key.key] == 1)]
        once = {key.key: key for key in right}
        if len(once) < len({key.key for key in keys}):
            what = "has an idempotency key that is damaged"
            self._report(record.thread, record.seq, what, "that this key works once")
        return [once[name] for name in sorted(once)]


def _lists(by_order: dict[int, list[MessageRow]]) -> Iterator[list[MessageRow]]:
    """Yield the messages from the first on without a gap, the longest list first.

    A damaged row may occur among them, so shorter lists are tried too.
    """
    count = next(order for order in itertools.count() if order not in by_order)
    for size in range(count, -1, -1):
        for chosen in itertools.product(*(by_order[order] for order in range(size))):
            yield list(chosen)
