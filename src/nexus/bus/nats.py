"""The bus on NATS: core subjects and queue groups for plain messages, JetStream for durable ones.

Subjects, with prefix `nexus`:

- `nexus.p.<topic>`: plain messages and requests
- `nexus.d.<topic>.<partition>`: durable messages, stored in the stream `nexus-messages`
- `nexus.push.<consumer>`: durable messages on their way to a member of a group
- `nexus.dead.<topic>`: dead letters, stored in the stream `nexus-dead`

A session belongs to one partition. Each partition of a durable group is one consumer with at most one message that is not
acknowledged yet, so all messages of a session are processed one by one, across processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscriptionHandle
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError

from nexus.bus.groups import MAX_QUEUED, Member, SubscriberGroup
from nexus.bus.message import Message, check_topic, decode, encode, now_ms
from nexus.bus.nats_client import FLUSH_TIMEOUT_S, OrderedClient, Watch
from nexus.bus.nats_streams import HEADER_BYTES, Streams, error_text, redact_url
from nexus.bus.port import (
    DEFAULT_CONCURRENCY,
    DEFAULT_TIMEOUT_S,
    DeadLetter,
    Function,
    Redelivery,
    check_deadline,
    check_reply,
    check_subscription,
    complete_reply,
    error_reply,
    with_deadline,
)
from nexus.errors import (
    BadBusMessage,
    BadSetting,
    BusDeadlineExceeded,
    BusError,
    BusNoResponder,
    BusUnavailable,
    bus_closed,
)

LOG = logging.getLogger("nexus.bus")

RECONNECT_WAIT_S = 0.25
"""Wait between two attempts to reach the same server."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}")
_USER = re.compile(r"//([A-Za-z0-9_-]+):[^/@]*@")


