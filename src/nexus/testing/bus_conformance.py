# Over 600 lines: one short function for each promise of the port.
"""Conformance suite for buses: short checks of each promise of `nexus.bus.Bus`.

Pass your own bus as a `BusBackend`: an empty place for messages, and a way to connect to it. With pytest:

    import pytest
    from nexus.testing.bus_conformance import CHECKS

    class MyBackend:
        async def open(self, clock_ms, redelivery):
            return await MyBus.connect(clock_ms=clock_ms, redelivery=redelivery)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_my_bus(check):
        check(MyBackend())

Without pytest: `print(run(lambda: MyBackend()))`. Every check gets an empty backend, runs in an event loop of its own, and
closes its buses. A failed check raises AssertionError. Checks wait for events; a time limit only ends those that hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from nexus.bus.message import Message
from nexus.bus.port import DEFAULT_TIMEOUT_S, Bus, DeadLetter, Redelivery, Subscription
from nexus.errors import (
    BadBusMessage,
    BadSetting,
    BusDeadlineExceeded,
    BusError,
    BusNoResponder,
    BusRequestFailed,
    BusUnavailable,
)
from nexus.testing.conformance_report import ConformanceReport
from nexus.testing.fakes import FixedClock

Value = TypeVar("Value")
Error = TypeVar("Error", bound=Exception)

LIMIT_S = 60.0
"""How long a check may hang before it fails."""

DELIVERIES = 3
"""Deliveries of a durable message before it is set aside, in all checks."""

HOSTILE: dict[str, Any] = {
    "text": 'nul \x00 quote " line \n wide 🕸 é',
    "list": [1, 2.5, None, True, {"deep": []}],
    "": "empty key",
}


class BusBackend(Protocol):
    """Place for messages that is empty when a check begins, supplied by the author of a bus."""

    async def open(self, clock_ms: Callable[[], int], redelivery: Redelivery) -> Bus:
        """Connect to this place. A bus of one process may return the same object each time."""
        ...


class Inbox:
    """Function that stores its messages, and runs `then` with each message."""

    def __init__(self, then: Callable[[Message], Awaitable[Message | None]] | None = None) -> None:
        self.messages: list[Message] = []
        self._then = then
        self._change = asyncio.Event()

    async def __call__(self, message: Message) -> Message | None:
        """Store a message when it was processed."""
        result = await self._then(message) if self._then is not None else None
        self.messages.append(message)
        self._change.set()
        return result

    @property
    def contents(self) -> list[Any]:
        """Content of the messages so far."""
        return [message.content for message in self.messages]

    async def wait(self, count: int) -> list[Any]:
        """Return the contents when there are this many."""
        while len(self.messages) < count:
            self._change.clear()
            await self._change.wait()
        return self.contents


class Overlap:
    """Function that measures how many of its calls run at once, by session."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.most_of_session = self.most = 0
        self.inbox = Inbox(self._run)

    async def _run(self, message: Message) -> None:
        session = message.session
        self.running[session] = self.running.get(session, 0) + 1
        self.most_of_session = max(self.most_of_session, self.running[session])
        self.most = max(self.most, sum(self.running.values()))
        for _ in range(5):
            await asyncio.sleep(0)
        self.running[session] -= 1


class BusCase:
    """Two connections to an empty backend, and their clock."""

    def __init__(self, backend: BusBackend) -> None:
        self._backend = backend
        self.clock = FixedClock()
        self._opened: list[Bus] = []

    async def start(self) -> None:
        """Connect."""
        self.bus = await self.open()
        self.other = await self.open()

    async def open(self) -> Bus:
        """Return one more connection."""
        bus = await self._backend.open(self.clock, Redelivery(max_deliveries=DELIVERIES, delays_s=()))
        self._opened.append(bus)
        return bus

    async def close(self, *, at_once: bool) -> None:
        """Close all connections; `at_once`: without waiting for functions."""
        for bus in self._opened:
            await bus.close(timeout_s=0 if at_once else DEFAULT_TIMEOUT_S)

    async def letters(self, count: int) -> list[DeadLetter]:
        """Return the dead letters when there are this many."""
        while len(letters := await self.bus.dead_letters()) < count:  # noqa: ASYNC110 - the port reports no event
            await asyncio.sleep(0.01)
        return letters

    async def publish(self, *contents: Any, session: str = "s", durable: bool = False) -> None:
        """Publish messages of one session to the topic `t`."""
        for content in contents:
            await self.bus.publish(Message("t", content, session=session), durable=durable)


