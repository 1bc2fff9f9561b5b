"""The pins that the opening of a cut shows: which they are, and what they take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import structs

from nexus.assembly.fit.instructions import instruction_pin, instruction_pins
from nexus.assembly.fit.pins import PinKind, Pinned, excerpt_pin, merge_pins, withheld_pin
from nexus.assembly.fit.window import Window
from nexus.types.ledger_entries import Cut, MessageRef, StoredMessage


def pending_request(window: Window, index: int) -> Pinned | None:
    """Return the user message that the messages from `index` on answer, None if they begin with it."""
    if index >= len(window.messages):
        return None
    limit = window.rules.limits.max_tokens
    turn = bisect_right(window.indexes.turns, index) - 1
    row = window.row_at(window.indexes.turns[turn]) if turn >= 0 else None
    # The message that opens a conversation which an assistant begins is not a request.
    if row is None or row.message.role == "assistant":
        for pin in window.opening.pins:
            if pin.place == window.opening.pending_request:
                return structs.replace(pin, limit=limit, kind="asked")
        return None
    if window.indexes.turns[turn] == index or row.message.role != "user":
        return None
    return Pinned(row.ref, (row,), limit, "asked")


def lasting_pins(window: Window) -> list[Pinned]:
    """Return the pins that no cut omits: user pins, the first user message, and instructions of the client's list."""
    pins = [pin for pin in window.opening.pins if pin.kind in ("pin", "task")]
    rows = (row for pin in window.opening.pins if pin.kind == "instruction" for row in pin.rows)
    return [*pins, *instruction_pins((*rows, *window.instructions))]


def pin_places(pins: Iterable[Pinned], kind: PinKind) -> tuple[MessageRef, ...]:
    """Return the positions of the pins of a kind."""
    return tuple(pin.place for pin in pins if pin.kind == kind)


def opening_pins(window: Window, index: int) -> tuple[Pinned, ...]:
    """Return the pins of a cut at message `index`, without excerpts: the lasting ones and the pending request."""
    pins = lasting_pins(window)
    request = pending_request(window, index)
    if request is not None:
        pins.append(request)
    return merge_pins(*pins)


def reserved_places(
    window: Window, index: int, *, shows_request: bool = True, shows_task: bool = True
) -> frozenset[MessageRef]:
    """Return the positions that the opening of a cut at message `index` shows besides excerpts."""
    is_shown = {"asked": shows_request, "task": shows_task}
    pins = (pin for pin in opening_pins(window, index) if is_shown.get(pin.kind, True))
    return frozenset(row.ref for pin in pins for row in pin.rows)


def opening_pins_tokens(window: Window, index: int, head: int = 0) -> int:
    """Return the tokens of the pins that the opening of a cut at message `index` shows, without excerpts."""
    rules = window.rules
    pins = opening_pins(window, index)
    if index < len(window.messages):
        place = window.rows[max(window.indexes.row_of[index], 0)].ref
        pins = [pin for pin in pins if pin.place < place]
    if head:
        head_end = window.row_at(head).ref
        pins = [pin for pin in pins if not window.first <= pin.place < head_end]
    lead_places = {row.ref for row in window.opening.lead}
    return sum(pin.tokens(rules.wire, rules.images) for pin in pins if pin.place not in lead_places)


def excerpt_pins(window: Window, cut: Cut) -> list[Pinned]:
    """Return the pins of a cut's instructions and excerpts and of the user turns that it withholds, from pins or rows."""
    rows = {row.ref: row for pin in window.opening.pins for row in pin.rows}

    def row_at(place: MessageRef) -> StoredMessage:
        return (window.rows_at(place) or (rows[place],))[0]

    instructions = (instruction_pin(row_at(place)) for place in cut.instructions)
    excerpts = (excerpt_pin(row_at(place), cut.excerpt_tokens, window.rules.render) for place in cut.excerpts)
    return [*instructions, *excerpts, *(withheld_pin(row_at(place)) for place in cut.withheld_turns)]


def request_at(window: Window, place: MessageRef | None) -> tuple[Pinned, ...]:
    """Return the request at a position, from the pins or the rows."""
    if place is None:
        return ()
    pinned_rows = next((pin.rows for pin in window.opening.pins if pin.place == place), ())
    rows = pinned_rows or window.rows_at(place)
    if rows:
        return (Pinned(place, rows, window.rules.limits.max_tokens, "asked"),)
    return ()
