"""Contexts for programs that always have the whole message list: frameworks, stateless clients, proxies.

A list is compared with the ledger by the keys of its messages. What the ledger lacks is stored with the reply, in one
transaction, so that each message is stored once, whatever the client repeats, drops or sends again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from msgspec.structs import replace

from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.context import Mirrored, StoredEvent
from nexus.engine.mirror.keys import KeyChain, MessageKeys
from nexus.engine.mirror.lists import ListCache
from nexus.engine.mirror.place import Finder, Place
from nexus.errors import BadEvent, BadSetting, HeadMoved, LedgerBusy
from nexus.ledger.operations import Ledger
from nexus.ledger.overlay import PathOverlay
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.counter import TokenCounter
from nexus.types.block import ContextWarning
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Entry, MessageRef, NewEntry, StoredMessage
from nexus.types.message import Message

SOURCE = "nexus:mirror"
"""Source of warnings about lists."""

DEFAULT_SCOPE = "mirror"

ATTEMPTS = 20
"""Attempts to store a reply while other calls change the same session."""


@dataclass(frozen=True, slots=True)
class PlacedList:
    """A client's list and its place in the ledger."""

    scope: str
    system: str
    """Text of the system messages that the list begins with; they are not among the messages."""
    messages: list[Message]
    keys: list[MessageKeys]
    chain: KeyChain
    history_length: int
    """Number of messages before the event."""
    place: Place
    session: str
    """Label of the session that the call is recorded in."""
    staged: tuple[NewEntry, ...]
    """Entries that the ledger lacks: the rest of the history, and of the event."""
    event_at: int
    """Seq of the event's first entry."""

    @property
    def event_seqs(self) -> tuple[int, ...]:
        """Seqs of the event's entries, marks between them included."""
        return tuple(range(self.event_at, self.place.base + len(self.staged) + 1))

    @property
    def event(self) -> StoredEvent:
        """The event, as the ledger will have it."""
        starts = any(_starts_turn(self.messages, index) for index in range(self.history_length, len(self.messages)))
        return StoredEvent(tuple(self.messages[self.history_length :]), self.event_seqs, starts)

    def public(self, reserve: int) -> Mirrored:
        """Return the place as contexts have it."""
        stored = self.place.stored_count
        return Mirrored(self.place.action, self.session, stored, len(self.messages) - stored, reserve, self)

    @property
    def warnings(self) -> tuple[ContextWarning, ...]:
        """A warning if the model sees other messages than the client's."""
        other = self.place.differences
        if not other:
            return ()
        text = f"{other:,} of the list's messages differ from those of the stored conversation, which the model sees"
        return (ContextWarning(SOURCE, f"{text} (to have others, begin a new list, or use another scope)"),)


