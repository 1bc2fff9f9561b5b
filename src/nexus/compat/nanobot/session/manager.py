"""Document 003's SessionManager: the sessions of a workspace, and their history as chat messages for a builder.

The sessions are those of the workspace's ledger, as `nexus.open(workspace)` and the command line use it. The ledger
keeps everything; a history shows the newest messages with truncated tool results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from nexus.assembly.fit.repair import repaired
from nexus.assembly.fit.truncate_results import truncate_chars
from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.broker import build_history_messages
from nexus.compat.nanobot.providers.base import thinking_fields
from nexus.engine import Engine, EngineOptions, open_engine
from nexus.errors import BadReference, BadSetting
from nexus.providers.openai import fragment
from nexus.providers.openai import messages as read_messages
from nexus.turnlog.times import format_time
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import Commit, Committed, NewEntry
from nexus.types.message import Message
from nexus.types.session_key import parse
from nexus.workspace.sources.event_blocks import with_runtime_note

__all__ = ["MAX_MESSAGES", "Session", "SessionManager"]

BLOCKS = "thinking_blocks"
MAX_MESSAGES = 500
RESULT_CHARS = 500
"""Limit of a tool's result in a history, in characters (document 003, "Architecture Notes")."""


class Session:
    """One session, by its label. What `add_message` and `clear` do is stored by `SessionManager.save`.

    Attributes:
        key: Label of the session.
        result_chars: Limit of a tool's result in the history, in characters; 0 is no limit.
        messages: The added messages that are not saved yet.
    """

    def __init__(self, key: str, engine: Engine, result_chars: int = RESULT_CHARS) -> None:
        self.key = key
        self.result_chars = result_chars
        self.messages: list[dict[str, Any]] = []
        self._engine = engine
        self._is_cleared = False

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Add a chat message, with fields such as `tool_calls`, `tool_call_id`, `name` and `reasoning_content`.

        Raises BadReply for an invalid message.
        """
        item = {"role": role, "content": content, **fields}
        read_messages([item])
        self.messages.append(item)

    def clear(self) -> None:
        """Hide all earlier messages from later calls. The ledger keeps those that it has."""
        self.messages.clear()
        self._is_cleared = True

    def save(self) -> Committed | None:
        """Store the added messages and a clear, in one transaction; see `SessionManager.save`."""
        entries = [NewEntry("clear", at_ms=self._engine.clock_ms())] if self._is_cleared else []
        committed = self._commit([*entries, *self._entries(self.messages)])
        self.messages = []
        self._is_cleared = False
        return committed

    def get_history(self, max_messages: int = MAX_MESSAGES) -> list[dict[str, Any]]:
        """Return the newest messages as OpenAI's chat messages, oldest first, in a form that every provider accepts.

        They begin with a user message, so that results never come without their calls; after a compaction the summary
        precedes them. Of a longer tool loop, the user's request and the newest steps are returned. System prompts are
        omitted, as each call makes its own. Replies have `reasoning_content` and `thinking_blocks`, results their tool's
        `name`. Messages that are not saved yet are included. Raises BadSetting, LedgerError.
        """
        if max_messages < 0:
            raise BadSetting(f"max_messages invalid: {max_messages} (give 0 or more)")
        stored = [] if self._is_cleared else build_history_messages(self._engine, self.key)
        messages = [*stored, *_conversation(self.messages)]
        if self.result_chars:
            messages = [truncate_chars(message, self.result_chars) for message in messages]
        valid, _ = repaired(messages)
        return _newest([item for message in valid for item in _chat_items(message)], max_messages)

    def append(self, messages: Iterable[Message | Mapping[str, Any]]) -> Committed | None:
        """Store messages in one transaction; return None without messages.

        They are Nexus's or OpenAI's chat messages. A user message starts a turn, a reply without calls ends it. System
        prompts are not stored, as each call makes its own. Runtime metadata before a user's text is stored separately and
        sent again unchanged. Raises BadReply for an invalid message, BadReference, LedgerError.
        """
        return self._commit(self._entries(messages))

    def _entries(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[NewEntry]:
        conversation = _conversation(messages)
        at_ms = self._engine.clock_ms()
        entries: list[NewEntry] = []
        # Pieces begin with a user message; the first one may continue an open turn.
        starts = [at for at, message in enumerate(conversation) if message.role == "user" or not at]
        for first, end in pairwise([*starts, len(conversation)] if conversation else ()):
            step = conversation[first:end]
            opens = step[0].role == "user"
            entries.append(NewEntry(messages=with_sizes(step, self._engine.counter), at_ms=at_ms, starts_turn=opens))
            if step[-1].role == "assistant" and not unanswered_calls(step):
                entries.append(NewEntry("completed", at_ms=at_ms))
        return entries

    def _commit(self, entries: Iterable[NewEntry]) -> Committed | None:
        added = tuple(entries)
        if added:
            return self._engine.ledger.commit(self.key, Commit(added))
        return None


class SessionManager:
    """The sessions of a workspace. Close it, or use it in `with`. `engine` is the workspace's engine.

    `result_chars` limits tool results in histories; `options` are those of `nexus.open`. Raises NotFound,
    BadConfig, LedgerError.
    """

    def __init__(
        self, workspace: str | Path, *, result_chars: int = RESULT_CHARS, **options: Unpack[EngineOptions]
    ) -> None:
        self.engine = open_engine(workspace, **options)
        self.result_chars = result_chars
        self._sessions: dict[str, Session] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger."""
        self.engine.close()

    def get_or_create(self, key: str) -> Session:
        """Return the session of that label, or the session that an alias refers to; create it if it does not exist.

        The same session is returned again, with the messages that are not saved, until `invalidate`. Raises BadSetting for an invalid label, LedgerError.
        """
        if not key.strip():
            raise BadSetting("session name missing (give one, for example 'cli:user123')", code="bad_session_key")
        parse(key)
        ledger = self.engine.ledger
        label = ledger.resolve(key)
        if label is None:
            try:
                ledger.sessions.create(key)
            except BadReference:
                # Another program may have created it in between.
                if ledger.resolve(key) is None:
                    raise
        label = label or key
        session = self._sessions.setdefault(label, Session(label, self.engine))
        session.result_chars = self.result_chars
        return session

    def save(self, session: Session) -> None:
        """Store a session's added messages and its clear, in one transaction. Raises BadReference, LedgerError."""
        session.save()

    def invalidate(self, key: str) -> None:
        """Forget the messages of a session that are not saved."""
        self._sessions.pop(self.engine.ledger.resolve(key) or key, None)

    def list_sessions(self) -> list[dict[str, Any]]:
        """Return `key`, `created_at`, `updated_at` (ISO 8601) and `path` (the ledger's file) of each session, newest first."""
        path = self.engine.ledger.location
        return [
            {
                "key": info.label,
                "created_at": format_time(info.first_ms * 1_000),
                "updated_at": format_time(info.last_ms * 1_000),
                "path": path,
            }
            for info in self.engine.sessions()
        ]


