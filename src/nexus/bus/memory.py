"""The bus inside one process. Durable messages survive failed functions and absent groups, not the process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from nexus.bus.groups import MAX_QUEUED, Member, SubscriberGroup
from nexus.bus.message import MAX_BYTES, Message, check_topic, decode, encode, expired, now_ms
from nexus.bus.port import (
    DEFAULT_CONCURRENCY,
    DEFAULT_TIMEOUT_S,
    MAX_REASON_CHARS,
    DeadLetter,
    Function,
    Redelivery,
    check_deadline,
    check_replay,
    check_reply,
    check_subscription,
    complete_reply,
    error_reply,
    no_such_letter,
    with_deadline,
)
from nexus.errors import BadSetting, BusDeadlineExceeded, BusError, BusNoResponder, BusUnavailable, bus_closed

LOG = logging.getLogger("nexus.bus")

MAX_RETAINED = 1_000
"""Durable messages of a topic that a new group gets; older ones are dropped."""

MAX_DEAD_LETTERS = 10_000
"""Dead letters that are stored; the oldest are dropped with a warning."""

DUPLICATE_WINDOW_MS = 600_000
"""How long an idempotency key is remembered."""


class MemoryBus:
    """Bus inside one process and event loop."""

    def __init__(
        self,
        *,
        clock_ms: Callable[[], int] = now_ms,
        redelivery: Redelivery | None = None,
        max_bytes: int = MAX_BYTES,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self.clock_ms = clock_ms
        self.redelivery = redelivery or Redelivery()
        self._max_bytes = max_bytes
        self._max_queued = max_queued
        self._groups: dict[str, list[_MemoryGroup]] = {}
        self._leaving: list[_MemoryGroup] = []
        self._retained: dict[str, deque[bytes]] = {}
        self._keys: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._dead: dict[str, DeadLetter] = {}
        self._numbers = itertools.count(1)
        self._closing = self._closed = False

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    async def publish(self, message: Message, *, durable: bool = False) -> None:
        """Send a message; see `Bus.publish`."""
        self._check_open()
        payload = encode(message, self._max_bytes)
        check_deadline(message, self.clock_ms())
        groups = self._groups.get(message.topic, [])
        if durable:
            if any(group.durable and group.queue.is_full for group in groups):
                raise BusUnavailable(
                    f"topic {message.topic!r} has a full queue (publish again later; nothing was stored)"
                )
            if self._is_duplicate(message):
                return
            self._retained.setdefault(message.topic, deque(maxlen=MAX_RETAINED)).append(payload)
        for group in groups:
            if durable or group.queue.members:
                self._deliver(group, payload, durable=durable)
        await asyncio.sleep(0)  # a program that only publishes lets functions run

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Send a message and return the first reply; see `Bus.request`."""
        self._check_open()
        message, wait_s = with_deadline(message, timeout_s, self.clock_ms())
        payload = encode(message, self._max_bytes)
        groups = [group for group in self._groups.get(message.topic, []) if group.queue.members]
        if not groups:
            raise BusNoResponder(message.topic)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        for group in groups:
            self._deliver(group, payload, durable=False, answer=answer)
        try:
            async with asyncio.timeout(wait_s):
                reply = decode(await answer)
        except TimeoutError:
            raise BusDeadlineExceeded(f"no reply from {message.topic!r} within {wait_s:g} s") from None
        return check_reply(reply)

    async def subscribe(
        self,
        topic: str,
        function: Function,
        *,
        group: str = "",
        durable: bool = False,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> MemorySubscription:
        """Pass the messages of a topic to a function; see `Bus.subscribe`."""
        self._check_open(closing_too=True)
        check_topic(topic)
        check_subscription(group, concurrency, durable=durable)
        groups = self._groups.setdefault(topic, [])
        joined = next((each for each in groups if group and each.name == group), None)
        if joined is not None and joined.durable != durable:
            raise BadSetting(
                f"group {group!r} of {topic!r} has durable={joined.durable} (use the same for all members)"
            )
        if joined is None:
            joined = _MemoryGroup(group, SubscriberGroup(self.clock_ms, max_queued=self._max_queued), durable=durable)
            groups.append(joined)
            for payload in self._retained.get(topic, ()) if durable else ():
                self._deliver(joined, payload, durable=True)
        return MemorySubscription(self, topic, joined, joined.queue.add(function, concurrency))

    async def dead_letters(self, *, topic: str = "", limit: int = 100) -> list[DeadLetter]:
        """Return the oldest messages that were set aside."""
        self._check_open()
        return [letter for letter in self._dead.values() if topic in ("", letter.topic)][:limit]

    async def replay(self, letter: DeadLetter) -> None:
        """Deliver a dead letter again, to its group alone, and remove it."""
        self._check_open()
        check_replay(letter, exists=letter.id in self._dead)
        group = next(group for group in self._groups[letter.topic] if group.name == letter.group)
        if group.queue.is_full:
            raise BusUnavailable(f"group {letter.group!r} has a full queue (replay later; the dead letter is kept)")
        del self._dead[letter.id]
        self._deliver(group, letter.payload, durable=True)
        await asyncio.sleep(0)

    async def discard(self, letter: DeadLetter) -> None:
        """Remove a dead letter."""
        self._check_open()
        if self._dead.pop(letter.id, None) is None:
            raise no_such_letter(letter)

    async def close(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Process the messages that are queued, then stop."""
        if self._closing:
            return
        self._closing = True
        queues = [group.queue for groups in (*self._groups.values(), self._leaving) for group in groups]
        try:
            async with asyncio.timeout(timeout_s):
                for queue in queues * 2:  # a function of one group may publish to another
                    await queue.drain()
        except TimeoutError:
            LOG.warning("bus closed while functions were running (they were canceled)")
        finally:
            self._closed = True
            for queue in queues:
                await queue.stop()
            self._groups.clear()

    def set_aside(self, message: Message, payload: bytes, group: _MemoryGroup, reason: str, deliveries: int) -> None:
        """Store a dead letter."""
        letter = DeadLetter(
            id=str(next(self._numbers)),
            topic=message.topic,
            group=group.name,
            reason=reason[:MAX_REASON_CHARS],
            deliveries=deliveries,
            at_ms=self.clock_ms(),
            durable=group.durable,
            payload=payload,
        )
        self._dead[letter.id] = letter
        if len(self._dead) > MAX_DEAD_LETTERS:
            oldest = self._dead.pop(next(iter(self._dead)))
            LOG.warning("dead letter %s for %r dropped: too many", oldest.id, oldest.topic)

    async def leave(self, topic: str, group: _MemoryGroup, member: Member) -> None:
        """Remove a function from its group. Groups without functions are removed, unless they are durable."""
        if group.durable:
            await group.queue.leave(member, finish_queue=False)
            return
        groups = self._groups.get(topic, [])
        if group.queue.members == 1 and group in groups:
            groups.remove(group)
            self._leaving.append(group)
        await group.queue.leave(member, finish_queue=True)
        if group in self._leaving and not group.queue.members:
            self._leaving.remove(group)

    def _check_open(self, *, closing_too: bool = False) -> None:
        if self._closed or (closing_too and self._closing):
            raise bus_closed()

    def _is_duplicate(self, message: Message) -> bool:
        """Return whether the key was stored lately, and remember it."""
        now = self.clock_ms()
        while self._keys and next(iter(self._keys.values())) <= now - DUPLICATE_WINDOW_MS:
            self._keys.popitem(last=False)
        key = (message.tenant, message.topic, message.idempotency_key or message.id)
        if key in self._keys:
            return True
        self._keys[key] = now
        return False

    def _deliver(
        self, group: _MemoryGroup, payload: bytes, *, durable: bool, answer: asyncio.Future[bytes] | None = None
    ) -> None:
        delivery = _MemoryDelivery(self, group, payload, answer, repeats=durable and group.durable)
        if not group.queue.submit(delivery):
            delivery.refuse(BusUnavailable(f"queue of group {group.name!r} is full"))


class _MemoryGroup:
    """A group of a topic. A subscription without a group has one for itself, with an empty name."""

    def __init__(self, name: str, queue: SubscriberGroup, *, durable: bool) -> None:
        self.name = name
        self.queue = queue
        self.durable = durable


class MemorySubscription:
    """Subscription of a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, topic: str, group: _MemoryGroup, member: Member) -> None:
        self._bus = bus
        self._group = group
        self._member = member
        self.topic = topic
        self.group = group.name

    async def unsubscribe(self) -> None:
        """Stop receiving, and return when the messages that had arrived are processed."""
        await self._bus.leave(self.topic, self._group, self._member)


class _MemoryDelivery:
    """One message for one group. `repeats`: a failed delivery is repeated."""

    def __init__(
        self,
        bus: MemoryBus,
        group: _MemoryGroup,
        payload: bytes,
        answer: asyncio.Future[bytes] | None,
        *,
        repeats: bool,
    ) -> None:
        self._bus = bus
        self._group = group
        self._payload = payload
        self._answer = answer
        self._repeats = repeats
        self._deliveries = 0
        self.message = decode(payload)

    async def finish(self, result: Message | None) -> None:
        """Send the reply, if one is wanted."""
        if self._answer is not None and result is not None and not self._answer.done():
            try:
                payload = encode(complete_reply(self.message, result))
            except BusError as error:
                payload = self._error(error)
            self._answer.set_result(payload)

    async def fail(self, error: Exception, *, final: bool) -> float | None:
        """Answer, repeat, or set aside."""
        self._deliveries += not final
        limit = self._bus.redelivery
        if self._repeats and not final and self._deliveries < limit.max_deliveries:
            return limit.delay_s(self._deliveries)
        self.refuse(error)
        return None

    async def abandon(self) -> None:
        """Answer, or log: the memory ends with the bus."""
        if self._answer is not None:
            self.refuse(bus_closed())
        elif not expired(self.message, self._bus.clock_ms()):
            LOG.warning("message %s for %r lost: bus closed", self.message.id, self.message.topic)

    def refuse(self, error: Exception) -> None:
        """Answer with the error; set the message aside if it is not a request."""
        if self._answer is None:
            reason = f"{type(error).__name__}: {error}"
            self._bus.set_aside(self.message, self._payload, self._group, reason, self._deliveries)
        elif not self._answer.done():
            self._answer.set_result(self._error(error))

    def _error(self, error: Exception) -> bytes:
        return encode(error_reply(self.message.topic, error, self.message))
