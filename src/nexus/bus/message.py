"""The bus's value: a typed envelope around JSON content, and its encoding."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from nexus.errors import BadBusMessage, bus_message_too_large
from nexus.types.decoding import decodable

SCHEMA_VERSION = "1.0"
"""Version of the envelope. A new minor version adds fields, a new major version changes them."""

MAX_BYTES = 1_000_000
"""Largest encoded message by default. A NATS server accepts 1 MiB, from which its headers are subtracted."""

ERROR_TYPE = "nexus.bus.error"
"""`type` of a reply that reports a failed request."""

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return a new unique id."""
    return uuid4().hex


class Message(Struct, frozen=True):
    """Envelope of one message.

    `Message("orders.new", {"order": 7}, session="main")` fills in id and time. Functions see a copy that came through
    JSON, also in process.
    """

    topic: str
    """Where it goes: words of letters, digits, `_` and `-`, joined by dots."""
    content: Any = None
    """Any JSON value. Send a reference to large content, such as a position in the ledger."""
    type: str = ""
    """Kind of the content, in the words of the application."""
    id: str = msgspec.field(default_factory=new_id)
    at_ms: int = msgspec.field(default_factory=now_ms)
    """When it was made, in milliseconds since 1970."""
    tenant: str = ""
    session: str = ""
    """Messages of one tenant and session are processed in order. Messages without a session have no order."""
    correlation_id: str = ""
    """Same for all messages of one conversation: the id of its first message."""
    causation_id: str = ""
    """Id of the message that this one follows from."""
    idempotency_key: str = ""
    """Durable messages of one tenant and topic with the same key are stored once. Without a key the id is used."""
    deadline_ms: int = 0
    """When it expires, in milliseconds since 1970; 0: never. Expired messages are not passed to functions."""
    trace_parent: str = ""
    """W3C trace context."""
    schema_version: str = SCHEMA_VERSION

    def reply(self, content: Any = None, *, type: str = "") -> Message:  # noqa: A002 - the field's name
        """Return a reply to this message: same tenant, session, conversation and trace."""
        return self.follow_up(self.topic, content, type=type)

    def follow_up(self, topic: str, content: Any = None, *, type: str = "") -> Message:  # noqa: A002 - the field's name
        """Return a message for another topic that follows from this one."""
        return Message(
            topic,
            content,
            type=type,
            tenant=self.tenant,
            session=self.session,
            correlation_id=self.correlation_id or self.id,
            causation_id=self.id,
            trace_parent=self.trace_parent,
        )


class _Version(Struct):
    """Only the version of a message, which is checked before the other fields are read."""

    schema_version: str = SCHEMA_VERSION


_read_message = msgspec.json.Decoder(decodable(Message)).decode
_read_version = msgspec.json.Decoder(decodable(_Version)).decode


def encode(message: Message, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the message as JSON.

    Raises:
        BadBusMessage: The topic is invalid, a field has a wrong type, or the content has no JSON form.
        BadBusMessage: The result is longer than `max_bytes`.
    """
    if not isinstance(message, Message):
        raise BadBusMessage(f"message is a {type(message).__name__} (pass a nexus.bus.Message)")
    check_topic(message.topic)
    try:
        payload = msgspec.json.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadBusMessage(f"message for {message.topic!r} has no JSON form: {error} (use JSON values)") from error
    if len(payload) > max_bytes:
        raise bus_message_too_large(message.topic, len(payload), max_bytes)
    decode(payload)  # a struct does not check the types of its fields; the receiver would have to refuse them
    return payload


def decode(payload: bytes) -> Message:
    """Return the message in this JSON. Unknown fields are ignored: newer minor versions may have them.

    Raises:
        BadBusMessage: It is not a message.
        BadBusMessage: Its major version is newer than ours.
    """
    try:
        version = _read_version(payload).schema_version
        major = int(version.partition(".")[0])
        if major > int(SCHEMA_VERSION.partition(".")[0]):
            raise BadBusMessage(
                f"message has envelope version {version}, this program reads up to {SCHEMA_VERSION} (update Nexus)",
                code="bus_message_too_new",
            )
        return _read_message(payload)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        if isinstance(error, BadBusMessage):
            raise
        raise BadBusMessage(f"message unreadable: {error}") from error


def check_topic(topic: str) -> None:
    """Raise BadBusMessage unless the topic has the form `word.word`."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or len(topic) > 200:
        raise BadBusMessage(
            f"topic {topic!r} invalid (use up to 200 letters, digits, '_' and '-', in words joined by dots)"
        )


def expired(message: Message, at_ms: int) -> bool:
    """Return whether the deadline of a message has passed."""
    return 0 < message.deadline_ms <= at_ms
