"""The window: what a (thread, view) shows of its history, as arrays that grow with the ledger.

Prefix sums make a budget question two bisections, chain values make a prefix check one comparison, and the repair is
a fold, so a call costs what is new since the last one, not what is old. Entries that are not appends (a clear, a
compaction, a cut) and a message that continues the last one end a window; the next call makes another from the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nexus.budget.counter import TokenCounter
from nexus.budget.measure import message_tokens
from nexus.budget.names import same_model
from nexus.fit import repair
from nexus.fit.pins import Pinned
from nexus.history import History
from nexus.ledger.entries import Cut, Entry, Place, Row
from nexus.message import Message, Note, Text, Thinking
from nexus.size import Size, Wire

END = 1 << 62
"""A seq beyond all others."""

SUMMARY_MARKER = "[Previous conversation summary]"


@dataclass(slots=True)
class Window:
    """Parallel arrays over what is shown, and what is needed to extend them.

    `plain_until` is the seq up to which messages are shown without thinking and memory notes: the head at the last cut.
    `wire` is the form whose tokens count; `memory` has the newest memory note shown, by its origin; `pieces` is the
    last assistant message as stored, with all pieces that were joined to it.
    `asides` is what of each message's tokens is thinking or memory, which a cut takes away. `first` is where what is
    shown begins; of the `pins`, those before it are the last `pinned` messages of the opening and take
    `pinned_tokens` of it.
    """

    opening: tuple[Message, ...]
    opening_tokens: int
    plain_until: int
    head: int
    head_hash: bytes
    cut: Cut | None = None
    turn: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    sums: list[int] = field(default_factory=lambda: [0])
    groups: list[int] = field(default_factory=list[int])
    turns: list[int] = field(default_factory=list[int])
    rows: list[Row] = field(default_factory=list[Row])
    asides: list[int] = field(default_factory=list[int])
    row_of: list[int] = field(default_factory=list[int])
    seqs: list[int] = field(default_factory=list[int])
    hashes: list[bytes] = field(default_factory=list[bytes])
    memory: dict[str, str] = field(default_factory=dict[str, str])
    fold: repair.Fold = field(default_factory=repair.Fold)
    fragments: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    summary_tokens: int = 0
    pieces: Message | None = None
    first: Place = field(default_factory=lambda: Place(1, 0))
    pins: tuple[Pinned, ...] = ()
    pinned: int = 0
    pinned_tokens: int = 0
    wire: Wire = "openai"
    model: str = ""

    @property
    def tokens(self) -> int:
        """Base count of everything shown: opening and messages."""
        return self.opening_tokens + self.sums[-1]

    def view(self, closing: Sequence[Message] = (), closing_tokens: int = 0) -> History:
        """The history as it stands now."""
        return History(
            self.opening,
            self.messages,
            len(self.messages),
            tuple(closing),
            self.tokens + closing_tokens,
            self.fragments,
        )

    def aside_of(self, message: Message, size: Size) -> int:
        """What of a message's thinking and memory notes counts here: thinking only where it is sent back.

        That is in Anthropic's form, to the model that wrote it.
        """
        if message.role != "assistant" or not size.aside:
            return size.aside
        return size.aside if self.wire == "anthropic" and same_model(message.model, self.model) else 0

    def hidden(self, first: Place | None = None) -> tuple[Pinned, ...]:
        """The pins before a place (what is shown begins there, if none is given): they have to stand in the opening."""
        return tuple(pin for pin in self.pins if pin.place < (first or self.first))

    def hash_at(self, seq: int) -> bytes | None:
        """The chain value after entry `seq`, if this window read it."""
        index = bisect_left(self.seqs, seq)
        return self.hashes[index] if index < len(self.seqs) and self.seqs[index] == seq else None


def start(
    counter: TokenCounter,
    *,
    mark: Entry | None = None,
    cut: Cut | None = None,
    changed_at: int = 0,
    wire: Wire = "openai",
    model: str = "",
    pins: tuple[Pinned, ...] = (),
) -> tuple[Window, Place]:
    """An empty window, and the place from which to read: after a cut, from what a compaction kept, after a clear.

    The opening has the summary, the marker of a cut, then the groups of `pins` that lie before that place.

    `mark` is the newest clear or compaction that holds. The later of mark and cut decides; a cut from before
    `changed_at` (the newest clear, compaction or undo) was made for another history and does not hold.
    """
    opening: tuple[Message, ...] = ()
    first, plain_until = Place(mark.seq + 1 if mark else 1, 0), 0
    if mark is not None and mark.kind == "compaction":
        opening = (Message("user", (Text(f"{SUMMARY_MARKER}\n{mark.body.get('summary', '')}"),)),)
        first, plain_until = Place(int(mark.body["first_kept"]), 0), mark.seq
    if cut is not None and cut.at_seq >= max(changed_at, mark.seq if mark else 0):
        opening = (*(opening if cut.keeps_summary else ()), Message("user", (Text(cut.marker),)))
        first, plain_until = cut.first, cut.plain_until
    else:
        cut = None
    sizes = [message_tokens(message, counter).on(wire) for message in opening]
    window = Window(opening, sum(sizes), plain_until, 0, b"", cut, wire=wire, model=model, first=first)
    window.summary_tokens = sizes[0] if len(opening) > (cut is not None) else 0
    window.fold.started = bool(opening)
    window.pins = pins
    _show_pins(window, counter)
    return window, first


def _show_pins(window: Window, counter: TokenCounter) -> None:
    """Puts hidden pins into the opening, repaired by the same fold as what follows, so ids stay unique."""
    hidden = window.hidden()
    if not hidden:
        return
    aside = Window((), 0, END, 0, b"", wire=window.wire, model=window.model, fold=window.fold)
    for pin in hidden:
        for row in pin.rows:
            _show(aside, row, counter, fresh=True)
        window.fold.tail = None
    lacking = repair.closing(window.fold)
    window.fold.waiting, window.fold.answered = {}, set()
    tokens = sum(message_tokens(message, counter).on(window.wire) for message in lacking)
    window.pinned_tokens = aside.sums[-1] + tokens
    window.pinned = len(aside.messages) + len(lacking)
    window.opening = (*window.opening, *aside.messages, *lacking)
    window.opening_tokens += window.pinned_tokens


def extend(window: Window, entries: Iterable[Entry], counter: TokenCounter, first: Place | None = None) -> bool:
    """Adds entries that follow the window's head. False: they are no mere append, the window must be made anew.

    `first` is given when a window is filled for the first time: rows before it are not shown, marks are passed over,
    and pieces of one message are joined.
    """
    fresh = first is not None
    for entry in entries:
        if entry.kind in ("clear", "compaction", "undone", "pin", "unpin") and not fresh:
            return False
        for row in entry.rows:
            if first is not None and row.place < first:
                continue
            if not _show(window, row, counter, fresh=fresh):
                return False
        window.turn = entry.turn
        window.head, window.head_hash = entry.seq, entry.hash
        window.seqs.append(entry.seq)
        window.hashes.append(entry.hash)
    return True


def restart(old: Window, cut: Cut, mark: Entry | None, counter: TokenCounter) -> Window:
    """The window that a cut leaves, made from the old one's rows: the same as one made anew from the ledger."""
    window, first = start(counter, mark=mark, cut=cut, wire=old.wire, model=old.model, pins=old.pins)
    window.head, window.head_hash = old.head, old.head_hash
    begin = next((index for index, row in enumerate(old.rows) if row.place >= first), len(old.rows))
    for row in old.rows[begin:]:
        _show(window, row, counter, fresh=True)
    window.seqs, window.hashes = old.seqs[:], old.hashes[:]
    window.turn = old.turn
    return window