class Mirror:
    """The lists of one engine's callers."""

    def __init__(self, ledger: Ledger, counter: TokenCounter) -> None:
        self._ledger, self._counter = ledger, counter
        self._lists, self._finder = ListCache(), Finder(ledger.store)

    def place(self, items: Any, scope: str, provider: ReceivedFormat | None, model: str) -> PlacedList:
        """Read a list and find its place. Raises BadEvent, BadSetting."""
        if not isinstance(scope, str):
            raise BadSetting(f"scope is {type(scope).__name__}, not text (name the client or its user)")
        scope = scope or DEFAULT_SCOPE
        read = self._lists.read(items, scope, provider, model)
        history_length = _history_length(read.messages)
        place = self._finder.find(read.messages, read.keys, history_length)
        system = "\n\n".join(text for text in read.system if text)
        return self._placed(scope, system, read.messages, read.keys, read.chain, history_length, place)

    def overlay(self, placed: PlacedList) -> LedgerStore:
        """Return the ledger as if it had the list's history, for assembly."""
        place, store = placed.place, self._ledger.store
        before = placed.staged[: max(placed.event_at - place.base - 1, 0)]
        if not before:
            path = PathOverlay(store, place.thread or None, placed.event_at - 1)
        else:
            digest = bytes.fromhex(placed.keys[placed.history_length - 1].chain.rpartition(":")[2])
            staged = _entries(before, place.base, self._turn_at(place), digest)
            path = PathOverlay(store, place.thread or None, place.base, staged=staged)
        return cast("LedgerStore", path)  # what it does not define is the store's own

    def record(self, placed: PlacedList, commit: Commit) -> Committed:
        """Store a call: the messages that the ledger lacks, then the entries of its reply. The same again adds nothing."""
        chain, reply, store = placed.chain.copy(), commit.entries[0], self._ledger.store
        keys = [chain.add(sized.message) for sized in reply.messages]
        # The keys of the messages take the place of the context's, which two tries of the same list share.
        ends = tuple(replace(entry, keys=()) for entry in commit.entries[1:])
        for _ in range(ATTEMPTS):
            if keys and (holders := store.holders(keys[-1].chain)):
                row = store.thread(holders[0][0])
                return Committed(row.id, row.head_seq, 0, row.turn)
            place, assembly = placed.place, commit.assembly
            if assembly is not None:
                assembly = replace(assembly, manifest={**assembly.manifest, **self._positions(placed, assembly)})
            is_append = place.action == "append"
            full_commit = replace(
                commit,
                entries=(*placed.staged, *self._reply_entries(placed, reply, keys), *ends),
                assembly=assembly,
                assembly_at=len(placed.staged),
                follows=None,
                expected_head=place.base if is_append else None,
                base=None if is_append else (place.thread, place.base),
            )
            facts = None if is_append else SessionMetadata(owner_session=self._finder.label_of(place.thread))
            try:
                committed = self._ledger.commit(placed.session, full_commit, facts)
            except HeadMoved:
                placed = self._placed_again(placed)
            else:
                self._finder.remember(committed.thread, placed.session)
                return committed
        raise LedgerBusy(
            f"session {placed.session!r} changed {ATTEMPTS} times while a reply was recorded (record again)"
        )

    def _positions(self, placed: PlacedList, assembly: AssemblyRow) -> dict[str, Any]:
        """Return what a manifest says of the path, which may have been stored since the context was assembled."""
        head = int(assembly.manifest["head"])
        positions: dict[str, Any] = {"event_seqs": [*placed.event_seqs]}
        if 0 < head <= placed.place.base:
            (entry,) = self._ledger.store.entries(placed.place.thread, head - 1, head)
            positions["head_hash"] = entry.hash.hex()
        return positions

    def _placed_again(self, placed: PlacedList) -> PlacedList:
        """Return the list's place after other calls changed its session."""
        place = self._finder.find(placed.messages, placed.keys, placed.history_length)
        new = self._with_place(placed, place)
        has_history = placed.place.stored_count >= placed.history_length <= place.stored_count
        if has_history or new.event_at == placed.event_at:
            return new
        # The manifest has the positions of its time, and these stay those of a fork.
        return self._with_place(placed, replace(placed.place, session=""))

    def _with_place(self, placed: PlacedList, place: Place) -> PlacedList:
        return self._placed(
            placed.scope, placed.system, placed.messages, placed.keys, placed.chain, placed.history_length, place
        )

    def _placed(
        self,
        scope: str,
        system: str,
        messages: list[Message],
        keys: list[MessageKeys],
        chain: KeyChain,
        history_length: int,
        place: Place,
    ) -> PlacedList:
        staged, event_index = self._stage(messages, keys, history_length, place)
        event_at = place.base + 1 + event_index
        if place.stored_count > history_length:
            event_at = self._finder.seq_of(place, place.stored_count - history_length)
        session = place.session or self._new_label(scope, keys[min(place.stored_count, len(keys) - 1)].chain)
        return PlacedList(scope, system, messages, keys, chain, history_length, place, session, staged, event_at)

    def _stage(
        self, messages: Sequence[Message], keys: Sequence[MessageKeys], history_length: int, place: Place
    ) -> tuple[tuple[NewEntry, ...], int]:
        """Return an entry for each message that is not stored, and the index of the event's first one.

        They depend on nothing else, so that two calls that store the same messages give them the same positions.
        """
        entries: list[NewEntry] = []
        event_index = 0
        pairs = Counter[str]()
        for index in range(place.stored_count, len(messages)):
            message = messages[index]
            if index == history_length:
                event_index = len(entries)
            entries.append(
                NewEntry(
                    messages=with_sizes((message,), self._counter),
                    starts_turn=_starts_turn(messages, index),
                    at_ms=message.at_ms,
                    keys=self._stored_keys(keys[index], place, pairs),
                )
            )
            if message.role == "assistant" and not unanswered_calls((message,)):
                entries.append(NewEntry("completed", at_ms=message.at_ms))
        return tuple(entries), event_index

    def _reply_entries(self, placed: PlacedList, reply: NewEntry, keys: Sequence[MessageKeys]) -> tuple[NewEntry, ...]:
        """Return a reply's entry as one for each of its messages."""
        pairs = Counter(key.pair for key in placed.keys[placed.place.stored_count :] if key.pair)
        stored = [self._stored_keys(key, placed.place, pairs) for key in keys]
        first = replace(reply, messages=reply.messages[:1], keys=stored[0] if stored else ())
        others = zip(reply.messages[1:], stored[1:], strict=True)
        return (first, *(NewEntry(messages=(sized,), at_ms=reply.at_ms, keys=more) for sized, more in others))

    def _stored_keys(self, keys: MessageKeys, place: Place, pairs: Counter[str]) -> tuple[str, ...]:
        """Return the keys that a message is stored with; `pairs` counts the pairs that will be stored before it."""
        if not keys.pair:
            return (keys.chain,)
        pair = self._finder.key_of_pair(keys.pair, place, pairs[keys.pair])
        pairs[keys.pair] += 1
        return (keys.chain, pair) if pair else (keys.chain,)

    def _new_label(self, scope: str, key: str) -> str:
        """Return a label that no session ever had, named by the first message that only this session has."""
        label = f"{scope}~{key.rpartition(':')[2][:8]}"
        store = self._ledger.store
        for number in count(2):
            if store.resolve(label) is None and store.session(label) is None:
                break
            label = f"{label.rpartition('~')[0]}~{key.rpartition(':')[2][:8]}-{number}"
        return label

    def _turn_at(self, place: Place) -> int:
        if not place.base:
            return 0
        return next(iter(self._ledger.store.entries(place.thread, place.base - 1, place.base))).turn


