"""Readers of streams that are slow or take nothing: turns go on, and no event is lost without a gap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.server_streams import Reader, Readers, open_readers, read_on

from nexus.server.app import HttpLimits
from nexus.server.client import Client
from nexus.testing.model_server import reply
from server.running import TOKEN, Running, running

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SEND_BUFFER = 8_192
TURNS = 2
LONG_ANSWER = " ".join(f"word{number}" for number in range(400))
"""Its events have more bytes than a connection may buffer."""


def create(client: Client, agents: list[str]) -> None:
    for agent in agents:
        client.create_agent(agent, profile="bare")


def run_turns(client: Client, agents: list[str]) -> None:
    for number in range(TURNS):
        for agent in agents:
            assert client.agent(agent).send(f"{number}?").content == LONG_ANSWER


async def wait_for_streams(server: Running, count: int) -> None:
    metrics = ""
    for _ in range(2_000):
        metrics = (await asyncio.to_thread(server.http, "GET", "/metrics"))[2].decode()
        if f"nexus_open_streams {count}.0\n" in metrics:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(metrics)


@pytest.mark.parametrize("streams", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_turns_go_on_and_slow_readers_get_all_events(tmp_path: Path, streams: int) -> None:
    agents = [f"a{number}" for number in range(4)]

    async def read(server: Running) -> Readers:
        client = server.client()
        create(client, agents)
        readers = await open_readers(server.url, HEADERS, agents, streams)
        await wait_for_streams(server, streams)
        await asyncio.to_thread(run_turns, client, agents)
        found = await read_on(readers, agents, TURNS)
        for reader in readers:
            await reader.close()
        await wait_for_streams(server, 0)
        return found

    limits = HttpLimits(per_second=10_000, burst=10_000)
    with running(tmp_path, reply(LONG_ANSWER), limits=limits, send_buffer=SEND_BUFFER) as server:
        assert asyncio.run(read(server)) == Readers(complete=streams, with_gap=0, disconnected=0)


def test_reader_that_takes_nothing_is_disconnected_and_goes_on_later(tmp_path: Path) -> None:
    async def read(server: Running) -> tuple[list[str], list[str]]:
        client = server.client()
        create(client, ["a"])
        reader, other = (Reader(server.url, HEADERS, "a", pause_s) for pause_s in (None, 0.0))
        await reader.opened()
        await other.opened()
        await asyncio.to_thread(run_turns, client, ["a"])
        await wait_for_streams(server, 1)
        taken = [event.id for event in await reader.events("stream_end", TURNS)]
        all_ids = [event.id for event in await other.events("stream_end", TURNS)]
        assert not reader.is_open and other.is_open and len(taken) < len(all_ids)
        stream = client.agent("a").events(taken[-1])
        rest = [next(stream).id for _ in range(len(all_ids) - len(taken) + 1)][1:]  # without `open`
        stream.close()
        await other.close()
        return taken + rest, all_ids

    limits = HttpLimits(send_s=3)
    with running(tmp_path, reply(LONG_ANSWER), limits=limits, send_buffer=SEND_BUFFER) as server:
        got, all_ids = asyncio.run(read(server))
        assert got == all_ids


def test_server_stops_while_a_reader_takes_nothing(tmp_path: Path) -> None:
    async def stall(server: Running) -> None:
        create(server.client(), ["a"])
        reader = Reader(server.url, HEADERS, "a", None)
        await reader.opened()
        await asyncio.to_thread(run_turns, server.client(), ["a"])
        await asyncio.to_thread(server.stop)
        await reader.events("stream_end", TURNS)
        assert not reader.is_open

    with running(tmp_path, reply(LONG_ANSWER), send_buffer=SEND_BUFFER) as server:
        asyncio.run(stall(server))
