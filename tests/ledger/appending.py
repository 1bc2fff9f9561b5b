"""A program that appends to a ledger and says on its output what was acknowledged. `python appending.py FILE SESSION NAME COUNT`.

It waits for a line on its input before it begins. Every append has three messages and a key of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nexus.assembly.record import with_sizes
from nexus.ledger.sqlite import SqliteLedger
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, assistant, user

COUNTER = get_counter("estimate")


def messages(name: str, number: int) -> tuple[Message, ...]:
    """The messages of one append."""
    return (
        user(f"{name} asks {number}", id=f"{name}-{number}"),
        assistant("x" * (number * 37 % 5_000)),
        user(f"{name} ends {number}"),
    )


def main(path: str, session: str, name: str, count: int) -> None:
    """Appends, and prints each number when its append is acknowledged."""
    sys.stdin.readline()
    ledger = SqliteLedger(str(Path(path)))
    for number in range(count):
        said = with_sizes(messages(name, number), COUNTER)
        ledger.commit(session, Commit((NewEntry(messages=said, starts_turn=True, keys=(f"{name}/{number}",)),)))
        print(number, flush=True)
    ledger.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
