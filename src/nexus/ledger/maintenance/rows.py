"""Rows found on the pages of a SQLite ledger, sorted by tenant and kind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from nexus.ledger.maintenance.files import Progress
from nexus.ledger.maintenance.pages import Pages
from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    CalibrationRecord,
    DecisionRecord,
    DocumentRecord,
    EntryRecord,
    EventRecord,
    KeyRecord,
    MessageRow,
    MoveRecord,
)
from nexus.ledger.text_encoding import decode_text, to_json

Where: TypeAlias = int
"""A row's place: the image's number, and where on it the row begins (the low 16 bits)."""

_LETTERS: dict[type, str] = {type(None): "n", int: "i", str: "t", bytes: "b", float: "f"}

_SHAPES = (
    ("message", "ntiiitttttittiiii"),
    ("entry", "tiitiitb"),
    ("thread", "ti[in]ibiib(iiiiiiiib)?"),
    ("move", "tti[in]ttib"),
    ("old_move", "ttiitti"),
    ("key", "titib"),
    ("decision", "titititib"),
    ("manifest", "tititib?"),
    ("blob", "ttb"),
    ("pointer", "tti[in]tb"),
    ("alias", "tti[tn]tib"),
    ("calibration", "tttiiiib"),
    ("view_head", "titibiibb"),
    ("calibration_head", "tttib"),
    ("event", "tttitttiiib"),
    ("document", "tttitib"),
)
"""Kinds of rows by their columns as SQLite stores them. Some are shorter in version 1 of the schema."""


class ViewHead(NamedTuple):
    """Row of the table `view_head`: a view's number of decisions and manifests on a thread."""

    view: str
    decisions: int
    manifests: int
    columns: tuple[Any, ...]
    hash: bytes


class Pointer(NamedTuple):
    """Row of the table `session`: the label's newest update or (status `alias`) its newest alias change."""

    number: int
    thread: int | None
    status: str
    hash: bytes


class ThreadRow(NamedTuple):
    """A thread's row. `columns` are what its own hash covers besides the tenant; version 1 had neither."""

    id: int
    parent: int | None
    fork_seq: int
    root_hash: bytes
    at_ms: int
    head_seq: int
    head_hash: bytes
    turn: int = 0
    erased: bool = False
    columns: tuple[Any, ...] = ()
    hash: bytes = b""


def _places() -> dict[int, dict[int, list[Where]]]:
    return defaultdict(lambda: defaultdict(list))


