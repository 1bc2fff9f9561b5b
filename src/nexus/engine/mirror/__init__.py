"""Contexts for programs that always have the whole message list: frameworks, stateless clients, proxies.

A list is compared with the ledger by the keys of its messages. What the ledger lacks is stored with the reply, in one
transaction, so that each message is stored once, whatever the client repeats or sends again. The list is the truth: a
message that the client edited or dropped is edited or gone in the context too, in a fork.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any, cast

from msgspec.structs import replace

from nexus.assembly.formats.roles import ROLES
from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.context import AssembledContext, Mirrored, StoredEvent
from nexus.engine.mirror.find_place import LEAST_OVERLAP, Finder, Place
from nexus.engine.mirror.keys import DEFAULT_SCOPE, KeyChain, ListScope, MessageKeys
from nexus.engine.mirror.lists import ListCache, ReadList, messages_of_items, named_positions, text_positions
from nexus.engine.mirror.moved import MovedLists
from nexus.engine.mirror.unchanged import ListForm
from nexus.errors import BadEvent, BadReference, BadSetting, HeadMoved, IdempotencyConflict, LedgerBusy
from nexus.ledger.history_operations import Ledger
from nexus.ledger.overlay import PathOverlay
from nexus.ledger.replay import cut_undo_after
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.providers.server_edits import has_compaction, is_paused
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Entry, MessageRef, NewEntry, StoredMessage
from nexus.types.message import Message, is_program_output

_NEWEST_ENTRIES = 64
"""Entries at a thread's end among which its newest call is looked for."""

_SIDE_CHARS = 64
"""Characters of a system prompt that tell one program's requests from another's."""

ATTEMPTS = 20
"""Attempts to store a reply while other calls change the same session."""


@dataclass(frozen=True, slots=True)
class ClientList:
    """A client's list as it was read."""

    scope: ListScope
    system: str
    """Text of the system messages that the list begins with; they are not among the messages."""
    messages: list[Message]
    keys: list[MessageKeys]
    chain: KeyChain
    history_length: int
    """Number of messages before the event."""
    form: ListForm
    """How the list was read."""
    system_parts: tuple[tuple[int, int], ...] = ()
    """Beginning and end of each text of its system messages in `system`."""
    system_names: tuple[tuple[int, int, str], ...] = ()
    """Beginning, end and name of each of its system messages in `system`, if one has a name."""
    items: tuple[int, ...] = ()
    """Index of the list's first item of each message."""
    pins: tuple[int, ...] = ()
    """Indexes of the messages that no cut omits."""
    restored_count: int = 0
    """Number of the session's messages before a window."""

    def names_behind(self, length: int) -> tuple[tuple[int, int, str], ...]:
        """Return the positions of the list's system messages behind a system prompt of this length and a blank line."""
        shifted = tuple((length + start, length + end, name) for start, end, name in self.system_names)
        if length and shifted:
            return ((0, max(length - len("\n\n"), 0), ""), *shifted)
        return shifted

    def parts_behind(self, length: int) -> tuple[tuple[int, int], ...]:
        """Return the positions of the list's system texts behind a system prompt of this length and a blank line."""
        shifted = tuple((length + start, length + end) for start, end in self.system_parts)
        if length:
            return ((0, max(length - len("\n\n"), 0)), *shifted)
        return shifted


