"""Laws of lists: whatever clients repeat, edit, drop or send at once, each message is stored once and nothing is lost."""

from __future__ import annotations

import copy
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from engine.mirror.clients import FORMATS, Client, stored_messages
from support.validity import CHECKS

Node: TypeAlias = tuple[Any, ...]

WORDS = st.sampled_from(["a", "b", "Look it up."])
STEPS = st.tuples(
    st.sampled_from(["go on", "go on", "go on", "rewind", "retry", "new", "reopen", "no answer", "failure"]),
    st.integers(0, 5),
    WORDS,
    WORDS,
    st.integers(0, 2),
)
LOSSY_STEPS = st.tuples(
    st.sampled_from(["go on", "go on", "rewind", "new", "reopen", "slide", "rewrite", "unrecorded", "summarize"]),
    st.integers(0, 5),
    WORDS,
    WORDS,
    st.integers(0, 2),
)


def nodes(items: list[Any], name: str) -> list[Node]:
    """The messages of a list, each with all before it, without ids."""
    path: Node = ()
    found: list[Node] = []
    for message in nexus.read_messages(items, name):  # pyright: ignore[reportArgumentType]
        calls = [(call.name, json.dumps(json.loads(call.arguments))) for call in message.calls()]
        results = [str(result.content) for result in message.results()]
        path = (*path, (message.role, message.text(), tuple(calls), tuple(results)))
        found.append(path)
    return found


class World:
    """Clients of one ledger, and every message that was in a recorded list."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.nx = self.open()
        self.clients = [self.client()]
        self.expected: set[Node] = set()

    def open(self) -> nexus.Engine:
        return nexus.open(ledger=self.path, model=FORMATS[self.name].model)

    def client(self, items: list[Any] | None = None) -> Client:
        return Client(self.nx, self.name, items=items or [], budget=None)

    def call(self, client: Client, text: str, answer: str, calls: int, step: int) -> None:
        client.say(text)
        before = stored_messages(self.nx)
        ctx = client.context()
        body = client.wire.body(ctx)
        assert CHECKS[self.name](body) == []
        assert stored_messages(self.nx) == before
        if step == -1:
            return
        reply = [("look", {"n": n}) for n in range(calls)]
        client.answer(ctx, answer, reply, stem=f"call_{step}")
        assert nx_again(self.nx, ctx, client, answer, reply, step) == 0
        self.expected.update(nodes(client.items, self.name))
        assert any(self.has_reply(client, session.label) for session in self.nx.sessions())

    def has_reply(self, client: Client, label: str) -> bool:
        """True if a session has the client's last message and its reply, one after the other."""
        own = nexus.read_messages(client.items, self.name)  # pyright: ignore[reportArgumentType]
        history = [message.text() for message in self.nx.history(label)]
        return [message.text() for message in own[-2:]] in map(list, pairwise(history))

    def rewind(self, client: Client, turns: int) -> Client:
        places = [n for n, item in enumerate(client.items) if is_users_text(item)]
        at = places[-1 - turns % len(places)] if places else 0
        return self.client(copy.deepcopy(client.items[:at]))

    def reopen(self) -> None:
        self.nx.close()
        self.nx = self.open()
        for client in self.clients:
            client.nx = self.nx


def nx_again(nx: nexus.Engine, ctx: Any, client: Client, text: str, calls: Any, step: int) -> int:
    return nx.record(ctx, client.wire.reply(text, calls, f"call_{step}")).added


def is_users_text(item: Any) -> bool:
    content = item.get("content", item.get("parts"))
    return item.get("role") == "user" and (isinstance(content, str) or "text" in content[0])


def is_whole(client: Client) -> bool:
    return bool(client.items) and not client.waiting


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(steps=st.lists(STEPS, min_size=2, max_size=14))
def test_each_message_of_whole_lists_is_stored_once(name: str, steps: list[tuple[str, int, str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(name, Path(folder) / "ledger.db")
        for number, (action, choice, text, answer, calls) in enumerate(steps):
            client = world.clients[choice % len(world.clients)]
            match action:
                case "rewind" if is_whole(client):
                    client = world.rewind(client, choice)
                    world.clients.append(client)
                case "retry" if is_whole(client) and not calls:
                    again = world.rewind(client, 0)
                    again.items = client.items[: len(client.items) - 1]
                    if is_users_text(again.items[-1]):
                        ctx = again.context()
                        again.answer(ctx, answer, stem=f"call_{number}")
                        world.expected.update(nodes(again.items, name))
                        world.clients.append(again)
                        assert stored_messages(world.nx) == len(world.expected)
                    continue
                case "new":
                    client = world.client()
                    world.clients.append(client)
                case "reopen":
                    world.reopen()
                case "no answer" if is_whole(client):
                    world.call(world.client(copy.deepcopy(client.items)), text, answer, 0, -1)
                    continue
                case "failure" if is_whole(client):
                    client.say(text)
                    world.nx.record(client.context(), nexus.AgentResult((), error="connection lost"))
                    world.expected.update(nodes(client.items, name))
                    assert stored_messages(world.nx) == len(world.expected)
                    world.call(client, text, answer, calls, number)
                    continue
                case _:
                    pass
            world.call(client, text, answer, calls, number)
            assert stored_messages(world.nx) == len(world.expected)
        for session in world.nx.sessions():
            entries = world.nx.ledger.store.thread(session.thread).turn
            for turn in range(1, entries + 1):
                world.nx.replay(session.label, turn)
        world.nx.close()


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(steps=st.lists(LOSSY_STEPS, min_size=2, max_size=14))
def test_lists_that_lost_or_changed_messages_keep_every_reply(
    name: str, steps: list[tuple[str, int, str, str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(name, Path(folder) / "ledger.db")
        for number, (action, choice, text, answer, calls) in enumerate(steps):
            client = world.clients[choice % len(world.clients)]
            whole = is_whole(client)
            match action:
                case "rewind" if whole:
                    client = world.rewind(client, choice)
                    world.clients.append(client)
                case "new":
                    client = world.client()
                    world.clients.append(client)
                case "reopen":
                    world.reopen()
                case "slide" if whole:
                    users = [n for n, item in enumerate(client.items) if is_users_text(item)]
                    client.items = client.items[users[choice % len(users)] :]
                case "rewrite" if whole:
                    at = choice % len(client.items)
                    if is_users_text(client.items[at]):
                        client.items[at : at + 1] = client.wire.user(f"{text} (edited)")
                case "unrecorded" if whole:
                    client.items += client.wire.user(text) + client.wire.echo(client.wire.reply(answer, (), "x"))
                case "summarize" if whole:
                    users = [n for n, item in enumerate(client.items) if is_users_text(item)]
                    client.items[: users[choice % len(users)]] = client.wire.user("Summary.")
                case _:
                    pass
            world.call(client, text, answer, calls, number)
        world.nx.close()
