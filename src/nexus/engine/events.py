"""Events as the ledger has them: their keys and digests, the turn that has one, and what they say besides their messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.context import AssembledContext, StoredEvent
from nexus.engine.late_replies import record_waiting_reply
from nexus.errors import IdempotencyConflict, TurnSuperseded
from nexus.ledger.history_operations import Ledger
from nexus.ledger.unrecorded_replies import UnrecordedReplies
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Entry, TurnPosition
from nexus.types.message import ATTACHED, Message, Note
from nexus.types.request import Event

SURROUNDINGS = ("timezone", "channel", "chat_id", "platform", "platform_actions", "hook_data", "metadata")
"""Fields of an event that its messages do not have, and that later calls of its turn need."""


def event_key(event_id: str, principal: str) -> str:
    """Return the idempotency key of an event on its session's path: two principals may use the same id."""
    if principal:
        return f"event-of:{json.dumps([principal, event_id])}"
    return f"event:{event_id}"


def event_keys(event: Event, principal: str) -> tuple[str, ...]:
    """Return the idempotency keys of an event and of those that it includes."""
    names = (*event.included_ids, event.id)
    return tuple(dict.fromkeys(event_key(name, principal) for name in names if name))


def event_digest(event: Event) -> str:
    """Return a digest of what an event says by itself. Time, metadata and hook data may differ when it is delivered again."""
    if event.id in event.digests:
        return event.digests[event.id]
    content = [
        event.content,
        event.attachments,
        [_role_and_parts(message) for message in (*event.preceding, *event.results)],
    ]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:24]


def event_fields(event: Event, principal: str, prepared: Event | None = None) -> dict[str, Any]:
    """Return the fields that an event adds to the entry of its messages. `prepared` has the data of hooks too."""
    fields: dict[str, Any] = {}
    if event.id:
        digests = {**event.digests, event.id: event_digest(event)}
        fields["event_digest"] = {event_key(id_, principal): digest for id_, digest in digests.items()}
    values = msgspec.to_builtins(prepared or event)
    defaults = msgspec.to_builtins(Event())
    # The zone 0 is UTC, and none is the engine's.
    surroundings = {name: values[name] for name in SURROUNDINGS if values[name] != defaults[name]}
    if surroundings:
        fields["event"] = surroundings
    return fields


def turn_with_event(ledger: Ledger, session: str, event: Event, principal: str) -> TurnPosition | None:
    """Return the turn of a session that has an event, None if there is none.

    Raises IdempotencyConflict if the session has another event with the id of this one from the same principal.
    """
    store = ledger.store
    key = event_key(event.id, principal)
    with store.snapshot():
        thread = store.thread_of(session)
        if thread is None or not event.id:
            return None
        # Earlier versions left the principal out of the key.
        for name in dict.fromkeys((key, event_key(event.id, ""))):
            for holder, seq in store.holders(name, thread)[:1]:
                entry = next(iter(store.entries(thread, seq - 1, seq)))
                if (principal and name == key) or entry.body.get("principal", "") == principal:
                    _check_same(session, event, key, entry)
                    return TurnPosition(holder, seq, entry.turn)
    return None


def surroundings_of(entries: Iterable[Entry]) -> Event:
    """Return the surroundings that the first of these entries with any has stored, as an event without content."""
    stored_fields = (entry.body["event"] for entry in entries if "event" in entry.body)
    fields: dict[str, Any] = next(stored_fields, dict[str, Any]())
    return msgspec.convert({name: fields[name] for name in SURROUNDINGS if name in fields}, decodable(Event))


def event_of(stored: StoredEvent, surroundings: Event, now_ms: int) -> Event:
    """Return a stored event as a request has it: its messages unchanged, with the newest one's id, time and source."""
    newest = stored.messages[-1]
    user_message = next((message for message in reversed(stored.messages) if message.role == "user"), newest)
    fields: dict[str, Any] = {name: getattr(surroundings, name) for name in SURROUNDINGS}
    return replace(
        Event(**fields),
        results=stored.messages,
        id=user_message.id,
        at_ms=newest.at_ms or now_ms,
        source=user_message.source or "human",
    )


def event_of_context(ctx: AssembledContext) -> Event:
    """Return the event of a context at its time, reconstructed if the context was loaded from a file."""
    at_ms = max((message.at_ms for message in ctx.event), default=0)
    if ctx.provenance.request is not None:
        return replace(ctx.provenance.request.event, at_ms=at_ms)
    results = tuple(message for message in ctx.event if message.role == "tool")
    others = [message for message in ctx.event if message.role != "tool"]
    # Assembly adds all notes again except attached files, which are the user's.
    content = tuple(
        part
        for message in others
        for part in message.parts
        if not isinstance(part, Note) or part.origin.startswith(ATTACHED)
    )
    source = next((message.source for message in others), "human")
    received = others[0].received if len(others) == 1 else ""
    event_id = ctx.source_event_id or ""
    return Event(content, results, id=event_id, at_ms=at_ms, source=source, received=received)


def check_untouched(ledger: Ledger, unrecorded: UnrecordedReplies, session: str, stored: StoredEvent) -> None:
    """Raise TurnSuperseded if anything came to a session since a turn stored this event.

    Raises LedgerError while a reply of the turn waits for the ledger.
    """
    record_waiting_reply(ledger, unrecorded, session, stored.turn)
    with ledger.snapshot():
        row = None
        if ledger.store.thread_of(session) == stored.thread:
            row = ledger.store.thread(stored.thread)
    if row is None or not row.open_turn or row.head_hash != stored.hash:
        raise TurnSuperseded(session, stored.turn, "the session has changed")


def _role_and_parts(message: Message) -> list[object]:
    return [message.role, message.parts]


def _check_same(session: str, event: Event, key: str, entry: Entry) -> None:
    digests = entry.body.get("event_digest", {})
    if digests.get(key, event_digest(event)) != event_digest(event):
        text = (
            f"event id {event.id[:80]!r} was used in session {session!r} for another message of the same sender (give "
            "each event an id of its own; nothing was stored)"
        )
        raise IdempotencyConflict(session, key, alike=False, text=text)