@dataclass(frozen=True, slots=True)
class PlacedList:
    """A client's list and its place in the ledger."""

    client: ClientList
    messages: list[Message]
    """Its messages. Those that are not stored have the ids of stored calls."""
    place: Place
    session: str
    """Label of the session that the call is recorded in."""
    staged: tuple[NewEntry, ...]
    """Entries that the ledger lacks: the rest of the history, and of the event."""
    event_at: int
    """Seq of the event's first entry."""
    at_ms: int
    """Time of the staged entries whose messages have none."""
    answered_in: str = ""
    """Label of the session that has the whole list with an answer; empty if none has."""

    @property
    def event_seqs(self) -> tuple[int, ...]:
        """Seqs of the event's entries, checkpoints between them included."""
        return tuple(range(self.event_at, self.place.base + len(self.staged) + 1))

    @property
    def event(self) -> StoredEvent:
        """The event, as the ledger will have it."""
        history_length = self.client.history_length
        starts = any(_starts_turn(self.messages, index) for index in range(history_length, len(self.messages)))
        return StoredEvent(tuple(self.messages[history_length:]), self.event_seqs, starts)

    def public(self, reserve: int) -> Mirrored:
        """Return the place as contexts have it."""
        stored = self.place.stored_count
        missing = len(self.messages) - stored
        action = self.place.action
        session = self.session
        if self.answered_in:
            action = "repeat"
            session = self.answered_in
        return Mirrored(action, session, stored, missing, self.client.restored_count, reserve, self)


