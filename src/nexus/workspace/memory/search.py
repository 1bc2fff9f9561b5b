"""Finding in memory: facts and entries of the log by their words; those that have all of them first, then the newest."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from itertools import chain

from msgspec import Struct

from nexus.ledger.search_text import parse_query, words
from nexus.workspace.memory.facts import Fact
from nexus.workspace.memory.log import LogEntry


class MemoryMatch(Struct, frozen=True):
    """A fact or an entry of the log that has some of the words: where it stands, and under which number.

    `at` is its date or time as written, "" if none; `section` is the heading over a fact; `matched` counts the words and
    quoted phrases that it has.
    """

    origin: str
    number: int
    at: str
    text: str
    section: str = ""
    matched: int = 0


def find(
    query: str, facts: Iterable[tuple[str, Fact]], entries: Iterable[tuple[str, LogEntry]], limit: int
) -> list[MemoryMatch]:
    """The best matches for a query (`ledger.search_text.phrases` reads it), each with the file that it is from.

    With all words before with some, of these with more before with fewer; then newest first by date, what has no date
    last; then facts before the log. None if the query has no word.
    """
    wanted = [f" {' '.join(phrase)} " for phrase in parse_query(query)]
    given = chain(
        (((0, one.number), MemoryMatch(origin, one.number, one.date, one.text, one.section)) for origin, one in facts),
        (((1, -one.number), MemoryMatch(origin, one.number, one.at, one.text)) for origin, one in entries),
    )
    ranked = (
        ((-matched, [-ord(letter) for letter in one.at] or [0], place), one, matched)
        for place, one in given
        if (matched := _matched(one.text, wanted))
    )
    best = nsmallest(limit, ranked, key=lambda row: row[0])
    return [MemoryMatch(one.origin, one.number, one.at, one.text, one.section, matched) for _, one, matched in best]


def _matched(text: str, wanted: list[str]) -> int:
    have = f" {' '.join(words(text))} "
    return sum(phrase in have for phrase in wanted)
