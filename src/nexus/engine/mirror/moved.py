"""Lists of clients that move messages, or begin with another message each time. They continue their session.

aider repeats its files and rules near the end of the conversation: after the beginning that such a list shares with the
session, it omits some messages, has the session's newest reply, and repeats the omitted messages further on.

The first message of Gemini CLI has the date and a listing of the folder, which are others when a session is resumed. All
that follows is the same.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nexus.engine.mirror.find_place import LEAST_OVERLAP, Place
from nexus.engine.mirror.keys import LONG_CHARS, KeyChain, ListScope, MessageKeys, content_hash
from nexus.ledger.store import LedgerStore
from nexus.types.message import Message

CANDIDATES = 8
"""Sessions of a scope that are compared with a list, the newest first."""

FIRST_TRIES = 8
"""Newest long messages of a list that are looked up: sessions that have them are compared with it too."""

MAX_SCOPES = 10_000
"""Scopes whose sessions are remembered; the least recently used goes first."""

_LINE_CHARS = 60
_NUMBER = re.compile(r"\d+")
_NEWEST = 4
"""Entries at a session's end that have its newest reply."""


class MovedLists:
    """Finds the sessions of lists with moved messages. Calls from several threads are safe."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._sessions: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def remember(self, scope: ListScope, session: str) -> None:
        """Remember a scope's newest session."""
        others = self._candidates(scope)
        self._sessions.pop(scope.root, None)
        self._sessions[scope.root] = (session, *(other for other in others if other != session))[:CANDIDATES]
        while len(self._sessions) > MAX_SCOPES:
            self._sessions.popitem(last=False)

    def place(self, scope: ListScope, messages: Sequence[Message], place: Place) -> Place:
        """Return the place with the session that the list continues, if it is certain; else the place unchanged."""
        new = messages[place.stored_count :]
        if not any(message.role == "assistant" for message in new):
            return place
        hashes = [content_hash(message, {}) for message in new]
        for session in self._candidates(scope):
            thread = self._store.thread_of(session)
            if thread is None or not self._shares(thread, place):
                continue
            head = self._store.thread(thread).head_seq
            newest = self._messages(thread, max(head - _NEWEST, place.last), head)
            if not newest or newest[-1].role != "assistant" or content_hash(newest[-1], {}) not in hashes:
                continue
            stored = self._messages(thread, place.last, head)
            if self._is_own(scope, thread, place, stored) and _is_moved(stored, new, hashes):
                return replace(place, session=session, leaves=(thread, head))
        return place

    def place_behind_first(
        self, scope: ListScope, messages: Sequence[Message], keys: Sequence[MessageKeys], place: Place
    ) -> Place:
        """Return the place with the session whose first message alone is another one, if it is certain; else `place`.

        The list has all other messages of that session, and no other session has the newest long message of these, or the
        newest one with ids of tool calls. Both first messages are long and have the same first line.
        """
        is_known = place.thread and any(self._store.labels_of(place.thread))
        if is_known or not _is_long(messages[0]) or not any(message.role == "assistant" for message in messages):
            return place
        identities = [key.identity for key in keys[1:] if key.identity]
        newest = identities[-FIRST_TRIES:]
        holders = {thread for identity in newest for thread, _ in self._store.holders(identity)}
        hashes = {content_hash(message, {}) for message in messages}
        certain: list[tuple[str, int]] = []
        sessions = (*self._candidates(scope), *(label for thread in holders for label in self._store.labels_of(thread)))
        for session in dict.fromkeys(sessions):
            thread = self._store.thread_of(session)
            if thread is not None and self._differs_in_first(scope, thread, messages, keys, hashes):
                certain.append((session, thread))
        if len(certain) != 1:
            return place
        ((session, thread),) = certain
        return replace(place, session=session, leaves=(thread, self._store.thread(thread).head_seq))

    def _differs_in_first(
        self,
        scope: ListScope,
        thread: int,
        messages: Sequence[Message],
        keys: Sequence[MessageKeys],
        hashes: set[bytes],
    ) -> bool:
        """Return True if a list certainly has the messages of a thread, the first one excepted."""
        head = self._store.thread(thread).head_seq
        newest = self._messages(thread, max(head - _NEWEST, 0), head)
        if not newest or content_hash(newest[-1], {}) not in hashes:
            return False
        stored = self._messages(thread, 0, head)
        ours = messages[: len(stored)]
        if len(ours) < len(stored) or len(stored) <= LEAST_OVERLAP or not _is_same_beginning(stored[0], ours[0]):
            return False
        if not any(message.role == "assistant" for message in ours[1:]):
            return False
        if _chain_key(stored[1:]) != _chain_key(ours[1:]):
            return False
        identities = [key.identity for key in keys[1 : len(stored)] if key.identity]
        if not identities or not self._has_root(scope, thread, stored[0]):
            return False
        others = {other for other, _ in self._store.holders(identities[-1]) if other != thread}
        return not any(any(self._store.labels_of(other)) for other in others)

    def _candidates(self, scope: ListScope) -> Sequence[str]:
        remembered = self._sessions.get(scope.root)
        if remembered is not None:
            return remembered
        newest_first = self._store.sessions(prefix=f"{scope.label}~", limit=CANDIDATES)
        return tuple(info.label for info in newest_first)

    def _shares(self, thread: int, place: Place) -> bool:
        """Return True if the path of a thread has the messages that the list shares with the ledger."""
        if not place.stored_count:
            return True
        return any(part.thread == place.thread and place.last <= part.high for part in self._store.path(thread))

    def _messages(self, thread: int, after: int, until: int) -> list[Message]:
        return [row.message for entry in self._store.entries(thread, after, until) for row in entry.rows]

    def _is_own(self, scope: ListScope, thread: int, place: Place, stored: Sequence[Message]) -> bool:
        """Return True if the session belongs to the list's scope, according to the key of its first message."""
        return place.stored_count > 0 or self._has_root(scope, thread, stored[0])

    def _has_root(self, scope: ListScope, thread: int, first: Message) -> bool:
        """Return True if a thread begins with this message in the list's scope."""
        key = KeyChain(scope.root).add(first)
        parts = {part.thread for part in self._store.path(thread)}
        return any(holder in parts for holder, _ in self._store.holders(key))


