"""Current state derived from entries: checkpoints, pins, visible messages, turns with their status, tool calls.

A derived status cannot disagree with the entries that it comes from. `visible_messages`, `messages_from` and
`entries_from_turn` read a store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.store import HistoryStore, LedgerStore, unknown_session
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Compaction, Entry, MessageRef, NewEntry, StoredMessage
from nexus.types.message import Message
from nexus.types.stop_reasons import stop_reason

TurnStatus: TypeAlias = Literal["pending", "streaming", "completed", "failed", "interrupted"]
ABORTED = "aborted"
"""Kind of failure of a turn that its user or its program ended."""

_BACK = 6
"""Entries per read from the newest back; most turns have fewer."""

CallStatus: TypeAlias = Literal["pending", "completed", "failed", "interrupted"]


class LiveCheckpoints(Struct, frozen=True):
    """Checkpoints that are current at the end of a path."""

    checkpoint: Entry | None = None
    """The newest clear or current compaction."""
    pins: tuple[MessageRef, ...] = ()
    undone: frozenset[int] = frozenset()
    """Seqs of undone compactions."""
    undone_at: int = 0
    """Seq of the newest current undo (0: none). What it restored is not compacted automatically before the session
    has continued."""
    changed_at: int = 0
    """Seq of the newest clear, compaction or undo. Earlier cuts of a view belong to another history."""
    cleared_at: int = 0
    """Seq of the newest clear (0: none)."""


class RecordedTurn(Struct, frozen=True):
    """Turn, derived from its entries.

    Tokens are sums of the values that the provider reported for the turn's calls.
    """

    number: int
    status: TurnStatus
    """`pending`: no reply yet; `streaming`: part of a reply; `interrupted`: neither closed nor being worked on."""
    first_seq: int
    last_seq: int
    started_ms: int
    ended_ms: int
    messages: int = 0
    calls: int = 0
    model: str = ""
    provider: str = ""
    role: str = ""
    toolset: str = ""
    tools_available: tuple[str, ...] = ()
    permissions_granted: tuple[str, ...] = ()
    permissions_used: tuple[str, ...] = ()
    input_tokens: int = 0
    """Includes tokens read from and written to the provider's cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of `cache_write_tokens` that are kept for an hour."""
    source_event: str = ""
    workspace: str = ""
    stop_reason: str = ""
    """One word for all providers (`nexus.types.stop_reasons`); `timeout`, `aborted` or `error` for a turn that failed."""
    provider_stop_reason: str = ""
    """The provider's own word, if it is another."""
    error: str = ""
    failure_kind: str = ""
    """Kind of a failure (`nexus.failure_of`); empty for a turn that did not fail."""


class VisibleMessages(Struct, frozen=True):
    """Visible part of a session: the summary of earlier messages (or empty), and all messages after it."""

    summary: str
    first_seq: int
    rows: tuple[StoredMessage, ...]


class Ancestor(Struct, frozen=True):
    """Stretch of a turn's ancestry: turns `first_turn` to `last_turn` on a thread, and its sessions."""

    thread: int
    first_turn: int
    last_turn: int
    last_seq: int
    sessions: tuple[str, ...]


class RecordedToolCall(Struct, frozen=True):
    """Tool call with its status, its position, and the position of its newest result."""

    call_id: str
    name: str
    turn: int
    ref: MessageRef
    status: CallStatus
    asked_ms: int
    result: MessageRef | None = None
    answered_ms: int = 0


def live_checkpoints(marks: Sequence[Entry]) -> LiveCheckpoints:
    """Return the state that a path's checkpoints, newest first, result in."""
    out = revoked_checkpoints(marks)
    mark: Entry | None = None
    pins: list[MessageRef] = []
    settled: set[MessageRef] = set()
    for entry in marks:
        if entry.kind in ("pin", "unpin"):
            place = MessageRef(int(entry.body.get("seq", 0)), int(entry.body.get("ord", 0)))
            if place not in settled and entry.kind == "pin":
                pins.append(place)
            settled.add(place)
        elif mark is None and (entry.kind == "clear" or (entry.kind == "compaction" and entry.seq not in out)):
            mark = entry
    undone = frozenset(entry.seq for entry in marks if entry.kind == "compaction" and entry.seq in out)
    newest = next((entry.seq for entry in marks if entry.kind == "undone" and entry.seq not in out), 0)
    changed = next((entry.seq for entry in marks if entry.kind in ("clear", "compaction", "undone")), 0)
    cleared = next((entry.seq for entry in marks if entry.kind == "clear"), 0)
    return LiveCheckpoints(mark, tuple(sorted(pins)), undone, newest if undone else 0, changed, cleared)


def pin_entries(pins: Iterable[MessageRef]) -> list[Entry]:
    """Return checkpoints for pins that one call has and the ledger does not; they are the oldest ones of a path."""
    return [Entry(0, "pin", 0, 0, {"seq": pin.seq, "ord": pin.ord}, (), b"") for pin in pins]


