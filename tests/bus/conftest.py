"""The server that the tests of this folder share, and empty places for messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from nexus.bus import Bus, MemoryBus, Redelivery
from support.nats_server import NatsServer, require_nats_server


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    require_nats_server()
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


class MemoryPlace:
    """One bus in memory, which all connections share."""

    def __init__(self, kind: type[MemoryBus] = MemoryBus) -> None:
        self.kind = kind
        self.buses: list[MemoryBus] = []

    async def open(self, clock_ms: Callable[[], int], redelivery: Redelivery) -> Bus:
        if not self.buses or self.buses[-1].is_closed:
            self.buses.append(self.kind(clock_ms=clock_ms, redelivery=redelivery))
        return self.buses[-1]


class NatsPlace:
    """Subjects and streams of a server under a prefix of their own."""

    _numbers = itertools.count()

    def __init__(self, server: NatsServer) -> None:
        self.server, self.prefix = server, f"test-{next(self._numbers)}"

    async def open(self, clock_ms: Callable[[], int], redelivery: Redelivery) -> Bus:
        from nexus.bus import NatsBus

        return await NatsBus.connect(
            self.server.url, prefix=self.prefix, clock_ms=clock_ms, redelivery=redelivery, partitions=16
        )
