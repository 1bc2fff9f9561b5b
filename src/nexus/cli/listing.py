"""Names and times as the commands on sessions print them, and the entries of a session in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain

import click

from nexus.engine import Engine
from nexus.errors import NoSuchSession
from nexus.ledger import replay
from nexus.ledger.replay import Turn
from nexus.render.console import printable
from nexus.types.ledger_entries import Entry, MessageRef

LABEL_CHARS = 60

BLOCK = 2_000
"""Entries that are read at a time: memory does not follow the length of a session."""

NO_LEDGER = ":memory:"
"""The place of the empty ledger that is seen where there is none."""


def label_of(nx: Engine, name: str) -> str:
    """The label of the session that a name or alias leads to. Raises NoSuchSession."""
    label = nx.ledger.resolve(name)
    if label is None and nx.store.place == NO_LEDGER:
        raise NoSuchSession(
            f"there is no session {name!r}, for there is no ledger yet: `nexus import FILE` or `nexus record` makes one"
        )
    nx.ledger.thread(name)
    return label or name


def new_name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuses an empty name, which no other command could be given with ease."""
    if value is not None and not value.strip():
        raise click.BadParameter("a name cannot be empty")
    return value


def quoted(name: str) -> str:
    """A name in a sentence: in quotes and on its line, whatever stands in it."""
    return f"'{printable(name)}'"


def shortened(label: str) -> str:
    """A very long label, so that the other columns stay readable."""
    return label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"


def moment(at_ms: int, *, seconds: bool = False) -> str:
    """A time to the minute or second, UTC; empty if it is not known."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form) if at_ms else ""
    except (ValueError, OverflowError, OSError):
        return f"[no time: {at_ms}]"


def dotted(place: MessageRef) -> str:
    """A message's place as commands take it: `12.0` is the first message of entry 12."""
    return f"{place.seq}.{place.ord}"


def entries_of(nx: Engine, label: str, *, after: int = 0, checked: bool = False) -> Iterator[Entry]:
    """The entries of a session that follow one, up to its head of now, oldest first; read in blocks.

    `checked` reads a long session once before the first entry is given out, so that LedgerDamaged comes before it.
    """
    thread = nx.ledger.thread(label)
    head = nx.store.thread(thread).head_seq
    starts = range(after, head, BLOCK)
    if checked and len(starts) > 1:
        for start in starts:
            deque(nx.store.entries(thread, start, min(head, start + BLOCK)), maxlen=0)
    blocks = (nx.store.entries(thread, start, min(head, start + BLOCK)) for start in starts)
    return chain.from_iterable(blocks)


def turns_of(nx: Engine, label: str, last: int | None = None) -> Sequence[Turn]:
    """The turns of a session, or the newest so many; no more than these and a block of entries is held."""
    found: deque[Turn] = deque(maxlen=last)
    together: list[Entry] = []
    newest = 0
    for entry in entries_of(nx, label, after=_before_last(nx, label, last) if last else 0):
        if entry.turn > newest and len(together) >= BLOCK:
            found += replay.turns(together)
            together = []
        newest = max(newest, entry.turn)
        together.append(entry)
    found += replay.turns(together)
    return found


def _before_last(nx: Engine, label: str, last: int) -> int:
    """An entry before the newest so many turns, not far before them."""
    row = nx.store.thread(nx.ledger.thread(label))
    size = BLOCK
    while size < row.head_seq:
        after = row.head_seq - size
        if next(nx.store.entries(row.id, after - 1, after)).turn <= row.turn - last:
            return after
        size *= 4
    return 0
