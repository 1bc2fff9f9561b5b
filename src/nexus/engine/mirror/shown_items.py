"""The items of a mirrored list that its context shows, for programs that send their own message objects.

A program gets back the indexes of what is shown as it came, so that it loses no field that neutral messages lack, and a
message only where the context has another one: a truncated message, an omission notice, a missing result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from nexus.context import AssembledContext, SentMessage
from nexus.engine.mirror import PlacedList
from nexus.ledger.store import LedgerStore
from nexus.text.message_text import with_unsendable_as_notes
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown


class ShownItem(Struct, frozen=True):
    """One message of a context."""

    item: int | None
    """Index of the list's item that it is made from; None for a message that Nexus wrote."""
    message: Message | None
    """The message, if it is another one than the item's."""


def shown_items(ctx: AssembledContext, store: LedgerStore) -> tuple[ShownItem, ...]:
    """Return the messages of a mirrored list's context in order, without its system prompt.

    The list has one item for each message.
    """
    assert ctx.mirrored is not None
    assert isinstance(ctx.mirrored.state, PlacedList)
    placed = ctx.mirrored.state
    entries = ctx.sent_messages
    event_start = len(entries) - len(ctx.current)
    indexes = {ref: index for index, ref in enumerate(_refs(placed, store))}
    history = [(entry, None if entry.ref is None else indexes.get(entry.ref)) for entry in entries[:event_start]]
    event = zip(entries[event_start:], _event_indexes(placed, entries[event_start:]), strict=True)
    return tuple(_shown_item(placed, entry, index) for entry, index in (*history, *event))


def _refs(placed: PlacedList, store: LedgerStore) -> Iterator[MessageRef]:
    """Yield the position of each of the list's messages."""
    place = placed.place
    if place.stored_count:
        path = store.entries(place.thread, 0, place.last)
        yield from [row.ref for entry in path for row in entry.rows][-place.stored_count :]
    for seq, entry in enumerate(placed.staged, place.base + 1):
        if entry.messages:
            yield MessageRef(seq, 0)


def _event_indexes(placed: PlacedList, entries: Sequence[SentMessage]) -> list[int | None]:
    """Return the index of the list's message of each message of the event, which no cut omits."""
    waiting = list(range(placed.client.history_length, len(placed.messages)))
    indexes: list[int | None] = []
    for entry in entries:
        calls = _call_ids(entry.message)
        index = None
        if entry.state != "synthetic":
            same_role = (i for i in waiting if placed.messages[i].role == entry.message.role)
            index = next((i for i in same_role if _call_ids(placed.messages[i]) == calls), None)
        if index is not None:
            waiting.remove(index)
        indexes.append(index)
    return indexes


def _call_ids(message: Message) -> list[str]:
    return [result.call_id for result in message.results()]


def _shown_item(placed: PlacedList, entry: SentMessage, index: int | None) -> ShownItem:
    if index is None:
        return ShownItem(None, entry.message)
    item = placed.client.items[index]
    listed = placed.messages[index]
    content = _content(entry.message.parts)
    as_listed = (_content(listed.parts), _content(with_unsendable_as_notes(listed).parts))
    if entry.state == "unchanged" or content in as_listed:
        return ShownItem(item, None)
    return ShownItem(item, entry.message)


def _content(parts: Iterable[Part]) -> list[object]:
    """Return what parts say, without what only some models are sent, and without ids, which may be made valid."""
    content: list[object] = []
    for part in parts:
        match part:
            case Thinking() | Unknown() | Note(kind="memory"):
                pass
            case Text(text) | Note(text=text):
                if text.strip():
                    content.append(text)
            case ToolCall():  # its id, name or arguments may be made valid, but no cut shortens them
                content.append("call")
            case ToolResult(_, blocks):
                content.append(("result", *map(_block, blocks)))
            case Image():
                content.append(_block(part))
    return content


def _block(block: Text | Image) -> object:
    """Return what a text or an image says; an image's true type may be another one than the client's."""
    if isinstance(block, Text):
        return block.text
    return ("image", block.data or block.url or block.sha256)
