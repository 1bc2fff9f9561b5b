"""Position and state of each sent message: unchanged, truncated, repaired or synthetic. Pure; computed on request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from nexus.assembly.fit.choose import ChosenFit
from nexus.assembly.fit.pins import EXCERPTS_SOURCE
from nexus.assembly.fit.repair import is_missing_result, is_synthetic_result
from nexus.assembly.fit.window import Window
from nexus.context import SentMessage, StoredEvent
from nexus.text.as_received import received_format, with_call_ids
from nexus.types.history import History
from nexus.types.message import Message, Note, client_call_ids

_Comparison: TypeAlias = Callable[[Message, Message], bool]
"""Returns True if a message is sent as it is stored."""


def sent_messages(
    chosen: ChosenFit,
    history: History,
    current: Sequence[Message],
    stored: StoredEvent | None,
    own_formats: Collection[str],
) -> tuple[SentMessage, ...]:
    """Return each message of the history and the event with its position and state.

    `own_formats` are the formats in which the messages are sent: one that was received in them is sent as received.
    """
    window = chosen.result.window
    client_ids: dict[str, str] = {}
    for message in (*(row.message for row in window.rows), *chosen.event):
        client_ids.update(client_call_ids(message))
    is_same = partial(_is_same, own_formats=own_formats, client_ids=client_ids)
    return (
        *_opening(window, history.opening, is_same),
        *(_visible(window, index, history.shared[index], is_same) for index in range(history.end)),
        *(SentMessage(message, None, "synthetic") for message in history.closing),
        *_event(chosen.event, current, stored, is_same),
    )


def _is_same(message: Message, stored: Message, *, own_formats: Collection[str], client_ids: Mapping[str, str]) -> bool:
    """Return True if a message is sent as it is stored, from its parts or as received, or with its client's own ids."""
    if message in (stored, with_call_ids(stored, client_ids)):
        return True
    return (
        bool(message.received)
        and message.received == stored.received
        and received_format(message) in own_formats
        and [part for part in message.parts if isinstance(part, Note)]
        == [part for part in stored.parts if isinstance(part, Note)]
    )


def is_supplied(window: Window, index: int) -> bool:
    """Return True if a visible message is synthetic: a missing result, or a leading user message."""
    message = window.messages[index]
    stored = window.rows[window.indexes.shown_by[index]].message
    if message.role == "tool":
        return is_synthetic_result(message) and not any(map(is_missing_result, stored.results()))
    return message.role == "user" and stored.role == "assistant"


def _opening(window: Window, messages: Sequence[Message], is_same: _Comparison) -> Iterator[SentMessage]:
    opening = window.opening
    preamble = len(messages) - len(opening.messages)
    rows = {row.ref: row for row in (*opening.lead, *(row for pin in opening.pins for row in pin.rows))}
    large = {row.ref for pin in opening.pins if pin.is_large() for row in pin.rows}
    written = {pin.place for pin in opening.pins if pin.kind == "digest"}
    for index, message in enumerate(messages, -preamble):
        ref = opening.refs.get(index)
        ref = None if ref in written else ref
        if (
            ref is None
            or message.source == EXCERPTS_SOURCE
            or (message.role == "tool" and is_synthetic_result(message))
        ):
            yield SentMessage(message, None, "synthetic")
        elif is_same(message, rows[ref].message):
            yield SentMessage(message, ref, "unchanged")
        else:
            is_truncated = ref in large or ref in window.reductions.tokens_cut
            yield SentMessage(message, ref, "truncated" if is_truncated else "repaired")


def _visible(window: Window, index: int, message: Message, is_same: _Comparison) -> SentMessage:
    row = window.rows[window.indexes.shown_by[index]]
    if is_supplied(window, index):
        return SentMessage(message, None, "synthetic")
    if is_same(message, row.message):
        return SentMessage(message, row.ref, "unchanged")
    is_reduced = row.ref in window.reductions.tokens_cut or message is not window.messages[index]
    return SentMessage(message, row.ref, "truncated" if is_reduced else "repaired")


def _event(
    event: Sequence[Message], current: Sequence[Message], stored: StoredEvent | None, is_same: _Comparison
) -> Iterator[SentMessage]:
    refs = dict(enumerate(stored.refs)) if stored is not None else {}
    waiting = list(enumerate(event))
    for message in current:
        if message.role == "tool" and is_synthetic_result(message):
            yield SentMessage(message, None, "synthetic")
            continue
        calls = [result.call_id for result in message.results()]
        place = next(
            (
                (index, original)
                for index, original in waiting
                if message == original
                or (message.role == original.role and calls == [result.call_id for result in original.results()])
            ),
            None,
        )
        if place is None:
            yield SentMessage(message, None, "repaired")
            continue
        waiting.remove(place)
        index, original = place
        shorter = len(repr(message.parts)) < len(repr(original.parts))
        if is_same(message, original):
            state = "unchanged"
        elif shorter:
            state = "truncated"
        else:
            state = "repaired"
        yield SentMessage(message, refs.get(index), state)
