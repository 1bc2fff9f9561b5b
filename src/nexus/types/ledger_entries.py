"""Values of the ledger: entries to append, stored entries, cuts and commits.

An entry is one append: whole or absent. Its position on a thread's path is `seq`, which only rises.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from nexus.types.message import Message, TokenSize

EntryKind: TypeAlias = Literal[
    "messages", "completed", "failed", "clear", "compaction", "undone", "pin", "unpin", "lost"
]
"""`completed` and `failed` close a turn. `lost` replaces an entry that a repair found damaged: only its chain value is left."""

STEPS: frozenset[str] = frozenset({"messages", "completed", "failed", "lost"})
"""Kinds that continue a conversation. All others are checkpoints: they change how earlier messages are shown."""

IMPORTED_REQUEST = "imported_request"
"""Key of the facts of a step: `system` text and `tools` of the request that it answers."""


class MessageRef(Struct, frozen=True, order=True, gc=False):
    """Position of a message: its entry's `seq` on the path, and its order within the entry."""

    seq: int
    ord: int


class SizedMessage(Struct, frozen=True):
    """Message to append, with its base counts."""

    message: Message
    size: TokenSize


class StoredMessage(Struct, frozen=True, gc=False):
    """Stored message with its position and its counts, which were taken when it was written."""

    ref: MessageRef
    message: Message
    size: TokenSize


class Entry(Struct, frozen=True, gc=False):  # a long session has thousands, and none is part of a cycle
    """Stored entry."""

    seq: int
    kind: EntryKind
    turn: int
    """Number of the turn it belongs to."""
    at_ms: int
    body: dict[str, Any]
    rows: tuple[StoredMessage, ...]
    hash: bytes
    """Chain value over this entry and all entries before it."""


class NewEntry(Struct, frozen=True):
    """Entry to append."""

    kind: EntryKind = "messages"
    messages: tuple[SizedMessage, ...] = ()
    body: dict[str, Any] = {}
    """Fields of `Compaction` for a `compaction`; `of` (seq of a compaction or undo) for an `undone`, or `of` 0 with the
    number `cut` of a `view`; `seq`, `ord` and `reason` for a `pin` and `unpin`."""
    at_ms: int = 0
    """Milliseconds since 1970; 0 is the store's clock."""
    starts_turn: bool = False
    keys: tuple[str, ...] = ()
    """Idempotency keys, each of which works once."""


class Compaction(Struct, frozen=True):
    """Body of a `compaction` entry."""

    covers_from: int
    covers_to: int
    first_kept: int
    """Seq of the entry in which the kept messages begin."""
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
    """Order of the first kept message in its entry. Earlier ones of that entry are covered too."""
    pending_request_ref: MessageRef | None = field(default=None, name="asked")
    """User message that the kept messages still answer, if the summary covers it."""
    excerpts: tuple[MessageRef, ...] = ()
    """Covered messages that are shown in part behind the summary."""
    excerpt_tokens: int = 0
    """Base tokens of each excerpt, at most."""
    unshown_turns: int | None = None
    """Covered user turns that are neither excerpts nor pins; None for none."""
    withheld_turns: tuple[MessageRef, ...] | None = None
    """The newest of these, which are shown when there is room."""
    instructions: tuple[MessageRef, ...] | None = None
    """Covered instructions of the client's list, shown whole."""
    call_output_tokens: int | None = None
    """The part of `call_tokens` that models wrote; None without such calls."""


class DigestChunk(Struct, frozen=True):
    """Lines about earlier tool calls, as a cut stored them."""

    place: MessageRef
    """Position of the first of these calls."""
    text: str


