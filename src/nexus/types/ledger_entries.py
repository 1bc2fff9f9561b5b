"""The ledger's values: what is appended, what is read back, and what is decided about a view.

An entry is one append: whole or absent. Its position on a thread's path is `seq`, which only rises.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.types.message import Message, TokenSize

EntryKind: TypeAlias = Literal[
    "messages", "completed", "failed", "clear", "compaction", "undone", "pin", "unpin", "lost"
]
"""`completed` and `failed` close a turn. `lost` stands where a repair found an entry damaged: only its chain value is left."""

STEPS: frozenset[str] = frozenset({"messages", "completed", "failed", "lost"})
"""Kinds that only go on with a conversation. All others are marks: they change how what was said is shown."""


class MessageRef(Struct, frozen=True, order=True, gc=False):
    """A message's position: its entry's `seq` on the path, and its order within the entry."""

    seq: int
    ord: int


class SizedMessage(Struct, frozen=True):
    """A message with its base counts, to be written."""

    message: Message
    size: TokenSize


class StoredMessage(Struct, frozen=True, gc=False):
    """A stored message: its place, the message, and its counts, taken once when it was written."""

    place: MessageRef
    message: Message
    size: TokenSize


class Entry(Struct, frozen=True):
    """One append as read back. `turn` is the number of the exchange it belongs to; `hash` chains it to all before it."""

    seq: int
    kind: EntryKind
    turn: int
    at_ms: int
    body: dict[str, Any]
    rows: tuple[StoredMessage, ...]
    hash: bytes


class NewEntry(Struct, frozen=True):
    """One append to make. `opens_turn` starts a new exchange; `keys` are idempotency keys, each of which works once.

    `at_ms` 0 is the store's clock. A `compaction`'s body has the fields of `Compaction`, an `undone`'s `of` (the seq of
    the compaction, or of the `undone` that it takes back), a `pin`'s and `unpin`'s `seq` and `ord`, and `reason`.
    """

    kind: EntryKind = "messages"
    messages: tuple[SizedMessage, ...] = ()
    body: dict[str, Any] = {}
    at_ms: int = 0
    opens_turn: bool = False
    keys: tuple[str, ...] = ()


class Compaction(Struct, frozen=True):
    """What a compaction stores: the body of a `compaction` entry.

    What is kept begins in entry `first_kept`, at its message `kept_ord`: those before it in that entry are covered too.
    `asked` is the place of the user's message that the kept messages still answer, where the summary covers it.
    """

    covers_from: int
    covers_to: int
    first_kept: int
    summary: str
    type: str = "summary"
    trigger: str = "manual"
    model: str = ""
    provider: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    summary_tokens: int = 0
    call_tokens: int = 0
    duration_ms: int = 0
    kept_ord: int = 0
    asked: MessageRef | None = None


class Cut(Struct, frozen=True):
    """A view's decision to leave out everything before `first`, with the marker that stands in its place.

    It is part of the context that needed it and is stored with the turn. `number` counts the view's decisions.
    `plain_until` is the seq up to which messages are shown without thinking and memory notes; results of tools in
    entries up to `clip_until` are shown in at most `clip_tokens` base tokens each. `asked` is the user's message that the
    kept messages still answer, where it is left out itself; what stands before `head` is shown before the marker. A
    marker is empty when nothing is left out and results are shortened only. `task` and `request` are false where not even
    the session's first task, or what `asked` names, has room. `passed` counts all messages before `first` that are neither cleared nor summarised, those that
    stay in front of the marker or as pins among them. Images in entries up to `images_until` are shown as notes; `old images`
    is the reason of a decision about nothing else, `older entries` that of one about what a block tells of earlier turns.
    """

    view: str
    number: int
    at_seq: int
    first: MessageRef
    marker: str
    left_out_messages: int
    left_out_tokens: int
    plain_until: int
    keeps_summary: bool = True
    reason: Literal["over budget", "old images", "older entries"] = "over budget"
    clip_until: int = 0
    clip_tokens: int = 0
    asked: MessageRef | None = None
    head: MessageRef | None = None
    task: bool = True
    request: bool = True
    passed: int = 0
    images_until: int = 0


class AssemblyRow(Struct, frozen=True):
    """The manifest of a context that was sent, as stored beside its turn."""

    view: str
    manifest: dict[str, Any]
    at_ms: int
    seq: int = 0


class Commit(Struct, frozen=True):
    """All that one transaction writes to a session. `expected_head` refuses the commit when the session has moved on.

    `follows` names an entry (seq and hash) that the session must have: the one that the context was assembled after.
    `expected_mark` is the seq of the newest mark that a compaction was planned after (0: none): appends that came
    meanwhile are welcome, another mark is not. `blobs` is what the manifest names by its SHA-256 under `inputs`; what the
    ledger has already is not written again.
    """

    entries: tuple[NewEntry, ...] = ()
    cut: Cut | None = None
    assembly: AssemblyRow | None = None
    expected_head: int | None = None
    follows: tuple[int, bytes] | None = None
    expected_mark: int | None = None
    blobs: tuple[bytes, ...] = ()


class Committed(Struct, frozen=True):
    """What a commit did: the session's head afterwards, and how many entries were new (0 when all keys were known)."""

    thread: int
    head: int
    added: int
    turn: int


class StoredCalibration(Struct, frozen=True):
    """How a provider's own counts of a model's prompts relate to ours: `factor_64` in 64ths, from so many samples."""

    factor_64: int
    samples: int
    at_ms: int = 0