def visible_messages(store: HistoryStore, thread: int) -> VisibleMessages:
    """Return the compaction-aware history of a thread: the current summary and the messages that it kept."""
    mark = live_checkpoints(store.checkpoints(thread, replaced=False)).checkpoint
    first = visible_start(mark)
    rows = tuple(row for entry in store.entries(thread, first.seq - 1) for row in entry.rows)
    summary = ""
    if mark is not None and mark.kind == "compaction":
        summary = str(mark.body.get("summary", ""))
    return VisibleMessages(summary, first.seq, tuple(row for row in rows if row.ref >= first))


def entries_from_turn(store: HistoryStore, thread: int, turn: int) -> list[Entry]:
    """Return a thread's entries from a turn's first one on, read from the newest back."""
    entries: list[Entry] = []
    until = store.thread(thread).head_seq
    back = _BACK
    while until > 0:
        after = max(until - back, 0)
        block = list(store.entries(thread, after, until))
        entries[:0] = [entry for entry in block if entry.turn >= turn]
        if block[0].turn < turn:
            break
        until = after
        back *= 4
    return entries


def turns(entries: Iterable[Entry], under_way: Collection[int] = ()) -> list[RecordedTurn]:
    """Return the turns of a path's entries, oldest first; `under_way` are numbers of turns being worked on."""
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.turn and (entry.kind in ("messages", "completed", "failed", "lost")):
            groups.setdefault(entry.turn, []).append(entry)
    newest = max(groups, default=0)
    return [_turn(number, group, is_open=number == newest and number in under_way) for number, group in groups.items()]


def calls(entries: Iterable[Entry], under_way: Collection[int] = ()) -> list[RecordedToolCall]:
    """Return the tool calls of a path's entries, in order. An id that is used again is another call."""
    recorded: list[RecordedToolCall] = []
    waiting: dict[str, int] = {}
    newest = 0
    for entry in entries:
        newest = max(newest, entry.turn)
        for row in entry.rows:
            for call in row.message.calls():
                waiting[call.id] = len(recorded)
                asked_ms = row.message.at_ms or entry.at_ms
                recorded.append(RecordedToolCall(call.id, call.name, entry.turn, row.ref, "pending", asked_ms))
            for result in row.message.results():
                at = waiting.pop(result.call_id, None)
                if at is not None:
                    recorded[at] = replace(
                        recorded[at],
                        status="failed" if result.is_error else "completed",
                        result=row.ref,
                        answered_ms=row.message.at_ms or entry.at_ms,
                    )
    for at in waiting.values():
        call = recorded[at]
        if call.turn != newest or call.turn not in under_way:
            recorded[at] = replace(call, status="interrupted")
    return recorded


def _turn_status(end: Entry | None, *, has_reply: bool, is_open: bool) -> TurnStatus:
    """Return the status of a turn by its last end, if it has one."""
    if end is not None:
        if end.kind == "completed":
            return "completed"
        if end.body.get("kind") == ABORTED:
            return "interrupted"
        return "failed"
    if not is_open:
        return "interrupted"
    if has_reply:
        return "streaming"
    return "pending"


def _turn(number: int, group: list[Entry], *, is_open: bool) -> RecordedTurn:
    fields: dict[str, Any] = {}
    usage = dict.fromkeys(_USAGE, 0)
    used: dict[str, None] = {}
    for entry in group:
        body = entry.body
        fields.update({name: value for name, value in body.items() if value not in (None, "", [], {})})
        used.update(dict.fromkeys(_names(body.get("permissions_used"))))
        reported = body.get("usage")
        counts = cast("dict[str, Any]", reported) if isinstance(reported, dict) else {}
        for name in _USAGE:
            usage[name] += counts[name] if isinstance(counts.get(name), int) else 0
    end = next((entry for entry in reversed(group) if entry.kind in ("completed", "failed")), None)
    rows = [row for entry in group for row in entry.rows]
    status = _turn_status(end, has_reply=any(row.message.role == "assistant" for row in rows), is_open=is_open)
    words = {name: str(fields.get(name, "")) for name in _WORDS}
    words["stop_reason"] = stop_reason(words["stop_reason"])  # older entries have the provider's word
    if status == "completed":
        words["error"] = ""  # of a failed try before it
    words["failure_kind"] = str(end.body.get("kind", "")) if end is not None and end.kind == "failed" else ""
    if status in ("failed", "interrupted") and end is not None and words["stop_reason"] in ("", "end_turn", "tool_use"):
        words["stop_reason"] = words["failure_kind"] if words["failure_kind"] in ("timeout", ABORTED) else "error"
    words["model"] = words["model"] or next((row.message.model for row in reversed(rows) if row.message.model), "")
    return RecordedTurn(
        number=number,
        status=status,
        first_seq=group[0].seq,
        last_seq=group[-1].seq,
        started_ms=group[0].at_ms,
        ended_ms=end.at_ms if end else 0,
        messages=len(rows),
        calls=sum(1 for row in rows for _ in row.message.calls()),
        tools_available=_names(fields.get("tools")),
        permissions_granted=_names(fields.get("permissions")),
        permissions_used=tuple(used),
        **words,
        **usage,
    )