class Cut(Struct, frozen=True):
    """A view's decision to omit everything before `first`, stored with the turn whose context needed it."""

    view: str
    number: int
    """Count of the view's decisions, from 1."""
    at_seq: int
    first: MessageRef
    omission_notice: str = field(name="marker")
    """Omission notice; empty when results are truncated and no message is omitted."""
    omitted_messages: int = field(name="left_out_messages")
    omitted_tokens: int = field(name="left_out_tokens")
    strip_thinking_until_seq: int = field(name="plain_until")
    """Seq up to which messages are shown without thinking and memory notes."""
    keeps_summary: bool = True
    reason: Literal["over budget", "old images", "older entries"] = "over budget"
    """`old images` decides about images only, `older entries` about a block's report of earlier turns."""
    truncate_until_seq: int = field(default=0, name="clip_until")
    """Seq up to which tool results are truncated."""
    max_result_tokens: int = field(default=0, name="clip_tokens")
    """Base tokens of each truncated tool result, at most."""
    pending_request_ref: MessageRef | None = field(default=None, name="asked")
    """User message that the kept messages still answer, if it is omitted itself."""
    head: MessageRef | None = None
    """Messages before this one are shown before the omission notice."""
    shows_first_message: bool = field(default=True, name="task")
    """False if there is no room for the session's first user message."""
    shows_pending_request: bool = field(default=True, name="request")
    """False if there is no room for the message that `asked` names."""
    preceding_messages: int = field(default=0, name="passed")
    """Number of messages before `first` that are neither cleared nor summarized, pins and the head included."""
    images_until_seq: int = field(default=0, name="images_until")
    """Seq up to which images are shown as placeholders."""
    excerpts: tuple[MessageRef, ...] = ()
    """Messages before `first` that are shown in part before the omission notice."""
    excerpt_tokens: int = 0
    """Base tokens of each excerpt, at most."""
    unshown_turns: int = 0
    """User turns before `first` that are neither excerpts nor pins."""
    withheld_turns: tuple[MessageRef, ...] = ()
    """The newest of these, which later cuts show when there is room."""
    instructions: tuple[MessageRef, ...] = ()
    """Instructions of the client's list before `first`, shown whole."""
    digest: tuple[DigestChunk, ...] = ()
    """Lines about omitted tool calls, shown before the omission notice."""


class AssemblyRow(Struct, frozen=True):
    """Manifest of a context that was sent, stored with its turn."""

    view: str
    manifest: dict[str, Any]
    at_ms: int
    seq: int = 0


class TurnPosition(Struct, frozen=True):
    """A turn, by one of its entries."""

    thread: int
    """Thread on whose path the entry is; forks of it behind the entry have it too."""
    seq: int
    turn: int
    """Number of the turn."""


class LeaseChange(Struct, frozen=True):
    """A session's lease, as the transaction of a commit takes or ends it."""

    holder: str
    ms: int = 0
    """How long it lasts unless it is renewed; 0 ends it."""
    is_brief: bool = False
    """True if it also ends with the commit that takes it."""


class Commit(Struct, frozen=True):
    """Everything that one transaction writes to a session."""

    entries: tuple[NewEntry, ...] = ()
    cut: Cut | None = None
    assembly: AssemblyRow | None = None
    assembly_at: int = 0
    """Index of the entry that the manifest belongs to. If the manifest's `head` is an entry of this commit, the store
    writes its `head_hash`."""
    base: tuple[int, int] | None = None
    """Thread and seq that the session continues, which must be new; thread 0 is none: a session of its own."""
    leaves: tuple[int, int] | None = None
    """Thread and newest seq that the session must have, and leaves for the thread that continues `base`."""
    expected_head: int | None = None
    """Seq that the session's newest entry must have."""
    follows: tuple[int, bytes] | None = None
    """Seq and hash of an entry that the session must have: the newest one when the context was assembled."""
    expected_checkpoint: int | None = None
    """Seq of the newest checkpoint when a compaction was planned (0: none). Later appends are allowed, a later
    checkpoint is not."""
    blobs: tuple[bytes, ...] = ()
    """Data that the manifest names by SHA-256 under `inputs`. Blobs that the ledger has are not written again."""
    turn: TurnPosition | None = None
    """Turn that the entries continue: it must be the newest one of the session and, if there is a fence, not completed.
    None if they continue none."""
    fence: int | None = None
    """Fencing token of the writer: no later one may have written to the session. 0 takes the next token, so that all
    writers before it are too late. None for entries that belong to no turn."""
    lease: LeaseChange | None = None
    """Lease to take before the entries, with the next token, or to end behind them. Needs a `fence`."""


class Committed(Struct, frozen=True):
    """Result of a commit."""

    thread: int
    head: int
    """Seq of the session's newest entry afterwards."""
    added: int
    """Number of new entries; 0 when all keys were known."""
    turn: int
    fence: int = 0
    """Fencing token with which it was written."""
    changed_lease: bool = False
    """True if the commit's `lease` was taken or ended. It is not if all entries were known."""
    head_hash: bytes = b""
    """Hash of the newest entry; empty from a store that does not say."""
    known_at: int = 0
    """Seq of the entry with the same reply to the same list, which was recorded before; 0 if it was not."""


class StoredCalibration(Struct, frozen=True):
    """Ratio between a provider's own counts of a model's prompts and ours."""

    factor_64: int
    """The factor in 64ths."""
    samples: int
    at_ms: int = 0
