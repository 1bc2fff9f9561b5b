"""The conversation store of Pydantic AI on a ledger: the framework's own store is the model of what it does."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_ai import Agent
from pydantic_ai import messages as pa
from pydantic_ai.models.test import TestModel

import nexus
from adapters.test_pydantic_ai import conversations

stores = pytest.importorskip("pydantic_ai.conversation_store", reason="new in pydantic-ai-slim 2.66")

from pydantic_ai.conversation import Conversation  # noqa: E402
from pydantic_ai.exceptions import UserError  # noqa: E402

from nexus.adapters.pydantic_ai_store import NexusConversationStore  # noqa: E402


@settings(max_examples=60, deadline=None)
@given(conversations())
def test_messages_come_back_as_they_went(messages: list[Any]) -> None:
    async def talk(nx: nexus.Engine) -> None:
        await NexusConversationStore(nx).save(Conversation(messages=messages, conversation_id="c"))
        loaded = await NexusConversationStore(nx).load("c")
        assert loaded.messages == pa.ModelMessagesTypeAdapter.validate_json(dump(messages))
        assert dump(loaded.messages) == dump(messages)

    with nexus.open(ledger=":memory:") as nx:
        asyncio.run(talk(nx))


def dump(messages: list[Any]) -> bytes:
    return pa.ModelMessagesTypeAdapter.dump_json(messages)


def request(text: str) -> Any:
    return pa.ModelRequest([pa.UserPromptPart(text)])


async def step(store: Any, rng: random.Random, ids: list[str]) -> Any:
    """Do something with a store, as the chance of `rng` says, and return what can be seen of it."""
    name, other, scope = rng.choice(ids), rng.choice(ids), rng.choice([None, None, "ann"])
    match rng.randrange(7):
        case 0:
            await store.delete(name, scope=scope)
        case 1:
            loaded = await store.load(name)
            size = rng.randrange(4)
            if loaded is not None:
                await store.branch(name, at=size, expected_revision=loaded.revision)
        case 2:
            await store.fork(name, at=rng.randrange(3), new_conversation_id=other)
        case 3:
            stale = Conversation(messages=[request("stale")], conversation_id=name)
            await store.save(stale)
        case _:
            loaded = await store.load(name, limit=rng.choice([None, 2])) or Conversation(conversation_id=name)
            texts = [f"{rng.random()}" for _ in range(rng.randrange(4))]
            loaded.messages = [*loaded.messages, *map(request, texts)]
            await store.save(loaded, scope=scope)


async def seen(store: Any) -> list[Any]:
    """Return all that a store shows, without what differs by chance: ids, revisions and times."""
    found: list[Any] = []
    for record in sorted(await store.list_conversations(), key=lambda record: record.conversation_id):
        history = await store.load_entries(record.conversation_id)
        branches = [len(await store.read_history(tip)) for tip in record.branches]
        texts = [entry.message.parts[0].content for entry in history]
        found.append((record.conversation_id, record.scope, record.forked_from, branches, texts))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_store_does_what_the_framework_s_own_does(seed: int) -> None:
    async def compare(nx: nexus.Engine) -> int:
        own, ours = stores.InMemoryConversationStore(), NexusConversationStore(nx)
        for number in range(40):
            outcomes: list[Any] = []
            for store in (own, ours):
                try:
                    outcomes.append(await step(store, random.Random(f"{seed} {number}"), ["a", "b", "c"]))
                except UserError as error:
                    outcomes.append((type(error), str(error)))
            assert outcomes[0] == outcomes[1]
            assert await seen(own) == await seen(ours)
        listed = [
            [record.conversation_id for record in await store.list_conversations(limit=2)] for store in (own, ours)
        ]
        assert listed[0] == listed[1]
        return len(own._entries) - len(nx.ledger.store.documents("adapter:pydantic-ai:entry"))

    with nexus.open(ledger=":memory:") as nx:
        assert asyncio.run(compare(nx)) == 0


def test_agent_continues_a_stored_conversation_in_another_process(tmp_path: Path) -> None:
    agent = Agent(TestModel(), instructions="Be brief.")

    async def turn(number: int) -> int:
        async with nexus.open_async(ledger=tmp_path / "ledger.db") as nx:
            store = NexusConversationStore(nx)
            conversation = await store.load("chat", scope="ann") or Conversation(conversation_id="chat")
            await store.save(await agent.run(f"Turn {number}", conversation=conversation), scope="ann")
            assert await store.load("chat", scope="bob") is None
            loaded = await store.load("chat", scope="ann")
            return len(loaded.messages)

    assert [asyncio.run(turn(number)) for number in range(3)] == [2, 4, 6]


def test_writers_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    """Each writer has an engine of its own on the same file, and tries again after a conflict."""
    path = tmp_path / "ledger.db"

    async def write(name: str) -> None:
        async with nexus.open_async(ledger=path) as nx:
            store = NexusConversationStore(nx)
            for number in range(8):
                while True:
                    loaded = await store.load("chat") or Conversation(conversation_id="chat")
                    loaded.messages = [*loaded.messages, request(f"{name}{number}")]
                    try:
                        await store.save(loaded)
                    except stores.ConversationConflict:
                        continue
                    break

    async def write_all() -> list[str]:
        await asyncio.gather(*(write(name) for name in "abc"))
        async with nexus.open_async(ledger=path) as nx:
            entries = await NexusConversationStore(nx).load_entries("chat")
            assert len(nx.engine.ledger.store.documents("adapter:pydantic-ai:entry")) == len(entries)
            return [entry.message.parts[0].content for entry in entries]

    texts = asyncio.run(write_all())
    assert sorted(texts) == sorted(f"{name}{number}" for name in "abc" for number in range(8))


def test_fork_during_a_deletion_keeps_its_messages(tmp_path: Path) -> None:
    async def race(number: int, path: Path) -> None:
        async with nexus.open_async(ledger=path) as first, nexus.open_async(ledger=path) as second:
            one, two = NexusConversationStore(first), NexusConversationStore(second)
            await one.save(Conversation(messages=[request("a"), request("b")], conversation_id=f"c{number}"))
            fork = two.fork(f"c{number}", new_conversation_id=f"f{number}")
            await asyncio.gather(one.delete(f"c{number}"), fork, return_exceptions=True)
            loaded = await one.load(f"f{number}")
            assert loaded is None or len(loaded.messages) == 2

    async def race_often() -> None:
        for number in range(20):
            await race(number, tmp_path / "ledger.db")

    asyncio.run(race_often())


def test_conversations_of_a_person_are_erased(nx_file: Path) -> None:
    async def save(store: Any, scope: str) -> None:
        await store.save(Conversation(messages=[request(f"{scope} says")], conversation_id=scope), scope=scope)

    with nexus.open(ledger=nx_file) as nx:
        store = NexusConversationStore(nx)
        for scope in ("ann", "bob"):
            asyncio.run(save(store, scope))
        nx.ledger.upkeep.erase_principal("ann")
        assert asyncio.run(store.load("ann")) is None
        loaded = asyncio.run(store.load("bob"))
    assert loaded is not None
    assert b"ann says" not in nx_file.read_bytes()


@pytest.fixture
def nx_file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"
