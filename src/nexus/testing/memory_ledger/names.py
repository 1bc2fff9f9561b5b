"""The names of the memory ledger: labels with their moves, aliases, and the facts that name other sessions.

All text is in stored form. Lists are replaced and never changed, so a copy is as cheap as its two dictionaries.
"""

from __future__ import annotations

import msgspec

from nexus.errors import BadReference
from nexus.ledger import chain
from nexus.ledger.records import AliasRecord, MoveRecord
from nexus.ledger.sessions import Alias, RefUpdate, SessionMetadata
from nexus.ledger.text_encoding import decode_text, encode_text, from_json, to_json

_facts = msgspec.json.Decoder(SessionMetadata)


class Names:
    """The labels and aliases of one tenant."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.moves: dict[str, list[MoveRecord]] = {}
        self.aliases: dict[str, list[AliasRecord]] = {}

    def copy(self) -> Names:
        """The same names, to be changed."""
        copied = Names(self.tenant)
        copied.moves, copied.aliases = dict(self.moves), dict(self.aliases)
        return copied

    def newest(self, label: str) -> MoveRecord | None:
        """The newest move of exactly this label."""
        found = self.moves.get(label)
        return found[-1] if found else None

    def thread_of(self, label: str) -> int | None:
        """The thread that exactly this label points to."""
        found = self.newest(label)
        return found.thread if found is not None else None

    def active(self) -> dict[str, MoveRecord]:
        """The newest move of every label that points to a thread, by label."""
        return {
            label: self.moves[label][-1] for label in sorted(self.moves) if self.moves[label][-1].thread is not None
        }

    def resolve(self, name: str) -> str | None:
        """The label that a name stands for. Raises BadReference when aliases go in a circle."""
        seen: set[str] = set()
        at: str | None = name
        while at is not None and self.thread_of(at) is None:
            if at in seen:
                raise BadReference(f"the aliases from {decode_text(name)!r} on lead in a circle: take one of them back")
            seen.add(at)
            changes = self.aliases.get(at)
            at = changes[-1].target if changes else None
        return at

    def last_target(self, name: str) -> str:
        """Where the aliases from a name on lead, whether or not there is a session. The name itself if it is none."""
        at = name
        while (changes := self.aliases.get(at)) and changes[-1].target is not None:
            at = changes[-1].target
        return at

    def add_move(self, label: str, thread: int | None, facts: SessionMetadata, reason: str, at_ms: int) -> MoveRecord:
        """Appends a move of a label's pointer."""
        moves = self.moves.get(label, [])
        before = moves[-1].hash if moves else b""
        record = MoveRecord(label, len(moves) + 1, thread, to_json(facts), encode_text(reason), at_ms, b"")
        record = msgspec.structs.replace(record, hash=chain.move_hash(self.tenant, before, record))
        self.moves[label] = [*moves, record]
        return record

    def add_alias(self, alias: Alias, at_ms: int) -> None:
        """Appends a change of an alias. Raises BadReference when a session has the name, or the target leads nowhere."""
        name = encode_text(alias.name)
        if alias.target is not None and self.thread_of(name) is not None:
            raise BadReference(f"{alias.name!r} is a session itself; rename or merge it instead of giving it an alias")
        changes = self.aliases.get(name, [])
        before = changes[-1].hash if changes else b""
        target = encode_text(alias.target) if alias.target is not None else None
        record = AliasRecord(name, len(changes) + 1, target, encode_text(alias.reason), at_ms, b"")
        record = msgspec.structs.replace(record, hash=chain.alias_hash(self.tenant, before, record))
        self.aliases[name] = [*changes, record]
        if target is not None and self.resolve(name) is None:
            raise BadReference(f"the alias {alias.name!r} leads to {alias.target!r}, which is no session")

    def parent_of(self, label: str, facts: SessionMetadata) -> str:
        """The label of the parent that a label's facts name. Raises BadReference if there is none, or in a circle."""
        found = self.resolve(encode_text(facts.parent_session))
        if found is None:
            raise BadReference(
                f"session {decode_text(label)!r} cannot have the parent {facts.parent_session!r}: there is no such session"
            )
        at: str | None = found
        seen = {label}
        while at is not None:
            if at in seen:
                raise BadReference(
                    f"session {decode_text(label)!r} cannot have the parent {facts.parent_session!r}: its parents lead back"
                )
            seen.add(at)
            move = self.newest(at)
            above = facts_of(move).parent_session if move is not None else ""
            at = self.resolve(encode_text(above)) if above else None
        return found


def facts_of(record: MoveRecord) -> SessionMetadata:
    """The facts that a move has."""
    return from_json(record.facts, _facts)


def move_of(record: MoveRecord) -> RefUpdate:
    """A move as a value."""
    label, reason = decode_text(record.label), decode_text(record.reason)
    return RefUpdate(label, record.number, record.thread, facts_of(record), reason, record.at_ms)


def alias_of(record: AliasRecord) -> Alias:
    """A change of an alias as a value."""
    target = decode_text(record.target) if record.target is not None else None
    return Alias(decode_text(record.name), target, decode_text(record.reason), record.at_ms)
