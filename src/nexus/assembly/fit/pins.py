"""Messages that stay whatever is cut or summarised: what the user pinned, the session's first task, the present request.

A pin holds a whole group, an assistant message with all its results, because nothing less is valid. Hidden pins are
shown after the summary and the marker of what is left out, in their order. Those that a user set are verbatim and never
shortened; the first task and the request that the kept messages answer are, where one is large beside the window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.fit import repair
from nexus.assembly.fit.clip import LEAST_TOKENS, truncate_text
from nexus.assembly.forms.protocol import Shape
from nexus.ledger.replay import conversation_rows
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import ATTACHED, Image, Message, Note, ProviderFormat, Text

FRAME_TOKENS = 40
"""Allowance for what stands around the shortened text of a message."""

NEAR = 64
"""Entries around a pinned message among which its group is looked for."""


PinKind: TypeAlias = Literal["pin", "task", "asked"]
_KINDS: tuple[PinKind, ...] = ("pin", "task", "asked")


class Pinned(Struct, frozen=True):
    """A pinned message with its group, as stored. `place` is the first message of the group.

    `limit` is how many base tokens of text it may show; 0, of a user's own pin, is all. `kind` says why it stays.
    """

    place: MessageRef
    rows: tuple[StoredMessage, ...]
    limit: int = 0
    kind: PinKind = "pin"

    def tokens(self, wire: ProviderFormat, images: ImagePrice = ANY_MODEL) -> int:
        """Base tokens of the group when it is shown among what is left out, at most."""
        stored = sum(row.size.on(wire) + images.more_in(row.message) for row in self.rows)
        return min(stored, self.limit + FRAME_TOKENS) if self.is_large() else stored

    def is_large(self) -> bool:
        """Whether it is shown shortened among what is left out."""
        return bool(self.limit) and any(row.size.tokens > self.limit + FRAME_TOKENS for row in self.rows)


def pending_request_ref(cut: Cut | None, mark: Entry | None) -> MessageRef | None:
    """The place of the user's message that the kept messages answer, as the cut in force or the compaction says."""
    if cut is not None:
        return cut.asked
    told = mark.body.get("asked") if mark is not None else None
    return msgspec.convert(told, MessageRef) if told else None


def merge_pins(*pins: Pinned) -> tuple[Pinned, ...]:
    """The pins in order, each group once: as a user's pin, else as the first task, else as the present request."""
    by_place: dict[MessageRef, Pinned] = {}
    for pin in pins:
        known = by_place.get(pin.place)
        if known is None or _KINDS.index(pin.kind) < _KINDS.index(known.kind):
            by_place[pin.place] = pin
    return tuple(by_place[place] for place in sorted(by_place))


def within_limits(pins: Iterable[Pinned], counter: TokenCounter, shape: Shape) -> list[list[StoredMessage]]:
    """The rows of pins, each within its limit."""
    return [[_short(row, pin.limit, counter, shape) for row in pin.rows] for pin in pins]


def _short(row: StoredMessage, limit: int, counter: TokenCounter, shape: Shape) -> StoredMessage:
    """The row with its text within a limit (0: none) and images as a line, counted anew, where it was larger."""
    if not limit or row.size.tokens <= limit + FRAME_TOKENS:
        return row
    pictures = sum(isinstance(part, Image) for part in row.message.parts)
    told = f"\n[{pictures} images were shown here; they are in the ledger]" if pictures else ""
    given, most = shape.given(row.message), max(limit - shape.around, LEAST_TOKENS)
    text = truncate_text(_told_by(given, bare=not pictures), most, counter, "`nexus history SESSION`")
    message = replace(row.message, parts=(Text(shape.with_text(row.message, text + told)),))
    return StoredMessage(row.place, message, message_tokens(message, counter))


def _told_by(message: Message, *, bare: bool) -> str:
    """What a user gave: attached files, then the text; where that is nothing (`bare`), the moment that came with it."""
    text = message.text()
    notes = [part for part in message.parts if isinstance(part, Note) and part.kind == "moment"]
    told = [note.text for note in notes if note.origin.startswith(ATTACHED)]
    if bare and not told and not text.strip():
        told = [note.text for note in notes]
    return "\n\n".join(["\n".join(told), *([text] if text else [])]) if told else text


def pinned_groups(
    read: Callable[[int, int], Iterable[Entry]],
    pins: Collection[MessageRef],
    first: MessageRef,
    *,
    limit: int = 0,
    kind: PinKind = "pin",
) -> tuple[Pinned, ...]:
    """The groups of the pinned messages from `first` on, in order. `read` gives entries `after < seq <= until`."""
    found: dict[MessageRef, Pinned] = {}
    for place in sorted(pins):
        if place < first:
            continue
        rows = [
            row for entry in read(max(place.seq - 1 - NEAR, 0), place.seq + NEAR) for row in conversation_rows(entry)
        ]
        group = _group(rows, place)
        if group:
            found[group[0].place] = Pinned(group[0].place, group, limit, kind)
    return tuple(found[place] for place in sorted(found))


def first_user_message(read: Callable[[int, int], Iterable[Entry]], after: int, head: int) -> StoredMessage | None:
    """The first message of a user's after an entry: what the session was begun for. None if there is none yet."""
    low = after
    while low < head:
        high = min(low + NEAR, head)
        for entry in read(low, high):
            for row in entry.rows:
                said = row.message.role == "user" and not row.message.source.startswith("nexus:")
                if said and row.message.text().strip():
                    return row
        low = high
    return None


def message_at(read: Callable[[int, int], Iterable[Entry]], place: MessageRef) -> StoredMessage | None:
    """The row at a place."""
    return next(
        (row for entry in read(place.seq - 1, place.seq) for row in conversation_rows(entry) if row.place == place),
        None,
    )


def _group(rows: Iterable[StoredMessage], place: MessageRef) -> tuple[StoredMessage, ...]:
    """The messages that can only be shown together with the one at a place: as the repair pairs and joins them.

    Empty where that message shows nothing.
    """
    fold, pieces = repair.Fold(started=True), Message("assistant", ())
    group: list[StoredMessage] = []
    for row in rows:
        try:
            shown = repair.step(fold, row.message, plain=False)
        except repair.NotAppend:
            pieces = repair.join_pieces(pieces, row.message)
            fold.tail = None
            fold.waiting.clear()
            repair.step(fold, pieces, plain=False)
            group.append(row)
            continue
        starts = any(is_start for _, is_start, _ in shown)
        if starts and row.message.role == "assistant":
            pieces = row.message
        if starts and not _answers(row, shown):
            if any(one.place == place for one in group):
                break
            group = []
        if shown:
            group.append(row)
    return tuple(group) if any(row.place == place for row in group) else ()


def _answers(row: StoredMessage, shown: Sequence[repair.Shown]) -> bool:
    """Whether results that a message has are shown, whatever else it says."""
    own = {part.content for part in row.message.results()}
    return any(part.content in own for message, _, _ in shown for part in message.results())