def _conversation(messages: Iterable[Message | Mapping[str, Any]]) -> list[Message]:
    """Return messages as they are stored: without system prompts, with a builder's runtime metadata as notes."""
    values = list(messages)
    items = [dict(value) for value in values if not isinstance(value, Message)]
    # Chat messages are read together, since results belong to calls.
    chat = iter(read_messages(items)) if items else iter(())
    all_messages = [value if isinstance(value, Message) else next(chat) for value in values]
    return [with_runtime_note(message) for message in all_messages if message.role != "system"]


def _chat_items(message: Message) -> list[dict[str, Any]]:
    """Return a message as chat messages, with the names of tools and the thinking."""
    items = fragment(message)
    if message.role == "tool":
        names = {result.call_id: result.name for result in message.results() if result.name}
        return [
            {**item, **({"name": names[item["tool_call_id"]]} if item["tool_call_id"] in names else {})}
            for item in items
        ]
    if message.role != "assistant":
        return items
    text, signed = thinking_fields([message])
    blocks = signed or (json.loads(message.meta).get(BLOCKS) if f'"{BLOCKS}"' in message.meta else None)
    thinking = {"reasoning_content": text, BLOCKS: blocks}
    return [{**items[0], **{name: value for name, value in thinking.items() if value}}, *items[1:]]


def _newest(items: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return at most so many valid items: a summary, if any, then messages from a user message on."""
    if len(items) <= limit:
        return items
    first = items[:1] if str(items[0]["content"]).startswith(SUMMARY_MARKER) else []

    def start_of(role: str) -> int | None:
        newest = range(len(items) - limit + len(first), len(items))
        return next((at for at in newest if items[at]["role"] == role), None)

    start = start_of("user")
    if start is None:
        # A tool loop longer than the limit: its request, then its newest steps from a reply on.
        request = max(at for at, item in enumerate(items) if item["role"] == "user")
        if not (first and not request):
            first = [*first, items[request]]
        start = start_of("assistant")
    if start is not None:
        return [*first, *items[start:]][:limit]
    return first[:limit]
