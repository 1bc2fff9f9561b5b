"""Storage of a conversation: the logger protocol, and the logger that writes into a ledger of Nexus.

Messages become entries, a compaction a compaction entry, clearing a `clear` checkpoint; nothing is deleted. An existing
session continues where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from nexus.assembly.record import with_sizes
from nexus.compat.nexus3.context.compaction import SUMMARY_SOURCE, create_summary_message, summary_text
from nexus.compat.nexus3.context.truncation import MOMENT_SOURCE
from nexus.compat.nexus3.context.view import calls_of, result_message, text_with_notes
from nexus.ledger.operations import Ledger
from nexus.ledger.store import LedgerStore
from nexus.tokens.counter import get_counter
from nexus.types.history import SESSION_SOURCE
from nexus.types.ledger_entries import Commit, Compaction, NewEntry, SizedMessage, StoredMessage
from nexus.types.message import Message, Text, ToolCall, ToolResult, assistant, user

PROMPT_SOURCE = "nexus:system-prompt"


class SessionLogger(Protocol):
    """Receives each step of a `ContextManager`. The method names are those of NEXUS3's logger."""

    def log_system(self, content: str) -> object:
        """Log a system prompt."""
        ...

    def log_user(self, content: str) -> object:
        """Log a user message, or another one in the user's role, as it is sent."""
        ...

    def log_assistant(self, content: str, tool_calls: Sequence[ToolCall] = ()) -> object:
        """Log a model's message."""
        ...

    def log_tool_result(self, tool_call_id: str, name: str, result: ToolResult) -> object:
        """Log a tool's result."""
        ...


class RestoredSession(Struct, frozen=True):
    """The state of a session: its system prompt, its first line if it has one, and the messages in view."""

    is_begun: bool = False
    """Whether it contains messages."""
    system_prompt: str = ""
    start: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()


def system_prompt(text: str, at_ms: int = 0) -> Message:
    """Return a system prompt as a message to store."""
    return Message("system", (Text(text),), at_ms=at_ms, source=PROMPT_SOURCE)


def tell(logger: SessionLogger, message: Message) -> None:
    """Pass a message to the method of a logger for its role."""
    if message.role == "system":
        logger.log_system(message.text())
    elif message.role == "assistant":
        logger.log_assistant(message.text(), tuple(message.calls()))
    elif message.role == "tool":
        for result in message.results():
            logger.log_tool_result(result.call_id, result.name, result)
    else:
        logger.log_user(text_with_notes(message))


class LedgerLogger:
    """Stores one session in a ledger. Read it with `ledger`, or with `nexus history`."""

    def __init__(self, store: LedgerStore, session: str = "main") -> None:
        self.ledger, self.session = Ledger(store), session
        self._store = store
        self._visible: list[tuple[int, Message]] = []

    def log_system(self, content: str) -> None:
        """Store a system prompt."""
        self.append(system_prompt(content))

    def log_user(self, content: str) -> None:
        """Store a user message."""
        self.append(user(content))

    def log_assistant(self, content: str, tool_calls: Sequence[ToolCall] = ()) -> None:
        """Store a model's message."""
        self.append(assistant(content, *calls_of(tool_calls)))

    def log_tool_result(self, tool_call_id: str, name: str, result: ToolResult) -> None:
        """Store a tool's result."""
        self.append(result_message(tool_call_id, name, result, 0))

    def append(self, message: Message) -> None:
        """Store a message: a user message starts a turn, a model's message without tool calls ends it."""
        opens = message.role == "user" and message.source not in (SESSION_SOURCE, MOMENT_SOURCE, SUMMARY_SOURCE)
        entries = [NewEntry(messages=self._sized([message]), at_ms=message.at_ms, starts_turn=opens)]
        is_answer = message.role == "assistant" and not any(message.calls())
        thread = self._store.thread_of(self.session) if is_answer else None
        if thread is not None and self._store.thread(thread).turn > 0:
            entries.append(NewEntry("completed", at_ms=message.at_ms))
        committed = self.ledger.commit(self.session, Commit(tuple(entries)))
        if message.source not in (PROMPT_SOURCE, SESSION_SOURCE):
            self._visible.append((committed.head - len(entries) + 1, message))

    def clear(self, at_ms: int = 0) -> None:
        """Append a checkpoint that hides all earlier messages."""
        self.ledger.commit(self.session, Commit((NewEntry("clear", at_ms=at_ms),)))
        self._visible.clear()

    def compact(self, summary: Message, preserved: Sequence[Message], tokens_before: int, tokens_after: int) -> None:
        """Append a compaction: the summary replaces all messages in view except the preserved ones.

        If the preserved messages are not the newest stored ones, they are stored again after it.
        """
        stored = self._visible[len(self._visible) - len(preserved) :] if preserved else []
        before = self._visible[: len(self._visible) - len(stored)]
        same_entry = bool(stored and before) and before[-1][0] == stored[0][0]
        in_place = [message for _, message in stored] == list(preserved) and not same_entry
        head = self._store.head(self.ledger.thread(self.session))[0]
        first_kept = stored[0][0] if in_place and stored else head + 1
        covered_from = min(self._visible[0][0] if self._visible else 1, first_kept)
        body = Compaction(
            covers_from=covered_from,
            covers_to=first_kept - 1,
            first_kept=first_kept,
            summary=summary_text(summary),
            tokens_before=tokens_before,
            tokens_after=tokens_after,
            summary_tokens=get_counter().count(summary_text(summary)),
        )
        entries = [NewEntry("compaction", body=msgspec.to_builtins(body), at_ms=summary.at_ms)]
        if not in_place:
            entries += [NewEntry(messages=self._sized([message]), at_ms=message.at_ms) for message in preserved]
        head = self.ledger.commit(self.session, Commit(tuple(entries))).head
        self._visible = stored
        if not in_place:
            self._visible = list(enumerate(preserved, head - len(preserved) + 1))

    def restore(self, timezone: str = "") -> RestoredSession:
        """Return the session's current state; empty if the session does not exist."""
        if self._store.thread_of(self.session) is None:
            return RestoredSession()
        rows, visible = self._rows(), self.ledger.visible(self.session)
        mark = self.ledger.live(self.session).checkpoint
        # System prompts and the session's first line are not in view; an imported session may begin with a prompt.
        self._visible = [
            (row.ref.seq, row.message)
            for row in visible.rows
            if row.message.source not in (PROMPT_SOURCE, SESSION_SOURCE)
            and not (row.message.role == "system" and row.ref.seq == 1)
        ]
        summary = (
            [create_summary_message(visible.summary, at_ms=mark.at_ms, timezone=timezone)]
            if mark is not None and mark.kind == "compaction"
            else []
        )
        prompts = [row.message.text() for row in rows if row.message.source == PROMPT_SOURCE]
        first = [row.message.text() for row in self._store.instructions(self.ledger.thread(self.session))]
        return RestoredSession(
            any(row.message.role != "system" for row in rows),
            prompts[-1] if prompts else "\n\n".join(first),
            tuple(row.message for row in rows if row.message.source == SESSION_SOURCE)[:1],
            (*summary, *(message for _, message in self._visible)),
        )

    def history(self) -> list[Message]:
        """Return every stored message, oldest first, system prompts included."""
        return [row.message for row in self._rows()] if self._store.thread_of(self.session) is not None else []

    def _rows(self) -> list[StoredMessage]:
        return [row for entry in self.ledger.entries(self.session) for row in entry.rows]

    def _sized(self, messages: Sequence[Message]) -> tuple[SizedMessage, ...]:
        return with_sizes(messages, get_counter())
