"""The bus in one process: order for all histories, full queues, and what it forgets."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.bus import MemoryBus, Message, Redelivery
from nexus.bus.memory import DUPLICATE_WINDOW_MS
from nexus.errors import BusRequestFailed, BusUnavailable
from nexus.testing import FixedClock
from nexus.testing.bus_conformance import Inbox

HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b", "c"]),  # session
        st.sampled_from(["x", "y"]),  # tenant
        st.integers(0, 4),  # turns of the loop that the function takes
        st.integers(0, 3),  # failures before the function succeeds
        st.integers(0, 3),  # turns of the loop before the next message
    ),
    max_size=40,
)


@given(HISTORIES, st.lists(st.integers(1, 3), min_size=1, max_size=3))
@settings(max_examples=150)
def test_session_is_processed_in_order_and_one_at_a_time(
    history: list[tuple[str, str, int, int, int]], members: list[int]
) -> None:
    """With retries, several members and sessions. A message that failed twice is set aside at the third failure."""
    asyncio.run(_play(history, members))


async def _play(history: list[tuple[str, str, int, int, int]], members: list[int]) -> None:
    bus = MemoryBus(redelivery=Redelivery(max_deliveries=3, delays_s=()))
    running: set[tuple[str, str]] = set()
    processed: dict[tuple[str, str], list[int]] = defaultdict(list)
    deliveries: dict[int, int] = defaultdict(int)
    at_once = 0

    async def function(message: Message) -> None:
        nonlocal at_once
        number, turns, failures = message.content
        key = (message.tenant, message.session)
        assert key not in running
        running.update([key] if message.session else [])
        at_once += 1
        assert at_once <= sum(members)
        for _ in range(turns):
            await asyncio.sleep(0)
        at_once -= 1
        running.discard(key)
        deliveries[number] += 1
        if deliveries[number] <= failures:
            raise ValueError(number)
        processed[key].append(number)

    for concurrency in members:
        await bus.subscribe("t", function, group="g", durable=True, concurrency=concurrency)
    for number, (session, tenant, turns, failures, pause) in enumerate(history):
        await bus.publish(Message("t", [number, turns, failures], tenant=tenant, session=session), durable=True)
        for _ in range(pause):
            await asyncio.sleep(0)
    poison = [number for number, one in enumerate(history) if one[3] == 3]
    while sum(map(len, processed.values())) + len(await bus.dead_letters()) < len(history):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    for key, numbers in processed.items():
        published = [number for number, one in enumerate(history) if (one[1], one[0]) == key and number not in poison]
        assert (numbers if key[1] else sorted(numbers)) == published
    assert sorted(letter.message.content[0] for letter in await bus.dead_letters()) == poison
    await bus.close()


def run(play: Any) -> None:
    asyncio.run(play())


def test_full_queue_answers_requests_and_sets_plain_messages_aside() -> None:
    async def play() -> None:
        bus = MemoryBus(max_queued=2)
        begun, release = asyncio.Event(), asyncio.Event()

        async def hold(message: Message) -> Message:
            begun.set()
            await release.wait()
            return message.reply()

        inbox = Inbox(hold)
        await bus.subscribe("t", inbox, group="g")
        for number in range(3):
            await bus.publish(Message("t", number, session="s"))
        await begun.wait()
        with pytest.raises(BusRequestFailed, match="full"):
            await bus.request(Message("t"))
        (letter,) = await bus.dead_letters()
        assert (letter.message.content, letter.deliveries) == (2, 0)
        assert "full" in letter.reason
        release.set()
        await inbox.wait(2)
        await bus.close()

    run(play)


def test_full_queue_refuses_durable_message_which_is_not_stored() -> None:
    async def play() -> None:
        bus = MemoryBus(max_queued=1)
        release = asyncio.Event()

        async def hold(_: Message) -> None:
            await release.wait()

        inbox = Inbox(hold)
        await bus.subscribe("t", inbox, group="g", durable=True)
        await bus.publish(Message("t", 1), durable=True)
        second = Message("t", 2)
        with pytest.raises(BusUnavailable, match="publish again"):
            await bus.publish(second, durable=True)
        release.set()
        await inbox.wait(1)
        await asyncio.sleep(0)
        await bus.publish(second, durable=True)
        assert await inbox.wait(2) == [1, 2]
        await bus.close()

    run(play)


def test_idempotency_key_is_forgotten_after_its_window() -> None:
    async def play() -> None:
        clock, inbox = FixedClock(), Inbox()
        bus = MemoryBus(clock_ms=clock)
        await bus.subscribe("t", inbox, group="g", durable=True)
        for _ in range(2):
            await bus.publish(Message("t", 1, idempotency_key="k"), durable=True)
        clock.advance(DUPLICATE_WINDOW_MS)
        await bus.publish(Message("t", 2, idempotency_key="k"), durable=True)
        assert await inbox.wait(2) == [1, 2]
        await bus.close()

    run(play)


def test_failed_message_waits_for_its_delay_and_other_sessions_do_not() -> None:
    async def play() -> None:
        bus = MemoryBus(redelivery=Redelivery(max_deliveries=2, delays_s=(3_600.0,)))

        async def fail_a(message: Message) -> None:
            if message.session == "a":
                raise ValueError("busy")

        inbox = Inbox(fail_a)
        await bus.subscribe("t", inbox, group="g", durable=True)
        for number, session in enumerate("aabb"):
            await bus.publish(Message("t", number, session=session), durable=True)
        assert await inbox.wait(2) == [2, 3]
        await bus.close()

    run(play)


def test_close_logs_messages_that_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        bus = MemoryBus()
        await (await bus.subscribe("t", Inbox(), group="g", durable=True)).unsubscribe()
        await bus.publish(Message("t", id="the-id"), durable=True)
        await bus.close()

    with caplog.at_level(logging.WARNING, "nexus.bus"):
        run(play)
    assert "the-id" in caplog.text


def test_request_that_waits_when_the_bus_closes_gets_an_error() -> None:
    async def play() -> None:
        bus = MemoryBus()
        begun = asyncio.Event()

        async def hang(_: Message) -> None:
            begun.set()
            await asyncio.Event().wait()

        await bus.subscribe("t", hang)
        request = asyncio.create_task(bus.request(Message("t")))
        await begun.wait()
        await bus.close(timeout_s=0)
        with pytest.raises(BusRequestFailed) as caught:
            await request
        assert caught.value.error_code == "bus_closed"

    run(play)


def test_function_can_close_its_own_bus() -> None:
    async def play() -> None:
        bus = MemoryBus()

        async def close(message: Message) -> Message:
            await bus.close()
            return message.reply("closed")

        await bus.subscribe("t", close)
        assert (await bus.request(Message("t"))).content == "closed"

    run(play)
