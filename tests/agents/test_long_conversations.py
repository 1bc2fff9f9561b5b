"""Conversations of sixty turns with tools in a small window, unattended, in each provider's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nexus
from models.calls import FORMATS, client_of
from nexus import ToolCall
from nexus.agents import Agent
from nexus.models import Models
from nexus.testing.model_server import ModelRequest, Response, model_server, overflow, reply
from nexus.text.as_received import ReceivedFormat
from support.long_conversation import WORDS, WatchedClient, check_stored, converse, question
from support.recount import Recounter

TURNS, WINDOW = 60, 2_048
SIZES = (0, 3, 40, 200, 900, 4_000)
"""Words of the results, one size after the other; the last one is larger than the window."""
REFUSED_TURNS = frozenset(range(5, TURNS, 9))
"""Turns whose first call meets a smaller window, as behind a gateway."""


def look_up(item: int) -> str:
    """Return the record of an item.

    Args:
        item: Number of the item.
    """
    return " ".join(f"{WORDS[(item + place) % len(WORDS)]}{place}" for place in range(SIZES[item % len(SIZES)]))


class Provider:
    """Counts each prompt for itself, refuses what exceeds its window, and calls tools one to three times a turn."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.refusals = 0
        self._count, self._calls, self._turn = Recounter().count, 0, 0
        self._replies: list[tuple[str, list[ToolCall]]] = []

    def __call__(self, request: ModelRequest) -> Response:
        tokens = self._count(request.body)
        window = WINDOW
        if not self._replies and self._begin_turn():
            window = tokens * 7 // 8
        if tokens > window:
            self.refusals += 1
            return overflow(window, tokens)(request)
        text, calls = self._replies.pop(0)
        self.messages.append(("assistant", text))
        self.messages += [("tool", look_up(**json.loads(call.arguments))) for call in calls]
        return reply(text, *calls, input_tokens=tokens)(request)

    def _begin_turn(self) -> bool:
        """Write the replies of the next turn; return whether its first call is refused."""
        self._turn += 1
        self.messages.append(("user", question(self._turn, self._turn % 40)))
        calls: list[ToolCall] = []
        for _ in range(self._turn % 3 + 1):
            self._calls += 1
            calls.append(ToolCall(f"call_{self._calls}", "look_up", json.dumps({"item": self._calls})))
        steps = [calls] if self._turn % 2 else [[call] for call in calls]
        self._replies = [(f"Turn {self._turn}, step {step}.", some) for step, some in enumerate(steps)]
        self._replies.append((f"The answer of turn {self._turn}.", []))
        return self._turn in REFUSED_TURNS


@pytest.mark.parametrize(
    "forms",
    [tuple(FORMATS), *(pytest.param((form,), marks=pytest.mark.slow) for form in FORMATS)],
    ids=["all", *FORMATS],
)
def test_sixty_turns_with_tools_fit_a_small_window(forms: Sequence[ReceivedFormat], tmp_path: Path) -> None:
    provider, ledger = Provider(), tmp_path / "ledger.db"
    texts = [question(turn, turn % 40) for turn in range(1, TURNS + 1)]
    names = [FORMATS[form] for form in forms]
    limits = {name: {"context_tokens": WINDOW, "max_input_tokens": WINDOW} for name in names}

    async def main() -> list[dict[str, Any]]:
        models = Models({FORMATS[form]: client_of(server, form) for form in forms})
        async with models, nexus.open_async(ledger=ledger, model=names[0], models=limits) as nx:
            client = WatchedClient(models)
            agent = Agent(nx, client, tools=[look_up], builtin=False, profile="bare")
            await converse(agent, client, texts, WINDOW, names)
            assert client.overflows == provider.refusals >= len(REFUSED_TURNS)
            return await check_stored(nx, provider.messages, ledger)

    with model_server(provider) as server:
        compactions = asyncio.run(main())
    assert len(compactions) >= 10
    assert {(body["trigger"], body["model"]) for body in compactions} == {
        ("context_limit", ""), ("overflow_recovery", ""),
    }  # fmt: skip
