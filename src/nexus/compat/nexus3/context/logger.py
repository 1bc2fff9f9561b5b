"""Storage of a conversation: the logger protocol, and the logger that writes into a ledger of Nexus.

Messages become entries, a compaction a compaction entry, clearing a `clear` checkpoint; nothing is deleted. An existing
session continues where it ended. In a session that an agent runs, the system prompt and the session's first line are
entries without messages, because the agent's contexts contain both already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from nexus.assembly.record import with_sizes
from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context.compaction import SUMMARY_SOURCE, stored_summary, summary_text
from nexus.compat.nexus3.context.messages import (
    calls_of,
    documented_calls,
    documented_result,
    result_message,
    text_with_notes,
)
from nexus.compat.nexus3.context.truncation import MOMENT_SOURCE
from nexus.ledger.history_operations import Ledger
from nexus.ledger.recorded_calls import last_call
from nexus.ledger.store import LedgerStore
from nexus.tokens.counter import get_counter
from nexus.types.decoding import decodable
from nexus.types.history import SESSION_SOURCE, SESSION_START
from nexus.types.ledger_entries import Commit, Compaction, Cut, Entry, MessageRef, NewEntry, SizedMessage
from nexus.types.message import Message, Text, ToolCall, ToolResult, assistant, user

__all__ = ["LedgerLogger", "MessageLogger", "RestoredSession"]

PROMPT_SOURCE = "nexus:system-prompt"

_FIELDS = {PROMPT_SOURCE: "system_prompt", SESSION_SOURCE: SESSION_START}
"""Fields of the entries that store these messages of an agent's session."""


class MessageLogger(Protocol):
    """Receives each step of a `ContextManager`. It has the methods of NEXUS3's logger."""

    def log_system(self, content: str) -> object:
        """Log a system prompt."""
        ...

    def log_user(self, content: str) -> object:
        """Log a user message, or another one in the user's role, as it is sent."""
        ...

    def log_assistant(self, content: str, tool_calls: Sequence[core.ToolCall] = ()) -> object:
        """Log a model's message."""
        ...

    def log_tool_result(self, tool_call_id: str, name: str, result: core.ToolResult) -> object:
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


def tell(logger: MessageLogger, message: Message) -> None:
    """Pass a message to the method of a logger for its role."""
    if message.role == "system":
        logger.log_system(message.text())
    elif message.role == "assistant":
        logger.log_assistant(message.text(), documented_calls(message.calls()))
    elif message.role == "tool":
        for result in message.results():
            logger.log_tool_result(result.call_id, result.name, documented_result(result))
    else:
        logger.log_user(text_with_notes(message))


