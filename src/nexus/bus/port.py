"""The port: what every bus does, the values that it returns, and the form of replies to failed requests."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.bus.message import ERROR_TYPE, Message, decode, expired
from nexus.errors import BadSetting, BusDeadlineExceeded, BusError, BusRequestFailed, NexusError
from nexus.types.decoding import decodable

Function = Callable[[Message], Awaitable[Message | None]]
"""Coroutine function that gets a message. It may return a reply, which is sent if the message is a request."""

DEFAULT_CONCURRENCY = 64
"""How many messages of different sessions a subscription processes at once."""

DEFAULT_TIMEOUT_S = 30.0
"""How long a request without a deadline waits for its reply, and `close` for running functions."""

MAX_REASON_CHARS = 500
"""Longest reason that is stored with a dead letter."""

_GROUP = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Redelivery(Struct, frozen=True):
    """Number of deliveries before a durable message is set aside, and the waits between."""

    max_deliveries: int = 5
    delays_s: tuple[float, ...] = (0.5, 2.0, 10.0, 30.0)
    """Wait after each failed delivery, in seconds; the last one repeats. Empty: no waits."""

    def delay_s(self, deliveries: int) -> float:
        """Return the wait after this many deliveries, in seconds."""
        if self.delays_s:
            return self.delays_s[min(deliveries, len(self.delays_s)) - 1]
        return 0.0


class DeadLetter(Struct, frozen=True):
    """Message that was set aside because no function could process it."""

    id: str
    topic: str
    group: str
    """Group that could not process it; empty for a subscription without a group."""
    reason: str
    deliveries: int
    """How often it was passed to a function."""
    at_ms: int
    durable: bool
    """True if `replay` can deliver it again."""
    payload: bytes
    """Encoded message, unchanged."""

    @property
    def message(self) -> Message:
        """The message. Raises BadBusMessage if it is not readable, which may be why it was set aside."""
        return decode(self.payload)


class _Failure(Struct, frozen=True):
    """Content of a reply to a failed request."""

    kind: str = "unknown"
    code: str = ""
    text: str = ""
    details: dict[str, Any] = {}


class Subscription(Protocol):
    """A function that gets the messages of a topic."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def group(self) -> str:
        """The group; empty if it gets all messages."""
        ...

    async def unsubscribe(self) -> None:
        """Stop receiving, and return when the messages that had arrived are processed. A second call does nothing."""
        ...


