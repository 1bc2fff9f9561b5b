"""Events of turns as server-sent events: order, resume, gaps, and readers that are slow or gone."""

from __future__ import annotations

import asyncio
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nexus.broker import SessionEvent
from nexus.server.client import AgentClient, ServerEvent
from nexus.server.streams import EventBuffer, StreamItem, sse
from nexus.testing.model_server import reply
from nexus.types.stream_events import Token
from server.running import TOKEN, running


def until_end(stream: Any) -> list[ServerEvent]:
    events: list[ServerEvent] = []
    for event in stream:
        events.append(event)
        if event.type in ("stream_end", "stream_error"):
            break
    stream.close()
    return events


def tokens(events: list[ServerEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.type == "token")


def sent_while_reading(agent: AgentClient, text: str, request_id: str) -> list[ServerEvent]:
    stream = agent.events()
    first = next(stream)
    assert first.type == "open"
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(until_end, stream)
        agent.send(text, request_id)
        return [first, *reading.result()]


def test_events_are_those_of_the_agents_turn_and_their_text_is_the_answer(tmp_path: Path) -> None:
    with running(tmp_path, reply("One two three.")) as server:
        client = server.client()
        agent, other = client.create_agent("a"), client.create_agent("b")
        other.send("Not for a", "r0")
        events = sent_while_reading(agent, "Hi", "r1")
        assert tokens(events) == "One two three."
        assert [event.type for event in events][1] == "stream_start" and events[-1].type == "stream_end"
        assert {tuple(event.data["request_ids"]) for event in events[1:]} == {("r1",)}
        assert len({event.id for event in events[1:]}) == len(events) - 1


def test_events_are_in_camel_case_with_the_header(tmp_path: Path) -> None:
    with running(tmp_path, reply("One.")) as server:
        agent = server.client().create_agent("a")
        sent_while_reading(agent, "Hi", "r1")
        first = next(agent.events("x.0")).id.partition(".")[0]
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
        headers = {"Authorization": f"Bearer {TOKEN}", "Nexus-Case": "camel", "Last-Event-ID": f"{first}.0"}
        connection.request("GET", "/agent/a/events", headers=headers)
        rows: list[dict[str, Any]] = []
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                rows.append(json.loads(line[6:]))
                if rows[-1]["type"] == "stream_end":
                    break
        connection.close()
    assert [row["type"] for row in rows] == ["open", "stream_start", "token", "stream_end"]
    assert {row["agentId"] for row in rows} == {"a"} and rows[1]["requestIds"] == ["r1"]
    assert rows[-1]["usage"]["inputTokens"] > 0 and not [key for row in rows for key in row if "_" in key]


def test_reader_goes_on_behind_its_last_event(tmp_path: Path) -> None:
    with running(tmp_path, reply("One two three.")) as server:
        agent = server.client().create_agent("a")
        events = sent_while_reading(agent, "Hi", "r1")
        for at, event in enumerate(events[:-1]):
            resumed = until_end(agent.events(event.id))
            assert [item.id for item in resumed[1:]] == [item.id for item in events[at + 1 :]]


def test_position_of_another_process_or_nonsense_is_a_gap(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        agent = server.client().create_agent("a")
        agent.send("Hi")
        for last in ("0badcafe.3", "x", "3", "-1", "9" * 400):
            stream = agent.events(last)
            assert next(stream).type == "gap", last
            stream.close()
        assert agent.get_messages().total == 2, "the ledger has what the gap hides"


def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        stream = server.client().create_agent("a").events()
        next(stream)
        with ThreadPoolExecutor() as pool:
            rest = pool.submit(list, stream)
            server.stop()
            assert rest.result() == []


def test_buffer_drops_the_oldest_and_a_slow_reader_gets_a_gap() -> None:
    async def main() -> None:
        buffer = EventBuffer(size=3)
        start = buffer.end()
        for number in range(5):
            buffer.add(SessionEvent("s", Token(str(number))))
            buffer.add(SessionEvent("other", Token("x")))
        buffer.close()
        first, *rest = [item async for items in buffer.read("s", start) for item in items]
        assert (first.position.number, first.type) == (7, "gap")
        assert [(item.position.number, json.loads(item.data)["text"]) for item in rest] == [(9, "4")]

    asyncio.run(main())


def test_events_of_other_sessions_are_no_gap_for_a_waiting_reader() -> None:
    async def main() -> None:
        buffer = EventBuffer(size=3)
        reading = buffer.read("s", buffer.end(), 0.01)
        assert await anext(reading) == [StreamItem(buffer.end(), "idle")]
        await reading.aclose()
        reading = buffer.read("s", buffer.end())
        following = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        for number in range(10):
            buffer.add(SessionEvent("other", Token(str(number))))
        buffer.add(SessionEvent("s", Token("x")))
        (item,) = await following
        assert (item.position, item.type, json.loads(item.data)["text"]) == (buffer.end(), "token", "x")
        await reading.aclose()

    asyncio.run(main())


def test_slow_reader_gets_events_in_order_a_batch_at_a_time() -> None:
    async def main() -> None:
        buffer = EventBuffer()
        start = buffer.end()
        for number in range(1_000):
            buffer.add(SessionEvent("s", Token(str(number))))
            buffer.add(SessionEvent("other", Token("x")))
        buffer.close()
        batches = [items async for items in buffer.read("s", start)]
        assert [item.position.number for items in batches for item in items] == list(range(1, 2_000, 2))
        assert len(batches) > 1

    asyncio.run(main())


def test_reader_is_woken_by_each_event_and_by_the_end() -> None:
    async def main() -> None:
        buffer = EventBuffer()

        async def read() -> list[int]:
            return [item.position.number async for items in buffer.read("s", buffer.end()) for item in items]

        reading = asyncio.ensure_future(read())
        for _ in range(3):
            await asyncio.sleep(0)
            buffer.add(SessionEvent("s", Token("x")))
        await asyncio.sleep(0)
        buffer.close()
        assert await reading == [1, 2, 3]

    asyncio.run(main())


def test_frame_is_one_line_of_data() -> None:
    async def main() -> bytes:
        buffer = EventBuffer()
        start = buffer.end()
        buffer.add(SessionEvent("s", Token("a\nid: 7\n\nevent: x\r\u2028")))
        (item,) = await anext(buffer.read("s", start))
        return sse(item)

    frame = asyncio.run(main()).decode()
    assert frame.partition(".")[2].startswith("1\nevent: token\ndata: ") and frame.endswith("\n\n")
    assert frame.count("\n") == 4 and "\r" not in frame