class LedgerLogger:
    """Stores one session in a ledger. Read it with `ledger`, or with `nexus history`.

    Args:
        store: The ledger.
        session: The session's label.
        for_agent: An agent runs the session (`nexus.compat.nexus3.rpc`).
    """

    def __init__(self, store: LedgerStore, session: str = "main", *, for_agent: bool = False) -> None:
        self.ledger = Ledger(store)
        self.session = session
        self.for_agent = for_agent
        self._store = store
        self._visible: list[tuple[int, Message]] = []

    def log_system(self, content: str) -> None:
        """Store a system prompt."""
        self.append(system_prompt(content))

    def log_user(self, content: str) -> None:
        """Store a user message."""
        self.append(user(content))

    def log_assistant(self, content: str, tool_calls: Sequence[core.ToolCall | ToolCall] = ()) -> None:
        """Store a model's message."""
        self.append(assistant(content, *calls_of(tool_calls)))

    def log_tool_result(self, tool_call_id: str, name: str, result: core.ToolResult | ToolResult) -> None:
        """Store a tool's result."""
        self.append(result_message(tool_call_id, name, result, 0))

    def append(self, message: Message) -> None:
        """Store a message: a user message starts a turn, a model's message without tool calls ends it."""
        if self.for_agent and message.source in _FIELDS:
            self._append_field(_FIELDS[message.source], message)
            return
        opens = message.role == "user" and message.source not in (SESSION_SOURCE, MOMENT_SOURCE, SUMMARY_SOURCE)
        entries = [NewEntry(messages=self._sized([message]), at_ms=message.at_ms, starts_turn=opens)]
        is_answer = message.role == "assistant" and not any(message.calls())
        thread = None
        if is_answer:
            thread = self._store.thread_of(self.session)
        if thread is not None and self._store.thread(thread).turn > 0:
            entries.append(NewEntry("completed", at_ms=message.at_ms))
        committed = self.ledger.commit(self.session, Commit(tuple(entries)))
        if message.source not in (PROMPT_SOURCE, SESSION_SOURCE):
            self._visible.append((committed.head - len(entries) + 1, message))

    def _append_field(self, field: str, message: Message) -> None:
        """Store a message as a field. A turn that has ended stays so."""
        entries = [NewEntry(body={field: message.text()}, at_ms=message.at_ms)]
        thread = self._store.thread_of(self.session)
        state = None
        if thread is not None:
            state = self._store.thread(thread)
        if state is not None and state.turn > 0 and not state.open_turn:
            entries.append(NewEntry("completed", at_ms=message.at_ms))
        self.ledger.commit(self.session, Commit(tuple(entries)))

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
        messages = self.history()
        prompts = [message.text() for message in messages if message.source == PROMPT_SOURCE]
        first = [row.message.text() for row in self._store.instructions(self.ledger.thread(self.session))]
        return RestoredSession(
            any(message.role != "system" for message in messages),
            prompts[-1] if prompts else "\n\n".join(first),
            tuple(message for message in messages if message.source == SESSION_SOURCE)[:1],
            self.messages_in_view(timezone),
        )

    def _newest_cut(self, mark: Entry | None) -> Cut | None:
        """Return the cut of an agent's newest call, unless a checkpoint came after it."""
        if not self.for_agent:
            return None
        thread = self.ledger.thread(self.session)
        call = last_call(self._store, thread)
        if call is None:
            return None
        cut = self._store.last_cut(thread, call.view)
        if cut is not None and mark is not None and cut.at_seq < mark.seq:
            return None
        return cut

    def messages_in_view(self, timezone: str = "") -> tuple[Message, ...]:
        """Return the session's messages since its last compaction or clear, after the summary.

        In an agent's session, messages that a cut omits are not among them.
        """
        with self._store.snapshot():
            visible = self.ledger.visible(self.session)
            mark = self.ledger.live(self.session).checkpoint
            cut = self._newest_cut(mark)
        compaction = None
        if mark is not None and mark.kind == "compaction":
            compaction = msgspec.convert(mark.body, decodable(Compaction))
        rows = visible.rows
        pending = None
        has_summary = compaction is not None
        if compaction is not None and self.for_agent:
            pending = compaction.pending_request_ref
        if cut is not None:
            pending = None
            if cut.shows_pending_request:
                pending = cut.pending_request_ref
            has_summary = has_summary and cut.keeps_summary
            rows = [row for row in rows if row.ref >= cut.first or (cut.head is not None and row.ref < cut.head)]
        # System prompts and the session's first line are not in view; an imported session may begin with a prompt.
        self._visible = [
            (row.ref.seq, row.message)
            for row in rows
            if row.message.source not in _FIELDS and not (row.message.role == "system" and row.ref.seq == 1)
        ]
        at_ms = mark.at_ms if mark is not None else 0
        summary = [stored_summary(visible.summary, at_ms, timezone)] if has_summary else []
        request = [self._message_at(pending)] if pending is not None else []
        return (*summary, *request, *(message for _, message in self._visible))

    def _message_at(self, ref: MessageRef) -> Message:
        (entry,) = self.ledger.entries(self.session, ref.seq - 1, ref.seq)
        return entry.rows[ref.ord].message

    @property
    def head(self) -> int:
        """Position of the session's newest entry; 0 if there is none."""
        thread = self._store.thread_of(self.session)
        if thread is not None:
            return self._store.head(thread)[0]
        return 0

    def history(self, after: int = 0) -> list[Message]:
        """Return every stored message behind a position, oldest first, system prompts included."""
        if self._store.thread_of(self.session) is None:
            return []
        return [message for entry in self.ledger.entries(self.session, after) for message in _messages_of(entry)]

    def _sized(self, messages: Sequence[Message]) -> tuple[SizedMessage, ...]:
        return with_sizes(messages, get_counter())


def _messages_of(entry: Entry) -> list[Message]:
    """Return an entry's messages, also those that are fields of it."""
    fields = [
        Message("system" if source == PROMPT_SOURCE else "user", (Text(text),), at_ms=entry.at_ms, source=source)
        for source, field in _FIELDS.items()
        if isinstance(text := entry.body.get(field), str)
    ]
    return [*fields, *(row.message for row in entry.rows)]