def _show(window: Window, row: Row, counter: TokenCounter, *, fresh: bool) -> bool:
    if row.message.role == "system" and row.place.seq == 1 and not window.messages:
        return True
    plain = row.place.seq <= window.plain_until
    try:
        shown = repair.step(window.fold, row.message, plain=plain)
    except repair.NotAppend:
        if not fresh:
            return False
        return _join(window, row, plain=plain)
    window.rows.append(row)
    if shown and shown[-1][0].role == "assistant":
        window.pieces = row.message
    for message, starts_group, altered in shown:
        whole = not altered and _weight(message) == _weight(row.message)
        size = row.size if whole else message_tokens(message, counter)
        aside = 0 if plain else window.aside_of(message, size)
        _add(
            window,
            message,
            size.on(window.wire),
            aside,
            starts_group=starts_group,
            row=-1 if altered and not starts_group else None,
        )
    return True


def _weight(message: Message) -> int:
    """How many parts of a message count in full: one that shows fewer than were stored must be counted anew."""
    return sum(
        1
        for part in message.parts
        if not isinstance(part, Thinking) and not (isinstance(part, Note) and part.kind == "memory")
    )


def _add(window: Window, message: Message, tokens: int, aside: int, *, starts_group: bool, row: int | None) -> None:
    index = len(window.messages)
    if starts_group:
        window.groups.append(index)
        if message.role == "user":
            window.turns.append(index)
    window.messages.append(message)
    window.sums.append(window.sums[-1] + tokens + aside)
    window.asides.append(aside)
    window.row_of.append(len(window.rows) - 1 if row is None else row)
    for part in message.parts:
        if isinstance(part, Note) and part.kind == "memory":
            window.memory[part.origin] = part.text


def _join(window: Window, row: Row, *, plain: bool) -> bool:
    """Puts a later piece of the last assistant message where it belongs: into that message."""
    assert window.pieces is not None
    joined = window.pieces = repair.joined(window.pieces, row.message)
    window.rows.append(row)
    window.fold.tail = None
    for call in window.messages[-1].calls():
        window.fold.used.pop(call.id, None)
    window.fold.waiting.clear()
    shown = repair.step(window.fold, joined, plain=plain)
    window.messages[-1] = shown[-1][0]
    aside = 0 if plain else window.aside_of(row.message, row.size)
    window.asides[-1] += aside
    window.sums[-1] += row.size.on(window.wire) + aside
    return True