def holds(condition: bool, what: str) -> None:
    """Raise AssertionError with `what` unless the condition is true."""
    if not condition:
        raise AssertionError(what)


def equal(actual: object, wanted: object, what: str) -> None:
    """Raise AssertionError unless the two are equal."""
    if actual != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, found {actual!r}")


@asynccontextmanager
async def raises(kind: type[Error], what: str) -> AsyncGenerator[list[Error]]:
    """Raise AssertionError unless the block raises such an error, which the yielded list then contains."""
    caught: list[Error] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, found {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: expected {kind.__name__}, and no error was raised")


def fail_with(error: Exception, *contents: Any) -> Callable[[Message], Awaitable[None]]:
    """Return a function that raises for these contents."""

    async def function(message: Message) -> None:
        if message.content in contents:
            raise error

    return function


def meeting(count: int) -> Callable[[Message], Awaitable[None]]:
    """Return a function whose calls return when this many have begun."""
    begun: list[Message] = []
    enough = asyncio.Event()

    async def function(message: Message) -> None:
        begun.append(message)
        if len(begun) >= count:
            enough.set()
        await enough.wait()

    return function


async def pause() -> None:
    """Let other tasks run for a while."""
    for _ in range(100):
        await asyncio.sleep(0)


async def echo(message: Message) -> Message:
    """Reply with the content."""
    return message.reply(message.content)


# publish and subscribe -----------------------------------------------------------------------------------------------


async def check_fields(case: BusCase) -> None:
    """A message arrives with all its fields."""
    inbox = Inbox()
    await case.bus.subscribe("t.words-1", inbox)
    sent = Message(
        "t.words-1", HOSTILE, type="kind", tenant="é", session="s", correlation_id="c", causation_id="d",
        idempotency_key="k", deadline_ms=case.clock() + 60_000, trace_parent="00-1-2-01",
    )  # fmt: skip
    await case.other.publish(sent)
    await inbox.wait(1)
    equal(inbox.messages, [sent], "message")


async def check_fan_out(case: BusCase) -> None:
    """A subscription without a group gets every message."""
    first, second = Inbox(), Inbox()
    await case.bus.subscribe("t", first)
    await case.other.subscribe("t", second)
    await case.publish(1, 2)
    equal([await first.wait(2), await second.wait(2)], [[1, 2], [1, 2]], "messages")


async def check_topics(case: BusCase) -> None:
    """A subscription gets messages of its topic alone."""
    inbox = Inbox()
    await case.bus.subscribe("t", inbox)
    for topic in ("t.more", "u", "T"):
        await case.bus.publish(Message(topic, topic, session="s"))
    await case.publish("end")
    equal(await inbox.wait(1), ["end"], "messages")


async def check_group(case: BusCase) -> None:
    """Each message goes to one member of a group."""
    inbox = Inbox()
    for bus in (case.bus, case.other, case.bus):
        await bus.subscribe("t", inbox, group="g")
    for number in range(40):
        await case.publish(number, session=f"s{number % 7}")
    await inbox.wait(40)
    await case.publish("end")
    equal(sorted(map(str, await inbox.wait(41))), sorted(map(str, [*range(40), "end"])), "messages")


async def check_two_groups(case: BusCase) -> None:
    """Every group gets every message."""
    first, second = Inbox(), Inbox()
    await case.bus.subscribe("t", first, group="g")
    await case.other.subscribe("t", second, group="h")
    await case.publish(1, 2)
    equal([await first.wait(2), await second.wait(2)], [[1, 2], [1, 2]], "messages")


async def check_order(case: BusCase) -> None:
    """One member processes the messages of a session in order, one at a time."""
    overlap = Overlap()
    await case.bus.subscribe("t", overlap.inbox, group="g")
    await case.publish(*range(30))
    equal(await overlap.inbox.wait(30), list(range(30)), "order")
    equal(overlap.most_of_session, 1, "messages of one session at once")


async def check_order_in_a_process(case: BusCase) -> None:
    """Members of a group on one connection process the messages of a session in order, one at a time."""
    overlap = Overlap()
    for _ in range(3):
        await case.bus.subscribe("t", overlap.inbox, group="g")
    await case.publish(*range(30))
    equal(await overlap.inbox.wait(30), list(range(30)), "order")
    equal(overlap.most_of_session, 1, "messages of one session at once")


async def check_sessions_in_parallel(case: BusCase) -> None:
    """Messages of different sessions are processed at once."""
    inbox = Inbox(meeting(2))
    await case.bus.subscribe("t", inbox, group="g")
    await case.publish("a", session="s")
    await case.publish("b", session="u")
    equal(sorted(await inbox.wait(2)), ["a", "b"], "messages")


async def check_tenants_in_parallel(case: BusCase) -> None:
    """Sessions of the same name of different tenants are different sessions."""
    inbox = Inbox(meeting(2))
    await case.bus.subscribe("t", inbox, group="g")
    for tenant in ("a", "b"):
        await case.bus.publish(Message("t", tenant, tenant=tenant, session="s"))
    equal(sorted(await inbox.wait(2)), ["a", "b"], "messages")


async def check_concurrency(case: BusCase) -> None:
    """A subscription processes at most `concurrency` messages at once."""
    overlap = Overlap()
    await case.bus.subscribe("t", overlap.inbox, group="g", concurrency=2)
    for number in range(20):
        await case.publish(number, session=f"s{number}")
    await overlap.inbox.wait(20)
    holds(overlap.most <= 2, f"expected at most 2 messages at once, found {overlap.most}")


async def check_isolation(case: BusCase) -> None:
    """A function that changes its message changes nothing elsewhere."""

    async def spoil(message: Message) -> None:
        message.content["a"].append(2)

    first, second = Inbox(spoil), Inbox(spoil)
    for inbox in (first, second):
        await case.bus.subscribe("t", inbox)
    content = {"a": [1]}
    await case.publish(content)
    await first.wait(1)
    equal(await second.wait(1), [{"a": [1, 2]}], "content")
    equal(content, {"a": [1]}, "content of the sender")


async def check_bad_messages(case: BusCase) -> None:
    """A message that has no JSON form, or a bad topic, is refused."""
    for message in (
        Message("t", object()),
        Message("t", "lone \ud83d"),
        Message("t", session=7),  # pyright: ignore[reportArgumentType]
        Message("a b"),
        Message("a..b"),
        Message("a.*"),
        Message(""),
    ):
        for durable in (False, True):
            async with raises(BadBusMessage, f"publish of {message.topic!r}"):
                await case.bus.publish(message, durable=durable)
        async with raises(BadBusMessage, f"request to {message.topic!r}"):
            await case.bus.request(message)
    async with raises(BadBusMessage, "subscribe"):
        await case.bus.subscribe("a.>", Inbox())


async def check_too_large(case: BusCase) -> None:
    """A message that is too large is refused."""
    for durable in (False, True):
        async with raises(BadBusMessage, "publish"):
            await case.bus.publish(Message("t", "x" * 8_000_000), durable=durable)
    async with raises(BadBusMessage, "request"):
        await case.bus.request(Message("t", "x" * 8_000_000))


async def check_failed_plain_message(case: BusCase) -> None:
    """A plain message whose function fails is set aside after one delivery."""
    inbox = Inbox(fail_with(ValueError("bad number"), 1))
    await case.bus.subscribe("t", inbox, group="g")
    await case.publish(1, 2)
    equal(await inbox.wait(1), [2], "messages after the failed one")
    (letter,) = await case.letters(1)
    equal((letter.topic, letter.group, letter.durable), ("t", "g", False), "dead letter")
    equal((letter.message.content, letter.reason), (1, "ValueError: bad number"), "dead letter")
    async with raises(BusError, "replay of a plain message"):
        await case.bus.replay(letter)


# requests ------------------------------------------------------------------------------------------------------------


async def check_request(case: BusCase) -> None:
    """A request returns the reply, which refers to the request."""
    await case.bus.subscribe("t", echo, group="g")
    request = Message("t", HOSTILE, tenant="a", session="s", trace_parent="00-1-2-01")
    reply = await case.other.request(request)
    equal(reply.content, HOSTILE, "content")
    equal((reply.tenant, reply.session, reply.trace_parent), ("a", "s", "00-1-2-01"), "fields")
    equal((reply.correlation_id, reply.causation_id), (request.id, request.id), "ids")


async def check_many_requests(case: BusCase) -> None:
    """Requests at once get their own replies."""
    for bus in (case.bus, case.other):
        await bus.subscribe("t", echo, group="g")
    replies = await asyncio.gather(*(case.bus.request(Message("t", number)) for number in range(100)))
    equal([reply.content for reply in replies], list(range(100)), "replies")


async def check_request_fails(case: BusCase) -> None:
    """A request whose function raises an error raises its class name and text."""
    await case.bus.subscribe("t", fail_with(KeyError("no such order"), 1), group="g")
    async with raises(BusRequestFailed, "request") as caught:
        await case.other.request(Message("t", 1))
    equal((caught[0].kind, "no such order" in caught[0].text), ("KeyError", True), "error")
    equal(await case.bus.dead_letters(), [], "dead letters of requests")


async def check_wrong_result(case: BusCase) -> None:
    """A request whose function returns something else than a message raises an error."""

    async def wrong(message: Message) -> Message | None:
        return {"text": message.id}  # pyright: ignore[reportReturnType]

    await case.bus.subscribe("t", wrong, group="g")
    async with raises(BusRequestFailed, "request"):
        await case.other.request(Message("t"))


async def check_canceled_function(case: BusCase) -> None:
    """A request whose function is canceled from within raises an error."""
    await case.bus.subscribe("t", fail_with(asyncio.CancelledError(), 1), group="g")  # pyright: ignore[reportArgumentType]
    async with raises(BusRequestFailed, "request"):
        await case.other.request(Message("t", 1))


async def check_large_reply(case: BusCase) -> None:
    """A reply that is too large becomes an error."""

    async def large(message: Message) -> Message:
        return message.reply("x" * 8_000_000)

    await case.bus.subscribe("t", large, group="g")
    async with raises(BusRequestFailed, "request") as caught:
        await case.other.request(Message("t"))
    equal(caught[0].kind, "BadBusMessage", "kind of error")


async def check_no_responder(case: BusCase) -> None:
    """A request to a topic without subscription fails at once."""
    async with raises(BusNoResponder, "request"):
        await case.bus.request(Message("t"), timeout_s=LIMIT_S * 10)
    subscription = await case.bus.subscribe("t", echo)
    await case.bus.request(Message("t"))
    await subscription.unsubscribe()
    async with raises(BusNoResponder, "request after unsubscribe"):
        await case.bus.request(Message("t"), timeout_s=LIMIT_S * 10)


async def check_no_reply(case: BusCase) -> None:
    """A request without a reply fails at its deadline, and a late reply harms nothing."""
    release = asyncio.Event()

    async def late(message: Message) -> Message:
        await release.wait()
        return message.reply()

    inbox = Inbox(late)
    await case.bus.subscribe("t", inbox, group="g")
    async with raises(BusDeadlineExceeded, "request with timeout"):
        await case.other.request(Message("t"), timeout_s=0.05)
    async with raises(BusDeadlineExceeded, "request with deadline"):
        await case.other.request(Message("t", deadline_ms=case.clock() + 50))
    release.set()
    await inbox.wait(2)
    equal((await case.other.request(Message("t"))).content, None, "next reply")


async def check_canceled_request(case: BusCase) -> None:
    """A canceled request ends at once, and the next ones work."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(message: Message) -> Message:
        begun.set()
        await release.wait()
        return message.reply(message.content)

    await case.bus.subscribe("t", slow, group="g")
    task = asyncio.create_task(case.other.request(Message("t", 1)))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    holds(task.cancelled(), "expected a canceled request")
    release.set()
    equal((await case.other.request(Message("t", 2))).content, 2, "next reply")


async def check_nested_request(case: BusCase) -> None:
    """A function may publish and request."""

    async def outer(message: Message) -> Message:
        await case.bus.publish(message.follow_up("note", "seen"))
        return message.reply((await case.bus.request(message.follow_up("inner", 5))).content)

    notes = Inbox()
    await case.bus.subscribe("note", notes)
    await case.bus.subscribe("inner", echo, group="g")
    await case.bus.subscribe("t", outer, group="g", concurrency=1)
    equal((await case.other.request(Message("t", session="s"))).content, 5, "reply")
    equal(await notes.wait(1), ["seen"], "published message")


# deadlines -----------------------------------------------------------------------------------------------------------


async def check_expired_before(case: BusCase) -> None:
    """A message whose deadline has passed is refused."""
    late = Message("t", deadline_ms=case.clock())
    await case.bus.subscribe("t", Inbox())
    for durable in (False, True):
        async with raises(BusDeadlineExceeded, "publish"):
            await case.bus.publish(late, durable=durable)
    async with raises(BusDeadlineExceeded, "request"):
        await case.bus.request(late)


async def _expire(case: BusCase, *, durable: bool) -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    async def hold(_: Message) -> None:
        begun.set()
        await release.wait()

    inbox = Inbox(hold)
    await case.bus.subscribe("t", inbox, group="g", durable=durable)
    await case.publish("first", durable=durable)
    await begun.wait()
    late = Message("t", "late", session="s", deadline_ms=case.clock() + 1_000)
    await case.bus.publish(late, durable=durable)
    await case.publish("end", durable=durable)
    case.clock.advance(1_000)
    release.set()
    equal(await inbox.wait(2), ["first", "end"], "processed messages")
    (letter,) = await case.letters(1)
    equal((letter.message.content, letter.deliveries <= 1), ("late", True), "dead letter")
    holds("BusDeadlineExceeded" in letter.reason, f"expected the deadline in the reason, found {letter.reason!r}")


async def check_expired_waiting(case: BusCase) -> None:
    """A plain message that expires before its turn is set aside, and no function gets it."""
    await _expire(case, durable=False)


async def check_expired_durable(case: BusCase) -> None:
    """A durable message that expires before its turn is set aside, and no function gets it."""
    await _expire(case, durable=True)


# durable messages ----------------------------------------------------------------------------------------------------


async def check_stored(case: BusCase) -> None:
    """A durable group gets messages that were stored before it existed."""
    await case.publish(1, 2, durable=True)
    inbox = Inbox()
    await case.other.subscribe("t", inbox, group="g", durable=True)
    equal(await inbox.wait(2), [1, 2], "messages")


async def check_absent_group(case: BusCase) -> None:
    """A durable group gets messages that were stored while it had no member, and none twice."""
    first, second = Inbox(), Inbox()
    subscription = await case.bus.subscribe("t", first, group="g", durable=True)
    await case.publish(1, durable=True)
    await first.wait(1)
    await subscription.unsubscribe()
    await case.publish(2, 3, durable=True)
    await case.other.subscribe("t", second, group="g", durable=True)
    equal(await second.wait(2), [2, 3], "messages")
    equal(first.contents, [1], "messages of the first member")


async def check_repeated(case: BusCase) -> None:
    """A durable message is delivered again after a failure, before later ones of its session."""
    tries = [ValueError("busy"), ConnectionError("gone")]

    async def fail_twice(message: Message) -> None:
        if message.content == 2 and tries:
            raise tries.pop()

    inbox = Inbox(fail_twice)
    for bus in (case.bus, case.other):
        await bus.subscribe("t", inbox, group="g", durable=True)
    await case.publish(1, 2, 3, durable=True)
    equal(await inbox.wait(3), [1, 2, 3], "order")
    equal(await case.bus.dead_letters(), [], "dead letters")


async def check_durable_order(case: BusCase) -> None:
    """Members of a durable group on two connections process a session in order, one at a time."""
    overlap = Overlap()
    for bus in (case.bus, case.other):
        await bus.subscribe("t", overlap.inbox, group="g", durable=True)
    await case.publish(*range(30), durable=True)
    equal(await overlap.inbox.wait(30), list(range(30)), "order")
    equal(overlap.most_of_session, 1, "messages of one session at once")


async def check_durable_parallel(case: BusCase) -> None:
    """A durable group processes sessions in parallel: two of eight at once."""
    inbox = Inbox(meeting(2))
    await case.bus.subscribe("t", inbox, group="g", durable=True)
    for number in range(8):
        await case.publish(number, session=f"s{number}", durable=True)
    equal(sorted(await inbox.wait(8)), list(range(8)), "messages")


async def check_idempotency(case: BusCase) -> None:
    """Durable messages with the same key, topic and tenant are stored once."""
    inbox = Inbox()
    await case.bus.subscribe("t", inbox, group="g", durable=True)
    message = Message("t", 1, session="s", idempotency_key="k")
    await case.bus.publish(message, durable=True)
    await case.other.publish(replace(message, id="other", content="repeated"), durable=True)
    await case.bus.publish(replace(message, idempotency_key="l", content=2), durable=True)
    await case.bus.publish(replace(message, idempotency_key="l", content="repeated"), durable=True)
    await case.publish(3, durable=True)
    equal(await inbox.wait(3), [1, 2, 3], "messages")
    await case.bus.publish(replace(message, tenant="other"), durable=True)
    equal((await inbox.wait(4))[3], 1, "message of another tenant")


async def check_poison(case: BusCase) -> None:
    """A durable message that always fails is set aside with its reason, and its session continues."""
    inbox = Inbox(fail_with(ValueError("bad number"), 1))
    await case.bus.subscribe("t", inbox, group="g", durable=True)
    await case.publish(1, 2, durable=True)
    equal(await inbox.wait(1), [2], "messages")
    (letter,) = await case.letters(1)
    equal((letter.topic, letter.group, letter.durable, letter.deliveries), ("t", "g", True, DELIVERIES), "dead letter")
    equal((letter.message.content, letter.reason), (1, "ValueError: bad number"), "dead letter")
    equal(await case.other.dead_letters(topic="u"), [], "dead letters of another topic")
    equal(await case.other.dead_letters(topic="t", limit=5), [letter], "dead letters of this topic")


async def check_replay(case: BusCase) -> None:
    """A replayed dead letter is delivered to its group alone, and removed."""
    failing = [True]

    async def fail_first(message: Message) -> None:
        if failing and message.content == 1:
            raise ValueError("not yet")

    inbox, others = Inbox(fail_first), Inbox()
    await case.bus.subscribe("t", inbox, group="g", durable=True)
    await case.other.subscribe("t", others, group="h", durable=True)
    await case.publish(1, 2, durable=True)
    (letter,) = await case.letters(1)
    await inbox.wait(1)
    failing.clear()
    await case.bus.replay(letter)
    equal(await inbox.wait(2), [2, 1], "messages")
    await case.publish(3, durable=True)
    equal(await others.wait(3), [1, 2, 3], "messages of the other group")
    equal(await case.bus.dead_letters(), [], "dead letters")
    async with raises(BusError, "second replay"):
        await case.bus.replay(letter)


async def check_discard(case: BusCase) -> None:
    """A discarded dead letter is gone."""
    await case.bus.subscribe("t", Inbox(fail_with(ValueError("bad"), 1, 2)), group="g", durable=True)
    await case.publish(1, 2, durable=True)
    first, second = await case.letters(2)
    await case.bus.discard(first)
    equal(await case.bus.dead_letters(), [second], "dead letters")
    async with raises(BusError, "second discard"):
        await case.bus.discard(first)


async def check_durable_and_plain(case: BusCase) -> None:
    """A durable message reaches plain subscriptions, and a durable group answers requests."""
    inbox = Inbox()
    await case.bus.subscribe("t", inbox)
    await case.other.subscribe("t", echo, group="g", durable=True)
    await case.publish(1, durable=True)
    equal(await inbox.wait(1), [1], "messages")
    equal((await case.bus.request(Message("t", 2))).content, 2, "reply")


async def check_settings(case: BusCase) -> None:
    """A subscription with wrong settings is refused."""
    await case.bus.subscribe("t", echo, group="g")
    for settings in (
        {"durable": True},
        {"group": "a b"},
        {"group": "g", "durable": True},
        {"group": "g", "concurrency": 0},
    ):
        async with raises(BadSetting, f"subscribe with {settings}"):
            await case.bus.subscribe("t", echo, **settings)  # pyright: ignore[reportArgumentType]
    async with raises(BadSetting, "request without time"):
        await case.bus.request(Message("t"), timeout_s=0)


# leaving -------------------------------------------------------------------------------------------------------------


async def check_unsubscribe(case: BusCase) -> None:
    """`unsubscribe` returns when the messages that had arrived are processed, and ends the delivery."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def hold(_: Message) -> None:
        begun.set()
        await release.wait()

    first, second = Inbox(hold), Inbox()
    subscription = await case.bus.subscribe("t", first, group="g")
    await case.publish(1)
    await begun.wait()
    leaving = asyncio.create_task(subscription.unsubscribe())
    await pause()
    holds(not leaving.done(), "unsubscribe returned before the function")
    release.set()
    await leaving
    equal(first.contents, [1], "messages")
    await case.other.subscribe("t", second, group="g")
    await case.publish(2)
    await second.wait(1)
    equal(first.contents, [1], "messages after leaving")
    await subscription.unsubscribe()


async def check_unsubscribe_from_within(case: BusCase) -> None:
    """A function may end its own subscription."""
    subscriptions: list[Subscription] = []

    async def leave(_: Message) -> None:
        await subscriptions[0].unsubscribe()

    inbox = Inbox(leave)
    subscriptions.append(await case.bus.subscribe("t", inbox))
    await case.publish(1)
    equal(await inbox.wait(1), [1], "messages")


async def check_close(case: BusCase) -> None:
    """`close` waits for running functions; then the bus refuses all calls."""
    bus = await case.open()
    begun, release = asyncio.Event(), asyncio.Event()

    async def hold(_: Message) -> None:
        begun.set()
        await release.wait()

    inbox = Inbox(hold)
    await bus.subscribe("t", inbox, group="g")
    await bus.publish(Message("t", 1))
    await begun.wait()
    closing = asyncio.create_task(bus.close())
    await pause()
    holds(not closing.done(), "close returned before the function")
    release.set()
    await closing
    equal(inbox.contents, [1], "messages")
    await bus.close()
    for call in (bus.publish(Message("t")), bus.request(Message("t")), bus.subscribe("t", echo), bus.dead_letters()):
        async with raises(BusUnavailable, "call of a closed bus"):
            await call


async def check_close_cancels(case: BusCase) -> None:
    """`close` cancels functions that do not end in time, and leaves no task."""
    before = asyncio.all_tasks()
    bus = await case.open()
    begun = asyncio.Event()

    async def hang(_: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    await bus.subscribe("t", hang, group="g")
    await bus.publish(Message("t", 1, session="s"))
    await bus.publish(Message("t", 2, session="s"))
    await begun.wait()
    await bus.close(timeout_s=0.01)
    while len(asyncio.all_tasks()) > len(before):  # noqa: ASYNC110 - canceled tasks end soon, others never
        await asyncio.sleep(0.001)


# running -------------------------------------------------------------------------------------------------------------


class BusCheck:
    """Promise of the port. `name` is its sentence; calling it raises AssertionError if it is broken."""

    def __init__(self, function: Callable[[BusCase], Awaitable[None]]) -> None:
        self.name = " ".join((function.__doc__ or "").split()).removesuffix(".")
        self._function = function

    def __call__(self, backend: BusBackend, *, limit_s: float = LIMIT_S) -> None:
        """Run the check on an empty backend, in a new event loop. After `limit_s` seconds it fails as hanging."""
        asyncio.run(self._run(backend, limit_s))

    async def _run(self, backend: BusBackend, limit_s: float) -> None:
        case = BusCase(backend)
        limit = asyncio.timeout(limit_s)
        passed = False
        try:
            async with limit:
                await case.start()
                await self._function(case)
            passed = True
        except TimeoutError:
            if not limit.expired():
                raise
            raise AssertionError(f"did not happen within {limit_s:g} s") from None
        finally:
            await case.close(at_once=not passed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


CHECKS: tuple[BusCheck, ...] = tuple(
    BusCheck(function) for name, function in list(globals().items()) if name.startswith("check_")
)
"""All checks, which are the functions `check_…` of this module. The docstring of each is the sentence it checks."""


def run(make_backend: Callable[[], BusBackend], *, limit_s: float = LIMIT_S) -> ConformanceReport:
    """Run all checks, each on a new backend, and return the report. An error of any kind is a failure."""
    passed: list[str] = []
    failed: list[tuple[str, str]] = []
    for check in CHECKS:
        try:
            check(make_backend(), limit_s=limit_s)
        except Exception as error:  # noqa: BLE001 - whatever a bus raises is what the report is for
            text = str(error) if isinstance(error, AssertionError) else f"raised {type(error).__name__}: {error}"
            failed.append((check.name, text))
        else:
            passed.append(check.name)
    return ConformanceReport(tuple(passed), tuple(failed))
