"""Document 003's SessionManager: the sessions of a workspace, and their history as chat messages for a builder.

A session is that of the ledger in the workspace, the same that `nexus.open(workspace)` and the command line have. The
ledger keeps everything; what a history shows of it (the newest messages, long results of tools shortened) is a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from nexus.assembly.fit.clip import truncate_chars
from nexus.assembly.fit.repair import repaired
from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.broker.messages import build_history_messages
from nexus.engine import Engine, open_engine
from nexus.errors import BadReference, BadSessionKey, BadSetting
from nexus.providers.openai import fragment
from nexus.providers.openai import messages as read_messages
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import Commit, Committed, NewEntry
from nexus.types.message import Image, Message, Note, Text
from nexus.types.session_key import parse
from nexus.workspace.sources.event_blocks import HEADING, RUNTIME_CONTEXT_SOURCE

MAX_MESSAGES = 500
RESULT_CHARS = 500
"""What a history shows of a tool's result, in characters (document 003, "Architecture Notes")."""


class Session:
    """One session, by its label. It holds no messages: each method reads or writes the ledger.

    `result_chars` is what its history shows of a tool's result, in characters; 0 is all of it.
    """

    def __init__(self, key: str, engine: Engine, result_chars: int = RESULT_CHARS) -> None:
        self.key, self.result_chars = key, result_chars
        self._engine = engine

    def get_history(self, max_messages: int = MAX_MESSAGES) -> list[dict[str, Any]]:
        """The newest messages as OpenAI's chat messages, oldest first, in a form that every provider accepts.

        They begin with a user's message, so results never stand without their calls; after a compaction its summary
        stands first. Of a tool loop with more messages than that, what the user asked and the newest steps are given.
        System prompts are left out: each call makes its own. Raises BadSetting, LedgerError.
        """
        if max_messages < 0:
            raise BadSetting(f"max_messages is {max_messages}: give 0 or more")
        said = build_history_messages(self._engine, self.key)
        if self.result_chars:
            said = [truncate_chars(message, self.result_chars) for message in said]
        shown, _ = repaired(said)
        return _newest([item for message in shown for item in fragment(message)], max_messages)

    def append(self, messages: Iterable[Message | Mapping[str, Any]]) -> Committed | None:
        """Stores what was said, whole, in one transaction: messages of ours or OpenAI's chat messages. None if nothing.

        A user's message opens a turn, an answer without calls closes it. System prompts are not stored: each call makes
        its own. Runtime metadata before a user's text is kept apart from it and shown again as it was sent. Raises BadReply for what is no message, BadEntry, LedgerError.
        """
        said = [_noted(message) for message in _read(messages) if message.role != "system"]
        if not said:
            return None
        at_ms = self._engine.clock_ms()
        entries: list[NewEntry] = []
        for step in _turns(said):
            opens = step[0].role == "user"
            entries.append(NewEntry(messages=with_sizes(step, self._engine.counter), at_ms=at_ms, opens_turn=opens))
            if step[-1].role == "assistant" and not unanswered_calls(step):
                entries.append(NewEntry("completed", at_ms=at_ms))
        return self._engine.ledger.commit(self.key, Commit(tuple(entries)))


class SessionManager:
    """The sessions of a workspace. Close it, or use it in `with`. `engine` is the workspace's, with all else.

    `result_chars` is what histories show of a tool's result; `options` are those of `nexus.open`. Raises
    WorkspaceMissing, BadConfig, LedgerError.
    """

    def __init__(self, workspace: str | Path, *, result_chars: int = RESULT_CHARS, **options: Any) -> None:
        self.engine = open_engine(workspace, **options)
        self.result_chars = result_chars

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the ledger."""
        self.engine.close()

    def get_or_create(self, key: str) -> Session:
        """The session of that label, or the one that an alias leads to; a new, empty one if there is none.

        Raises BadSessionKey where the label can be none, LedgerError.
        """
        if not key.strip():
            raise BadSessionKey("a session needs a name, for example 'cli:user123'")
        parse(key)
        ledger = self.engine.ledger
        label = ledger.resolve(key)
        if label is None:
            try:
                ledger.create(key)
            except BadReference:
                # Another program may have made it in between.
                if ledger.resolve(key) is None:
                    raise
        return Session(label or key, self.engine, self.result_chars)


def _newest(items: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many of the items, valid by themselves: from a user's message on, a summary in front of them."""
    if len(items) <= most:
        return items
    first = items[:1] if str(items[0]["content"]).startswith(SUMMARY_MARKER) else []
    start = _first(items, "user", most - len(first))
    if start is None:
        asked = max(at for at, item in enumerate(items) if item["role"] == "user")
        first = first if first and not asked else [*first, items[asked]]
        start = _first(items, "assistant", most - len(first))
    return [*first, *items[start:]][:most] if start is not None else first[:most]


def _first(items: list[dict[str, Any]], role: str, room: int) -> int | None:
    """Where the first item of that role stands among the last `room`; None if there is none."""
    return next((at for at in range(len(items) - room, len(items)) if items[at]["role"] == role), None)


def _read(messages: Iterable[Message | Mapping[str, Any]]) -> Iterator[Message]:
    """The messages as ours; chat messages are read together, for a call and its result belong to each other."""
    given = list(messages)
    items = [dict(one) for one in given if not isinstance(one, Message)]
    read = iter(read_messages(items)) if items else iter(())
    return (one if isinstance(one, Message) else next(read) for one in given)


def _noted(message: Message) -> Message:
    """The message with the runtime metadata that a builder put before its text or images as a note, not as what was said."""
    if message.role != "user" or not message.parts:
        return message
    first, *rest = message.parts
    if not isinstance(first, Text) or not first.text.startswith(f"{HEADING}\n"):
        return message
    runtime, _, text = first.text.partition("\n\n")
    if bool(text) == any(isinstance(part, Image) for part in rest):
        return message  # no form of a builder's: metadata and text are one string, but beside images
    said = [Text(text)] if text else []
    return replace(message, parts=(Note("moment", runtime, RUNTIME_CONTEXT_SOURCE), *said, *rest))


def _turns(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The messages in pieces that begin with a user's, but for the first piece, which may go on with what is open."""
    starts = [at for at, message in enumerate(messages) if message.role == "user" or not at]
    return (messages[first:end] for first, end in pairwise([*starts, len(messages)]))
