"""Sessions as values: metadata, pointer updates, aliases, threads, and search results.

A session is a label that points to a thread. The pointer is never changed in place: every update is a row of its own,
chained to the one before, and the newest one is current.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct, field

from nexus.errors import BadReference
from nexus.ledger.text_encoding import encode_text
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Role

SessionStatus: TypeAlias = Literal["active", "archived", "deleted"]

EventState: TypeAlias = Literal["queued", "running", "done", "failed", "dropped"]
EVENT_STATES: tuple[EventState, ...] = get_args(EventState)
PENDING: tuple[EventState, ...] = ("queued", "running")
"""States of events that are still to be answered; the others are final."""


LATE_REPLY = "late reply"
"""`origin` of a session with a reply that came too late for its turn."""
LATE_MARK = "~late-"
"""Part of the labels of such sessions."""


class SessionMetadata(Struct, frozen=True, omit_defaults=True):
    """Metadata of a session."""

    title: str = ""
    persona: str = ""
    status: SessionStatus = "active"
    parent_session: str = ""
    """Label of the session that spawned this one."""
    parent_turn: int = 0
    parent_call_id: str = ""
    """Tool call that spawned the session."""
    task: str = ""
    """Task of a spawned session."""
    task_status: str = ""
    """In the application's own words."""
    origin: str = ""
    """Source of an imported conversation, with `origin_id`."""
    origin_id: str = ""
    routing_key: str = ""
    """Key under which events find the session."""
    owner_session: str = ""
    """Label of the session that this one is a fork of, and whose owner it therefore has."""


def checked(metadata: SessionMetadata) -> SessionMetadata:
    """Return the metadata if every field is valid. Raises BadReference."""
    try:
        return msgspec.convert(msgspec.to_builtins(metadata), decodable(SessionMetadata))
    except (msgspec.ValidationError, TypeError) as error:
        raise BadReference(f"session metadata is invalid: {error} (nothing was stored)") from error


def parent_of(metadata: SessionMetadata) -> tuple[str, int, str]:
    """Return the parent session, turn and call of a session."""
    return metadata.parent_session, metadata.parent_turn, metadata.parent_call_id


class RefUpdate(Struct, frozen=True):
    """Update of a session's pointer."""

    label: str
    number: int
    """Count of the label's updates, from 1."""
    thread: int | None
    """Thread that the session points to from now on; None retires the label."""
    metadata: SessionMetadata = field(name="facts")
    reason: str
    """`created`, `fork`, `rewind`, `archived`, …."""
    at_ms: int


class NewRefUpdate(Struct, frozen=True):
    """Pointer update to append. `metadata` None keeps the label's metadata.

    `expected_number` rejects the update if another one came first.
    """

    label: str
    thread: int | None
    reason: str
    metadata: SessionMetadata | None = field(default=None, name="facts")
    expected_number: int | None = None


class Alias(Struct, frozen=True):
    """Change of an alias."""

    name: str
    target: str | None
    """Label or alias that `name` leads to; None removes the alias."""
    reason: str
    at_ms: int = 0


class Thread(Struct, frozen=True):
    """Row of a thread, with running totals of its own entries."""

    id: int
    parent: int | None
    fork_seq: int
    root_hash: bytes
    at_ms: int
    head_seq: int
    head_hash: bytes
    """Chain value after the newest entry."""
    turn: int = 0
    """Turn of the newest entry on the path, inherited ones included."""
    open_turn: bool = False
    marks: int = 0
    """Number of checkpoints."""
    messages: int = 0
    tokens: int = 0
    """Base tokens in the most expensive of the three provider formats."""
    first_ms: int = 0
    last_ms: int = 0
    """Latest time of its own entries. Of a fork without any, the time of the last entry that it shares, or 0 if an \
earlier version made it."""
    erased: bool = False


class Lease(Struct, frozen=True):
    """The exclusive use of a session for a time."""

    session: str
    holder: str
    expires_ms: int
    """Milliseconds of the store's own clock, which no change of the time of day moves."""
    fence: int = 0
    """Fencing token: it rises with each holder. Writers pass it in `Commit.fence`."""


class Document(Struct, frozen=True):
    """JSON object that a program keeps in the ledger, by kind and name."""

    kind: str
    name: str
    number: int
    """Count of its changes, from 1."""
    body: dict[str, Any]
    at_ms: int


