"""Integrity check of names: pointer updates, aliases, calibrations and their references. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from nexus.ledger import chain
from nexus.ledger.integrity.damage import UNREADABLE, Damage
from nexus.ledger.integrity.threads import ThreadAudit
from nexus.ledger.records import AliasRecord, CalibrationRecord, MoveRecord
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.text_encoding import decode_text, encode_text, from_json

_facts = msgspec.json.Decoder(SessionMetadata)


class _Label(Struct):
    """A session as its moves leave it, and the highest turn of all threads that it pointed to."""

    number: int = 0
    hash: bytes = b""
    thread: int | None = None
    turn: int = 0
    parent: str = ""
    parent_turn: int = 0


class _Name(Struct):
    """An alias as its changes leave it."""

    number: int = 0
    hash: bytes = b""
    target: str | None = None


class LabelAudit:
    """Check of pointer updates, then aliases, then calibrations, and at the end of all references."""

    def __init__(self, tenant: str, threads: ThreadAudit) -> None:
        self._tenant, self._threads = tenant, threads
        self._labels: dict[str, _Label] = {}
        self._names: dict[str, _Name] = {}
        self._calibration = ("", "", 0)

    def move(self, record: MoveRecord) -> Iterator[Damage]:
        """Check the next pointer update."""
        last = next(reversed(self._labels), "")
        label = self._labels.setdefault(record.label, _Label())
        wrong = "is not in its place" if record.label < last else ""
        if not wrong and record.number != label.number + 1:
            wrong = f"follows move {label.number}"
        elif not wrong and chain.move_hash(self._tenant, label.hash, record) != record.hash:
            wrong = "does not match its hash"
        elif not wrong:
            wrong = self._facts_of(record, label)
        if wrong:
            place = f"move {record.number} of session {decode_text(record.label)!r}"
            yield Damage("move", place, wrong, "where the session points, and what is known of it", record.thread)
        label.number, label.hash, label.thread = record.number, record.hash, record.thread

    def _facts_of(self, record: MoveRecord, label: _Label) -> str:
        """Store the metadata of a pointer update and return an error text, or an empty string."""
        try:
            facts = from_json(record.facts, _facts)
        except UNREADABLE as error:
            return f"cannot be read ({error})"
        label.parent, label.parent_turn = encode_text(facts.parent_session), facts.parent_turn
        if record.thread is None:
            return ""
        if self._threads.erased(record.thread) is None:
            return f"points to thread {record.thread}, which is not there"
        label.turn = max(label.turn, self._threads.turn(record.thread))
        return ""

    def alias(self, record: AliasRecord) -> Iterator[Damage]:
        """Check the next alias change."""
        last = next(reversed(self._names), "")
        name = self._names.setdefault(record.name, _Name())
        wrong = "is not in its place" if record.name < last else ""
        if not wrong and record.number != name.number + 1:
            wrong = f"follows change {name.number}"
        elif not wrong and chain.alias_hash(self._tenant, name.hash, record) != record.hash:
            wrong = "does not match its hash"
        if wrong:
            yield Damage("alias", f"change {record.number} of alias {decode_text(record.name)!r}", wrong, "the alias")
        name.number, name.hash, name.target = record.number, record.hash, record.target

    def calibration(self, record: CalibrationRecord) -> Iterator[Damage]:
        """Check the next calibration of a model."""
        place = (record.provider, record.model, record.number)
        last = self._calibration
        wrong = "is not in its place" if place <= last else ""
        before = last[2] if place[:2] == last[:2] else 0
        if not wrong and record.number != before + 1:
            wrong = f"follows calibration {before}"
        if not wrong and chain.calibration_hash(self._tenant, record) != record.hash:
            wrong = "does not match its hash"
        if wrong:
            name = f"{decode_text(record.provider)}/{decode_text(record.model)}"
            yield Damage("calibration", f"calibration {record.number} of {name}", wrong, "how its tokens are counted")
        self._calibration = place

    def finish(self) -> Iterator[Damage]:
        """Yield damage that only the end reveals: lost targets, parents, and circles of aliases or parents."""
        for label, state in self._labels.items():
            if state.thread is not None and self._threads.erased(state.thread):
                what = f"points to thread {state.thread}, which was deleted for good"
                yield Damage("move", f"session {decode_text(label)!r}", what, "the session", state.thread)
            wrong = self._orphaned(state)
            if wrong:
                yield Damage("move", f"session {decode_text(label)!r}", wrong, "its place among the sessions")
        parents = {label: self._stands_for(state.parent) for label, state in self._labels.items() if state.parent}
        parents_of = {label: parent_names[-1] for label, parent_names in parents.items() if parent_names}
        for label in _in_circles(parents_of):
            what = "is its own ancestor"
            yield Damage("move", f"session {decode_text(label)!r}", what, "its place among the sessions")
        targets = {name: state.target for name, state in self._names.items() if state.target is not None}
        for name, target in targets.items():
            if target not in self._labels and target not in self._names:
                what = f"leads to {decode_text(target)!r}, which is not there"
                yield Damage("alias", f"alias {decode_text(name)!r}", what, "the alias")
        for name in _in_circles({name: target for name, target in targets.items() if target in targets}):
            yield Damage("alias", f"alias {decode_text(name)!r}", "leads back to itself", "the alias")

    def _orphaned(self, state: _Label) -> str:
        """Return the fault of a parent reference. A session may outlive an erased parent."""
        if not state.parent or self._threads.some_erased:
            return ""
        parents = self._stands_for(state.parent)
        if not parents:
            return f"has the parent session {decode_text(state.parent)!r}, which is not there"
        there = 0 <= state.parent_turn <= max(self._labels[label].turn for label in parents)
        return (
            ""
            if there
            else f"was spawned in turn {state.parent_turn} of {decode_text(state.parent)!r}, which is not there"
        )

    def _stands_for(self, name: str) -> list[str]:
        """Return the sessions that a name has meant: itself and the targets of its alias."""
        sessions: list[str] = []
        visited: set[str] = set()
        at: str | None = name
        while at is not None and at not in visited:
            visited.add(at)
            if at in self._labels:
                sessions.append(at)
            at = self._names[at].target if at in self._names else None
        return sessions


def _in_circles(follow: dict[str, str]) -> list[str]:
    """Return one name of each circle. `follow` maps names to their targets."""
    remaining, members = dict(follow), list[str]()
    while remaining:
        name, target = remaining.popitem()
        visited = {name}
        while target in remaining:
            visited.add(target)
            target = remaining.pop(target)
        if target in visited:
            members.append(target)
    return sorted(members)
