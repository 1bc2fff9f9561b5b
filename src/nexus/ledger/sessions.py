"""Sessions as values: what is known of each, every move of its pointer, aliases, threads, and what a search finds.

A session is a label that points to a thread. The pointer is never changed in place: every move is a row of its own,
chained to the one before, and the newest one is what holds.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.errors import BadReference
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Role

SessionStatus: TypeAlias = Literal["active", "archived", "deleted"]


class SessionMetadata(Struct, frozen=True, omit_defaults=True):
    """What is known of a session besides its messages.

    A subagent's session names its parent by label, turn number and the tool call that spawned it; `task` is what it was
    spawned for, with `task_status` in the application's own words. `origin` and `origin_id` say where an imported
    conversation came from, `routing_key` how events find it.
    """

    title: str = ""
    persona: str = ""
    status: SessionStatus = "active"
    parent_session: str = ""
    parent_turn: int = 0
    parent_call_id: str = ""
    task: str = ""
    task_status: str = ""
    origin: str = ""
    origin_id: str = ""
    routing_key: str = ""


def checked(facts: SessionMetadata) -> SessionMetadata:
    """The facts, if each is what it should be. Raises BadReference."""
    try:
        return msgspec.convert(msgspec.to_builtins(facts), SessionMetadata)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadReference(f"these facts cannot be stored: {error}; nothing was stored") from error


def parent_of(facts: SessionMetadata) -> tuple[str, int, str]:
    """What spawned a session: parent session, turn and call."""
    return facts.parent_session, facts.parent_turn, facts.parent_call_id


class RefUpdate(Struct, frozen=True):
    """One move of a session's pointer: which thread it points to from then on (None: none any more), and all its facts.

    `number` counts the label's moves from 1. `reason` says what was done: `created`, `fork`, `rewind`, `archived`, ….
    """

    label: str
    number: int
    thread: int | None
    facts: SessionMetadata
    reason: str
    at_ms: int


class NewRefUpdate(Struct, frozen=True):
    """A move to make. `facts` None keeps those the label has. `expected_number` refuses it if another came before."""

    label: str
    thread: int | None
    reason: str
    facts: SessionMetadata | None = None
    expected_number: int | None = None


class Alias(Struct, frozen=True):
    """Another name for a session: `name` leads to the label (or alias) `target`; None takes the name back."""

    name: str
    target: str | None
    reason: str
    at_ms: int = 0


class Thread(Struct, frozen=True):
    """A thread as its row has it: where it begins, its newest entry, and running totals of its own rows.

    `turn` and `open_turn` are those of the newest entry on its path, inherited ones included; `head_hash` is the chain
    value there. `marks` counts its own marks. `tokens` are base tokens in the dearest of the three wire forms.
    """

    id: int
    parent: int | None
    fork_seq: int
    root_hash: bytes
    at_ms: int
    head_seq: int
    head_hash: bytes
    turn: int = 0
    open_turn: bool = False
    marks: int = 0
    messages: int = 0
    tokens: int = 0
    first_ms: int = 0
    last_ms: int = 0
    erased: bool = False


class Segment(Struct, frozen=True):
    """A thread's share of a path: its entries with `low < seq <= high`, and the chain value that stands before them."""

    thread: int
    low: int
    high: int
    root: bytes


def holder_of(path: list[Segment], seq: int) -> int:
    """The thread of a path that entry `seq` lies in; at 0 the one that the path begins with."""
    return next((part.thread for part in reversed(path) if part.low < seq), path[0].thread)


class SessionInfo(Struct, frozen=True):
    """One line of the list of sessions. Counts are of the whole path, what a fork shares with its source included."""

    label: str
    thread: int
    title: str
    turns: int
    messages: int
    tokens: int
    first_ms: int
    last_ms: int
    open_turn: bool
    status: SessionStatus = "active"
    persona: str = ""
    parent_session: str = ""


class Query(Struct, frozen=True):
    """What to search for. All words must occur in a message; words in double quotes stand side by side.

    `session` limits it to one session's path; `roles` to messages of these roles. `order` is `relevance` (the backend's
    ranking, the newer one first among equals) or `newest` (what was stored last). Messages that only deleted sessions have are left out, unless
    `every` asks for them; those that a rewind left behind are found.
    """

    text: str
    session: str = ""
    roles: tuple[Role, ...] = ()
    limit: int = 20
    offset: int = 0
    order: Literal["relevance", "newest"] = "relevance"
    every: bool = False


class SearchHit(Struct, frozen=True):
    """A message that a search found, checked against its hash like all that is read.

    `text` is all that was searched in it; `sessions` are the labels of those that have it on their path, deleted ones
    only where the query asked for them.
    """

    thread: int
    place: MessageRef
    turn: int
    role: Role
    at_ms: int
    text: str
    sessions: tuple[str, ...] = ()


class EraseResult(Struct, frozen=True):
    """The proof of a deletion for good: what is gone, and that the storage was searched for it.

    `needles` is how many pieces of the erased texts were looked for in the storage afterwards, and `found` how many
    were still there (0; otherwise EraseIncomplete is raised).
    """

    threads: tuple[int, ...]
    entries: int
    messages: int
    blobs: int
    needles: int = 0
    found: int = 0