class NewQueuedEvent(Struct, frozen=True):
    """Event to accept. `state` is another one than `queued` if it is refused at once."""

    id: str
    """Id of the event: with session and principal it is the idempotency key."""
    session: str
    body: str
    state: EventState = "queued"
    reason: str = ""
    accepted_ms: int = 0
    """Unix time in milliseconds; 0 for now."""
    principal: str = ""
    """Who sent it."""


class QueuedEvent(Struct, frozen=True):
    """Accepted event."""

    key: str
    """Its key within the tenant, made from id, session and principal."""
    session: str
    """Label of its session now, which may have been renamed since it was accepted."""
    number: int
    """Order of acceptance within the tenant, ascending."""
    state: EventState
    body: str
    """Text of the event and its options, in the broker's own format."""
    reason: str = ""
    """Reason for dropping it, or the error of a failed one."""
    turn: int = 0
    """Number of the turn that answered it; 0 for none."""
    accepted_ms: int = 0
    changed_ms: int = 0

    @property
    def id(self) -> str:
        """The event's id, which other sessions' events may have too."""
        return event_id(self.key)


KEY_SEPARATOR = "\x1f"
_KEY_END = re.compile(f"{KEY_SEPARATOR}[0-9a-f]{{24}}\\Z")


def event_key(id: str, session: str, principal: str) -> str:  # noqa: A002 - the field's name
    """Return the key of an event: its id, and a digest of the session and of who sent it."""
    text = json.dumps([encode_text(session), encode_text(principal)])
    return f"{id}{KEY_SEPARATOR}{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def event_id(key: str) -> str:
    """Return the id in an event's key. Keys of earlier versions are the id itself."""
    return _KEY_END.sub("", key)


class AcceptedEvent(Struct, frozen=True):
    """Event as stored, and whether this call added it."""

    event: QueuedEvent
    added: bool


class Segment(Struct, frozen=True):
    """Thread's share of a path: entries with `low < seq <= high`, and the chain value before them."""

    thread: int
    low: int
    high: int
    root: bytes


def holder_of(path: list[Segment], seq: int) -> int:
    """Return the thread of a path that entry `seq` lies in; at 0 the one that the path begins with."""
    return next((part.thread for part in reversed(path) if part.low < seq), path[0].thread)


class SessionInfo(Struct, frozen=True):
    """Line of the list of sessions. Counts cover the whole path, entries shared by forks included."""

    label: str
    thread: int
    title: str
    turns: int
    messages: int
    tokens: int
    first_ms: int
    last_ms: int
    """Of the session's own entries; of a fork without any, the time of the last entry that it shares."""
    open_turn: bool
    status: SessionStatus = "active"
    persona: str = ""
    parent_session: str = ""


class Query(Struct, frozen=True):
    """Search query. All its words must occur in a message; words in double quotes must be adjacent.

    Messages that a rewind left on an old thread are found too.
    """

    text: str
    session: str = ""
    """Limits the search to one session's path."""
    roles: tuple[Role, ...] = ()
    limit: int = 20
    offset: int = 0
    order: Literal["relevance", "newest"] = "relevance"
    """`relevance` is the backend's ranking, newer messages first among equals; `newest` is the order of storage.

    SQLite ranks the newest 40,000 messages that have the words; older ones follow, newest first.
    """
    every: bool = False
    """Includes messages that only deleted sessions have."""
    any_word: bool = False
    """Finds messages with any of the words or another form of one (`search_text.word_stem`), most and rarest words first."""


class SearchHit(Struct, frozen=True):
    """Message that a search found."""

    thread: int
    ref: MessageRef = field(name="place")
    turn: int
    role: Role
    at_ms: int
    text: str
    """The searched text of the message."""
    sessions: tuple[str, ...] = ()
    """Labels of sessions with this message on their path."""


class EraseResult(Struct, frozen=True):
    """Proof of an erase: deleted rows, and the search of the storage for their text."""

    threads: tuple[int, ...]
    entries: int
    messages: int
    blobs: int
    needles: int = 0
    """Pieces of deleted text that the storage was searched for."""
    remaining: int = field(default=0, name="found")
    """Pieces that are still there: 0, or LedgerError was raised."""


class ErasedPrincipal(Struct, frozen=True):
    """All that was erased of a principal."""

    sessions: tuple[str, ...]
    shared: tuple[str, ...]
    """Sessions in which others spoke too, which stay."""
    events: int
    documents: int
    replies: int
    """Replies that waited to be recorded."""
    erased: EraseResult

    @property
    def is_empty(self) -> bool:
        """Return True if the ledger had nothing of the principal."""
        return not (self.sessions or self.shared or self.events or self.documents or self.replies)
