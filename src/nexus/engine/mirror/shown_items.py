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
from nexus.text.as_received import with_call_ids
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
    rows = (*history, *event)
    ids = _listed_ids(placed, rows)
    return tuple(_shown_item(placed, entry, index, ids) for entry, index in rows)


def _listed_ids(placed: PlacedList, rows: Iterable[tuple[SentMessage, int | None]]) -> dict[str, str]:
    """Return the list's ids of calls by those that were made valid: items that go out as they came have the list's."""
    ids: dict[str, str] = {}
    for entry, index in rows:
        if index is not None and entry.state == "repaired":
            ids |= zip(_ids(entry.message), _ids(placed.messages[index]), strict=False)
    return ids


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
    sent_ids = [_ids(entry.message) for entry in entries]
    for entry, ids in zip(entries, sent_ids, strict=True):
        index = None
        if entry.state != "synthetic":
            same_role = [i for i in waiting if placed.messages[i].role == entry.message.role]
            listed = {i: _ids(placed.messages[i]) for i in same_role}
            renamed = (i for i in same_role if len(listed[i]) == len(ids) and listed[i] not in sent_ids)
            index = next((i for i in same_role if listed[i] == ids), next(renamed, None))
        if index is not None:
            waiting.remove(index)
        indexes.append(index)
    return indexes


def _ids(message: Message) -> list[str]:
    """Return the ids of a message's calls and results."""
    return [
        part.id if isinstance(part, ToolCall) else part.call_id
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult)
    ]


def _shown_item(placed: PlacedList, entry: SentMessage, index: int | None, ids: dict[str, str]) -> ShownItem:
    message = with_call_ids(entry.message, ids)
    if index is None:
        return ShownItem(None, message)
    item = placed.client.items[index]
    listed = placed.messages[index]
    content = _content(entry.message.parts)
    as_listed = (_content(listed.parts), _content(with_unsendable_as_notes(listed).parts))
    if entry.state == "unchanged" or content in as_listed:
        return ShownItem(item, None)
    return ShownItem(item, message)


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