def _history_length(messages: Sequence[Message]) -> int:
    """Return how many messages come before the event: the user's messages and results after the last reply."""
    if not messages or messages[-1].role not in ("user", "tool"):
        last = f"ends with a message of role '{messages[-1].role}'" if messages else "has no messages to answer"
        raise BadEvent(f"list {last} (end it with the user's message, or with results of tool calls)")
    return next(
        (index + 1 for index in range(len(messages) - 1, -1, -1) if messages[index].role not in ("user", "tool")), 0
    )


def _starts_turn(messages: Sequence[Message], index: int) -> bool:
    """Return True if a message starts a turn: a user's that follows neither another one nor results."""
    if not index:
        return messages[0].role != "system"
    return messages[index].role == "user" and messages[index - 1].role not in ("user", "tool")


def _entries(staged: Sequence[NewEntry], base: int, turn: int, digest: bytes) -> list[Entry]:
    """Return staged entries as the ledger will have them, with a stand-in for the hash of the last one."""
    entries: list[Entry] = []
    for seq, new in enumerate(staged, base + 1):
        turn += new.starts_turn
        rows = tuple(
            StoredMessage(MessageRef(seq, order), sized.message, sized.size) for order, sized in enumerate(new.messages)
        )
        entries.append(Entry(seq, new.kind, turn, new.at_ms, new.body, rows, digest))
    return entries
