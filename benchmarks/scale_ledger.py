"""A ledger of many sessions, made from records as an import makes it: all rows, hashes, totals and search words.

Each session has two turns of a question and an answer, in sentences of a fixed vocabulary with one word that all
messages have. Of fifty sessions, one is a fork that did not go on, one a fork that did, and one a worker of the session
before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from nexus.ledger import chain
from nexus.ledger.codec import message_rows
from nexus.ledger.records import EntryRecord, Header, MoveRecord, Record, ThreadRecord
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.text_encoding import to_json
from nexus.types.ledger_entries import NewEntry, SizedMessage
from nexus.types.message import Message, TokenSize, assistant, user

FIRST_MS = 1_700_000_000_000
STEP_MS = 60_000
COMMON = "please"
"""The word that every message has."""
EVERY = 50
FORK_ALONE, FORK, WORKER = 7, 17, 27
"""The remainder by which a session of fifty is another kind than the others."""

_WORDS = [f"{start}{end}" for start in ("ab", "ce", "do", "fi", "gu", "ko", "la", "mi") for end in map(str, range(250))]
_SIZE = TokenSize(30, 30, 30)
_TENANT = "local"


def label(number: int) -> str:
    """Return the label of a session by its number, from 0."""
    return f"s-{number:06}"


def fill(path: Path, sessions: int) -> SqliteLedger:
    """Return an open ledger with so many sessions."""
    ledger = SqliteLedger(str(path))
    ledger.load(records(sessions))
    return ledger


def records(sessions: int) -> Iterator[Record]:
    """Yield the records of so many sessions."""
    yield Header(tenant=_TENANT)
    chosen = random.Random(sessions)
    ends: dict[int, tuple[int, bytes]] = {}
    for number in range(sessions):
        yield from _thread(number, ends, chosen)
    for number in range(sessions):
        metadata = SessionMetadata(title=f"session {number}")
        if number % EVERY == WORKER:
            metadata = SessionMetadata(parent_session=label(number - 1), parent_turn=1, task="look")
        columns = (label(number), 1, number + 1, to_json(metadata), "created", FIRST_MS + number * STEP_MS)
        yield MoveRecord(*columns, chain.move_hash(_TENANT, b"", MoveRecord(*columns, b"")))


def _thread(number: int, ends: dict[int, tuple[int, bytes]], chosen: random.Random) -> Iterator[Record]:
    """Yield a session's thread with its entries. `ends` has the end of each thread that came, by number of session."""
    parent = None
    fork_seq, root = 0, chain.root_hash(_TENANT, number + 1)
    if number % EVERY in (FORK_ALONE, FORK):
        parent = number  # the thread of the session before
        fork_seq, root = ends[number - 1]
    at_ms = FIRST_MS + number * STEP_MS
    entries = list[EntryRecord]()
    digest = root
    if number % EVERY != FORK_ALONE:
        for turn in (1, 2):
            for kind in ("question", "answer"):
                text = " ".join([COMMON, *chosen.choices(_WORDS, k=20)])
                message: Message = user(text) if kind == "question" else assistant(text)
                rows = message_rows(NewEntry(messages=(SizedMessage(message, _SIZE),)), {})
                seq = fork_seq + len(entries) + 1
                columns = (number + 1, seq, "messages", fork_seq // 2 + turn, at_ms + seq, "{}")
                digest = chain.entry_hash(digest, _TENANT, columns, rows)
                entries.append(EntryRecord(*columns, digest, rows))
    ends[number] = (fork_seq + len(entries), digest)
    yield ThreadRecord(number + 1, parent, fork_seq, root, at_ms, *ends[number])
    yield from entries