class NatsBus:
    """Bus on a NATS server or cluster. `connect` opens it."""

    def __init__(
        self,
        client: Client,
        watch: Watch,
        streams: Streams,
        clock_ms: Callable[[], int],
        redelivery: Redelivery,
        max_queued: int,
    ) -> None:
        self.client = client
        self.streams = streams
        self.clock_ms = clock_ms
        self.redelivery = redelivery
        self._watch = watch
        self._max_queued = max_queued
        self._groups: dict[object, _NatsGroup] = {}
        self._lock = asyncio.Lock()
        self._closing = self._closed = False

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        prefix: str = "nexus",
        clock_ms: Callable[[], int] = now_ms,
        redelivery: Redelivery | None = None,
        tls: SSLContext | None = None,
        connect_timeout_s: float = 5.0,
        ack_wait_s: float = 30.0,
        partitions: int = 64,
        replicas: int = 1,
        max_queued: int = MAX_QUEUED,
    ) -> Self:
        """Connect to the servers of an address.

        `ack_wait_s`: how long after the last sign of life of a member its durable message goes to another one.
        `partitions` and `replicas` count when the streams are created; later the stream's own values do.

        Replies to a user come to subjects of `_INBOX_USER`, if the name has only letters, digits, `_` and `-`.

        Raises:
            BadSetting: The prefix is invalid.
            BusUnavailable: No server answers, or it refuses the user.
        """
        if not _PREFIX.fullmatch(prefix):
            raise BadSetting(f"prefix {prefix!r} invalid (use up to 32 letters, digits, '_' and '-')")
        client = OrderedClient()
        watch = Watch()
        options: dict[str, Any] = {"tls": tls} if tls is not None else {}
        user = _USER.search(url)
        if user is not None:  # replies go to an inbox that the server can close to other users
            options["inbox_prefix"] = f"_INBOX_{user[1]}"
        try:
            async with asyncio.timeout(connect_timeout_s):
                await client.connect(
                    [server.strip() for server in url.split(",")],
                    error_cb=watch.error,
                    disconnected_cb=watch.disconnected,
                    reconnected_cb=watch.reconnected,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_WAIT_S,  # pyright: ignore[reportArgumentType]
                    name=f"{prefix} bus",
                    **options,
                )
        except (NatsError, OSError, ValueError) as error:
            reason = error_text(client.last_error or error, url)
            with contextlib.suppress(Exception):
                await client.close()
            # Without the cause: errors of the client may quote the address with its password.
            raise BusUnavailable(
                f"no connection to {redact_url(url)}: {reason} (check address, user and server)"
            ) from None
        watch.connecting = False
        streams = Streams(client, prefix, ack_wait_s=ack_wait_s, partitions=partitions, replicas=replicas)
        return cls(client, watch, streams, clock_ms, redelivery or Redelivery(), max_queued)

    @property
    def max_bytes(self) -> int:
        """Largest encoded message: the server's limit without the room for headers."""
        return self.client.max_payload - HEADER_BYTES

    async def publish(self, message: Message, *, durable: bool = False) -> None:
        """Send a message; see `Bus.publish`."""
        self._check_open()
        payload = encode(message, self.max_bytes)
        check_deadline(message, self.clock_ms())
        if durable:
            await self.streams.store(message, payload)
        else:
            await self._send(f"{self.streams.prefix}.p.{message.topic}", payload)

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Send a message and return the first reply; see `Bus.request`."""
        self._check_open()
        message, wait_s = with_deadline(message, timeout_s, self.clock_ms())
        payload = encode(message, self.max_bytes)
        try:
            reply = await self.client.request(f"{self.streams.prefix}.p.{message.topic}", payload, timeout=wait_s)
        except NoRespondersError:
            raise BusNoResponder(message.topic) from None
        except TimeoutError:
            raise BusDeadlineExceeded(f"no reply from {message.topic!r} within {wait_s:g} s") from None
        except ConnectionClosedError:
            raise bus_closed() from None
        except NatsError as error:
            raise BusUnavailable(f"request to {message.topic!r} not sent: {error} (try again later)") from error
        return check_reply(decode(reply.data))

    async def subscribe(
        self,
        topic: str,
        function: Function,
        *,
        group: str = "",
        durable: bool = False,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> NatsSubscription:
        """Pass the messages of a topic to a function; see `Bus.subscribe`."""
        self._check_open(closing_too=True)
        check_topic(topic)
        check_subscription(group, concurrency, durable=durable)
        key: object = (topic, group) if group else object()
        async with self._lock:
            joined = self._groups.get(key)
            if joined is not None and joined.durable != durable:
                raise BadSetting(
                    f"group {group!r} of {topic!r} has durable={joined.durable} (use the same for all members)"
                )
            if joined is not None:
                return NatsSubscription(self, key, joined, joined.queue.add(function, concurrency))
            queue = SubscriberGroup(self.clock_ms, max_queued=self._max_queued)
            joined = _NatsGroup(topic, group, queue, durable=durable)
            member = queue.add(function, concurrency)
            try:
                await self._listen(joined)
            except BaseException as error:
                for handle in joined.handles:
                    with contextlib.suppress(NatsError):
                        await handle.unsubscribe()
                await queue.stop()
                if isinstance(error, NatsError):
                    raise BusUnavailable(f"not subscribed to {topic!r}: {error} (try again later)") from error
                raise
            self._groups[key] = joined
            return NatsSubscription(self, key, joined, member)

    async def dead_letters(self, *, topic: str = "", limit: int = 100) -> list[DeadLetter]:
        """Return the oldest messages that were set aside."""
        self._check_open()
        if topic:
            check_topic(topic)
        return await self.streams.dead_letters(topic, limit)

    async def replay(self, letter: DeadLetter) -> None:
        """Deliver a dead letter again, to its group alone, and remove it."""
        self._check_open()
        await self.streams.replay(letter)

    async def discard(self, letter: DeadLetter) -> None:
        """Remove a dead letter."""
        self._check_open()
        await self.streams.remove(letter)

    async def close(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Stop receiving, process the messages that had arrived, then disconnect."""
        if self._closing:
            return
        self._closing = True
        groups = list(self._groups.values())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(self._stop_listening(group) for group in groups))
                for group in groups:
                    await group.queue.drain()
        except TimeoutError:
            LOG.warning("bus closed while functions were running (they were canceled)")
        finally:
            for group in groups:
                await group.queue.stop()
            self._closed = True
            self._groups.clear()
            if self.client.is_connected:
                with contextlib.suppress(NatsError, OSError):
                    await self.client.flush(FLUSH_TIMEOUT_S)
            # What a lost connection left unsent would make the client fail in the middle of closing, and leave tasks.
            self.client._pending.clear()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            self.client._pending_data_size = 0  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            with contextlib.suppress(OSError):
                await self.client.close()
            await asyncio.sleep(0)  # the client's tasks were canceled; they end in the next round of the loop

    async def leave(self, key: object, group: _NatsGroup, member: Member) -> None:
        """Remove a function from its group; the last one takes the group along."""
        async with self._lock:
            is_last = group.queue.members == 1 and self._groups.get(key) is group
            if is_last:
                del self._groups[key]
        leaving = object()
        if is_last:
            self._groups[leaving] = group  # so that `close` stops it
            await self._stop_listening(group)
        await group.queue.leave(member, finish_queue=True)
        self._groups.pop(leaving, None)

    async def answer(self, subject: str, reply: Message) -> None:
        """Send a reply; one that cannot be sent becomes an error reply."""
        try:
            payload = encode(reply, self.max_bytes)
        except BadBusMessage as error:
            payload = encode(error_reply("reply", error), self.max_bytes)
        await self._send(subject, payload)

    async def _send(self, subject: str, payload: bytes) -> None:
        try:
            await self.client.publish(subject, payload)
        except ConnectionClosedError:
            raise bus_closed() from None
        except NatsError as error:
            raise BusUnavailable(f"message not sent: {error} (try again later)") from error

    async def _listen(self, group: _NatsGroup) -> None:
        """Subscribe to the subjects of a group, and return when the server has the subscriptions."""
        prefix = self.streams.prefix

        async def plain(msg: Msg) -> None:
            await self._receive(group, msg, reply_to=msg.reply)

        async def stored_by_others(msg: Msg) -> None:
            # The reply subject belongs to the publisher's acknowledgment by the server.
            if not self.streams.target_group(msg):
                await self._receive(group, msg, reply_to="")

        async def stored(msg: Msg) -> None:
            await self._receive_stored(group, msg)

        subjects: list[tuple[str, Callable[[Msg], Awaitable[None]]]] = [(f"{prefix}.p.{group.topic}", plain)]
        if group.durable:
            subject = await self.streams.create_consumers(group.topic, group.name)
            subjects.append((subject, stored))
        else:
            subjects.append((f"{prefix}.d.{group.topic}.*", stored_by_others))
        for subject, receive in subjects:
            handle = await self.client.subscribe(subject, queue=group.name, cb=receive)  # pyright: ignore[reportUnknownMemberType]
            group.handles.append(handle)
        await self.client.flush(FLUSH_TIMEOUT_S)

    async def _stop_listening(self, group: _NatsGroup) -> None:
        """Unsubscribe at the server. Earlier messages have arrived when this returns, unless the connection is lost."""
        for handle in group.handles:
            draining = asyncio.ensure_future(handle.drain())
            losing = asyncio.ensure_future(self._watch.lost.wait())
            try:
                await asyncio.wait((draining, losing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (draining, losing):
                    task.cancel()
                await asyncio.gather(draining, losing, return_exceptions=True)
            with contextlib.suppress(NatsError, OSError):  # if it was not drained
                await handle.unsubscribe()
        group.handles.clear()

    async def _receive(self, group: _NatsGroup, msg: Msg, reply_to: str) -> None:
        """Queue a message that arrives once."""
        delivery = _PlainDelivery(self, group, msg.data, reply_to)
        try:
            delivery.message = decode(msg.data)
        except BadBusMessage as error:
            await delivery.refuse(error)
            return
        if not group.queue.submit(delivery):
            await delivery.refuse(BusUnavailable(f"queue of group {group.name!r} is full"))

    async def _receive_stored(self, group: _NatsGroup, msg: Msg) -> None:
        """Queue a message of the stream. Poison is set aside before a function gets it."""
        delivery = _StoredDelivery(self, group, msg)
        deliveries = delivery.deliveries
        limit = self.redelivery.max_deliveries
        if self.streams.target_group(msg) not in ("", group.name):
            await msg.ack()
            return
        try:
            delivery.message = decode(msg.data)
        except BadBusMessage as error:
            await delivery.fail(error, final=True)
            return
        if deliveries > limit:
            crash = BusError(f"not acknowledged after {limit} deliveries (the processes that got it may have crashed)")
            await delivery.fail(crash, final=True)
            return
        delivery.renew()
        if not group.queue.submit(delivery):
            await delivery.abandon()

    def _check_open(self, *, closing_too: bool = False) -> None:
        if self._closed or self.client.is_closed or (closing_too and self._closing):
            raise bus_closed()


class _NatsGroup:
    """A group of a topic in this process, with its subscriptions at the server."""

    def __init__(self, topic: str, name: str, queue: SubscriberGroup, *, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.queue = queue
        self.durable = durable
        self.handles: list[NatsSubscriptionHandle] = []


class NatsSubscription:
    """Subscription of a `NatsBus`."""

    def __init__(self, bus: NatsBus, key: object, group: _NatsGroup, member: Member) -> None:
        self._bus = bus
        self._key = key
        self._group = group
        self._member = member
        self.topic = group.topic
        self.group = group.name

    async def unsubscribe(self) -> None:
        """Stop receiving, and return when the messages that had arrived are processed."""
        await self._bus.leave(self._key, self._group, self._member)


class _PlainDelivery:
    """A message that arrives once: a request if it has a reply subject."""

    message: Message

    def __init__(self, bus: NatsBus, group: _NatsGroup, payload: bytes, reply_to: str) -> None:
        self._bus = bus
        self._group = group
        self._payload = payload
        self._reply_to = reply_to

    async def finish(self, result: Message | None) -> None:
        """Send the reply, if one is wanted."""
        if self._reply_to and result is not None:
            await self._bus.answer(self._reply_to, complete_reply(self.message, result))

    async def fail(self, error: Exception, *, final: bool) -> float | None:  # noqa: ARG002 - there is no other delivery
        """Answer with the error, or set the message aside."""
        await self.refuse(error)
        return None

    async def abandon(self) -> None:
        """Answer, or set aside: the bus closes."""
        await self.refuse(bus_closed())

    async def refuse(self, error: Exception) -> None:
        """Answer with the error; set the message aside if it is not a request."""
        if self._reply_to:
            await self._bus.answer(
                self._reply_to, error_reply(self._group.topic, error, getattr(self, "message", None))
            )
            return
        group = self._group
        reason = f"{type(error).__name__}: {error}"
        key = f"{group.topic}/{group.name}/{hashlib.sha256(self._payload).hexdigest()}"
        try:
            await self._bus.streams.set_aside(
                key, group.topic, group.name, self._payload, reason, 1, self._bus.clock_ms(), durable=False
            )
        except BusError as problem:  # a server without JetStream
            LOG.warning("message for %r lost (%s) and not set aside: %s", group.topic, reason, problem)


class _StoredDelivery:
    """A message of the stream, which the server delivers again until it is settled."""

    message: Message

    def __init__(self, bus: NatsBus, group: _NatsGroup, msg: Msg) -> None:
        self._bus = bus
        self._group = group
        self._msg = msg
        self.deliveries = msg.metadata.num_delivered
        self._sequence = msg.metadata.sequence.stream
        self._renewal: asyncio.Task[None] | None = None

    def renew(self) -> None:
        """Begin to tell the server that the message is being processed."""
        self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._bus.streams.ack_wait_s / 3)
            with contextlib.suppress(NatsError):
                await self._msg.in_progress()

    async def finish(self, result: Message | None) -> None:  # noqa: ARG002 - durable messages have no replies
        """Acknowledge."""
        self._stop_renewal()
        await self._msg.ack()

    async def fail(self, error: Exception, *, final: bool) -> float | None:
        """Have it delivered again later, or set it aside."""
        self._stop_renewal()
        limit = self._bus.redelivery
        group = self._group
        if not final and self.deliveries < limit.max_deliveries:
            await self._msg.nak(delay=limit.delay_s(self.deliveries) or None)
            return None
        runs = min(self.deliveries, limit.max_deliveries) - (final and self.deliveries <= limit.max_deliveries)
        reason = f"{type(error).__name__}: {error}"
        key = f"{group.topic}/{group.name}/{self._sequence}"
        try:
            await self._bus.streams.set_aside(
                key, group.topic, group.name, self._msg.data, reason, runs, self._bus.clock_ms(), durable=True
            )
        except BusError as problem:
            LOG.warning("message for %r not set aside, it is delivered again: %s", group.topic, problem)
            await self._msg.nak(delay=self._bus.streams.ack_wait_s)
            return None
        await self._msg.term()
        return None

    async def abandon(self) -> None:
        """Leave it to another member."""
        self._stop_renewal()
        await self._msg.nak(delay=1)

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