def _is_moved(stored: Sequence[Message], new: Sequence[Message], hashes: Sequence[bytes]) -> bool:
    """Return True if a list has the newest stored reply and repeats one of the messages that are missing before it."""
    stored_hashes = [content_hash(message, {}) for message in stored]
    same = set(stored_hashes)
    lines = set(map(_first_line, stored))
    others: list[Message] = []
    missing: list[int] = []
    index = 0
    is_last = False
    for number, digest in enumerate(stored_hashes):
        while index < len(new) and hashes[index] not in same and _first_line(new[index]) in lines:
            others.append(new[index])
            index += 1
        is_last = index < len(new) and digest == hashes[index]
        if is_last:
            index += 1
        else:
            missing.append(number)
    if not is_last:
        return False
    rest = [*others, *new[index:]]
    return any(_is_sent_again(stored, number, rest) for number in missing)


def _is_sent_again(stored: Sequence[Message], number: int, new: Sequence[Message]) -> bool:
    """Return True if new messages certainly repeat a stored one: a system message, or a long user message.

    If files in the message have changed, the new message begins with the same line and is followed by the same answer,
    which aider writes itself.
    """
    message = stored[number]
    if message.role == "system":
        return _first_line(message) in map(_first_line, new)
    if message.role != "user" or len(message.text()) <= LONG_CHARS:
        return False
    text = _answer_text(stored, number)
    for place, other in enumerate(new):
        if content_hash(other, {}) == content_hash(message, {}):
            return True
        if text and _first_line(other) == _first_line(message) and _answer_text(new, place) == text:
            return True
    return False


def _answer_text(messages: Sequence[Message], number: int) -> str:
    """Return the text of the answer that follows a message; empty if none does."""
    follows = None
    if number + 1 < len(messages):
        follows = messages[number + 1]
    if follows is not None and follows.role == "assistant":
        return follows.text().strip()
    return ""


def _is_long(message: Message) -> bool:
    return len(message.text()) > LONG_CHARS


def _is_same_beginning(stored: Message, new: Message) -> bool:
    """Return True if two first messages are long and begin with the same line."""
    if stored.role != new.role or not _is_long(stored) or not _is_long(new):
        return False
    ours, theirs = (message.text().strip().partition("\n")[0].strip() for message in (new, stored))
    return ours == theirs


def _chain_key(messages: Sequence[Message]) -> str:
    chain = KeyChain(b"")
    for message in messages:
        chain.add(message)
    return chain.key


def _first_line(message: Message) -> tuple[str, str]:
    """Return a message's role and normalized first line, which stays the same when files in the message change."""
    line: Iterator[str] = (line for line in message.text().splitlines() if line.strip())
    return message.role, _NUMBER.sub("#", next(line, "").casefold())[:_LINE_CHARS]
