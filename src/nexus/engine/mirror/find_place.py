"""The place of a client's list in the ledger: the longest known beginning, for a window behind the messages it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nexus.engine.mirror.keys import KeyChain, MessageKeys, content_hash
from nexus.engine.mirror.paths import StoredChains
from nexus.ledger.store import LedgerStore
from nexus.providers.received import with_meta
from nexus.text.as_received import with_call_ids
from nexus.types.message import CALL_IDS, Message, made_ids

NEAR = 8
"""Newest messages that are looked up one by one. Before them a message is known if all before it are."""

TRIES = 32
"""Newest messages with an identity that are looked up for a window."""

LEAST_OVERLAP = 3
"""Messages that a window shares with its session, at least."""

Action = Literal["append", "fork", "new"]


class Place(Struct, frozen=True):
    """The point at which a list continues a stored conversation."""

    thread: int
    """0 for a new session."""
    base: int
    """Seq of the newest entry that the list continues, checkpoints that follow its last stored message included."""
    session: str
    """Label of the session with this thread and head; empty if the list continues an earlier entry, or nothing."""
    stored_count: int
    """Number of messages from the beginning that need not be stored."""
    last: int = 0
    """Seq of the last of them."""
    leaves: tuple[int, int] | None = None
    """Thread and newest seq of the session if it goes on from an earlier entry, because the client moved messages."""

    @property
    def action(self) -> Action:
        """`append`, `fork` or `new`."""
        if self.session:
            return "append"
        if self.thread:
            return "fork"
        return "new"


NOWHERE = Place(0, 0, "", 0)


class Finder:
    """Places of lists in one ledger."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._chains = StoredChains(store)
        self._labels: dict[int, str] = {}

    def remember(self, thread: int, session: str) -> None:
        """Remember the session of a thread, which is looked for among all sessions otherwise."""
        self._labels[thread] = session

    def find(self, root: bytes, keys: Sequence[MessageKeys]) -> Place:
        """Return the place behind the longest beginning of which every message is stored."""
        low = 0
        high = len(keys)
        while high > low and high > len(keys) - NEAR:
            if holders := self.holders(root, keys[high - 1].chain):
                return self._place(holders, high)
            high -= 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._store.holders(keys[middle - 1].chain):
                low = middle
            else:
                high = middle - 1
        for count in range(low, 0, -1):  # more than one step only for paths of earlier versions: see `holders`
            if holders := self.holders(root, keys[count - 1].chain):
                return self._place(holders, count)
        return NOWHERE

    def holders(self, root: bytes, key: str) -> list[tuple[int, int]]:
        """Return the positions of a message with exactly the messages before it that its key stands for.

        Earlier versions stored keys of a client's list on paths that have other messages.
        """
        return [holder for holder in self._store.holders(key) if self._chains.read(root, *holder).key == key]

    def chain_before(self, root: bytes, messages: Sequence[Message], keys: Sequence[MessageKeys]) -> KeyChain | None:
        """Return the chain of the messages before a window; None if it is not certain which session it belongs to.

        It is the session that alone has a long message of the window, or one with ids of tool calls, and before it the
        window's earlier messages.
        """
        identified = [index for index, key in enumerate(keys) if key.identity]
        for index in reversed(identified[-TRIES:]):
            holders = [holder for holder in self._store.holders(keys[index].identity) if self.label_of(holder[0])]
            if len(holders) == 1:
                ((thread, last),) = holders
                ours = messages[: index + 1]
                stored = self.messages_before(thread, last, len(ours))
                if _hashes(stored) == _hashes(ours):
                    return self._chains.read(root, thread, self.seq_of(thread, last, len(ours)) - 1)
        return None

    def place_before(self, place: Place, count: int) -> Place:
        """Return the place behind an earlier message: `count` messages before that of `place`."""
        last = self.seq_of(place.thread, place.last, count + 1)
        base, _ = self._end(place.thread, last)
        return Place(place.thread, base, "", place.stored_count - count, last)

    def has_identity(self, place: Place, key: str) -> bool:
        """Return True if the path of a place has a message with this key of an identity."""
        uses = self._store.holders(key, place.thread) if place.thread else []
        return any(seq <= place.base for _, seq in uses)

    def with_stored_ids(self, messages: list[Message], place: Place, history_length: int) -> list[Message]:
        """Return a list whose results in the event, or not stored, name the stored calls that they answer.

        A client may have the same calls under other ids. Then the first result names these too, for the model sees the
        client's. Where the client has none, its results have the ids of the stored calls.
        """
        count = place.stored_count
        start = min(place.stored_count, history_length)
        answered = {result.call_id for message in messages[start:] for result in message.results()}
        if not answered:
            return messages
        last = {call.id: index for index, message in enumerate(messages) for call in message.calls()}
        first = min((last[call_id] for call_id in answered if call_id in last), default=count)
        if first >= count:
            return messages
        stored = self.messages_before(place.thread, place.last, count - first)
        ours, theirs = (
            [call.id for message in some for call in message.calls()] for some in (messages[first:], stored)
        )
        ids = {our: their for our, their in zip(ours, theirs, strict=False) if our != their}
        made_by_us = {call_id for message in messages[first:] for call_id in made_ids(message)}
        stored_ids = {our: their for our, their in ids.items() if our in made_by_us}
        client_ids = {their: our for our, their in ids.items() if our not in made_by_us}
        new = [with_call_ids(message, stored_ids) for message in messages[start:]]
        index = next(index for index, message in enumerate(new) if any(message.results()))
        if client_ids:
            meta = with_meta(new[index].meta, {CALL_IDS: client_ids})
            new[index] = replace(new[index], meta=meta)
        return [*messages[:start], *new]

    def label_of(self, thread: int) -> str:
        """Return the label of the session that has this thread now; empty if none has it."""
        if not thread:
            return ""
        label = self._labels.get(thread, "")
        if label and self._store.thread_of(label) == thread:
            return label
        label = next(iter(self._store.labels_of(thread)), "")
        self._labels[thread] = label
        return label

    def _place(self, holders: Sequence[tuple[int, int]], count: int) -> Place:
        """Return the best place: at the end of a session, else in a session's past, else on an abandoned path."""
        best = NOWHERE
        best_rank = -1
        for thread, seq in holders:
            base, is_end = self._end(thread, seq)
            label = self.label_of(thread)
            rank = 2 * bool(label) * is_end + bool(label)
            if rank > best_rank:
                best = Place(thread, base, label if is_end else "", count, seq)
                best_rank = rank
        return best

    def _end(self, thread: int, seq: int) -> tuple[int, bool]:
        """Return the newest entry that belongs to a message's, and True if no other message follows on the thread."""
        head = self._store.thread(thread).head_seq
        base = seq
        marks_only = True
        for entry in self._store.entries(thread, seq, head):
            if entry.rows or entry.kind == "lost":
                return base, False
            marks_only &= entry.kind in ("completed", "failed")
            base = entry.seq if marks_only else base
        return head, True

    def is_answered(self, place: Place) -> bool:
        """Return True if the first message after a place, on its thread, is a reply."""
        head = self._store.thread(place.thread).head_seq
        later = (row.message for entry in self._store.entries(place.thread, place.base, head) for row in entry.rows)
        return (message := next(later, None)) is not None and message.role == "assistant"

    def messages_before(self, thread: int, until: int, count: int) -> list[Message]:
        """Return the last messages up to a stored one, at most `count`."""
        messages: list[Message] = []
        while until > 0 and len(messages) < count:
            after = max(until - 2 * count, 0)
            entries = self._store.entries(thread, after, until)
            messages[:0] = [row.message for entry in entries for row in entry.rows]
            until = after
        return messages[-count:]

    def seq_of(self, thread: int, last: int, count: int) -> int:
        """Return the seq of the `count`-th last message up to a stored one."""
        seq = last
        while count > 1:
            seq -= 1
            count -= any(entry.rows for entry in self._store.entries(thread, seq - 1, seq))
        return seq


def _hashes(messages: Sequence[Message]) -> list[bytes]:
    positions: dict[str, int] = {}
    return [content_hash(message, positions) for message in messages]
