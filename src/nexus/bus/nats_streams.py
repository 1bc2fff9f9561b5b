"""JetStream for the bus on NATS: streams, consumers, durable messages and dead letters."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import ConsumerConfig, DeliverPolicy, RawStreamMsg, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError, ServiceUnavailableError

from nexus.bus.message import Message
from nexus.bus.port import MAX_REASON_CHARS, DeadLetter, check_replay, no_such_letter
from nexus.errors import BusUnavailable

HEADER_BYTES = 4_096
"""Room for headers in the server's limit."""

RETENTION_S = 7 * 24 * 3600
"""How long durable messages are stored."""

DEAD_RETENTION_S = 30 * 24 * 3600
"""How long dead letters are stored."""

DUPLICATE_WINDOW_S = 600
"""How long an idempotency key is remembered."""

STORE_TIMEOUT_S = 10.0
"""How long storing a durable message is tried."""

ATTEMPT_S = 2.0
"""Wait for one answer of the server."""

TARGET_HEADER = "Nexus-Group"
DEAD_HEADER = "Nexus-Dead"

_PASSWORD = re.compile(r"(?<=//)[^/@,\s]*@")


class Streams:
    """Stored messages of one prefix. The streams are created when they are first needed."""

    def __init__(self, client: Client, prefix: str, *, ack_wait_s: float, partitions: int, replicas: int) -> None:
        self.prefix = prefix
        self.ack_wait_s = ack_wait_s
        self._client = client
        self._js = client.jetstream(timeout=ATTEMPT_S)  # pyright: ignore[reportUnknownMemberType]
        self._messages = f"{prefix}-messages"
        self._dead = f"{prefix}-dead"
        self._partitions = partitions
        self._replicas = replicas
        self._are_ready = False
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        """Create the streams, or read how many partitions they have. Raises BusUnavailable without JetStream."""
        async with self._lock:
            if self._are_ready:
                return
            try:
                stored = await self._stream(
                    StreamConfig(
                        name=self._messages,
                        subjects=[f"{self.prefix}.d.>"],
                        max_age=RETENTION_S,
                        duplicate_window=DUPLICATE_WINDOW_S,
                        num_replicas=self._replicas,
                        metadata={"partitions": str(self._partitions)},
                    )
                )
                await self._stream(
                    StreamConfig(
                        name=self._dead,
                        subjects=[f"{self.prefix}.dead.>"],
                        max_age=DEAD_RETENTION_S,
                        duplicate_window=DUPLICATE_WINDOW_S,
                        num_replicas=self._replicas,
                    )
                )
            except (NatsError, TimeoutError) as error:
                raise BusUnavailable(f"server cannot store messages: {error} (start it with JetStream: -js)") from error
            self._partitions = int((stored.metadata or {}).get("partitions", self._partitions))
            self._are_ready = True

    async def _stream(self, config: StreamConfig) -> StreamConfig:
        """Return a stream's configuration; create the stream if it does not exist."""
        name = str(config.name)
        try:
            return (await self._js.stream_info(name)).config
        except NotFoundError:
            try:
                return (await self._js.add_stream(config)).config  # pyright: ignore[reportUnknownMemberType]
            except BadRequestError:  # another process was faster, with other settings
                return (await self._js.stream_info(name)).config

    async def create_consumers(self, topic: str, group: str) -> str:
        """Create the consumers of a group that do not exist; return the subject to which they deliver.

        All partitions share it: a server notices new subscriptions of a consumer only for subjects without wildcards.
        """
        await self.prepare()
        name = f"{group}-{digest(f'{topic}/{group}')[:16]}"
        subject = f"{self.prefix}.push.{name}"

        async def create(partition: int) -> None:
            await self._js.add_consumer(  # pyright: ignore[reportUnknownMemberType]
                self._messages,
                ConsumerConfig(
                    durable_name=f"{name}-{partition}",
                    description=f"{group} of {topic}"[:200],
                    deliver_policy=DeliverPolicy.ALL,
                    deliver_subject=subject,
                    deliver_group=group,
                    filter_subject=f"{self.prefix}.d.{topic}.{partition}",
                    ack_wait=self.ack_wait_s,
                    max_ack_pending=1,
                    max_deliver=-1,
                ),
            )

        try:
            await asyncio.gather(*(create(partition) for partition in range(self._partitions)))
        except (NatsError, TimeoutError) as error:
            raise BusUnavailable(f"group {group!r} of {topic!r} not created: {error} (try again later)") from error
        return subject

    async def store(self, message: Message, payload: bytes) -> None:
        """Store a durable message. Returns when the server acknowledged it."""
        await self.prepare()
        partition = partition_key(message) % self._partitions
        key = f"{message.tenant}/{message.topic}/{message.idempotency_key or message.id}"
        await self._put(f"{self.prefix}.d.{message.topic}.{partition}", payload, {"Nats-Msg-Id": digest(key)})

    async def set_aside(
        self,
        key: str,
        topic: str,
        group: str,
        payload: bytes,
        reason: str,
        deliveries: int,
        at_ms: int,
        *,
        durable: bool,
    ) -> None:
        """Store a dead letter, once per key."""
        await self.prepare()
        facts = {"reason": reason[:MAX_REASON_CHARS], "group": group, "deliveries": deliveries}
        facts |= {"at_ms": at_ms, "durable": durable}
        headers = {"Nats-Msg-Id": digest(key), DEAD_HEADER: json.dumps(facts)}
        await self._put(f"{self.prefix}.dead.{topic}", payload, headers)

    async def dead_letters(self, topic: str, limit: int) -> list[DeadLetter]:
        """Return the oldest dead letters."""
        await self.prepare()
        letters: list[DeadLetter] = []
        subject = f"{self.prefix}.dead.{topic or '>'}"
        sequence = 1
        try:
            while len(letters) < limit:
                stored = await self._js.get_msg(self._dead, seq=sequence, subject=subject, next=True)
                letters.append(self._letter(stored))
                sequence = int(stored.seq or 0) + 1
        except NotFoundError:
            pass
        except (NatsError, TimeoutError) as error:
            raise BusUnavailable(f"dead letters not read: {error} (try again later)") from error
        return letters

    def _letter(self, stored: RawStreamMsg) -> DeadLetter:
        headers: dict[str, str] = dict(stored.headers or {})  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        facts: dict[str, Any] = json.loads(headers.get(DEAD_HEADER, "{}"))
        return DeadLetter(
            id=str(stored.seq),
            topic=str(stored.subject).removeprefix(f"{self.prefix}.dead."),
            group=str(facts.get("group", "")),
            reason=str(facts.get("reason", "")),
            deliveries=int(facts.get("deliveries", 0)),
            at_ms=int(facts.get("at_ms", 0)),
            durable=bool(facts.get("durable")),
            payload=stored.data or b"",
        )

    async def replay(self, letter: DeadLetter) -> None:
        """Store a dead letter's message again for its group, then remove the letter."""
        await self.prepare()
        check_replay(letter, exists=await self._exists(letter))
        try:
            partition = partition_key(letter.message) % self._partitions
        except ValueError:
            partition = 0  # unreadable messages have no session
        subject = f"{self.prefix}.d.{letter.topic}.{partition}"
        await self._put(
            subject, letter.payload, {"Nats-Msg-Id": digest(f"replay/{letter.id}"), TARGET_HEADER: letter.group}
        )
        await self.remove(letter)

    async def remove(self, letter: DeadLetter) -> None:
        """Remove a dead letter. Raises BusError if it does not exist."""
        await self.prepare()
        if not await self._exists(letter):
            raise no_such_letter(letter)
        try:
            await self._js.delete_msg(self._dead, int(letter.id))
        except NotFoundError:
            raise no_such_letter(letter) from None
        except (NatsError, TimeoutError) as error:
            raise BusUnavailable(f"dead letter {letter.id!r} not removed: {error} (try again later)") from error

    async def _exists(self, letter: DeadLetter) -> bool:
        try:
            await self._js.get_msg(self._dead, seq=int(letter.id))
        except (NotFoundError, ValueError):
            return False
        except (NatsError, TimeoutError) as error:
            raise BusUnavailable(f"dead letter {letter.id!r} not read: {error} (try again later)") from error
        return True

    def target_group(self, msg: Msg) -> str:
        """Return the only group for which a message is replayed; empty for all."""
        return (msg.headers or {}).get(TARGET_HEADER, "")

    async def _put(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        """Store a payload, also across a restart of the server: its `Nats-Msg-Id` makes repetitions safe."""
        problem: Exception | None = None
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                while True:
                    try:
                        await self._js.publish(subject, payload, timeout=ATTEMPT_S, headers=dict(headers))
                    except (ServiceUnavailableError, NoRespondersError, TimeoutError) as error:
                        problem = error
                    except APIError:
                        raise
                    except NatsError as error:  # no connection, or no stream listens yet
                        problem = error
                    else:
                        return
                    if self._client.is_closed:
                        break
                    await asyncio.sleep(0.1)
        except APIError as error:
            raise BusUnavailable(f"message not stored: {error} (publish it again later)") from error
        except TimeoutError:
            pass
        raise BusUnavailable(
            f"message not acknowledged within {STORE_TIMEOUT_S:g} s: {problem!r} (publish it again with the same "
            "idempotency_key, which stores it once)"
        )


def partition_key(message: Message) -> int:
    """Return a number for tenant and session; messages without a session get one of their own."""
    if message.session:
        key = f"{message.tenant}\0{message.session}"
    else:
        key = f"\0\0{message.id}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


def digest(text: str) -> str:
    """Return a name for a text that is safe in headers and subjects."""
    return hashlib.sha256(text.encode()).hexdigest()


def redact_url(url: str) -> str:
    """Return an address without user and password."""
    return _PASSWORD.sub("", url)


def error_text(error: Exception, url: str) -> str:
    """Return an error's text without the credentials of an address."""
    text = str(error) or type(error).__name__
    for secret in re.findall(r"//([^/@,\s]+)@", url):
        for part in (secret, *secret.split(":", 1)):
            text = text.replace(part, "…") if part else text
    return text
