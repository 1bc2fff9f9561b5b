"""The place of a client's list in the ledger: the longest known beginning, else an overlap, else a new session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from nexus.engine.mirror.keys import MessageKeys, content_hash
from nexus.ledger.store import LedgerStore
from nexus.types.message import Message

NEAR = 8
"""Newest messages that are looked up one by one. Before them a message is known if all before it are."""

PAIRS = 32
"""Newest messages of the assistant that are looked up for an overlap."""

COMPARED = 64
"""Messages of an overlap that are compared, at most."""

REPEATS = 8
"""Places of the same pair of messages on one path that are remembered."""

LEAST_OVERLAP = 4
"""Messages that an overlap has at least, unless it is the whole list or the list's beginning is known too."""

Action = Literal["append", "fork", "new"]


class Place(Struct, frozen=True):
    """The point at which a list continues a stored conversation."""

    thread: int
    """0 for a new session."""
    base: int
    """Seq of the newest entry that the list continues, marks that follow its last stored message included."""
    session: str
    """Label of the session with this thread and head; empty if the list continues an earlier entry, or nothing."""
    stored_count: int
    """Number of messages from the beginning that need not be stored."""
    last: int = 0
    """Seq of the last of them."""
    differences: int = 0
    """Number of those whose stored text is another and is used instead, or that are stored nowhere: both known only from
    an overlap."""

    @property
    def action(self) -> Action:
        """`append`, `fork` or `new`."""
        return "append" if self.session else "fork" if self.thread else "new"


NOWHERE = Place(0, 0, "", 0)


class Finder:
    """Places of lists in one ledger."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._labels: dict[int, str] = {}

    def remember(self, thread: int, session: str) -> None:
        """Remember the session of a thread, which is looked for among all sessions otherwise."""
        self._labels[thread] = session

    def key_of_pair(self, pair: str, place: Place, repeats: int) -> str:
        """Return a key of a pair that the path of a place lacks; empty if the path has enough of this pair.

        `repeats` is the number of further entries with it that will be on the path.
        """
        path = (
            {part.thread: min(part.high, place.base) for part in self._store.path(place.thread)} if place.thread else {}
        )
        on_path = sum(seq <= path.get(thread, 0) for thread, seq in self._pairs(pair)) if path else 0
        number = on_path + repeats
        return f"{pair}:{number}" if number < REPEATS else ""

    def _pairs(self, pair: str) -> list[tuple[int, int]]:
        """Return every place of a pair of messages."""
        places: list[tuple[int, int]] = []
        for number in range(REPEATS):
            holders = self._store.holders(f"{pair}:{number}")
            if not holders:
                break
            places += holders
        return places

    def find(self, messages: Sequence[Message], keys: Sequence[MessageKeys], history_length: int) -> Place:
        """Return the place of a list of which the first `past` messages are the history and the others the event."""
        place = self._known_beginning(keys)
        if place.stored_count < history_length:
            return self._overlap(messages, keys, history_length, place) or place
        return place

    def label_of(self, thread: int) -> str:
        """Return the label of the session that has this thread now; empty if none has it."""
        if not thread:
            return ""
        label = self._labels.get(thread, "")
        if label and self._store.thread_of(label) == thread:
            return label
        sessions = self._store.sessions(every=True)
        label = next((s.label for s in sessions if s.thread == thread and s.status != "deleted"), "")
        self._labels[thread] = label
        return label

    def _known_beginning(self, keys: Sequence[MessageKeys]) -> Place:
        """Return the place behind the longest beginning of which every message is stored."""
        low, high = 0, len(keys)
        while high > low and high > len(keys) - NEAR:
            if holders := self._store.holders(keys[high - 1].chain):
                return self._place(holders, high)
            high -= 1
        holders = list[tuple[int, int]]()
        while low < high:
            middle = (low + high + 1) // 2
            if at_middle := self._store.holders(keys[middle - 1].chain):
                low, holders = middle, at_middle
            else:
                high = middle - 1
        return self._place(holders, low) if holders else NOWHERE

    def _place(self, holders: Sequence[tuple[int, int]], count: int, differences: int = 0) -> Place:
        """Return the best place: at the end of a session, else in a session's past, else on an abandoned path."""
        best, best_rank = NOWHERE, -1
        for thread, seq in holders:
            base, is_end = self._end(thread, seq)
            label = self.label_of(thread)
            rank = 2 * bool(label) * is_end + bool(label)
            if rank > best_rank:
                best = Place(thread, base, label if is_end else "", count, seq, differences)
                best_rank = rank
        return best

    def _end(self, thread: int, seq: int) -> tuple[int, bool]:
        """Return the newest entry that belongs to a message's, and True if no other message follows on the thread."""
        head = self._store.thread(thread).head_seq
        base, marks_only = seq, True
        for entry in self._store.entries(thread, seq, head):
            if entry.rows or entry.kind == "lost":
                return base, False
            marks_only &= entry.kind in ("completed", "failed")
            base = entry.seq if marks_only else base
        return head, True

    def _overlap(
        self, messages: Sequence[Message], keys: Sequence[MessageKeys], history_length: int, beginning: Place
    ) -> Place | None:
        """Return the place behind the newest stored pair of messages, if enough before it is the same."""
        for index in range(history_length - 1, max(beginning.stored_count, history_length - 1 - PAIRS), -1):
            holders = self._pairs(keys[index].pair) if keys[index].pair else []
            matches = list[tuple[int, tuple[int, int]]]()
            for holder in holders:
                length = self._same(messages, index, holder)
                continues = beginning.stored_count > 0 and self._is_on_path(beginning, holder)
                if length > index or length >= LEAST_OVERLAP or continues:
                    is_same = length == min(index + 1, COMPARED)
                    others = 0 if is_same else index + 1 - length - beginning.stored_count * continues
                    matches.append((others, holder))
            if matches:
                fewest = min(others for others, _ in matches)
                return self._place([holder for others, holder in matches if others == fewest], index + 1, fewest)
        return None

    def _same(self, messages: Sequence[Message], index: int, holder: tuple[int, int]) -> int:
        """Return how many messages up to `index` are the same as those up to a stored one; `COMPARED` at most."""
        stored = self._messages_before(holder, min(index + 1, COMPARED))
        limit = len(stored)
        pairs = zip(reversed(_hashes(messages[index + 1 - limit : index + 1])), reversed(_hashes(stored)), strict=True)
        return next((length for length, (ours, theirs) in enumerate(pairs) if ours != theirs), limit)

    def _messages_before(self, holder: tuple[int, int], count: int) -> list[Message]:
        """Return the last messages up to a stored one, at most `count`."""
        thread, until = holder
        messages: list[Message] = []
        while until > 0 and len(messages) < count:
            after = max(until - 2 * count, 0)
            entries = self._store.entries(thread, after, until)
            messages[:0] = [row.message for entry in entries for row in entry.rows]
            until = after
        return messages[-count:]

    def seq_of(self, place: Place, count: int) -> int:
        """Return the seq of the `count`-th last message that a place continues."""
        seq = place.last
        while count > 1:
            seq -= 1
            count -= any(entry.rows for entry in self._store.entries(place.thread, seq - 1, seq))
        return seq

    def _is_on_path(self, beginning: Place, holder: tuple[int, int]) -> bool:
        thread, seq = holder
        on_path = any(
            part.thread == beginning.thread and beginning.last <= part.high for part in self._store.path(thread)
        )
        return on_path and beginning.last < seq


def _hashes(messages: Sequence[Message]) -> list[bytes]:
    places: dict[str, int] = {}
    return [content_hash(message, places) for message in messages]