@dataclass
class ThreadRows:
    """Rows found for a tenant's threads: their entries and views, and the images and inputs that these name."""

    threads: dict[int, list[ThreadRow]] = field(default_factory=lambda: defaultdict(list))
    entries: dict[int, dict[int, list[Where]]] = field(default_factory=_places)
    messages: dict[int, dict[int, list[Where]]] = field(default_factory=_places)
    keys: dict[int, dict[int, list[KeyRecord]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    decisions: dict[int, list[DecisionRecord]] = field(default_factory=lambda: defaultdict(list))
    manifests: dict[int, dict[tuple[str, int], list[Where]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    view_heads: dict[int, list[ViewHead]] = field(default_factory=lambda: defaultdict(list))
    blobs: dict[str, list[Where]] = field(default_factory=lambda: defaultdict(list))
    current: set[int] = field(default_factory=set[int])
    """The threads that a current row names."""


@dataclass
class NameRows:
    """Rows that a tenant has by name: sessions, aliases, calibrations, queued events, documents."""

    updates: dict[str, list[MoveRecord]] = field(default_factory=lambda: defaultdict(list))
    old_updates: dict[str, list[MoveRecord]] = field(default_factory=lambda: defaultdict(list))
    move_images: set[int] = field(default_factory=set[int])
    pointers: dict[str, list[Pointer]] = field(default_factory=lambda: defaultdict(list))
    aliases: dict[str, list[AliasRecord]] = field(default_factory=lambda: defaultdict(list))
    calibrations: list[CalibrationRecord] = field(default_factory=list[CalibrationRecord])
    calibration_heads: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    events: list[Where] = field(default_factory=list[Where])
    documents: list[DocumentRecord] = field(default_factory=list[DocumentRecord])


class LedgerRows:
    """All rows on a file's pages, by tenant; `current_names` are those that SQLite would find."""

    def __init__(self, pages: Pages, progress: Progress | None = None) -> None:
        self.pages = pages
        self.threads: dict[str, ThreadRows] = defaultdict(ThreadRows)
        self.names: dict[str, NameRows] = defaultdict(NameRows)
        self.current_names: dict[str, NameRows] = defaultdict(NameRows)
        self._found: set[int] = set()
        self._found_current: set[int] = set()
        shapes = [(name, re.compile(shape)) for name, shape in _SHAPES]
        kinds: dict[str, str] = {}
        for number in range(1, pages.images + 1):
            for at, _, row, holds in pages.rows(number):
                letters = "".join(_LETTERS[type(value)] for value in row)
                if letters not in kinds:
                    kinds[letters] = next((name for name, shape in shapes if shape.fullmatch(letters)), "")
                if kinds[letters]:
                    self._take(kinds[letters], cast("Any", row), number << 16 | at, holds=holds)
            if progress is not None:
                progress(number, pages.images)

    @property
    def tenants(self) -> list[str]:
        """The tenants that have rows, in order."""
        return sorted({*self.threads, *self.names})

    def _take(self, kind: str, row: list[Any], where: Where, *, holds: bool) -> None:
        """Sort a row in, once, however many images have it. `holds`: the row is current."""
        digest = hash((kind, *row))
        behind = kind == "message"  # its own number precedes the tenant
        tenant = str(row[behind])
        is_new = digest not in self._found
        self._found.add(digest)
        if kind in _TAKE_THREAD:
            rows = self.threads[tenant]
            if holds and kind != "blob":
                rows.current.add(row[1 + behind])
            if is_new:
                _TAKE_THREAD[kind](rows, row, where)
            return
        if is_new:
            _TAKE_NAME[kind](self.names[tenant], row, where)
        if holds and digest not in self._found_current:
            self._found_current.add(digest)
            _TAKE_NAME[kind](self.current_names[tenant], row, where)

    def _row(self, where: Where) -> list[Any]:
        return cast("list[Any]", self.pages.row(where >> 16, where & 0xFFFF))

    def entry(self, where: Where) -> EntryRecord:
        """Return an entry without its messages."""
        return EntryRecord(*self._row(where)[1:])

    def message(self, where: Where) -> MessageRow:
        """Return a message's columns."""
        return cast("MessageRow", tuple(self._row(where)[4:]))

    def manifest(self, where: Where) -> AssemblyRecord:
        """Return a manifest; version 1 had no hash for it."""
        row = self._row(where)
        return AssemblyRecord(row[1], row[2], row[3], row[4], row[5], row[6] if len(row) > 6 else b"")

    def event(self, where: Where) -> EventRecord:
        """Return a queued event."""
        return EventRecord(*self._row(where)[1:])

    def blob(self, where: Where) -> bytes:
        """Return an image's data."""
        return self._row(where)[2]

    def windows(self, images: set[int]) -> Iterator[bytes]:
        """Yield all runs of 32 bytes on some images, among them perhaps a chain value that no row has any more."""
        for number in sorted(images):
            data = self.pages.image(number)
            for at in range(len(data) - 31):
                yield data[at : at + 32]


def _thread(rows: ThreadRows, row: list[Any], _: Where) -> None:
    thread = ThreadRow(*row[1:8])
    if len(row) > 8:
        thread = thread._replace(turn=row[8], erased=bool(row[15]), columns=tuple(row[1:16]), hash=row[16])
    rows.threads[thread.id].append(thread)


def _move(rows: NameRows, row: list[Any], where: Where) -> None:
    rows.updates[row[1]].append(MoveRecord(*row[1:]))
    rows.move_images.add(where >> 16)


def _old_move(rows: NameRows, row: list[Any], _: Where) -> None:
    """Convert an update of version 1, which had a title instead of metadata, and no hash."""
    label, number, thread, title, reason, at_ms = row[1:]
    metadata = to_json({"title": decode_text(title)} if title else {})
    rows.old_updates[label].append(MoveRecord(label, number, thread, metadata, reason, at_ms, b""))


_TAKE_THREAD: dict[str, Callable[[ThreadRows, list[Any], Where], None]] = {
    "thread": _thread,
    "entry": lambda rows, row, where: rows.entries[row[1]][row[2]].append(where),
    "message": lambda rows, row, where: rows.messages[row[2]][row[3]].append(where),
    "key": lambda rows, row, _: rows.keys[row[1]][row[3]].append(KeyRecord(row[2], row[4])),
    "decision": lambda rows, row, _: rows.decisions[row[1]].append(DecisionRecord(*row[1:])),
    "manifest": lambda rows, row, where: rows.manifests[row[1]][row[2], row[3]].append(where),
    "view_head": lambda rows, row, _: rows.view_heads[row[1]].append(
        ViewHead(row[2], row[3], row[5], tuple(row[1:8]), row[8])
    ),
    "blob": lambda rows, row, where: rows.blobs[row[1]].append(where),
}

_TAKE_NAME: dict[str, Callable[[NameRows, list[Any], Where], None]] = {
    "move": _move,
    "old_move": _old_move,
    "pointer": lambda rows, row, _: rows.pointers[row[1]].append(Pointer(*row[2:])),
    "alias": lambda rows, row, _: rows.aliases[row[1]].append(AliasRecord(*row[1:])),
    "calibration": lambda rows, row, _: rows.calibrations.append(CalibrationRecord(*row[1:])),
    "calibration_head": lambda rows, row, _: rows.calibration_heads[row[1], row[2]].append(row[3]),
    "event": lambda rows, _, where: rows.events.append(where),
    "document": lambda rows, row, _: rows.documents.append(DocumentRecord(*row[1:])),
}
