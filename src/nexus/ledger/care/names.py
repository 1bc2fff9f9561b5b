"""Which of the rows that were found prove each other: views, sessions, aliases, calibrations.

What is damaged is left out. Moves after a damaged one are kept if they prove themselves, and are numbered and chained
anew; where the newest one is lost, the pointer's own row says where the session points.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import cast, get_args

import msgspec
from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.audit.damage import Damage
from nexus.ledger.care.rows import Found, Pointer, Rows
from nexus.ledger.care.salvage import Salvage
from nexus.ledger.records import AliasRecord, AssemblyRecord, CalibrationRecord, DecisionRecord, MoveRecord
from nexus.ledger.sessions import SessionFacts, SessionStatus
from nexus.ledger.text_rule import from_json, original, storable, to_json

REASON = "repair"
"""The reason of a move that a repair makes."""

_facts = msgspec.json.Decoder(SessionFacts)
_STATUSES: tuple[str, ...] = get_args(SessionStatus)


class Names:
    """Saves what is not a thread. `damages` says what could not be saved."""

    def __init__(self, tenant: str, found: Found, rows: Rows, saved: Salvage) -> None:
        self._tenant, self._found, self._rows, self._saved = tenant, found, rows, saved
        self.damages: list[Damage] = []
        self.pointers: dict[str, int | None] = {}
        self._moves_lost = False

    # views -------------------------------------------------------------------------------------------------------

    def views_of(self, thread: int) -> Iterator[DecisionRecord | AssemblyRecord]:
        """A saved thread's decisions, then its manifests."""
        yield from self._decisions_of(thread)
        yield from self._manifests_of(thread)

    def _decisions_of(self, thread: int) -> Iterator[DecisionRecord]:
        """The decisions of each view up to the first that is damaged: a view without the rest decides anew."""
        views: dict[str, dict[int, list[DecisionRecord]]] = defaultdict(lambda: defaultdict(list))
        for record in self._rows.decisions.get(thread, ()):
            views[record.view][record.number].append(record)
        end = self._end_of(thread)
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

    def _end_of(self, thread: int) -> int:
        """The seq of a thread's newest entry; -1 if it has none any more."""
        kept = self._saved.threads.get(thread)
        return kept.row.fork_seq + len(kept.digests) if kept is not None and not kept.row.erased else -1

    def _manifests_of(self, thread: int) -> Iterator[AssemblyRecord]:
        """The manifests that match their hash; those of version 1 had none and get it."""
        first, end = self._saved.threads[thread].row.fork_seq + 1, self._end_of(thread)
        for (view, seq), places in sorted(self._rows.manifests.get(thread, {}).items()):
            records = [self._found.manifest(where) for where in places if first <= seq <= end]
            right = [r for r in records if r.hash == chain.assembly_hash(self._tenant, r)]
            old = [replace(r, hash=chain.assembly_hash(self._tenant, r)) for r in records if not r.hash]
            if right or old:
                yield (right or old)[0]
            else:
                place = f"manifest of view {original(view)} at entry {seq} of thread {thread}"
                what, lost = "does not match its hash", "what was sent there"
                self.damages.append(Damage("assembly", place, what, lost, thread, seq))

    # sessions ----------------------------------------------------------------------------------------------------

    def moves(self) -> list[MoveRecord]:
        """The moves of each session, by label; then, if moves were lost, a session for each thread that has none."""
        chosen = {label: self._moves_of(label) for label in sorted({*self._rows.moves, *self._rows.old_moves})}
        for label in sorted(self._rows.pointers.keys() - chosen.keys()):
            chosen[label] = self._pointed(label, [])
        chosen = {label: moves for label, moves in chosen.items() if moves}
        if self._moves_lost:
            for thread in self._unnamed(chosen):
                label = _free(f"recovered-{thread}", chosen)
                chosen[label] = [MoveRecord(label, 1, thread, "{}", REASON, self._at_ms(thread), b"")]
        self._clear_parents(chosen)
        self.pointers = {label: moves[-1].thread for label, moves in chosen.items()}
        return [record for label in sorted(chosen) for record in self._chained(chosen[label])]

    def _moves_of(self, label: str) -> list[MoveRecord]:
        """A label's proven moves in order, and one more if the newest is lost and its pointer is not."""
        candidates = self._rows.moves.get(label, [])
        if not candidates:
            # Version 1 had no hashes: a move is believed when its thread is there.
            moves = [m for m in self._rows.old_moves[label] if m.thread in self._saved.threads]
            return sorted(moves, key=lambda move: move.number)
        known = {
            number: {m.hash for m in candidates if m.number == number} for number in {m.number for m in candidates}
        }
        proven = {m.number: m for m in candidates if self._proven(m, known.get(m.number - 1, set[bytes]()))}
        newest = max(known)
        for number in sorted({*range(1, min(newest, len(candidates) + 1)), *known} - proven.keys()):
            self._lost_move(label, number)
        return self._pointed(label, [proven[number] for number in sorted(proven)])

    def _proven(self, move: MoveRecord, stored: set[bytes]) -> bool:
        if move.thread is not None and not self._is_there(move.thread):
            return False
        if move.number == 1:
            return chain.move_hash(self._tenant, b"", move) == move.hash
        before: Iterable[bytes] = stored or self._found.windows(self._rows.move_images)
        return any(chain.move_hash(self._tenant, digest, move) == move.hash for digest in before)

    def _is_there(self, thread: int) -> bool:
        kept = self._saved.threads.get(thread)
        return kept is not None and not kept.row.erased

    def _lost_move(self, label: str, number: int) -> None:
        self._moves_lost = True
        place = f"move {number} of session {original(label)!r}"
        self.damages.append(Damage("move", place, "does not match its hash", "what it said of the session"))

    def _pointed(self, label: str, moves: list[MoveRecord]) -> list[MoveRecord]:
        """The moves, and one more where the pointer's row names a newer move, to elsewhere, than is left."""
        last = moves[-1].number if moves else 0
        now = (moves[-1].thread, self._read(moves[-1]).status) if moves else None
        claimed = {move.number for move in self._rows.moves.get(label, ())}
        for pointer in sorted(self._rows.pointers.get(label, ()), reverse=True, key=lambda pointer: pointer.number):
            if pointer.status not in _STATUSES or pointer.number <= last or (pointer.thread, pointer.status) == now:
                continue
            if pointer.thread is not None and not self._is_there(pointer.thread):
                continue
            if pointer.number not in claimed:
                self._lost_move(label, pointer.number)
            return [*moves, self._remade(label, moves, pointer)]
        return moves

    def _remade(self, label: str, moves: list[MoveRecord], pointer: Pointer) -> MoveRecord:
        """A move to where the pointer's row points, with the facts of the move before it."""
        facts = replace(
            self._read(moves[-1]) if moves else SessionFacts(), status=cast("SessionStatus", pointer.status)
        )
        at_ms = self._at_ms(pointer.thread) if pointer.thread is not None else 0
        return MoveRecord(label, pointer.number, pointer.thread, to_json(facts), REASON, at_ms, b"")

    def _at_ms(self, thread: int) -> int:
        return self._saved.threads[thread].row.at_ms

    def _read(self, move: MoveRecord) -> SessionFacts:
        try:
            return from_json(move.facts, _facts)
        except (msgspec.MsgspecError, json.JSONDecodeError):
            return SessionFacts()

    def _unnamed(self, chosen: dict[str, list[MoveRecord]]) -> list[int]:
        """Threads with entries that no session ever pointed to and that no other thread continues."""
        named = {move.thread for moves in chosen.values() for move in moves}
        continued = {kept.row.parent for kept in self._saved.threads.values()}
        return [
            number
            for number, kept in self._saved.threads.items()
            if number not in named and number not in continued and kept.digests
        ]

    def _clear_parents(self, chosen: dict[str, list[MoveRecord]]) -> None:
        """A session whose parent, or the turn of the parent that spawned it, is lost has no parent any more."""
        for label, moves in chosen.items():
            for place, move in enumerate(moves):
                facts = self._read(move)
                if facts.parent_session and facts.parent_turn > self._turns(storable(facts.parent_session), chosen):
                    alone = replace(facts, parent_session="", parent_turn=0, parent_call_id="")
                    moves[place] = replace(move, facts=to_json(alone))
                    what = f"was spawned in turn {facts.parent_turn} of {facts.parent_session!r}, which is lost"
                    lost = "its place among the sessions"
                    self.damages.append(Damage("move", f"session {original(label)!r}", what, lost))

    def _turns(self, name: str, chosen: dict[str, list[MoveRecord]]) -> int:
        """The newest turn of a session, or of what its alias leads to; -1 if there is none."""
        found, seen, names = -1, set[str](), [name]
        while names:
            at = names.pop()
            if at in seen:
                continue
            seen.add(at)
            threads = [move.thread for move in chosen.get(at, ()) if move.thread is not None]
            found = max([found, *(0 for _ in chosen.get(at, ())), *(self._saved.threads[t].turn for t in threads)])
            names.extend(change.target for change in self._rows.aliases.get(at, ()) if change.target is not None)
        return found

    def _chained(self, moves: list[MoveRecord]) -> Iterator[MoveRecord]:
        """The moves, numbered from 1 and chained; where nothing is missing they stay as they were."""
        before = b""
        for number, move in enumerate(moves, 1):
            renewed = replace(move, number=number)
            before = chain.move_hash(self._tenant, before, renewed)
            yield replace(renewed, hash=before)

    # the rest ----------------------------------------------------------------------------------------------------

    def aliases(self) -> Iterator[AliasRecord]:
        """The changes of each alias all of which are whole; an alias that has lost one, or its target, is left out."""
        whole = {name: found for name in sorted(self._rows.aliases) if (found := self._changes(name))}
        while True:
            dangling = [
                name
                for name, changes in whole.items()
                if (target := changes[-1].target) is not None and target not in whole and target not in self.pointers
            ]
            if not dangling:
                break
            for name in dangling:
                del whole[name]
                self._lost_alias(name, "leads to a session that is lost")
        for changes in whole.values():
            yield from changes

    def _changes(self, name: str) -> list[AliasRecord]:
        before, found = b"", list[AliasRecord]()
        candidates = self._rows.aliases[name]
        for number in range(1, max(record.number for record in candidates) + 1):
            right = [
                r for r in candidates
                if r.number == number and chain.alias_hash(self._tenant, before, r) == r.hash
            ]  # fmt: skip
            if not right:
                self._lost_alias(name, "does not match its hash")
                return []
            before = right[0].hash
            found.append(right[0])
        return found

    def _lost_alias(self, name: str, what: str) -> None:
        self.damages.append(Damage("alias", f"alias {original(name)!r}", what, "the alias"))

    def calibrations(self) -> Iterator[CalibrationRecord]:
        """The calibrations that match their hash."""
        for record in sorted(self._rows.calibrations, key=lambda r: (r.provider, r.model, r.number)):
            if chain.calibration_hash(self._tenant, record) == record.hash:
                yield record
            else:
                place = f"calibration {record.number} of {original(record.provider)}/{original(record.model)}"
                lost = "how its tokens are counted"
                self.damages.append(Damage("calibration", place, "does not match its hash", lost))


def _free(label: str, taken: Iterable[str]) -> str:
    names, number, found = set(taken), 1, label
    while found in names:
        number += 1
        found = f"{label}-{number}"
    return found
