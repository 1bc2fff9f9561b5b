"""Threads put together from salvaged entries, and the decisions and manifests that belong to them.

A view's decisions are kept up to the first damaged one. After that the view decides again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.codec import inputs_of
from nexus.ledger.integrity.threads import Damage
from nexus.ledger.maintenance.entries import Entries, Proofs
from nexus.ledger.maintenance.rows import LedgerRows, ThreadRow
from nexus.ledger.records import AssemblyRecord, BlobRecord, DecisionRecord, EntryRecord, ThreadRecord
from nexus.ledger.text_encoding import decode_text


@dataclass
class SalvagedThread:
    """Salvaged thread: its row and, from its first entry on, chain values and message counts."""

    row: ThreadRecord
    turn: int
    digests: list[bytes]
    counts: list[int]
    lost_seqs: list[int]

    def digest(self, seq: int) -> bytes | None:
        """Return the chain value after one of the thread's entries, or before its first."""
        index = seq - self.row.fork_seq - 1
        if index == -1:
            return self.row.root_hash
        if 0 <= index < len(self.digests):
            return self.digests[index]
        return None


class Salvage:
    """Salvage of a tenant's threads. Losses are added to `damages`."""

    def __init__(self, tenant: str, ledger_rows: LedgerRows) -> None:
        self._tenant = tenant
        self._ledger_rows = ledger_rows
        self._rows = ledger_rows.threads[tenant]
        self.threads: dict[int, SalvagedThread] = {}
        self.damages: list[Damage] = []
        self._proofs = Proofs(tenant, self._rows)
        self._entries = Entries(tenant, ledger_rows, self._proofs, self.damages)

    def holds_anything(self) -> bool:
        """Return True if any thread of this tenant can be proven: a damaged row may name one that never existed."""
        rows = (row for candidates in self._rows.threads.values() for row in candidates)
        roots = ((number, chain.root_hash(self._tenant, number)) for number in sorted(self._rows.entries))
        return any(self._proofs.proven(row) or (row.parent is None and self._joins(row)) for row in rows) or any(
            self._entries.begin(number)[0] == 1 and self._entries.matching(number, 1, root) for number, root in roots
        )

    def records(self) -> Iterator[ThreadRecord | EntryRecord]:
        """Yield the threads by number, each with its entries."""
        for number in sorted(self._wanted()):
            row = self._begin(number)
            if row is None:
                # Rows under a number that belongs to no thread, as in a damaged row.
                entries = len(self._rows.entries.get(number, ()))
                loss = f"{entries} entries" if entries > 1 else "an entry"
                if entries:
                    what = "cannot be joined to anything"
                    self.damages.append(Damage("thread", f"thread {number}", what, loss, number))
                continue
            parent = None
            if row.parent is not None:
                parent = self.threads[row.parent]
            turn = parent.turn if parent else 0
            entries = [] if row.erased else self._entries.walk(row, turn)
            last = entries[-1].hash if entries else row.root_hash
            head = row.fork_seq + len(entries)
            record = ThreadRecord(row.id, row.parent, row.fork_seq, row.root_hash, row.at_ms, head, last, row.erased)
            turn = entries[-1].turn if entries else turn
            self.threads[number] = SalvagedThread(
                record,
                turn,
                [entry.hash for entry in entries],
                [len(entry.messages) for entry in entries],
                [entry.seq for entry in entries if entry.kind == "lost"],
            )
            yield record
            yield from entries

    def images(self) -> Iterator[BlobRecord]:
        """Yield the blobs of salvaged entries and manifests, by hash. Call it after all threads."""
        for sha256, where in sorted(self._entries.shown.items()):
            if where is not None:
                yield BlobRecord(sha256, self._ledger_rows.blob(where))

    def keeps(self, sha256: str) -> bool:
        """Return True if a blob that a manifest names is intact; it is then saved with the images."""
        return self._entries.image(sha256) is not None

    def _wanted(self) -> set[int]:
        """Return the threads with current rows or sessions, and their parents. Rows of other threads were erased."""
        now = self._ledger_rows.current_names[self._tenant]
        pending = {*self._rows.current}
        pending.update(
            update.thread for updates in now.updates.values() for update in updates if update.thread is not None
        )
        pending.update(pointer.thread for of in now.pointers.values() for pointer in of if pointer.thread is not None)
        wanted: set[int] = set()
        while pending:
            number = pending.pop()
            wanted.add(number)
            parents = {row.parent for row in self._rows.threads.get(number, ()) if row.parent is not None}
            pending |= parents - wanted
        return wanted & {*self._rows.threads, *self._rows.entries, *self._proofs.reach}

    def end_of(self, thread: int) -> int:
        """Return the seq of a saved thread's newest entry."""
        salvaged = self.threads[thread]
        return salvaged.row.fork_seq + len(salvaged.digests)

    def digest(self, thread: int, seq: int) -> bytes | None:
        """Return the chain value after an entry of a saved path; None if it is not there."""
        salvaged = self.threads.get(thread)
        while salvaged is not None and seq <= salvaged.row.fork_seq and salvaged.row.parent is not None:
            salvaged = self.threads[salvaged.row.parent]
        if salvaged is not None:
            return salvaged.digest(seq)
        return None

    def _begin(self, number: int) -> ThreadRow | None:
        """Return a thread's row as its parent or its first entry proves it; None without a proof."""
        candidates = self._rows.threads.get(number, [])
        ranked = sorted(candidates, key=lambda row: (self._proofs.proven(row), row.erased, row.head_seq), reverse=True)
        for row in ranked:
            proven = self._proofs.proven(row)
            if proven and row.erased:
                if row.parent in self.threads:
                    return row
                # The parent is lost: nothing but the number is kept.
                root = chain.root_hash(self._tenant, row.id)
                return ThreadRow(row.id, None, 0, root, row.at_ms, 0, root, erased=True)
            if self._joins(row):
                if not proven:
                    self._proofs.trust(row)
                if proven:
                    return row
                return row._replace(erased=row.erased and number not in self._rows.entries)
        seqs = self._entries.begin(number)
        if seqs:
            return self._joined(number, seqs[0])
        return self._stub(number)

    def _joins(self, row: ThreadRow) -> bool:
        if row.parent is None:
            return row.fork_seq == 0 and row.root_hash == chain.root_hash(self._tenant, row.id)
        return row.parent < row.id and self.digest(row.parent, row.fork_seq) == row.root_hash

    def _joined(self, number: int, first: int) -> ThreadRow | None:
        """Return a thread whose row is lost, from the predecessor of its first entry."""
        root = chain.root_hash(self._tenant, number)
        if first == 1 and (self._entries.matching(number, 1, root) or self._entries.following(number, 1)):
            return self._row(number, None, 0, root, self._first_ms(number, first))
        for parent, salvaged in self.threads.items():
            digest = salvaged.digest(first - 1)
            if digest is not None and self._entries.matching(number, first, digest) is not None:
                return self._row(number, parent, first - 1, digest, self._first_ms(number, first))
        return self._stub(number)

    def _stub(self, number: int) -> ThreadRow | None:
        """Return a lost thread that only other rows name."""
        reach = self._proofs.reach.get(number, 0)
        if reach:
            return self._row(number, None, 0, chain.root_hash(self._tenant, number), 0)
        return None

    def _row(self, number: int, parent: int | None, fork_seq: int, root: bytes, at_ms: int) -> ThreadRow:
        self.damages.append(Damage("thread", f"the row of thread {number}", "is damaged", "when it began", number))
        return ThreadRow(number, parent, fork_seq, root, at_ms, fork_seq, root)

    def _first_ms(self, number: int, seq: int) -> int:
        return min((entry.at_ms for entry in self._entries.candidates(number, seq)), default=0)


