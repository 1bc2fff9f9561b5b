"""Which of the decisions and manifests that were found are proven, view by view of each saved thread.

A view's decisions are kept up to the first that is damaged: without the rest it decides anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.codec import inputs_of
from nexus.ledger.integrity.damage import Damage
from nexus.ledger.maintenance.rows import Found, Rows
from nexus.ledger.maintenance.salvage import Salvage
from nexus.ledger.records import AssemblyRecord, DecisionRecord
from nexus.ledger.text_encoding import original


class Views:
    """Saves what views decided and what was sent. `damages` says what could not be saved."""

    def __init__(self, tenant: str, found: Found, rows: Rows, saved: Salvage) -> None:
        self._tenant, self._found, self._rows, self._saved = tenant, found, rows, saved
        self.damages: list[Damage] = []

    def of(self, thread: int) -> Iterator[DecisionRecord | AssemblyRecord]:
        """A saved thread's decisions, then its manifests. One that was deleted for good has none."""
        if self._saved.threads[thread].row.erased:
            return
        decided = list(self._decisions_of(thread))
        sent = list(self._manifests_of(thread))
        self._count(thread, decided, sent)
        yield from decided
        yield from sent

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
                    place = f"decision {number} of view {original(view)} on thread {thread}"
                    lost = "this decision and those after it"
                    self.damages.append(Damage("decision", place, "does not match its hash", lost, thread))
                    break
                before = right[0].hash
                yield right[0]

    def _decided(self, before: bytes, record: DecisionRecord) -> bool:
        columns = (record.view, record.number, record.kind, record.at_seq, record.body, record.at_ms)
        return chain.decision_hash(before, (self._tenant, record.thread, *columns)) == record.hash

    def _manifests_of(self, thread: int) -> Iterator[AssemblyRecord]:
        """The manifests that match their hash; those of version 1 had none and get it."""
        first, end = self._saved.threads[thread].row.fork_seq + 1, self._saved.end_of(thread)
        for (view, seq), places in sorted(self._rows.manifests.get(thread, {}).items()):
            records = [self._found.manifest(where) for where in places if first <= seq <= end]
            right = [r for r in records if r.hash == chain.assembly_hash(self._tenant, r)]
            old = [replace(r, hash=chain.assembly_hash(self._tenant, r)) for r in records if not r.hash]
            lacking = [sha256 for record in right[:1] for sha256 in inputs_of(record.manifest)]
            lacking = [sha256 for sha256 in lacking if not self._saved.keeps(sha256)]
            if (right or old) and not lacking:
                yield (right or old)[0]
            else:
                place = f"manifest of view {original(view)} at entry {seq} of thread {thread}"
                what = f"names an input {lacking[0][:12]}, which is lost" if lacking else "does not match its hash"
                lost = "what was sent there"
                self.damages.append(Damage("assembly", place, what, lost, thread, seq))

    def _count(self, thread: int, decided: list[DecisionRecord], sent: list[AssemblyRecord]) -> None:
        """Reports what is missing of the decisions and manifests that a proven row says there were."""
        reported = {damage.record for damage in self.damages if damage.thread == thread}
        most: dict[tuple[str, str], int] = defaultdict(int)
        for head in self._rows.view_heads.get(thread, ()):
            if chain.columns_hash("view_head", (self._tenant, *head.columns)) == head.hash:
                for record, number in (("decision", head.decisions), ("assembly", head.manifests)):
                    most[record, head.view] = max(number, most[record, head.view])
        for (record, view), number in sorted(most.items()):
            kept = sum(one.view == view for one in (decided if record == "decision" else sent))
            if kept < number and record not in reported:
                name = "decisions" if record == "decision" else "manifests"
                place = f"{number - kept} of {number} {name} of view {original(view)} on thread {thread}"
                lost = "what this view left out" if record == "decision" else "what was sent there"
                what = "is missing" if number == kept + 1 else "are missing"
                self.damages.append(Damage(record, place, what, lost, thread))
