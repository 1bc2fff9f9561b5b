"""The bus on a real NATS server: outages, crashes, poison, and servers without storage."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.conftest import NatsPlace
from nexus.bus import Message, NatsBus, Redelivery, open_bus
from nexus.errors import BadBusMessage, BadSetting, BusDeadlineExceeded, BusRequestFailed, BusUnavailable
from nexus.testing.bus_conformance import Inbox
from support.errors import has_code
from support.nats_server import NatsServer, require_nats_server

NO_WAITS = Redelivery(max_deliveries=3, delays_s=())

CRASHING = """
import asyncio, os, sys
from nexus.bus import NatsBus

async def main():
    bus = await NatsBus.connect(sys.argv[1], prefix=sys.argv[2], ack_wait_s=1, partitions=4)

    async def crash(message):
        print(message.content, flush=True)
        os._exit(3)

    await bus.subscribe("t", crash, group="g", durable=True)
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that the test may stop."""
    require_nats_server()
    server = NatsServer(tmp_path / "server")
    yield server
    server.stop()


@pytest.fixture
def prefix(nats_server: NatsServer) -> str:
    return NatsPlace(nats_server).prefix


def run(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


async def connect(server: NatsServer, prefix: str = "nexus", **settings: Any) -> NatsBus:
    return await NatsBus.connect(server.url, prefix=prefix, **({"redelivery": NO_WAITS, "partitions": 4} | settings))


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_durable_messages_survive_a_restart_of_the_server(own_server: NatsServer, *, kill: bool) -> None:
    async def play() -> None:
        bus, other = await connect(own_server, ack_wait_s=1), await connect(own_server, ack_wait_s=1)
        inbox = Inbox()
        await bus.subscribe("t", inbox, group="g", durable=True)
        await other.publish(Message("t", 1, session="s"), durable=True)
        await inbox.wait(1)
        subscription = await other.subscribe("u", Inbox(), group="g", durable=True)
        await subscription.unsubscribe()
        await other.publish(Message("u", "stored", session="s"), durable=True)
        own_server.stop(kill=kill)
        with pytest.raises(BusDeadlineExceeded):
            await bus.request(Message("t"), timeout_s=0.2)
        publishing = asyncio.create_task(other.publish(Message("t", 2, session="s"), durable=True))
        await asyncio.sleep(0)
        own_server.start()
        await publishing
        await other.publish(Message("t", 3, session="s"), durable=True)
        while 3 not in inbox.contents:
            await inbox.wait(len(inbox.messages) + 1)
        assert list(dict.fromkeys(inbox.contents)) == [1, 2, 3]
        late = Inbox()
        await bus.subscribe("u", late, group="g", durable=True)
        assert await late.wait(1) == ["stored"]
        await bus.close()
        await other.close()

    run(play())


def test_bus_closes_while_the_server_is_away(own_server: NatsServer) -> None:
    async def play() -> None:
        bus = await connect(own_server)
        await bus.subscribe("t", Inbox(), group="g", durable=True)
        own_server.stop()
        await bus.close()
        while len(asyncio.all_tasks()) > 2:  # noqa: ASYNC110 - this function, and the one that waits for it
            await asyncio.sleep(0.001)

    run(play())


def test_message_of_a_crashed_process_goes_to_another(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        bus = await connect(nats_server, prefix, ack_wait_s=1)
        command = [sys.executable, "-c", CRASHING, nats_server.url, prefix]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - it returns at once
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
            await bus.publish(Message("t", "hello", session="s"), durable=True)
            assert await asyncio.to_thread(process.stdout.readline) == "hello\n"
            assert await asyncio.to_thread(process.wait) == 3
        inbox = Inbox()
        await bus.subscribe("t", inbox, group="g", durable=True)
        assert await inbox.wait(1) == ["hello"]
        await bus.close()

    run(play())


def test_message_that_is_never_acknowledged_is_set_aside(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        first = await connect(nats_server, prefix, redelivery=Redelivery(max_deliveries=1))
        begun = asyncio.Event()

        async def hang(_: Message) -> None:
            begun.set()
            await asyncio.Event().wait()

        await first.subscribe("t", hang, group="g", durable=True)
        await first.publish(Message("t", 1, session="s"), durable=True)
        await begun.wait()
        await first.close(timeout_s=0)
        second, inbox = await connect(nats_server, prefix, redelivery=Redelivery(max_deliveries=1)), Inbox()
        await second.subscribe("t", inbox, group="g", durable=True)
        await second.publish(Message("t", 2, session="s"), durable=True)
        assert await inbox.wait(1) == [2]
        (letter,) = await second.dead_letters()
        assert (letter.message.content, letter.deliveries) == (1, 1)
        assert "not acknowledged" in letter.reason
        await second.close()

    run(play())


def test_running_function_renews_its_message(nats_server: NatsServer, prefix: str) -> None:
    """The function ends when the server was told three times that it runs."""

    async def play() -> None:
        bus = await connect(nats_server, prefix, ack_wait_s=0.6)
        renewed = asyncio.Semaphore(0)

        async def count(msg: Any) -> None:
            if msg.data == b"+WPI":
                renewed.release()

        async def wait(_: Message) -> None:
            for _ in range(3):
                await renewed.acquire()

        await bus.client.subscribe(f"$JS.ACK.{prefix}-messages.>", cb=count)
        inbox = Inbox(wait)
        await bus.subscribe("t", inbox, group="g", durable=True)
        await bus.publish(Message("t", 1, session="s"), durable=True)
        assert await inbox.wait(1) == [1]
        await bus.close()

    run(play())


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"not a message", "bad_bus_message"), (b'{"schema_version": "2.0"}', "bus_message_too_new")],
    ids=["unreadable", "newer"],
)
def test_payload_that_is_no_message_is_set_aside_or_answered(
    nats_server: NatsServer, prefix: str, payload: bytes, reason: str
) -> None:
    async def play() -> None:
        bus, inbox = await connect(nats_server, prefix), Inbox()
        await bus.subscribe("t", inbox, group="g", durable=True)
        await bus.client.publish(f"{prefix}.p.t", payload)
        await bus.client.request(f"{prefix}.d.t.0", payload)
        answer = await bus.client.request(f"{prefix}.p.t", payload, timeout=60)
        assert reason.encode() in answer.data
        while len(letters := await bus.dead_letters()) < 2:  # noqa: ASYNC110 - the bus reports no event
            await asyncio.sleep(0.01)
        assert {letter.durable for letter in letters} == {True, False}
        assert {letter.payload for letter in letters} == {payload}
        assert all(letter.reason.startswith("BadBusMessage: ") and not letter.group.strip("g") for letter in letters)
        await bus.publish(Message("t", "good"), durable=True)
        assert await inbox.wait(1) == ["good"]
        await bus.close()

    run(play())


def test_full_queue_answers_requests(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        bus = await connect(nats_server, prefix, max_queued=1)
        begun, release = asyncio.Event(), asyncio.Event()

        async def hold(message: Message) -> Message:
            begun.set()
            await release.wait()
            return message.reply()

        await bus.subscribe("t", hold, group="g")
        first = asyncio.create_task(bus.request(Message("t")))
        await begun.wait()
        with pytest.raises(BusRequestFailed, match="full"):
            await bus.request(Message("t"))
        release.set()
        await first
        await bus.close()

    run(play())


def test_message_near_the_limit_is_stored_and_set_aside_whole(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        bus = await connect(nats_server, prefix)

        async def fail(_: Message) -> None:
            raise ValueError("é" * 10_000)

        await bus.subscribe("t", fail, group="g", durable=True)
        message = Message("t", "x" * (bus.max_bytes - 400), session="s")
        await bus.publish(message, durable=True)
        while not (letters := await bus.dead_letters()):  # noqa: ASYNC110 - the bus reports no event
            await asyncio.sleep(0.01)
        assert letters[0].message == message
        with pytest.raises(BadBusMessage, check=has_code("bus_message_too_large")):
            await bus.publish(Message("t", "x" * bus.max_bytes))
        await bus.close()

    run(play())


def test_partitions_of_the_stream_count(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        first, inbox = await connect(nats_server, prefix, partitions=2), Inbox()
        await first.publish(Message("t", 0, session="s"), durable=True)
        second = await connect(nats_server, prefix, partitions=50)
        await first.subscribe("t", inbox, group="g", durable=True)
        for number in range(1, 20):
            await second.publish(Message("t", number, session=f"s{number}"), durable=True)
        assert sorted(await inbox.wait(20)) == list(range(20))
        await first.close()
        await second.close()

    run(play())


def test_server_without_jetstream_carries_plain_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    require_nats_server()
    server = NatsServer(tmp_path / "server", jetstream=False)

    async def play() -> None:
        bus = await connect(server)

        async def fail(message: Message) -> Message:
            if message.content == "bad":
                raise ValueError("bad")
            return message.reply()

        await bus.subscribe("t", fail, group="g")
        await bus.publish(Message("t", "bad", session="s"))
        await bus.request(Message("t", session="s"))
        with pytest.raises(BusUnavailable, match="-js"):
            await bus.publish(Message("t"), durable=True)
        with pytest.raises(BusUnavailable, match="-js"):
            await bus.subscribe("t", fail, group="h", durable=True)
        assert "not set aside" in caplog.text
        await bus.close()

    try:
        run(play())
    finally:
        server.stop()


def test_password_is_accepted_and_never_quoted(tmp_path: Path) -> None:
    require_nats_server()
    server = NatsServer(tmp_path / "server", "--user", "nexus", "--pass", "right-password")
    address = f"127.0.0.1:{server.port}"

    async def play() -> None:
        bus = await open_bus(f"nats://nexus:right-password@{address}")
        assert "password" not in repr(bus)
        await bus.close()
        with pytest.raises(BusUnavailable, match=address) as refused:
            await open_bus(f"nats://nexus:wrong-password@{address}")
        server.stop()
        with pytest.raises(BusUnavailable, match=address) as unreachable:
            await open_bus(f"nats://nexus:right-password@{address}", connect_timeout_s=0.3)
        for caught in (refused, unreachable):
            assert "password" not in str(caught.value)
            assert caught.value.__cause__ is None

    try:
        run(play())
    finally:
        server.stop()


def test_bad_prefix_is_refused(nats_server: NatsServer) -> None:
    with pytest.raises(BadSetting, match="prefix"):
        asyncio.run(open_bus(nats_server.url, prefix="a.b"))


def test_subscription_is_at_the_server_when_subscribe_returns(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        bus, other = await connect(nats_server, prefix), await connect(nats_server, prefix)

        async def answer(message: Message) -> Message:
            return message.reply(message.content)

        for number in range(200):
            subscription = await bus.subscribe(f"t.{number}", answer)
            assert (await other.request(Message(f"t.{number}", number))).content == number
            await subscription.unsubscribe()
        await bus.close()
        await other.close()

    run(play())


def test_no_message_is_lost_while_members_come_and_go(nats_server: NatsServer, prefix: str) -> None:
    async def play() -> None:
        bus, other, sender = [await connect(nats_server, prefix) for _ in range(3)]
        inbox = Inbox()
        await bus.subscribe("t", inbox, group="g")

        async def come_and_go() -> None:
            for _ in range(20):
                subscription = await other.subscribe("t", inbox, group="g")
                await asyncio.sleep(0)
                await subscription.unsubscribe()

        going = asyncio.create_task(come_and_go())
        count = 0
        while not going.done() or count < 100:
            await sender.publish(Message("t", count, session="s"))
            count += 1
            await asyncio.sleep(0)
        await inbox.wait(count)
        assert sorted(inbox.contents) == list(range(count))
        for each in (bus, other, sender):
            await each.close()

    run(play())