_WORDS = (
    "model", "provider", "role", "toolset", "source_event", "workspace", "stop_reason", "provider_stop_reason", "error",
)  # fmt: skip
_USAGE = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cache_write_1h_tokens",
)  # fmt: skip


def _names(values: Any) -> tuple[str, ...]:
    if isinstance(values, list):
        return tuple(map(str, cast("list[Any]", values)))
    return ()


def conversation_rows(entry: Entry) -> tuple[StoredMessage, ...]:
    """Return an entry's messages without a session's leading system messages: instructions, never history."""
    if entry.seq != 1:
        return entry.rows
    leading = next((at for at, row in enumerate(entry.rows) if row.message.role != "system"), len(entry.rows))
    return entry.rows[leading:]


def visible_start(mark: Entry | None) -> MessageRef:
    """Return the first visible message after a clear or compaction; (1, 0) without a checkpoint."""
    if mark is None:
        return MessageRef(1, 0)
    if mark.kind != "compaction":
        return MessageRef(mark.seq + 1, 0)
    return MessageRef(int(mark.body["first_kept"]), int(mark.body.get("kept_ord", 0)))


def place_of(entry: NewEntry) -> MessageRef:
    """Return the message that a pin or unpin names; (0, -1) if it names none."""
    seq = entry.body.get("seq")
    order = entry.body.get("ord", 0)
    if isinstance(seq, int) and isinstance(order, int):
        return MessageRef(seq, order)
    return MessageRef(0, -1)


def wrong_undo(entry: NewEntry, marks: Sequence[Entry]) -> str:
    """Return the fault of an `undone` entry given the path's checkpoints, newest first, or an empty string."""
    of = entry.body.get("of")
    if undoes_cut(entry.body):
        return ""
    target = next((mark for mark in marks if mark.seq == of), None)
    if target is None or target.kind not in ("compaction", "undone"):
        return f"entry {of} is neither a compaction nor an undo"
    if any(seq == of for seq in revoked_checkpoints(marks)):
        return f"entry {of} is undone already"
    return ""


def undoes_cut(body: Mapping[str, Any]) -> bool:
    """Return True if the body of an `undone` entry names a cut, and not a compaction or an undo."""
    return body.get("of") == 0 and isinstance(body.get("cut"), int) and isinstance(body.get("view"), str)


def cut_undo_after(marks: Sequence[Entry], seq: int) -> Entry | None:
    """Return the newest undo of a cut behind an entry, given checkpoints, newest first; None without one."""
    return next((mark for mark in marks if mark.kind == "undone" and mark.seq > seq and undoes_cut(mark.body)), None)


def revoked_checkpoints(marks: Sequence[Entry]) -> set[int]:
    """Return the seqs of undone compactions and undone undos, given a path's checkpoints, newest first."""
    revoked: set[int] = set()
    for mark in marks:
        if mark.kind == "undone" and mark.seq not in revoked:
            revoked.add(int(mark.body.get("of", 0)))
    return revoked


def wrong_fields(entry: NewEntry, seq: int) -> str:
    """Return the fault of a closing, clear or compaction entry with number `seq`, or an empty string."""
    if entry.kind == "lost":
        return "entry kind 'lost' cannot be appended"
    if entry.kind != "compaction":
        if not entry.messages or entry.kind in ("completed", "failed"):
            return ""
        return f"a {entry.kind} has no messages"
    try:
        compaction = msgspec.convert(entry.body, decodable(Compaction))
    except msgspec.ValidationError as error:
        return f"compaction is invalid: {error}"
    if entry.messages:
        return "a compaction has no messages"
    first = compaction.covers_from
    last = compaction.covers_to
    first_kept = compaction.first_kept
    if 1 <= first <= last + 1 <= first_kept <= seq + 1 and compaction.kept_ord >= 0:
        return ""
    return f"compaction at entry {seq} cannot cover entries {first} to {last} and keep those from {first_kept}"


def messages_from(store: LedgerStore, session: str, offset: int, limit: int) -> tuple[list[Message], int, int]:
    """Return a part of a session's messages, the index of its first one, and the number of all messages.

    An offset below 0 counts from the end. Only entries with these messages are read. Raises NoSuchSession.
    """
    with store.snapshot():
        thread = store.thread_of(session)
        if thread is None:
            raise unknown_session(store, session)
        counts = store.message_counts(thread)
        ends = list(accumulate((count for _, count in counts), initial=0))
        total = ends[-1]
        first = min(offset, total)
        if offset < 0:
            first = max(total + offset, 0)
        end = min(first + limit, total)
        if first >= end:
            return [], first, total
        first_entry = bisect_right(ends, first) - 1
        last_entry = bisect_left(ends, end) - 1
        entries = store.entries(thread, counts[first_entry][0] - 1, counts[last_entry][0])
        messages = [row.message for entry in entries for row in entry.rows]
    skipped = first - ends[first_entry]
    return messages[skipped : skipped + end - first], first, total