class CallerLists:
    """The lists of one engine's callers."""

    def __init__(self, ledger: Ledger, counter: TokenCounter) -> None:
        self._ledger = ledger
        self._counter = counter
        self._lists = ListCache()
        self._finder = Finder(ledger.store)
        self._moved = MovedLists(ledger.store)

    def place(
        self,
        items: Any,
        scope: ListScope,
        is_window: bool | None,
        provider: ReceivedFormat | None,
        model: str,
        now_ms: int,
        default: ReceivedFormat = "openai",
        pins: Sequence[int] = (),
    ) -> PlacedList:
        """Read a list and find its place. Raises BadEvent, BadSetting.

        Messages without a time get `now_ms` already here, because some formats show it.
        """
        for what, value in (
            ("scope", scope.name),
            ("principal", scope.principal),
            ("conversation", scope.conversation),
        ):
            if not isinstance(value, str):
                raise BadSetting(f"{what} is {type(value).__name__}, not text (pass its name)")
        if is_window not in (None, True, False):
            raise BadSetting(f"window is {type(is_window).__name__}, not a bool (pass True if messages may be missing)")
        if is_window is None:
            is_window = scope.name not in ("", DEFAULT_SCOPE) and not scope.conversation
        if not (scope.name):
            scope = replace(scope, name=DEFAULT_SCOPE)
        read = self._lists.read(items, scope, provider, model, default)
        system = "\n\n".join(text for text in read.system if text)
        history_length = _history_length(read.messages)
        parts = text_positions(read.system_texts)
        client = ClientList(scope, system, read.messages, read.keys, read.chain, history_length, read.form, parts)
        names = named_positions(read.system, read.names)
        client = dataclasses.replace(
            client, items=tuple(read.firsts), pins=self._pinned(read, pins), system_names=names
        )
        with self._ledger.store.snapshot():
            place = self._finder.find(scope.root, client.keys)
            if is_window and place.stored_count < client.history_length:
                client, place = self._as_window(client, place)
            if place.action != "append" and place.stored_count < client.history_length:
                place = self._moved.place(scope, client.messages, place)
            if place.action != "append" and place.stored_count < client.history_length:
                place = self._moved.place_behind_first(scope, client.messages, client.keys, place)
            return self._placed(client, place, now_ms)

    def _pinned(self, read: ReadList, pins: Sequence[int]) -> tuple[int, ...]:
        """Return the indexes of the messages of pinned items, and of the provider's newest compaction."""
        newest = next((i for i in range(len(read.messages) - 1, -1, -1) if has_compaction(read.messages[i])), None)
        pinned = messages_of_items(read.firsts, pins)
        if newest is None or newest in pinned:
            return pinned
        return tuple(sorted((*pinned, newest)))

    def side_scope(self, placed: PlacedList, ctx: AssembledContext) -> ListScope | None:
        """Return the scope of a side request; None if the request belongs to the conversation.

        The list of a side request begins like the conversation's, but model, system prompt and tools all differ. For
        example, Gemini CLI first asks a router which model should answer; the answer is not part of the conversation.
        """
        place = placed.place
        manifest = ctx.provenance.manifest
        thread = place.thread
        if place.leaves is not None and not place.stored_count:
            thread = place.leaves[0]
        if not thread or placed.client.scope.side:
            return None
        head = self._ledger.store.thread(thread).head_seq
        rows = self._ledger.store.assemblies(thread, max(head - _NEWEST_ENTRIES, 0))
        if not rows:
            return None
        before = rows[-1].manifest
        caller = {"model": manifest.model, "system": manifest.system, "tools": manifest.tools}
        if any(before.get(name) == value for name, value in caller.items()):
            return None
        return replace(placed.client.scope, side=f"{ctx.model}\n{ctx.system_prompt[:_SIDE_CHARS]}")

    def _as_window(self, client: ClientList, place: Place) -> tuple[ClientList, Place]:
        """Return a list with the missing earlier messages in front, and its place; unchanged if they are uncertain."""
        root = client.scope.root
        history = client.keys[: client.history_length]
        is_identified = any(keys.identity for keys in history[: place.stored_count])
        if is_identified:
            before = None
        else:
            before = self._finder.chain_before(root, client.messages, history)
        if before is None or not before.count:
            return client, place
        chain = before.copy()
        keys = [chain.keys(message) for message in client.messages]
        new_place = self._finder.find(root, keys)
        if min(new_place.stored_count, client.history_length) < LEAST_OVERLAP:
            return client, place
        return dataclasses.replace(client, keys=keys, chain=chain, restored_count=before.count), new_place

    def overlay(self, placed: PlacedList) -> LedgerStore:
        """Return the ledger as if it had the list's history, for assembly."""
        place = placed.place
        store = self._ledger.store
        before = placed.staged[: max(placed.event_at - place.base - 1, 0)]
        if not before:
            path = PathOverlay(store, place.thread or None, placed.event_at - 1, pins=self.pins(placed))
        else:
            key = placed.client.keys[placed.client.history_length - 1].chain
            digest = bytes.fromhex(key.rpartition(":")[2])
            staged = _entries(before, place.base, self._turn_at(place), digest)
            path = PathOverlay(store, place.thread or None, place.base, staged=staged, pins=self.pins(placed))
        return cast("LedgerStore", path)  # what it does not define is the store's own

    def pins(self, placed: PlacedList) -> tuple[MessageRef, ...]:
        """Return the positions of the list's pinned messages before the event; the event is never cut."""
        place = placed.place
        client = placed.client
        wanted = [index for index in client.pins if index < client.history_length]
        if not wanted:
            return ()
        path = self._ledger.store.entries(place.thread, 0, place.last) if place.stored_count else ()
        stored = [entry.seq for entry in path if entry.rows][-place.stored_count :] if place.stored_count else []
        staged = [seq for seq, entry in enumerate(placed.staged, place.base + 1) if entry.messages]
        seqs = [*stored, *staged]
        return tuple(MessageRef(seqs[index], 0) for index in wanted)

    def record(self, placed: PlacedList, commit: Commit) -> Committed:
        """Store a call: the messages that the ledger lacks, then the entries of its reply. The same again adds nothing."""
        chain = placed.client.chain.copy()
        reply = commit.entries[0]
        root = placed.client.scope.root
        keys = [chain.keys(sized.message) for sized in reply.messages]
        # The keys of the messages take the place of the context's, which two tries of the same list share.
        ends = tuple(replace(entry, keys=()) for entry in commit.entries[1:])
        for _ in range(ATTEMPTS):
            if keys and (holders := self._finder.holders(root, keys[-1].chain)):
                thread, seq = holders[0]
                row = self._ledger.store.thread(thread)
                return Committed(row.id, row.head_seq, 0, row.turn, known_at=seq)
            place = placed.place
            self._check_not_erased(placed)
            assembly = commit.assembly
            if assembly is not None:
                assembly = replace(assembly, manifest={**assembly.manifest, **self._positions(placed, assembly)})
            is_append = place.action == "append" and place.leaves is None
            full_commit = replace(
                commit,
                entries=(*placed.staged, *self._reply_entries(placed, reply, keys), *ends),
                assembly=assembly,
                assembly_at=len(placed.staged),
                follows=None,
                expected_head=place.base if is_append else None,
                base=None if is_append else (place.thread, place.base),
                leaves=place.leaves,
            )
            if is_append or place.leaves:
                metadata = None
            else:
                metadata = SessionMetadata(owner_session=self._finder.label_of(place.thread))
            try:
                committed = self._ledger.commit(placed.session, full_commit, metadata)
            except (HeadMoved, IdempotencyConflict):
                shows_times = assembly is not None and assembly.manifest["form"] != ROLES.name
                placed = self._placed_again(placed, shows_times=shows_times)
            else:
                self._finder.remember(committed.thread, placed.session)
                self._moved.remember(placed.client.scope, placed.session)
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

    def _check_not_erased(self, placed: PlacedList) -> None:
        thread = placed.place.thread
        if thread and self._ledger.store.thread(thread).erased:
            raise BadReference(
                f"the history of session {placed.session!r} was erased meanwhile (assemble again; nothing was stored)",
                code="history_erased",
            )

    def _placed_again(self, placed: PlacedList, *, shows_times: bool) -> PlacedList:
        """Return the list's place after other calls changed its session."""
        self._check_not_erased(placed)
        client = placed.client
        new = self._placed(client, self._finder.find(client.scope.root, client.keys), placed.at_ms)
        if self._has_same_history(placed, new, shows_times=shows_times):
            return new
        # The manifest has the positions of its time, and these stay those of a fork.
        return self._placed(client, replace(placed.place, session="", leaves=None), placed.at_ms)

    def _has_same_history(self, placed: PlacedList, new: PlacedList, *, shows_times: bool) -> bool:
        """Return True if a new place has the history and event that the call showed, at the same positions."""
        if new.event.messages != placed.event.messages:
            return False
        head = placed.event_at - 1
        base = min(placed.place.base, head)  # entries after it were to be stored, and have no hash of their own
        after = max(base - 1, 0)
        pairs = zip_longest(*(self.overlay(each).entries(0, after, head) for each in (placed, new)))
        return all(
            before is not None
            and now is not None
            and (
                before.hash == now.hash
                if before.seq <= base
                else (before.kind, before.turn, before.rows) == (now.kind, now.turn, now.rows)
                and (before.at_ms == now.at_ms or not shows_times)
            )
            for before, now in pairs
        )

    def _placed(self, client: ClientList, place: Place, at_ms: int) -> PlacedList:
        history_length = client.history_length
        messages = self._finder.with_stored_ids(client.messages, place, history_length)
        whole_place = place
        undo = self._later_undo(place) if history_length else None
        if undo is not None and place.stored_count > history_length:
            place = self._finder.place_before(place, place.stored_count - history_length)
        staged, event_index = self._stage(messages, client.keys, history_length, place, at_ms)
        if undo is not None:
            staged = (undo, *staged)
            event_index += 1
        event_at = place.base + 1 + event_index
        if (stored_count := place.stored_count - history_length) > 0:
            event_at = self._finder.seq_of(place.thread, place.last, stored_count)
            # Another client may have sent the same texts in another form; replay has the stored one.
            stored_event = self._finder.messages_before(place.thread, place.last, stored_count)
            messages = [*messages[:history_length], *stored_event, *messages[place.stored_count :]]
        key = client.keys[min(place.stored_count, len(client.keys) - 1)].chain
        session = place.session or self._new_label(client.scope.label, key)
        is_known = whole_place.action == "fork" and whole_place.stored_count == len(messages)
        answered_in = ""
        if is_known and self._finder.is_answered(whole_place):
            answered_in = self._finder.label_of(whole_place.thread)
        return PlacedList(client, messages, place, session, staged, event_at, at_ms, answered_in)

    def _later_undo(self, place: Place) -> NewEntry | None:
        """Return the undo of a cut that came behind the place of a fork, which begins with it; None without one.

        A cut stays undone when the client answers an earlier message anew.
        """
        if not place.thread or place.base == self._ledger.store.thread(place.thread).head_seq:
            return None
        marks = self._ledger.store.checkpoints(place.thread, replaced=False)
        undo = cut_undo_after(marks, place.base)
        return NewEntry("undone", body=undo.body) if undo is not None else None

    def _stage(
        self, messages: Sequence[Message], keys: Sequence[MessageKeys], history_length: int, place: Place, now_ms: int
    ) -> tuple[tuple[NewEntry, ...], int]:
        """Return an entry for each message that is not stored, and the index of the event's first one.

        Their positions depend on nothing else, so that two calls that store the same messages give them the same ones.
        """
        entries: list[NewEntry] = []
        event_index = 0
        identities = set[str]()
        for index in range(place.stored_count, len(messages)):
            message = messages[index]
            at_ms = message.at_ms or now_ms
            if index == history_length:
                event_index = len(entries)
            entries.append(
                NewEntry(
                    messages=with_sizes((message,), self._counter),
                    starts_turn=_starts_turn(messages, index),
                    at_ms=at_ms,
                    keys=self._stored_keys(keys[index], place, identities),
                )
            )
            if message.role == "assistant" and not unanswered_calls((message,)):
                entries.append(NewEntry("completed", at_ms=at_ms))
        return tuple(entries), event_index

    def _reply_entries(self, placed: PlacedList, reply: NewEntry, keys: Sequence[MessageKeys]) -> tuple[NewEntry, ...]:
        """Return a reply's entry as one for each of its messages."""
        identities = {key.identity for key in placed.client.keys[placed.place.stored_count :]}
        stored = [self._stored_keys(key, placed.place, identities) for key in keys]
        first = replace(reply, messages=reply.messages[:1], keys=stored[0] if stored else ())
        others = zip(reply.messages[1:], stored[1:], strict=True)
        return (first, *(NewEntry(messages=(sized,), at_ms=reply.at_ms, keys=more) for sized, more in others))

    def _stored_keys(self, keys: MessageKeys, place: Place, identities: set[str]) -> tuple[str, ...]:
        """Return the keys that a message is stored with; `seen` has the identities that are stored before it."""
        identity = keys.identity
        if not identity or identity in identities or self._finder.has_identity(place, identity):
            return (keys.chain,)
        identities.add(identity)
        return (keys.chain, identity)

    def _new_label(self, stem: str, key: str) -> str:
        """Return a label that no session ever had, named by the first message that only this session has."""
        label = f"{stem}~{key.rpartition(':')[2][:8]}"
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


_EVENT_ROLES = ("user", "tool", "system")


def _history_length(messages: Sequence[Message]) -> int:
    """Return how many messages come before the event: what users, tools and the system say after the last reply.

    A paused reply at the end, which the provider goes on with, is part of the event.
    """
    end = len(messages)
    if messages and is_paused(messages[-1]):
        end = next((index + 1 for index in range(end - 1, -1, -1) if messages[index].role in _EVENT_ROLES), 0)
    if not end or messages[end - 1].role not in _EVENT_ROLES:
        last = "has no messages to answer"
        if messages:
            last = f"ends with a message of role '{messages[-1].role}'"
        raise BadEvent(f"list {last} (end it with the user's message, or with results of tool calls)")
    return next((index + 1 for index in range(end - 1, -1, -1) if messages[index].role not in _EVENT_ROLES), 0)


def _starts_turn(messages: Sequence[Message], index: int) -> bool:
    """Return True if a message starts a turn: the first one of a user or the system after a reply."""
    if not index:
        return messages[0].role != "system"
    message = messages[index]
    follows_reply = message.role in ("user", "system") and messages[index - 1].role == "assistant"
    return follows_reply and not is_program_output(message)


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
