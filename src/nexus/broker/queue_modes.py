"""Queue modes: what becomes of events that arrive while a turn of their session runs.

| Mode | While a turn runs | Afterward |
|---|---|---|
| `followup` | waits | one turn each, in order |
| `collect` | waits | all that wait are one turn of separate messages |
| `steer` | joins the running turn after its tool results | later ones are one turn of separate messages |
| `steer-backlog` | joins the running turn after its tool results | later ones are one turn each, in order |
| `interrupt` | ends the running turn, which keeps its partial reply | all that wait are one turn of separate messages |

Each event has its own mode. Events of one mode in a row are collected; one of another mode ends the row. Only events with
the same options join a turn: one turn has one principal, and one set of tools, permissions and settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.engine.events import event_digest
from nexus.errors import BadSetting
from nexus.ledger.sessions import QueuedEvent
from nexus.types.decoding import decodable
from nexus.types.message import Message, Text, user
from nexus.types.request import Event
from nexus.types.settings import Settings, SettingsChanges

QueueMode: TypeAlias = Literal["followup", "collect", "steer", "steer-backlog", "interrupt"]
DropPolicy: TypeAlias = Literal["old", "new", "summarize"]

MODES: tuple[QueueMode, ...] = get_args(QueueMode)
STEERING: tuple[QueueMode, ...] = ("steer", "steer-backlog")
_JOINED: tuple[QueueMode, ...] = ("collect", "steer", "interrupt")

EXCERPT_CHARS = 160
"""Characters of each message in the summary of those that a full queue left out."""


class EventBody(Struct, frozen=True, omit_defaults=True):
    """An accepted event as its row in the queue has it."""

    event: Event
    mode: QueueMode = "followup"
    options: dict[str, Any] = {}
    """Settings of the turn's calls that differ from the agent's, by name."""
    reply_to: str = ""
    """Label of the session that gets the turn's answer as an event."""
    reply_options: dict[str, Any] = {}
    """Options of that event."""
    trace: str = ""
    """`traceparent` of the span that submitted it, which the turn's spans continue."""


class QueueRow(Struct, frozen=True):
    """A row of the queue, decoded."""

    row: QueuedEvent
    body: EventBody
    settings: Settings
    """The settings of its turn's calls: the agent's, changed."""

    @property
    def principal(self) -> str:
        """Principal of the sender; empty without one."""
        return self.settings.principal


class EventTurn(Struct, frozen=True):
    """The turn that has an event; its number is 0 if none has."""

    number: int = 0
    status: str = ""
    error: str = ""
    text: str = ""
    """The last reply, if a session waits for it."""


_BODY = msgspec.json.Decoder(decodable(EventBody))


def checked_mode(mode: QueueMode) -> QueueMode:
    """Return a mode. Raises BadSetting for an unknown one."""
    if mode not in MODES:
        raise BadSetting(f"queue mode {mode!r} unknown (use {', '.join(MODES)})")
    return mode


def encode_body(body: EventBody) -> str:
    """Return the text of a row. Raises BadSetting for arguments that are no JSON values."""
    try:
        return msgspec.json.encode(body).decode()
    except (TypeError, ValueError) as error:
        text = f"event cannot be queued: {error} (its arguments must be JSON values; give tools to the agent)"
        raise BadSetting(text) from error


def decode_row(row: QueuedEvent, settings: Settings) -> QueueRow:
    """Return a row with its body; `settings` are the agent's."""
    body = _BODY.decode(row.body)
    return QueueRow(row, body, settings.with_changes(cast("SettingsChanges", body.options)))


def next_batch(rows: Sequence[QueueRow]) -> list[QueueRow]:
    """Return the queued events that the session's next turn answers, in order: those of one sender, with the same settings."""
    alike = list(takewhile(lambda row: row.settings == rows[0].settings, rows))
    if any(row.body.mode == "interrupt" for row in alike):
        return alike
    if not alike or alike[0].body.mode not in _JOINED:
        return alike[:1]
    return list(takewhile(lambda row: row.body.mode == alike[0].body.mode, alike))


def joined_event(rows: Sequence[QueueRow], left_out: Sequence[QueueRow] = ()) -> Event:
    """Return the event of one turn: the last row's, with the others before it as separate messages."""
    last = rows[-1].body.event
    before = [message for row in rows[:-1] for message in _messages(row.body.event)]
    if left_out:
        before.insert(0, _summary(left_out))
    included = tuple(row.row.id for row in (*left_out, *rows[:-1]))
    digests = {row.row.id: event_digest(row.body.event) for row in (*left_out, *rows)}
    return replace(
        last, preceding=(*before, *last.preceding), included_ids=(*included, *last.included_ids), digests=digests
    )


def _messages(event: Event) -> tuple[Message, ...]:
    message = Message("user", event.content, event.id, event.at_ms, source=event.source, received=event.received)
    return (*event.preceding, message)


def _summary(rows: Sequence[QueueRow]) -> Message:
    """Return a message with the beginnings of events that a full queue left out."""
    lines = [f"[{len(rows)} earlier messages were left out because too many waited. They began:"]
    for row in rows:
        text = " ".join(part.text for part in row.body.event.content if isinstance(part, Text)).split()
        lines.append(f"- {' '.join(text)[:EXCERPT_CHARS]}")
    return user("\n".join([*lines[:-1], f"{lines[-1]}]"]))
