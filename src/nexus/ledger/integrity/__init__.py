"""Integrity check of a ledger's records: every hash, gap and reference. Pure.

It works on the records of any store's `dump`, in one pass. Memory grows with threads, images and names, and by
13 bytes for each entry of a thread that others may continue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger import chain
from nexus.ledger.codec import decode_body
from nexus.ledger.integrity.threads import UNREADABLE, Damage, ThreadAudit
from nexus.ledger.records import (
    FORMAT,
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    DocumentRecord,
    EntryRecord,
    EventRecord,
    Header,
    KeyRecord,
    MessageRow,
    MoveRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.sessions import EVENT_STATES, SessionMetadata, event_id
from nexus.ledger.text_encoding import decode_text, encode_text, from_json
from nexus.types.decoding import decodable

_metadata = msgspec.json.Decoder(decodable(SessionMetadata))

_RANKS: dict[type[Record], int] = {
    Header: 0,
    BlobRecord: 1,
    ThreadRecord: 2,
    EntryRecord: 2,
    DecisionRecord: 2,
    AssemblyRecord: 2,
    MoveRecord: 3,
    AliasRecord: 4,
    CalibrationRecord: 5,
    EventRecord: 6,
    DocumentRecord: 7,
}
"""Records stand in this order. What belongs to a thread stands behind it, which is checked there."""


def check(records: Iterable[Record], parents: Collection[int] | None = None) -> Iterator[Damage]:
    """Yield all damage of a dump in the order of its records. A sound ledger yields none.

    `parents` are the threads that others continue, if they are known before: only of these the entries are remembered.
    After a damaged entry the check continues from the stored chain value, so each damage is reported once.
    """
    number = 0
    stream = iter(records)
    header = next(stream, None)
    if not isinstance(header, Header):
        yield Damage("ledger", "the ledger's header", "is missing", "everything", number=1)
        return
    if header.format != FORMAT:
        what = f"says format {header.format}, where this version knows {FORMAT}"
        yield Damage("ledger", "the ledger's header", what, "everything", number=1)
        return
    audit = _Audit(header.tenant, parents)
    for number, record in enumerate(stream, 2):
        for damage in audit.take(record):
            yield replace(damage, number=number)
    for damage in audit.finish():
        yield replace(damage, number=number or 1)


class _Audit:
    """The state of one pass."""

    def __init__(self, tenant: str, parents: Collection[int] | None) -> None:
        self._tenant = tenant
        self._rank = 0
        self._blobs: set[str] = set()
        self._last_blob = ""
        self._last_event = 0
        self._last_document = ("", "")
        threads = self._threads = ThreadAudit(tenant, self._blobs, parents)
        labels = self._labels = LabelAudit(tenant, threads)
        self._checks: dict[type[Record], Callable[[Any], Iterator[Damage]]] = {
            BlobRecord: self._blob,
            ThreadRecord: threads.begin,
            EntryRecord: threads.entry,
            DecisionRecord: threads.decision,
            AssemblyRecord: threads.manifest,
            MoveRecord: labels.move,
            AliasRecord: labels.alias,
            CalibrationRecord: labels.calibration,
            EventRecord: self._event,
            DocumentRecord: self._document,
        }

    def take(self, record: Record) -> Iterator[Damage]:
        """Yield the damage of the next record, given all records before it."""
        if not _fits(record):
            name = str(record.__struct_config__.tag)
            yield Damage(name, f"a record of kind {name!r}", "has columns that cannot be stored", "this row")
            return
        rank = _RANKS[type(record)]
        if rank == 0 or rank < self._rank:
            name = str(record.__struct_config__.tag)
            yield Damage(name, f"a record of kind {name!r}", "is not in its place", "the order of the dump")
        elif rank > self._rank:
            self._rank = rank
        if isinstance(record, MoveRecord):
            yield from self._threads.finish()  # pointer updates come after the last thread
        checks = self._checks.get(type(record))
        if checks is not None:
            yield from checks(record)

    def finish(self) -> Iterator[Damage]:
        """Yield damage that only the end of the dump reveals."""
        yield from self._threads.finish()
        yield from self._labels.finish()

    def _blob(self, record: BlobRecord) -> Iterator[Damage]:
        place = f"image {record.sha256[:12]}"
        if hashlib.sha256(record.data).hexdigest() != record.sha256:
            yield Damage("blob", place, "does not match its hash", "the image, and each message that shows it")
        if record.sha256 <= self._last_blob:
            yield Damage("blob", place, "is not in its place", "the order of the dump")
        self._last_blob = record.sha256
        self._blobs.add(record.sha256)

    def _event(self, record: EventRecord) -> Iterator[Damage]:
        wrong = ""
        if record.number <= self._last_event:
            wrong = "is not in its place"
        if not wrong and not chain.is_event_intact(self._tenant, record):
            wrong = "does not match its hash"
        if not wrong and record.state not in EVENT_STATES:
            wrong = f"has the unknown state {record.state!r}"
        if wrong:
            yield Damage("event", f"queued event {event_id(decode_text(record.id))!r}", wrong, "the event")
        self._last_event = record.number

    def _document(self, record: DocumentRecord) -> Iterator[Damage]:
        wrong = ""
        if (record.kind, record.name) <= self._last_document:
            wrong = "is not in its place"
        if not wrong and chain.document_hash(self._tenant, record) != record.hash:
            wrong = "does not match its hash"
        if not wrong and not _is_object(record.body):
            wrong = "is no JSON object"
        if wrong:
            yield Damage("document", f"{decode_text(record.kind)} {decode_text(record.name)!r}", wrong, "the document")
        self._last_document = (record.kind, record.name)


def _is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        decode_body(text)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return True


_Int: Any = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MESSAGES: Any = list[tuple[tuple(_Int if kind is int else kind for kind in get_args(MessageRow))]]  # pyright: ignore[reportInvalidTypeArguments]
_STORED: dict[Any, Any] = {
    int: _Int, int | None: _Int | None, list[MessageRow]: _MESSAGES, list[KeyRecord]: list[tuple[str, bytes]]
}  # fmt: skip
_columns: dict[type, Any] = {}


def _fits(record: Record) -> bool:
    """Return True if all columns of a record, its messages and its keys have storable values."""
    # A page that was written to another page's position has rows of other tables, and a text file may have anything.
    kind = type(record)
    if kind not in _columns:
        hints = get_type_hints(kind)
        columns = [(name, _STORED.get(hints[name], hints[name])) for name in kind.__struct_fields__]
        # A class: the parts of another type would be hashed for each record.
        _columns[kind] = decodable(msgspec.defstruct(f"Stored{kind.__name__}", columns, array_like=True))
    values: tuple[Any, ...] = msgspec.structs.astuple(record)
    if isinstance(record, EntryRecord):
        values = (*values[:-1], [msgspec.structs.astuple(key) for key in record.keys])
    try:
        msgspec.convert(values, _columns[kind])
    except msgspec.ValidationError:
        return False
    return True


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
        self._tenant = tenant
        self._threads = threads
        self._labels: dict[str, _Label] = {}
        self._names: dict[str, _Name] = {}
        self._pointed: set[int] = set()
        self._calibration = ("", "", 0)

    def move(self, record: MoveRecord) -> Iterator[Damage]:
        """Check the next pointer update."""
        last = next(reversed(self._labels), "")
        if last and record.label not in self._labels:
            self._labels[last].hash = b""  # which only its next update needed
        label = self._labels.setdefault(record.label, _Label())
        wrong = "is not in its place" if record.label < last else ""
        if not wrong and record.number != label.number + 1:
            wrong = f"follows move {label.number}"
        elif not wrong and chain.move_hash(self._tenant, label.hash, record) != record.hash:
            wrong = "does not match its hash"
        elif not wrong:
            wrong = self._read_metadata(record, label)
        if wrong:
            place = f"move {record.number} of session {decode_text(record.label)!r}"
            yield Damage("move", place, wrong, "where the session points, and what is known of it", record.thread)
        label.number = record.number
        label.hash = record.hash
        label.thread = record.thread
        if record.thread is not None:
            self._pointed.add(record.thread)

    def _read_metadata(self, record: MoveRecord, label: _Label) -> str:
        """Store the metadata of a pointer update and return an error text, or an empty string."""
        try:
            metadata = from_json(record.metadata, _metadata)
        except UNREADABLE as error:
            return f"cannot be read ({error})"
        label.parent = encode_text(metadata.parent_session)
        label.parent_turn = metadata.parent_turn
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
        name.number = record.number
        name.hash = record.hash
        name.target = record.target

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
        """Yield damage that only the end reveals: lost sessions, targets, parents, circles of aliases or parents."""
        for thread in self._threads.unerased:
            if thread not in self._pointed:
                what = "is missing: no session ever pointed to this thread"
                yield Damage(
                    "move", f"the session of thread {thread}", what, "its name, and what is known of it", thread
                )
        for label, state in self._labels.items():
            if state.thread is not None and self._threads.erased(state.thread):
                what = f"points to thread {state.thread}, which was deleted for good"
                yield Damage("move", f"session {decode_text(label)!r}", what, "the session", state.thread)
            wrong = self._wrong_parent(state)
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

    def _wrong_parent(self, state: _Label) -> str:
        """Return the fault of a parent reference. A session may outlive an erased parent."""
        if not state.parent or self._threads.some_erased:
            return ""
        parents = self._stands_for(state.parent)
        if not parents:
            return f"has the parent session {decode_text(state.parent)!r}, which is not there"
        if 0 <= state.parent_turn <= max(self._labels[label].turn for label in parents):
            return ""
        return f"was spawned in turn {state.parent_turn} of {decode_text(state.parent)!r}, which is not there"

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
    remaining = dict(follow)
    members = list[str]()
    while remaining:
        name, target = remaining.popitem()
        visited = {name}
        while target in remaining:
            visited.add(target)
            target = remaining.pop(target)
        if target in visited:
            members.append(target)
    return sorted(members)