class Views:
    """Salvage of views' decisions and manifests. Losses are added to `damages`."""

    def __init__(self, tenant: str, ledger_rows: LedgerRows, saved: Salvage) -> None:
        self._tenant = tenant
        self._ledger_rows = ledger_rows
        self._rows = ledger_rows.threads[tenant]
        self._saved = saved
        self.damages: list[Damage] = []

    def of(self, thread: int) -> Iterator[DecisionRecord | AssemblyRecord]:
        """Yield a saved thread's decisions, then its manifests. One that was erased has none."""
        if self._saved.threads[thread].row.erased:
            return
        decisions = list(self._decisions_of(thread))
        manifests = list(self._manifests_of(thread))
        self._count(thread, decisions, manifests)
        yield from decisions
        yield from manifests

    def _decisions_of(self, thread: int) -> Iterator[DecisionRecord]:
        views: dict[str, dict[int, list[DecisionRecord]]] = defaultdict(lambda: defaultdict(list))
        for record in self._rows.decisions.get(thread, ()):
            views[record.view][record.number].append(record)
        end = self._saved.end_of(thread)
        for view, by_number in sorted(views.items()):
            before = b""
            for number in sorted(by_number):
                right = [r for r in by_number[number] if self._decided(before, r) and r.at_seq <= end]
                if not right:
                    place = f"decision {number} of view {decode_text(view)} on thread {thread}"
                    loss = "this decision and those after it"
                    self.damages.append(Damage("decision", place, "does not match its hash", loss, thread))
                    break
                before = right[0].hash
                yield right[0]

    def _decided(self, before: bytes, record: DecisionRecord) -> bool:
        columns = (record.view, record.number, record.kind, record.at_seq, record.body, record.at_ms)
        return chain.decision_hash(before, (self._tenant, record.thread, *columns)) == record.hash

    def _manifests_of(self, thread: int) -> Iterator[AssemblyRecord]:
        """Yield the manifests that match their hash. Version 1 had none, so its manifests get one."""
        first = self._saved.threads[thread].row.fork_seq + 1
        end = self._saved.end_of(thread)
        for (view, seq), places in sorted(self._rows.manifests.get(thread, {}).items()):
            records = [self._ledger_rows.manifest(where) for where in places if first <= seq <= end]
            right = [r for r in records if r.hash == chain.assembly_hash(self._tenant, r)]
            old = [replace(r, hash=chain.assembly_hash(self._tenant, r)) for r in records if not r.hash]
            lacking = [sha256 for record in right[:1] for sha256 in inputs_of(record.manifest)]
            lacking = [sha256 for sha256 in lacking if not self._saved.keeps(sha256)]
            if (right or old) and not lacking:
                yield (right or old)[0]
            else:
                place = f"manifest of view {decode_text(view)} at entry {seq} of thread {thread}"
                what = "does not match its hash"
                if lacking:
                    what = f"names an input {lacking[0][:12]}, which is lost"
                loss = "what was sent there"
                self.damages.append(Damage("assembly", place, what, loss, thread, seq))

    def _count(self, thread: int, decisions: list[DecisionRecord], manifests: list[AssemblyRecord]) -> None:
        """Report decisions and manifests that a proven row counts and that are missing."""
        reported = {damage.record for damage in self.damages if damage.thread == thread}
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for head in self._rows.view_heads.get(thread, ()):
            if chain.columns_hash("view_head", (self._tenant, *head.columns)) == head.hash:
                for record, number in (("decision", head.decisions), ("assembly", head.manifests)):
                    counts[record, head.view] = max(number, counts[record, head.view])
        for (record, view), number in sorted(counts.items()):
            salvaged = sum(row.view == view for row in (decisions if record == "decision" else manifests))
            if salvaged < number and record not in reported:
                name = "decisions" if record == "decision" else "manifests"
                place = f"{number - salvaged} of {number} {name} of view {decode_text(view)} on thread {thread}"
                loss = "what was sent there"
                if record == "decision":
                    loss = "what this view left out"
                what = "are missing"
                if number == salvaged + 1:
                    what = "is missing"
                self.damages.append(Damage(record, place, what, loss, thread))
