"""The format `truncated_results`: real roles, with tool results of earlier turns truncated (document 003).

The turn of a result shows the whole result. Later turns show its beginning and end, and a pointer to the whole. After a
turn with a longer result, the next turn rewrites the history: a declared break of the prompt's prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nexus.assembly.fit.pins import pinned_groups
from nexus.assembly.fit.truncate_results import truncate_chars
from nexus.assembly.fit.view import fill_window
from nexus.assembly.formats.path_format import LedgerView, PathFormat
from nexus.assembly.formats.protocol import FilledWindow, View
from nexus.assembly.formats.roles import RolesFormat
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.history import Lookup
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.profile import MessageFormatName

RESULT_CHARS = 500
"""Limit of a tool's result in the turns after its own, in characters (document 003, "Architecture Notes")."""


class TruncatedResultsFormat(RolesFormat):
    """The whole history, with tool results of earlier turns truncated."""

    name: MessageFormatName = "truncated_results"
    is_hashed = True

    def fill_window(
        self,
        reading: LedgerView,
        view: View,
        cut: Cut | None,
        counter: TokenCounter,
        *,
        starts_turn: bool,
        path_format: PathFormat | None = None,
    ) -> FilledWindow:
        """Fill a window for a call of the open turn, which begins with the event if `starts_turn`."""
        del path_format
        head = reading.head[0]
        newest_entries = reading.entries(head - 1, head) if head else ()
        newest_turn = max((entry.turn for entry in newest_entries), default=0)
        pins = pinned_groups(
            reading.entries, reading.live.pins, MessageRef(reading.live.cleared_at + 1, 0), view.render
        )
        verbatim = frozenset(row.ref for pin in pins for row in pin.rows)
        truncated = TruncatedResults(counter, newest_turn + starts_turn, verbatim, view.lookup)
        return FilledWindow(*fill_window(truncated.follow(reading), view, cut, counter, truncated))


TRUNCATED_RESULTS = TruncatedResultsFormat()


class TruncatedResults(PathFormat):
    """Path format that truncates results of turns before `turn`, except in `verbatim` messages."""

    rewriting = f"results of earlier turns were truncated to {RESULT_CHARS} characters"

    def __init__(self, counter: TokenCounter, turn: int, verbatim: frozenset[MessageRef], lookup: Lookup) -> None:
        self._counter = counter
        self._turn = turn
        self._verbatim = verbatim
        self._lookup: Lookup = lookup
        self._truncated: dict[MessageRef, int] = {}
        self._whole_turns: set[int] = set()
        self._first_seqs: dict[int, int] = {}

    def follow(self, reading: LedgerView, /) -> LedgerView:
        """Return the view of the path with results of earlier turns truncated."""

        def entries(after: int, until: int | None) -> Iterator[Entry]:
            return map(self._rendered, reading.entries(after, until))

        return replace(reading, entries=entries)

    def follow_entries(self, entries: Iterable[Entry], /) -> Iterable[Entry]:
        """Return entries that follow the path's head, rendered."""
        return map(self._rendered, entries)

    def is_valid_in(self, turn: int, /) -> bool:
        """Return False if a result that was read whole is truncated in a call of this turn, or the reverse."""
        return all(number >= turn for number in self._whole_turns) and all(of < turn for of in self._truncated.values())

    def rewritten_since(self, head: int, starts_turn: bool, /) -> Iterable[MessageRef]:
        """Return the messages that a call from the entry `head` showed whole, if it showed them."""
        last_turn = max((turn for turn, seq in self._first_seqs.items() if seq <= head), default=0) + starts_turn
        return sorted(place for place, turn in self._truncated.items() if turn >= last_turn)

    def _rendered(self, entry: Entry) -> Entry:
        self._first_seqs[entry.turn] = min(entry.seq, self._first_seqs.get(entry.turn, entry.seq))
        rows = tuple(self._rendered_row(row, entry.turn) for row in entry.rows)
        if rows != entry.rows:
            return replace(entry, rows=rows)
        return entry

    def _rendered_row(self, row: StoredMessage, turn: int) -> StoredMessage:
        if row.ref in self._verbatim:
            return row
        message = truncate_chars(row.message, RESULT_CHARS, self._lookup)
        if message is row.message:
            return row
        if turn >= self._turn:
            self._whole_turns.add(turn)
            return row
        self._truncated[row.ref] = turn
        return StoredMessage(row.ref, message, message_tokens(message, self._counter))
