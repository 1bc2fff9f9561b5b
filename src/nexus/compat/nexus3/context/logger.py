"""Where a conversation is kept: the logger's protocol, and the logger that writes into a ledger of Nexus.

Messages become entries, a compaction a compaction entry, clearing a `clear` mark; nothing is ever deleted. A session
that is there already goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from nexus.assembly.record import with_sizes
from nexus.compat.nexus3.context.compaction import SUMMARY_SOURCE, create_summary_message, summary_text
from nexus.compat.nexus3.context.stamps import MOMENT_SOURCE
from nexus.compat.nexus3.context.view import calls_of, result_message, text_with_notes
from nexus.ledger.operations import Ledger
from nexus.ledger.store import LedgerStore
from nexus.tokens.counter import get_counter
from nexus.types.history import SESSION_SOURCE
from nexus.types.ledger_entries import Commit, Compaction, NewEntry, SizedMessage, StoredMessage
from nexus.types.message import Message, Text, ToolCall, ToolResult, assistant, user

PROMPT_SOURCE = "nexus:system-prompt"


class SessionLogger(Protocol):
    """What a `ContextManager` tells of each step. The names are those of NEXUS3's own logger."""

    def log_system(self, content: str) -> object:
        """A system prompt was set."""
        ...

    def log_user(self, content: str) -> object:
        """A user's message, or one in a user's role, as it is sent."""
        ...

    def log_assistant(self, content: str, tool_calls: Sequence[ToolCall] = ()) -> object:
        """A model's message."""
        ...

    def log_tool_result(self, tool_call_id: str, name: str, result: ToolResult) -> object:
        """What a tool returned."""
        ...


class RestoredSession(Struct, frozen=True):
    """A session as it stood: its system prompt, its first line if it has one, and the messages in view.

    `is_begun` says that something was said in it already.
    """

    is_begun: bool = False
    system_prompt: str = ""
    start: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()


def system_prompt(text: str, at_ms: int = 0) -> Message:
    """A system prompt as a message to store."""
    return Message("system", (Text(text),), at_ms=at_ms, source=PROMPT_SOURCE)


def tell(logger: SessionLogger, message: Message) -> None:
    """Tells a logger of a message."""
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
    """Keeps one session of a ledger. All that is logged can be read with `ledger`, or with `nexus history`."""

    def __init__(self, store: LedgerStore, session: str = "main") -> None:
        self.ledger, self.session = Ledger(store), session
        self._store = store
        self._kept: list[tuple[int, Message]] = []

    def log_system(self, content: str) -> None:
        """Stores a system prompt."""
        self.append(system_prompt(content))

    def log_user(self, content: str) -> None:
        """Stores a user's message."""
        self.append(user(content))

    def log_assistant(self, content: str, tool_calls: Sequence[ToolCall] = ()) -> None:
        """Stores a model's message."""
        self.append(assistant(content, *calls_of(tool_calls)))

    def log_tool_result(self, tool_call_id: str, name: str, result: ToolResult) -> None:
        """Stores what a tool returned."""
        self.append(result_message(tool_call_id, name, result, 0))

    def append(self, message: Message) -> None:
        """Stores a message: a user's opens a turn, a model's without tool calls closes it."""
        opens = message.role == "user" and message.source not in (SESSION_SOURCE, MOMENT_SOURCE, SUMMARY_SOURCE)
        entries = [NewEntry(messages=self._sized([message]), at_ms=message.at_ms, opens_turn=opens)]
        if message.role == "assistant" and not any(message.calls()) and self._has_turns():
            entries.append(NewEntry("completed", at_ms=message.at_ms))
        done = self.ledger.commit(self.session, Commit(tuple(entries)))
        if message.source not in (PROMPT_SOURCE, SESSION_SOURCE):
            self._kept.append((done.head - len(entries) + 1, message))

    def clear(self, at_ms: int = 0) -> None:
        """Appends a mark from which on nothing earlier is in view."""
        self.ledger.commit(self.session, Commit((NewEntry("clear", at_ms=at_ms),)))
        self._kept.clear()

    def compact(self, summary: Message, kept: Sequence[Message], tokens_before: int, tokens_after: int) -> None:
        """Appends a compaction: the summary stands for all that is in view but the messages that are kept.

        Where the kept ones are not the newest ones as they are stored, they are stored again, after it.
        """
        stored = self._kept[len(self._kept) - len(kept) :] if kept else []
        before = self._kept[: len(self._kept) - len(stored)]
        in_place = [message for _, message in stored] == list(kept) and not (
            stored and before and before[-1][0] == stored[0][0]
        )
        head = self._store.head(self.ledger.thread(self.session))[0]
        first_kept = stored[0][0] if in_place and stored else head + 1
        covered_from = min(self._kept[0][0] if self._kept else 1, first_kept)
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
            entries += [NewEntry(messages=self._sized([message]), at_ms=message.at_ms) for message in kept]
        done = self.ledger.commit(self.session, Commit(tuple(entries)))
        again = [(done.head - len(kept) + 1 + at, message) for at, message in enumerate(kept)]
        self._kept = stored if in_place else again

    def restore(self, timezone: str = "") -> RestoredSession:
        """What the session shows now, to go on with it; nothing if there is no such session yet."""
        if self._store.thread_of(self.session) is None:
            return RestoredSession()
        rows, visible = self._rows(), self.ledger.visible(self.session)
        mark = self.ledger.live(self.session).mark
        self._kept = [(row.place.seq, row.message) for row in visible.rows if not _is_apart(row)]
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
            (*summary, *(message for _, message in self._kept)),
        )

    def history(self) -> list[Message]:
        """Every message that was ever stored, oldest first, system prompts included."""
        return [row.message for row in self._rows()] if self._store.thread_of(self.session) is not None else []

    def _rows(self) -> list[StoredMessage]:
        return [row for entry in self.ledger.entries(self.session) for row in entry.rows]

    def _has_turns(self) -> bool:
        thread = self._store.thread_of(self.session)
        return thread is not None and self._store.thread(thread).turn > 0

    def _sized(self, messages: Sequence[Message]) -> tuple[SizedMessage, ...]:
        return with_sizes(messages, get_counter())


def _is_apart(row: StoredMessage) -> bool:
    """Whether a message does not stand among the others in view: a system prompt, or the session's first line."""
    first = row.message.role == "system" and row.place.seq == 1
    return first or row.message.source in (PROMPT_SOURCE, SESSION_SOURCE)
