"""Replies that cannot be stored where they belong: too late for their turn, or while the ledger stores nothing.

A late reply gets a session of its own that shares the history up to its event. There it is behind the message that it
answers, and no other session shows it. Replies that the ledger could not store are recorded later, from the file of
`nexus.ledger.unrecorded_replies`.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import (
    BadReference,
    HeadMoved,
    IdempotencyConflict,
    LedgerBusy,
    LedgerError,
    LedgerUnavailable,
    TurnSuperseded,
    UnreadableFile,
)
from nexus.ledger.history_operations import Ledger
from nexus.ledger.sessions import LATE_MARK, LATE_REPLY, SessionMetadata
from nexus.ledger.unrecorded_replies import UnrecordedReplies, UnrecordedReply, is_of_storage
from nexus.providers.replies import read_reply
from nexus.types.ledger_entries import Commit, Committed
from nexus.types.message import Message, ToolCall, assistant, with_parts
from nexus.types.request import AgentResult

TRIES = 3
PAUSE_S = 0.05


def commit_patiently(ledger: Ledger, session: str, commit: Commit, metadata: SessionMetadata | None) -> Committed:
    """Store a reply, and try again if the ledger is busy or was not reached: its store has waited for it already.

    A try whose outcome is unknown adds nothing the second time: the reply has an idempotency key.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return ledger.commit(session, commit, metadata)
        except (LedgerBusy, LedgerUnavailable):
            if attempt == TRIES:
                raise
            time.sleep(PAUSE_S * attempt)
    raise AssertionError  # the last try returns or raises


def late_base(ctx: AssembledContext, commit: Commit) -> tuple[int, int] | None:
    """Return thread and seq behind which a context's reply is stored if it is late; None if it begins a turn."""
    stored = ctx.provenance.stored_event
    turn = commit.turn
    if turn is None:
        return None
    if stored is not None:
        return (stored.thread, stored.seqs[-1])
    return (turn.thread, turn.seq)


def record_unrecorded(ledger: Ledger, waiting: UnrecordedReply) -> None:
    """Record a reply that waited: where it belongs, else as a late one. Raises LedgerError if that must wait.

    A reply whose history was erased is dropped, and so is one that was recorded meanwhile. One of a ledger whose file was
    replaced waits for its own.
    """
    commit = waiting.commit
    if waiting.base is not None and commit.follows is not None:
        _check_history(ledger, waiting.session, waiting.base[0], *commit.follows)
    try:
        ledger.commit(waiting.session, commit, waiting.metadata)
    except (TurnSuperseded, HeadMoved, IdempotencyConflict):
        if waiting.base is not None:
            try:
                store_late(ledger, waiting.session, waiting.turn, waiting.base, commit)
            except (BadReference, IdempotencyConflict) as error:
                if error.code == "bad_entry":
                    raise
        else:  # it brings its own event
            ledger.commit(waiting.session, replace(commit, follows=None, assembly=None, cut=None), waiting.metadata)
    except BadReference as error:
        if error.code == "bad_entry":
            raise


def record_waiting_reply(ledger: Ledger, unrecorded: UnrecordedReplies, session: str, turn: int) -> None:
    """Record a turn's own reply if it waits. Raises LedgerError while that fails: a further call would be paid twice."""
    pending: list[UnrecordedReply] = []
    with suppress(UnreadableFile):  # it must not stop the turns of all sessions
        pending = unrecorded.pending()
    for waiting in pending:
        if (waiting.session, waiting.turn) != (session, turn):
            continue
        try:
            record_unrecorded(ledger, waiting)
        except LedgerError as error:
            if is_of_storage(error):
                error.reply, error.kept_in = waiting.reply, unrecorded.place_of(waiting)
                raise


def _check_history(ledger: Ledger, session: str, thread: int, seq: int, head_hash: bytes) -> None:
    """Raise HeadMoved if the ledger has other entries where a reply's history was: it is another ledger."""
    store = ledger.store
    with suppress(BadReference), store.snapshot():
        threads = {thread, store.thread_of(session) or thread}
        entries = [entry for each in threads for entry in store.entries(each, seq - 1, seq)]
        if entries and all(entry.hash != head_hash for entry in entries):
            raise HeadMoved(session, seq, entries[-1].seq)


def store_late(ledger: Ledger, session: str, turn: int, base: tuple[int, int], commit: Commit) -> tuple[str, Committed]:
    """Store a commit of a superseded turn behind entry `base` (thread, seq), in a session of its own.

    Returns the label of that session and the result. The same commit again adds nothing. Raises LedgerError, such as
    BadReference if the history was erased meanwhile.
    """
    content = [(entry.kind, entry.keys, [sized.message for sized in entry.messages]) for entry in commit.entries]
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]
    label = f"{session[:200]}{LATE_MARK}{turn}-{digest}"
    metadata = SessionMetadata(
        title=f"late reply to turn {turn}",
        status="archived",
        origin=LATE_REPLY,
        origin_id=str(turn),
        owner_session=session,
    )
    alone = replace(commit, turn=None, fence=None, expected_head=None, follows=None, base=base)
    if commit.follows is not None and commit.follows[0] > base[1]:
        # Its context had messages that came since: it can be replayed nowhere.
        alone = replace(alone, assembly=None, cut=None, blobs=())
    try:
        return label, ledger.commit(label, alone, metadata)
    except HeadMoved as error:
        if error.code != "session_moved":
            raise
        # It was stored before.
        return label, ledger.commit(label, replace(alone, base=None))


def try_store_late(ledger: Ledger, session: str, turn: int, base: tuple[int, int] | None, commit: Commit) -> str:
    """Store a late reply as `store_late`; return its session, or an empty text if that fails."""
    if base is None or not base[0]:
        return ""
    try:
        return store_late(ledger, session, turn, base, commit)[0]
    except LedgerError:
        return ""


def partial_messages(partial: object) -> tuple[Message, ...]:
    """Return what a model had said before it broke off, without the calls that nobody ran."""
    if partial is None or partial == "":
        return ()
    if isinstance(partial, str):
        return (assistant(partial),)
    if isinstance(partial, Message):
        result = AgentResult((partial,))
    else:
        result = read_reply(partial)
    answered = {answer.call_id for answer in result.tool_results}
    answered_messages = (
        with_parts(
            message, tuple(part for part in message.parts if not isinstance(part, ToolCall) or part.id in answered)
        )
        for message in result.messages
    )
    return tuple(message for message in answered_messages if message.has_content())