class Bus(Protocol):
    """Delivers messages between functions of one or more processes. docs/bus.md has the guarantees."""

    async def publish(self, message: Message, *, durable: bool = False) -> None:
        """Send a message to all groups and ungrouped subscriptions of its topic.

        A durable message is stored when this returns, and durable groups get it until one of their functions succeeds.
        Without subscriptions, other messages get lost.

        Raises:
            BadBusMessage: It is invalid. Nothing was sent.
            BadBusMessage: It is too large. Nothing was sent.
            BusDeadlineExceeded: Its deadline has passed. Nothing was sent.
            BusUnavailable: No connection, or a durable message was not stored.
        """
        ...

    async def subscribe(
        self,
        topic: str,
        function: Function,
        *,
        group: str = "",
        durable: bool = False,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> Subscription:
        """Pass the messages of a topic to a function.

        Each message goes to one member of a group. All members must agree on `durable`. A durable group exists without
        members too: later it gets the messages stored meanwhile. `concurrency`: how many messages of different sessions at once.

        Raises:
            BadBusMessage: The topic is invalid.
            BadSetting: The group is invalid, or missing for a durable subscription.
            BusUnavailable: No connection, or the server cannot store messages.
        """
        ...

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Send a message and return the first reply.

        It waits until the earlier of the message's deadline and `timeout_s` from now; without both, 30 s.

        Raises:
            BusNoResponder: The topic has no subscription.
            BusDeadlineExceeded: No reply arrived in time.
            BusRequestFailed: The function raised; `kind` is the error's class name.
            BusUnavailable: No connection.
        """
        ...

    async def dead_letters(self, *, topic: str = "", limit: int = 100) -> list[DeadLetter]:
        """Return the oldest messages that were set aside, of one topic or all."""
        ...

    async def replay(self, letter: DeadLetter) -> None:
        """Deliver a dead letter again, to its group alone, and remove it. Raises BusError if it was not durable."""
        ...

    async def discard(self, letter: DeadLetter) -> None:
        """Remove a dead letter. Raises BusError if it does not exist."""
        ...

    async def close(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Stop receiving, wait for messages that had arrived, then cancel functions that still run. Repeatable."""
        ...


def check_subscription(group: str, concurrency: int, *, durable: bool) -> None:
    """Raise BadSetting unless these are valid arguments of `subscribe`."""
    if group and not (isinstance(group, str) and _GROUP.fullmatch(group)):
        raise BadSetting(f"group {group!r} invalid (use up to 64 letters, digits, '_' and '-')")
    if durable and not group:
        raise BadSetting("durable subscription without a group (pass group=…: its name is what the bus remembers)")
    if concurrency < 1:
        raise BadSetting(f"concurrency is {concurrency} (use 1 or more)")


def with_deadline(message: Message, timeout_s: float | None, at_ms: int) -> tuple[Message, float]:
    """Return a request with its deadline, and how long to wait for a reply, in seconds.

    Raises:
        BadSetting: The timeout is not positive.
        BusDeadlineExceeded: The message's own deadline has passed.
    """
    if timeout_s is not None and timeout_s <= 0:
        raise BadSetting(f"timeout_s is {timeout_s} (use a positive number of seconds)")
    check_deadline(message, at_ms)
    if timeout_s is None and not message.deadline_ms:
        timeout_s = DEFAULT_TIMEOUT_S
    ends = [message.deadline_ms] if message.deadline_ms else []
    if timeout_s is not None:
        ends.append(at_ms + max(1, round(timeout_s * 1000)))
    deadline_ms = min(ends)
    return replace(message, deadline_ms=deadline_ms), (deadline_ms - at_ms) / 1000


def check_deadline(message: Message, at_ms: int) -> None:
    """Raise BusDeadlineExceeded if the deadline of a message has passed."""
    if expired(message, at_ms):
        raise BusDeadlineExceeded(f"message for {message.topic!r} expired before it was sent (set a later deadline)")


def complete_reply(request: Message, reply: Message) -> Message:
    """Return a reply that refers to its request, however it was made."""
    return replace(
        reply,
        correlation_id=reply.correlation_id or request.correlation_id or request.id,
        causation_id=reply.causation_id or request.id,
    )


def error_reply(
    topic: str, error: BaseException, request: Message | None = None, *, details: Mapping[str, Any] | None = None
) -> Message:
    """Return the reply to a failed request. `details` are further JSON values for `BusRequestFailed.details`."""
    text = str(error).encode("utf-8", "replace").decode()  # an error may quote lone surrogates, which JSON has not
    content: dict[str, Any] = {"kind": type(error).__name__, "text": text[:2_000]}
    if isinstance(error, NexusError):
        content["code"] = error.code
    if details:
        content["details"] = dict(details)
    if request is None:
        return Message(topic, content, type=ERROR_TYPE)
    return request.reply(content, type=ERROR_TYPE)


def check_reply(reply: Message) -> Message:
    """Return the reply. Raises BusRequestFailed or BusDeadlineExceeded if it reports an error."""
    if reply.type != ERROR_TYPE:
        return reply
    try:
        failure = msgspec.convert(reply.content, decodable(_Failure))
    except msgspec.ValidationError:
        failure = _Failure()
    if failure.code == BusDeadlineExceeded.code:
        raise BusDeadlineExceeded(failure.text)
    raise BusRequestFailed(reply.topic, failure.kind, failure.text, failure.details, error_code=failure.code)


def check_replay(letter: DeadLetter, *, exists: bool) -> None:
    """Raise BusError unless this dead letter can be replayed."""
    if not exists:
        raise no_such_letter(letter)
    if not letter.durable:
        raise BusError(f"dead letter {letter.id!r} was not durable (publish its message again, then discard it)")


def no_such_letter(letter: DeadLetter) -> BusError:
    """Return the error for a dead letter that does not exist."""
    return BusError(f"dead letter {letter.id!r} not found: it was replayed, discarded or expired (list them again)")
