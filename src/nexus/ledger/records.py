"""Backend-independent records of a ledger: the lines of an export.

Columns are as stored, in the encoding of `text_encoding`, so hashes can be checked without a backend. The order of
`dump` is fixed, so two ledgers with the same content give the same bytes.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

FORMAT = 1
"""The version of this form."""


class Header(Struct, frozen=True, tag="ledger", tag_field="record", kw_only=True):
    """First record: version of the format, and the tenant of all rows."""

    format: int = FORMAT
    tenant: str = "local"


class BlobRecord(Struct, frozen=True, tag="blob", tag_field="record"):
    """Image data, stored once by its hash."""

    sha256: str
    data: bytes


class ThreadRecord(Struct, frozen=True, tag="thread", tag_field="record"):
    """Start and end of a thread; its totals follow from its entries.

    `head_hash` is the chain value at its end.
    """

    id: int
    parent: int | None
    fork_seq: int
    root_hash: bytes
    at_ms: int
    head_seq: int
    head_hash: bytes
    erased: bool = False


class KeyRecord(Struct, frozen=True, array_like=True):
    """Idempotency key of an entry and the hash of the payload that it is bound to."""

    key: str
    payload: bytes


MessageRow: TypeAlias = tuple[int, str, str, str, str, str, int, str, str, int, int, int, int]
"""ord, role, id, run_id, source, model, at_ms, content, meta, tokens for OpenAI, Anthropic and Gemini, optional tokens."""


class EntryRecord(Struct, frozen=True, tag="entry", tag_field="record"):
    """One append with its messages and keys. `hash` is the chain value after it."""

    thread: int
    seq: int
    kind: str
    turn: int
    at_ms: int
    body: str
    hash: bytes
    messages: list[MessageRow] = field(default_factory=list[MessageRow])
    keys: list[KeyRecord] = field(default_factory=list[KeyRecord])


class DecisionRecord(Struct, frozen=True, tag="decision", tag_field="record"):
    """A view's decision."""

    thread: int
    view: str
    number: int
    kind: str
    at_seq: int
    body: str
    at_ms: int
    hash: bytes


class AssemblyRecord(Struct, frozen=True, tag="assembly", tag_field="record"):
    """The manifest of a context that was sent."""

    thread: int
    view: str
    seq: int
    manifest: str
    at_ms: int
    hash: bytes


class MoveRecord(Struct, frozen=True, tag="move", tag_field="record"):
    """Update of a session's pointer."""

    label: str
    number: int
    thread: int | None
    metadata: str = field(name="facts")
    """The session's metadata as JSON text."""
    reason: str
    at_ms: int
    hash: bytes


class AliasRecord(Struct, frozen=True, tag="alias", tag_field="record"):
    """One change of an alias."""

    name: str
    number: int
    target: str | None
    reason: str
    at_ms: int
    hash: bytes


class CalibrationRecord(Struct, frozen=True, tag="calibration", tag_field="record"):
    """One calibration of a provider's counts."""

    provider: str
    model: str
    number: int
    factor_64: int
    samples: int
    at_ms: int
    hash: bytes


class EventRecord(Struct, frozen=True, tag="event", tag_field="record"):
    """One event of the queue. `id` is its key."""

    id: str
    session: str
    number: int
    state: str
    body: str
    reason: str
    turn: int
    accepted_ms: int
    changed_ms: int
    hash: bytes


class DocumentRecord(Struct, frozen=True, tag="document", tag_field="record"):
    """A program's document. `body` is a JSON object."""

    kind: str
    name: str
    number: int
    body: str
    at_ms: int
    hash: bytes


Record: TypeAlias = (
    Header
    | BlobRecord
    | ThreadRecord
    | EntryRecord
    | DecisionRecord
    | AssemblyRecord
    | MoveRecord
    | AliasRecord
    | CalibrationRecord
    | EventRecord
    | DocumentRecord
)
"""In this order: header, blobs by hash, threads by id each with its entries, decisions and manifests, then moves by
label and number, aliases by name and number, calibrations, events by number, documents by kind and name."""
