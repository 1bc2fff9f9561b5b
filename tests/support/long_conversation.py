"""A long conversation through an agent, unattended: every turn is checked when it ends, and the ledger at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

from laws.call import bodies
from nexus.agents import Agent
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import ModelCallFailed
from nexus.ledger import maintenance
from nexus.models import ModelClient, ModelReply
from nexus.types.message import Message, Text
from nexus.types.stream_events import StreamEvent
from support.scripted_agent import check_laws, streamed_text
from support.validity import CHECKS

WORDS = [
    "harbor",
    "ledger",
    "orchard",
    "signal",
    "copper",
    "window",
    "meadow",
    "engine",
    "lantern",
    "river",
    "archive",
    "summit",
    "basket",
    "canvas",
    "needle",
    "market",
    "garden",
    "bridge",
    "kettle",
    "ribbon",
    "saddle",
    "temple",
    "valley",
    "wagon",
    "anchor",
    "beacon",
    "cellar",
    "ditch",
    "ember",
    "fiddle",
]


def question(turn: int, words: int) -> str:
    """Return the user's message of a turn, which no other turn has."""
    text = " ".join(WORDS[(turn * 7 + place * place) % len(WORDS)] for place in range(words))
    return f"Question {turn}: the code of item {turn} is K-{turn * 37:04}. Notes: {text}. What is next?"


class WatchedClient:
    """Passes calls on to a client, and judges each context in the form of every provider."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self.replies: list[tuple[AssembledContext, ModelReply]] = []
        self.overflows = 0
        self.problems: list[str] = []

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        for form, body in bodies(ctx).items():
            body.pop("extra_body", None)  # an argument of Anthropic's package, for fields that it does not list
            self.problems += [f"as {form}: {problem}" for problem in CHECKS[form](body)]
        async with aclosing(self._client.stream(ctx)) as items:
            try:
                async for item in items:
                    if isinstance(item, ModelReply):
                        self.replies.append((ctx, item))
                    yield item
            except ModelCallFailed as error:
                self.overflows += error.kind == "context_overflow"
                raise

    def sent(self, index: int) -> str:
        """Return the texts of a context that was answered."""
        return "\n".join(message.text() for message in self.replies[index][0].messages)


async def converse(
    agent: Agent, client: WatchedClient, texts: Sequence[str], window: int, models: Sequence[str] = ()
) -> None:
    """Run a turn for each text; each ends well, streams what it stores, and is sent prompts that fit the window.

    Args:
        agent: The agent, which calls `client`.
        client: Judges the contexts.
        texts: The user's messages.
        window: The window of the models.
        models: Models of the turns, in turn; by default the engine's.
    """
    nx = agent.nx
    for number, text in enumerate(texts, 1):
        events, sent = list[StreamEvent](), len(client.replies)
        model = models[number % len(models)] if models else nx.engine.model
        result = await agent.run(text, session="long", sink=events.append, model=model)
        assert result.error is None, f"turn {number}: {result.error}"
        check_laws(events)
        assert not client.problems, client.problems[:3]
        assert streamed_text(events) == "".join(m.text() for m in result.messages if m.role == "assistant")
        (turn,) = await nx.run(nx.engine.ledger.turns, "long", number)
        assert (turn.number, turn.status) == (number, "completed"), turn
        for ctx, reply in client.replies[sent:]:
            assert ctx.token_budget.remaining >= 0, ctx.token_budget
            usage = reply.result.usage
            assert 0 < usage.input_tokens <= window - usage.output_tokens, f"turn {number}: {usage}"


def role_and_text(message: Message) -> tuple[str, str]:
    """Return a message's role, and its text or that of its results."""
    texts = [part.text for result in message.results() for part in result.content if isinstance(part, Text)]
    return message.role, "".join(texts) or message.text()


def in_any_order(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the messages with the results of each reply sorted: they are stored as they come."""
    sorted_messages: list[tuple[str, str]] = []
    for role, same in groupby(messages, key=itemgetter(0)):
        group = list(same)
        if role == "tool":
            group.sort()
        sorted_messages += group
    return sorted_messages


async def check_stored(nx: AsyncEngine, expected: Sequence[tuple[str, str]], ledger: Path) -> list[dict[str, Any]]:
    """Check that the ledger has each message once, in order, and is sound. Return the bodies of its compactions."""
    stored = in_any_order([role_and_text(message) for message in await nx.history("long")])
    differences = [pair for pair in zip_longest(stored, in_any_order(expected)) if pair[0] != pair[1]]
    assert not differences, differences[:3]
    entries = await nx.run(nx.engine.ledger.entries, "long")
    assert await nx.run(maintenance.verify, ledger) == []
    return [entry.body for entry in entries if entry.kind == "compaction"]
