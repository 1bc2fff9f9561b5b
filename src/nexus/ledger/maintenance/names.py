"""Salvage of sessions and their pointer updates, aliases, calibrations, queued events and documents.

Damaged rows are dropped. Updates after a damaged one are kept if they prove themselves, and are renumbered and chained
again. Where the newest one is lost, the pointer's own row names the session's thread. Names are reused after an erase,
so rows that are not current are used only where the current ones are incomplete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast, get_args

import msgspec
from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.integrity.threads import UNREADABLE, Damage
from nexus.ledger.maintenance.rows import LedgerRows, NameRows, Pointer, Where
from nexus.ledger.maintenance.salvage import Salvage
from nexus.ledger.records import AliasRecord, CalibrationRecord, DocumentRecord, EventRecord, MoveRecord
from nexus.ledger.sessions import EVENT_STATES, SessionMetadata, SessionStatus, event_id
from nexus.ledger.shared_sql.read_sessions import ALIAS
from nexus.ledger.text_encoding import decode_text, encode_text, from_json, to_json
from nexus.types.decoding import decodable

REASON = "repair"
"""The reason of an update that a repair makes."""

MOST_MISSING = 100
"""Moves or calibrations that may be missing in a row; a number beyond that is itself the damage."""

_metadata = msgspec.json.Decoder(decodable(SessionMetadata))
_STATUSES: tuple[str, ...] = get_args(SessionStatus)


class Names:
    """Saves names, calibrations, queued events and documents. `damages` says what could not be saved."""

    def __init__(self, tenant: str, ledger_rows: LedgerRows, saved: Salvage) -> None:
        self._tenant = tenant
        self._ledger_rows = ledger_rows
        self._rows = ledger_rows.names[tenant]
        self._saved = saved
        self.damages: list[Damage] = []
        self.pointers: dict[str, int | None] = {}
        self._now = ledger_rows.current_names[tenant]

    def holds_anything(self) -> bool:
        """Return True if any calibration, event or document can be proven. Names without a thread prove nothing."""
        calibrations = self._now.calibrations
        return (
            any(chain.calibration_hash(self._tenant, record) == record.hash for record in calibrations)
            or any(self._is_intact(self._ledger_rows.event(where)) for where in self._now.events)
            or any(chain.document_hash(self._tenant, record) == record.hash for record in self._now.documents)
        )

    # sessions ----------------------------------------------------------------------------------------------------

    def updates(self) -> list[MoveRecord]:
        """Return the updates of each session by label, and a session for each thread without one."""
        labels = {*self._now.updates, *self._now.old_updates}
        labels.update(
            label for label, of in self._now.pointers.items() if any(pointer.status in _STATUSES for pointer in of)
        )
        chosen = {label: updates for label in sorted(labels) if (updates := self._updates_of(label))}
        # Threads that no session ever pointed to get a name.
        pointed = {update.thread for updates in chosen.values() for update in updates}
        for thread, salvaged in self._saved.threads.items():
            if thread in pointed or salvaged.row.erased:
                continue
            label = name = f"recovered-{thread}"
            number = 1
            while label in chosen:
                number += 1
                label = f"{name}-{number}"
            chosen[label] = [MoveRecord(label, 1, thread, "{}", REASON, self._at_ms(thread), b"")]
            what = f"is lost; it is now called {label!r}"
            self.damages.append(Damage("move", f"the session of thread {thread}", what, "its name", thread))
        self._clear_parents(chosen)
        self.pointers = {label: updates[-1].thread for label, updates in chosen.items()}
        chained: list[MoveRecord] = []
        for label in sorted(chosen):
            before = b""
            for number, update in enumerate(chosen[label], 1):  # complete ones stay as they are
                before = chain.move_hash(self._tenant, before, replace(update, number=number))
                chained.append(replace(update, number=number, hash=before))
        return chained

    def _updates_of(self, label: str) -> list[MoveRecord]:
        """Return a label's proven updates in order, and one more if the newest is lost and its pointer is not."""
        updates, lost_numbers = self._proven_updates(label, self._now)
        if lost_numbers:
            updates, lost_numbers = self._proven_updates(label, self._rows)
        for number in sorted(lost_numbers):
            place = f"move {number} of session {decode_text(label)!r}"
            there = any(update.number == number for update in self._rows.updates.get(label, ()))
            what = "does not match its hash" if there else "is missing"
            self.damages.append(Damage("move", place, what, "what it said of the session"))
        return updates

    def _proven_updates(self, label: str, rows: NameRows) -> tuple[list[MoveRecord], set[int]]:
        """Return a label's proven updates and the numbers of its lost ones."""
        by_number: dict[int, list[MoveRecord]] = defaultdict(list)
        for update in rows.updates.get(label, ()):
            by_number[update.number].append(update)
        if not by_number and rows.old_updates.get(label):
            # Version 1 had no hashes: an update is believed when its thread is there.
            updates = [update for update in rows.old_updates[label] if update.thread in self._saved.threads]
            return sorted(updates, key=lambda update: update.number), set()
        proven: list[MoveRecord] = []
        for number in sorted(by_number, reverse=True):
            right = [update for update in by_number[number] if self._proven(update, by_number.get(number - 1, ()))]
            right.sort(key=lambda update: not (proven and _follows(self._tenant, proven[-1], update)))
            proven += right[:1]
        proven.reverse()
        while proven and self._points_nowhere(proven[-1].thread):
            proven.pop()
        pointer = self._newer_pointer(label, proven)
        numbers = {*by_number, *([pointer.number] if pointer else [])}
        newest = max(numbers, default=0)
        numbers.update(range(1, newest if newest <= len(by_number) + MOST_MISSING else 1))
        return self._followed(label, proven, pointer), numbers - {update.number for update in proven}

    def _proven(self, update: MoveRecord, previous: Sequence[MoveRecord]) -> bool:
        if update.thread is not None and update.thread not in self._saved.threads:
            return False
        if update.number == 1:
            return chain.move_hash(self._tenant, b"", update) == update.hash
        stored: Iterable[bytes] = {record.hash for record in previous}
        before = stored or self._ledger_rows.windows(self._rows.move_images)
        return any(chain.move_hash(self._tenant, digest, update) == update.hash for digest in before)

    def _points_nowhere(self, thread: int | None) -> bool:
        """Return True if a pointer names a lost or erased thread, which older updates may do."""
        salvaged = None
        if thread is not None:
            salvaged = self._saved.threads.get(thread)
        return thread is not None and (salvaged is None or salvaged.row.erased)

    def _newer_pointer(self, label: str, updates: list[MoveRecord]) -> Pointer | None:
        """Return the label's pointer if it names a newer update than the remaining ones."""
        last = updates[-1] if updates else None
        pointers = self._now.pointers.get(label) or self._rows.pointers.get(label, ())
        for pointer in sorted(pointers, reverse=True, key=lambda pointer: pointer.number):
            if pointer.status == ALIAS and last is not None and last.thread is not None:
                return pointer._replace(number=last.number + 1, status=self._read(last).status)
            newer = last is None or (pointer.number > last.number and pointer.hash != last.hash)
            if pointer.status in _STATUSES and newer:
                return pointer
        return None

    def _followed(self, label: str, updates: list[MoveRecord], pointer: Pointer | None) -> list[MoveRecord]:
        """Return the updates, plus one to the pointer's thread if that differs.

        The added update keeps the metadata of the one before.
        """
        last = self._read(updates[-1]) if updates else SessionMetadata()
        if pointer is None or self._points_nowhere(pointer.thread):
            return updates
        if updates and (updates[-1].thread, last.status) == (pointer.thread, pointer.status):
            return updates
        metadata = replace(last, status=cast("SessionStatus", pointer.status))
        at_ms = 0
        if pointer.thread is not None:
            at_ms = self._at_ms(pointer.thread)
        return [*updates, MoveRecord(label, pointer.number, pointer.thread, to_json(metadata), REASON, at_ms, b"")]

    def _at_ms(self, thread: int) -> int:
        return self._saved.threads[thread].row.at_ms

    def _read(self, update: MoveRecord) -> SessionMetadata:
        try:
            return from_json(update.metadata, _metadata)
        except UNREADABLE:
            return SessionMetadata()

    def _clear_parents(self, chosen: dict[str, list[MoveRecord]]) -> None:
        """Remove the parent of a session whose parent, or spawning turn, is lost.

        If anything was erased, the parent may have been erased too and stays named.
        """
        if any(salvaged.row.erased for salvaged in self._saved.threads.values()):
            return
        for label, updates in chosen.items():
            for place, update in enumerate(updates):
                metadata = self._read(update)
                parent = encode_text(metadata.parent_session)
                if parent and metadata.parent_turn > self._turns(parent, chosen):
                    alone = replace(metadata, parent_session="", parent_turn=0, parent_call_id="")
                    updates[place] = replace(update, metadata=to_json(alone))
                    what = f"was spawned in turn {metadata.parent_turn} of {metadata.parent_session!r}, which is lost"
                    loss = "its place among the sessions"
                    self.damages.append(Damage("move", f"session {decode_text(label)!r}", what, loss))

    def _turns(self, name: str, chosen: dict[str, list[MoveRecord]]) -> int:
        """Return the newest turn of a session, or of what its alias leads to; -1 if there is none."""
        newest = -1
        visited = set[str]()
        names = [name]
        while names:
            at = names.pop()
            if at in visited:
                continue
            visited.add(at)
            threads = [update.thread for update in chosen.get(at, ()) if update.thread is not None]
            newest = max([newest, *(0 for _ in chosen.get(at, ())), *(self._saved.threads[t].turn for t in threads)])
            names.extend(change.target for change in self._rows.aliases.get(at, ()) if change.target is not None)
        return newest

    # the rest ----------------------------------------------------------------------------------------------------

    def aliases(self) -> Iterator[AliasRecord]:
        """Yield the changes of each complete alias.

        An alias that lost a change or its target is dropped.
        """
        names = {*self._now.aliases}
        names.update(name for name, of in self._now.pointers.items() if any(pointer.status == ALIAS for pointer in of))
        complete = {name: history for name in sorted(names) if (history := self._changes(name))}
        while True:
            dangling = [
                name
                for name, changes in complete.items()
                if (target := changes[-1].target) is not None and target not in complete and target not in self.pointers
            ]
            if not dangling:
                break
            for name in dangling:
                del complete[name]
                self._lost_alias(name, "leads to a session that is lost")
        for changes in complete.values():
            yield from changes

    def _changes(self, name: str) -> list[AliasRecord]:
        """Return an alias's changes, if all are whole."""
        pointed = [pointer.number for pointer in self._now.pointers.get(name, ()) if pointer.status == ALIAS]
        for rows in (self._now, self._rows):
            candidates = rows.aliases.get(name, ())
            before = b""
            changes = list[AliasRecord]()
            for number in range(1, max([*pointed, *(record.number for record in candidates)]) + 1):
                right = [
                    r for r in candidates
                    if r.number == number and chain.alias_hash(self._tenant, before, r) == r.hash
                ]  # fmt: skip
                if not right:
                    break
                before = right[0].hash
                changes.append(right[0])
            else:
                return changes
        self._lost_alias(name, "is missing or does not match its hash")
        return []

    def _lost_alias(self, name: str, what: str) -> None:
        self.damages.append(Damage("alias", f"alias {decode_text(name)!r}", what, "the alias"))

    def calibrations(self) -> Iterator[CalibrationRecord]:
        """Yield the calibrations that match their hash, renumbered after a loss."""
        models = {(record.provider, record.model) for record in self._now.calibrations}
        for provider, model in sorted(models | self._now.calibration_heads.keys()):
            heads = self._now.calibration_heads.get((provider, model), ())
            for rows in (self._now, self._rows):
                candidates = [
                    candidate
                    for candidate in rows.calibrations
                    if (candidate.provider, candidate.model) == (provider, model)
                ]
                intact = {
                    candidate.number: candidate
                    for candidate in candidates
                    if chain.calibration_hash(self._tenant, candidate) == candidate.hash
                }
                newest = max((number for number in heads if number <= len(intact) + MOST_MISSING), default=0)
                lost_numbers = {*(candidate.number for candidate in candidates), *range(1, newest + 1)} - intact.keys()
                if not lost_numbers:
                    break
            for place, number in enumerate(sorted(intact), 1):
                record = replace(intact[number], number=place)
                yield replace(record, hash=chain.calibration_hash(self._tenant, record))
            for number in sorted(lost_numbers):
                place = f"calibration {number} of {decode_text(provider)}/{decode_text(model)}"
                what = "is missing or does not match its hash"
                self.damages.append(Damage("calibration", place, what, "how its tokens are counted"))

    def events(self) -> Iterator[EventRecord]:
        """Yield the current events that match their hash, by number. A deleted one does not come back."""
        newest: dict[str, tuple[int, int, Where]] = {}
        ids: set[str] = set()
        for where in self._now.events:
            record = self._ledger_rows.event(where)
            ids.add(record.id)
            if self._is_intact(record) and record.changed_ms >= newest.get(record.id, (0,))[0]:
                newest[record.id] = (record.changed_ms, record.number, where)
        by_changes = sorted(newest.items(), key=lambda item: item[1])
        by_number = {number: (id_, where) for id_, (_, number, where) in by_changes}
        for number in sorted(by_number):
            yield self._ledger_rows.event(by_number[number][1])
        for id_ in sorted(ids - {id_ for id_, _ in by_number.values()}):
            what = "does not match its hash"
            self.damages.append(Damage("event", f"queued event {event_id(decode_text(id_))!r}", what, "the event"))

    def documents(self) -> Iterator[DocumentRecord]:
        """Yield the newest intact version of each current document, by kind and name."""
        newest: dict[tuple[str, str], DocumentRecord] = {}
        for record in self._now.documents:
            key = (record.kind, record.name)
            is_intact = chain.document_hash(self._tenant, record) == record.hash
            if is_intact and (key not in newest or record.number > newest[key].number):
                newest[key] = record
        yield from (newest[key] for key in sorted(newest))
        for kind, name in sorted({(record.kind, record.name) for record in self._now.documents} - newest.keys()):
            place = f"{decode_text(kind)} {decode_text(name)!r}"
            self.damages.append(Damage("document", place, "does not match its hash", "the document"))

    def _is_intact(self, record: EventRecord) -> bool:
        return record.state in EVENT_STATES and chain.is_event_intact(self._tenant, record)


def _follows(tenant: str, after: MoveRecord, update: MoveRecord) -> bool:
    """Return True if an update proves the one before it."""
    return after.number == update.number + 1 and chain.move_hash(tenant, update.hash, after) == after.hash
