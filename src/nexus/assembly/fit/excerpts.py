"""Excerpts: what the user said in turns that a cut or compaction hides, and how these turns ended, in one note.

User turns come first. In coding sessions they are a few percent of the tokens, and they say what was asked; calls and
results are the rest. Where they are many, each becomes a line whose size falls with their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate

from msgspec import Struct, structs

from nexus.assembly.fit.pins import (
    LABEL_TOKENS,
    NOTE_FRAME_TOKENS,
    REPLY_PART,
    Pinned,
    excerpt_pin,
    excerpt_text,
    most_tokens,
)
from nexus.assembly.fit.window import Window
from nexus.text.message_text import is_injected
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import text_tokens_json
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Text, Thinking

EXCERPT_TOKENS = (400, 300, 200, 150, 120, 100, 80, 60, 50, 40, 30)
"""Base tokens that each excerpt of a note may show: the largest number with which all of them fit."""

SHORT_ENOUGH = 0.8
"""Excerpts are not shortened further if the smallest take at least this share of their tokens."""

REFILL = 0.75
"""Where the smallest excerpts exceed their room, the oldest leave down to this share of it, so that it lasts a while."""

BARE_ANSWER_WORDS = 3
"""A user turn of at most so many words, such as "yes", is shown with the question that it answers."""


MOST_WITHHELD = 64
"""Positions of user turns without room that a cut keeps for later cuts: the newest."""


class Excerpts(Struct, frozen=True):
    """The excerpts of a note."""

    pins: tuple[Pinned, ...] = ()
    """In the order of the ledger."""

    limit: int = 0
    """Base tokens that each of them shows, at most."""

    tokens: int = 0
    """Upper bound of the base tokens of the note; 0 without excerpts."""

    turns: frozenset[MessageRef] = frozenset()
    """Positions of all user turns that it could show."""

    def has_user_turns(self) -> bool:
        """Return True if a user speaks in the note."""
        return any(row.message.role == "user" for pin in self.pins for row in pin.rows)

    def hidden_turns(self, shown_places: Collection[MessageRef]) -> tuple[MessageRef, ...]:
        """Return the positions of the turns that are neither excerpts nor shown otherwise, in order."""
        return tuple(sorted(self.turns - {pin.place for pin in self.pins} - set(shown_places)))


def choose_user_turns(
    window: Window,
    index: int,
    room: int,
    reserved: Collection[MessageRef],
    counter: TokenCounter,
    *,
    most: int = 0,
) -> Excerpts:
    """Return the user turns before message `index` as excerpts, in at most `room` base tokens.

    Candidates are the rows before `index` and the messages that the opening shows now. `reserved` are positions that the
    new opening shows anyway. The smallest excerpts of all turns may take `most`, if that is more than `room`, because
    turns that are not shown once are never shown again. If that is not enough, the questions of bare answers leave first,
    then the oldest turns.
    """
    turns = [turn for turn in _turns(window, index) if turn[0].ref not in reserved]
    every = frozenset(turn[0].ref for turn in turns)
    sizes = {row.ref: _size(window, row, counter) for turn in turns for row in turn}

    def note_tokens(rows: Iterable[StoredMessage], limit: int) -> int:
        return NOTE_FRAME_TOKENS + sum(_bound(row, sizes[row.ref], limit) for row in rows)

    rows = [row for turn in turns for row in turn]
    least_limit = EXCERPT_TOKENS[-1]
    largest_room = max(room, most)
    room = max(room, min(int(note_tokens(rows, least_limit) / SHORT_ENOUGH), largest_room))
    limit = next((limit for limit in EXCERPT_TOKENS if note_tokens(rows, limit) <= room), least_limit)
    if note_tokens(rows, limit) > largest_room:
        rows = [turn[0] for turn in turns]
    if note_tokens(rows, limit) > largest_room:
        sums = accumulate((_bound(row, sizes[row.ref], limit) for row in rows), initial=NOTE_FRAME_TOKENS)
        rows = rows[: max(bisect_right(list(sums), largest_room * REFILL) - 1, 0)]
    if not rows:
        return Excerpts(turns=every)
    return Excerpts(_pins(rows, limit), limit, note_tokens(rows, limit), every)


def add_closing_texts(excerpts: Excerpts, window: Window, index: int, room: int, counter: TokenCounter) -> Excerpts:
    """Return the excerpts with the newest texts that ended a turn, in at most `room` further base tokens."""
    limit = excerpts.limit or EXCERPT_TOKENS[0]
    refs = {pin.place for pin in excerpts.pins}
    added: list[StoredMessage] = []
    total = 0 if excerpts.pins else NOTE_FRAME_TOKENS
    for row in _closing_texts(window, index):
        if row.ref in refs:
            continue
        tokens = _bound(row, _size(window, row, counter), limit)
        if tokens > room - total:
            break
        total += tokens
        added.append(row)
    if not added:
        return excerpts
    rows = (row for pin in excerpts.pins for row in pin.rows)
    return structs.replace(excerpts, pins=_pins((*rows, *added), limit), limit=limit, tokens=excerpts.tokens + total)


def last_excerpt(window: Window, limit: int, reserved: Collection[MessageRef]) -> Excerpts:
    """Return the last message as an excerpt of at most `limit` base tokens, if it is a user turn or a closing text."""
    end = len(window.messages)
    turns = turn_places(window, end) - set(reserved)
    last = window.rows[-1] if window.rows else None
    is_said = last is not None and (last.ref in turns or last in _closing_texts(window, end))
    if last is None or not limit or not is_said or last.ref in reserved:
        return Excerpts(turns=turns)
    limit *= 1 if last.message.role == "user" else REPLY_PART
    return Excerpts(_pins((last,), limit), limit, most_tokens(last.message, limit), turns)


def lost_turns(window: Window) -> int:
    """Return the number of user turns that the window does not show and has no row of."""
    shown_places = {row.ref for pin in window.hidden_pins() for row in pin.rows}
    hidden = (row for pin in window.opening.pins if pin.place < window.first for row in pin.rows)
    withheld_places = {
        row.ref
        for row in hidden
        if row.ref not in shown_places and row.message.role == "user" and is_user_turn(row.message)
    }
    return max(window.opening.unshown_turns - len(withheld_places), 0)


def turn_places(window: Window, index: int) -> frozenset[MessageRef]:
    """Return the positions of the user turns before message `index` that the window has rows of."""
    return frozenset(turn[0].ref for turn in _turns(window, index))


def is_user_turn(message: Message) -> bool:
    """Return True for a user's own words, images and files, not for results and what programs say in the user's name."""
    return bool(excerpt_text(message)) and not is_injected(message) and next(message.results(), None) is None


def _turns(window: Window, index: int) -> Iterator[tuple[StoredMessage, ...]]:
    """Yield each user turn before message `index`, newest first, with the question that a bare answer is to."""
    rows = _candidates(window, index)
    unformatted = window.rules.path_format.unformatted
    for at in range(len(rows) - 1, -1, -1):
        message = rows[at].message
        if message.role != "user" or not is_user_turn(message):
            continue
        question = rows[at - 1] if at else None
        is_bare = len(unformatted(message).text().split()) <= BARE_ANSWER_WORDS
        yield (
            (rows[at], question) if is_bare and question is not None and _is_closing(question.message) else (rows[at],)
        )


def _closing_texts(window: Window, index: int) -> Iterator[StoredMessage]:
    """Yield the texts before message `index` that end a turn, newest first."""
    rows = _candidates(window, index)
    for at in range(len(rows) - 1, -1, -1):
        if _is_closing(rows[at].message) and (at + 1 == len(rows) or rows[at + 1].message.role == "user"):
            yield rows[at]


def _candidates(window: Window, index: int) -> list[StoredMessage]:
    """Return the rows of the opening's excerpts and requests, then those before message `index`."""
    if index < len(window.messages):
        end = max(window.indexes.row_of[index], 0)
    else:
        end = len(window.rows)
    kinds = ("excerpt", "asked", "task", "withheld")
    opening = (row for pin in window.opening.pins if pin.kind in kinds for row in pin.rows)
    first = window.rows[0].ref if window.rows else None
    hidden = (row for row in opening if first is None or row.ref < first)
    return [*sorted(hidden, key=lambda row: row.ref), *window.rows[:end]]


def _is_closing(message: Message) -> bool:
    is_text = all(isinstance(part, (Text, Thinking)) for part in message.parts)
    return message.role == "assistant" and is_text and bool(message.text().strip())


def _size(window: Window, row: StoredMessage, counter: TokenCounter) -> int:
    """Return the base tokens of what a row says, up to the largest excerpt."""
    text = excerpt_text(window.rules.path_format.unformatted(row.message))
    if len(text) <= 16 * EXCERPT_TOKENS[0]:
        return text_tokens_json(text, counter)
    return EXCERPT_TOKENS[0]


def _bound(row: StoredMessage, size: int, limit: int) -> int:
    """Return an upper bound of the base tokens that a row's excerpt takes."""
    return min(size, most_tokens(row.message, limit)) + LABEL_TOKENS


def _pins(rows: Iterable[StoredMessage], limit: int) -> tuple[Pinned, ...]:
    unique = {row.ref: row for row in rows}
    return tuple(excerpt_pin(unique[place], limit) for place in sorted(unique))
