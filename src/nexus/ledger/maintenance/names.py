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

_facts = msgspec.json.Decoder(decodable(SessionMetadata))
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

    def moves(self) -> list[MoveRecord]:
        """Return the updates of each session by label, and a session for each thread without one."""
        labels = {*self._now.moves, *self._now.old_moves}
        labels.update(
            label for label, of in self._now.pointers.items() if any(pointer.status in _STATUSES for pointer in of)
        )
        chosen = {label: moves for label in sorted(labels) if (moves := self._moves_of(label))}
        # Threads that no session ever pointed to get a name.
        pointed = {move.thread for moves in chosen.values() for move in moves}
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
        self.pointers = {label: moves[-1].thread for label, moves in chosen.items()}
        chained: list[MoveRecord] = []
        for label in sorted(chosen):
            before = b""
            for number, move in enumerate(chosen[label], 1):  # complete ones stay as they are
                before = chain.move_hash(self._tenant, before, replace(move, number=number))
                chained.append(replace(move, number=number, hash=before))
        return chained

    def _moves_of(self, label: str) -> list[MoveRecord]:
        """Return a label's proven moves in order, and one more if the newest is lost and its pointer is not."""
        moves, lost_numbers = self._proven_moves(label, self._now)
        if lost_numbers:
            moves, lost_numbers = self._proven_moves(label, self._rows)
        for number in sorted(lost_numbers):
            place = f"move {number} of session {decode_text(label)!r}"
            there = any(move.number == number for move in self._rows.moves.get(label, ()))
            what = "does not match its hash" if there else "is missing"
            self.damages.append(Damage("move", place, what, "what it said of the session"))
        return moves

    def _proven_moves(self, label: str, rows: NameRows) -> tuple[list[MoveRecord], set[int]]:
        """Return a label's proven updates and the numbers of its lost ones."""
        by_number: dict[int, list[MoveRecord]] = defaultdict(list)
        for move in rows.moves.get(label, ()):
            by_number[move.number].append(move)
        if not by_number and rows.old_moves.get(label):
            # Version 1 had no hashes: a move is believed when its thread is there.
            moves = [m for m in rows.old_moves[label] if m.thread in self._saved.threads]
            return sorted(moves, key=lambda move: move.number), set()
        proven: list[MoveRecord] = []
        for number in sorted(by_number, reverse=True):
            right = [move for move in by_number[number] if self._proven(move, by_number.get(number - 1, ()))]
            right.sort(key=lambda move: not (proven and _follows(self._tenant, proven[-1], move)))
            proven += right[:1]
        proven.reverse()
        while proven and self._points_nowhere(proven[-1].thread):
            proven.pop()
        pointer = self._newer_pointer(label, proven)
        numbers = {*by_number, *([pointer.number] if pointer else [])}
        newest = max(numbers, default=0)
        numbers.update(range(1, newest if newest <= len(by_number) + MOST_MISSING else 1))
        return self._followed(label, proven, pointer), numbers - {move.number for move in proven}

    def _proven(self, move: MoveRecord, previous: Sequence[MoveRecord]) -> bool:
        if move.thread is not None and move.thread not in self._saved.threads:
            return False
        if move.number == 1:
            return chain.move_hash(self._tenant, b"", move) == move.hash
        stored: Iterable[bytes] = {record.hash for record in previous}
        before = stored or self._ledger_rows.windows(self._rows.move_images)
        return any(chain.move_hash(self._tenant, digest, move) == move.hash for digest in before)

    def _points_nowhere(self, thread: int | None) -> bool:
        """Return True if a pointer names a lost or erased thread, which older updates may do."""
        salvaged = None
        if thread is not None:
            salvaged = self._saved.threads.get(thread)
        return thread is not None and (salvaged is None or salvaged.row.erased)

    def _newer_pointer(self, label: str, moves: list[MoveRecord]) -> Pointer | None:
        """Return the label's pointer if it names a newer update than the remaining ones."""
        last = moves[-1] if moves else None
        pointers = self._now.pointers.get(label) or self._rows.pointers.get(label, ())
        for pointer in sorted(pointers, reverse=True, key=lambda pointer: pointer.number):
            if pointer.status == ALIAS and last is not None and last.thread is not None:
                return pointer._replace(number=last.number + 1, status=self._read(last).status)
            newer = last is None or (pointer.number > last.number and pointer.hash != last.hash)
            if pointer.status in _STATUSES and newer:
                return pointer
        return None

    def _followed(self, label: str, moves: list[MoveRecord], pointer: Pointer | None) -> list[MoveRecord]:
        """Return the updates, plus one to the pointer's thread if that differs.

        The added update keeps the metadata of the one before.
        """
        last = self._read(moves[-1]) if moves else SessionMetadata()
        if pointer is None or self._points_nowhere(pointer.thread):
            return moves
        if moves and (moves[-1].thread, last.status) == (pointer.thread, pointer.status):
            return moves
        facts = replace(last, status=cast("SessionStatus", pointer.status))
        at_ms = 0
        if pointer.thread is not None:
            at_ms = self._at_ms(pointer.thread)
        return [*moves, MoveRecord(label, pointer.number, pointer.thread, to_json(facts), REASON, at_ms, b"")]

    def _at_ms(self, thread: int) -> int:
        return self._saved.threads[thread].row.at_ms

    def _read(self, move: MoveRecord) -> SessionMetadata:
        try:
            return from_json(move.facts, _facts)
        except UNREADABLE:
            return SessionMetadata()

    def _clear_parents(self, chosen: dict[str, list[MoveRecord]]) -> None:
        """Remove the parent of a session whose parent, or spawning turn, is lost.

        If anything was erased, the parent may have been erased too and stays named.
        """
        if any(salvaged.row.erased for salvaged in self._saved.threads.values()):
            return
        for label, moves in chosen.items():
            for place, move in enumerate(moves):
                facts = self._read(move)
                if facts.parent_session and facts.parent_turn > self._turns(encode_text(facts.parent_session), chosen):
                    alone = replace(facts, parent_session="", parent_turn=0, parent_call_id="")
                    moves[place] = replace(move, facts=to_json(alone))
                    what = f"was spawned in turn {facts.parent_turn} of {facts.parent_session!r}, which is lost"
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
            threads = [move.thread for move in chosen.get(at, ()) if move.thread is not None]
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


def _follows(tenant: str, after: MoveRecord, move: MoveRecord) -> bool:
    """Return True if an update proves the one before it."""
    return after.number == move.number + 1 and chain.move_hash(tenant, move.hash, after) == after.hash
