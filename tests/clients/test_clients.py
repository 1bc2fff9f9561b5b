"""Three turns of each client through `mirror`: at a budget that leaves everything in, and at the smallest that must do.

`make clients` installs the clients before it runs this. The checks are those of `tests/interchange/test_clients.py`, which
replays what was recorded here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import nexus
from clients.installation import is_installed
from clients.mirror_proxy import mirror_proxy
from clients.programs import CLIENTS, Client, Home, environment_of
from clients.scripted_agent import NOTES, TURNS, ScriptedAgent, note_text, prompt
from nexus.testing.model_server import model_server
from support.client_requests import LARGE, Outcome, budget_faults, faults, fixed_tokens

SHORT_CHARS, LONG_CHARS = 1_500, 12_000
"""Lengths of a note. Four long ones are several thousand tokens more than the smallest budget has room for."""

Conversation = tuple[list[Outcome], list[str]]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    assert is_installed(), "the clients are not installed (run `make clients`, which needs npm)"


@pytest.fixture(scope="module")
def converse(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Client, int, int], Conversation]:
    """Return the function that holds a conversation of three turns, once for the same arguments."""

    @cache
    def run(client: Client, budget: int, chars: int) -> Conversation:
        return hold_conversation(client, tmp_path_factory.mktemp(client.name), budget, chars)

    return run


def hold_conversation(client: Client, folder: Path, budget: int, chars: int) -> Conversation:
    """Run a client for three turns; return what became of its requests, and why it failed."""
    agent, failures = ScriptedAgent(client), list[str]()
    with (
        nexus.open(ledger=":memory:") as nx,
        model_server(agent) as provider,
        mirror_proxy(nx, provider, budget, agent.is_side_request) as (proxy, url),
    ):
        home = Home(folder / "home", url)
        environment = environment_of(client, home)
        for name in (name for names in NOTES.values() for name in names):
            home.write(f"work/{name}", note_text(name, chars))
        for turn in range(TURNS):
            try:
                printed = client.run_turn(home, environment, prompt(turn), is_first=not turn)
            except AssertionError as error:
                return proxy.outcomes, [str(error)]
            if f"Turn {turn} is done." not in printed:
                failures.append(f"turn {turn} has no answer: {printed[-300:]}")
    return proxy.outcomes, failures


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_three_turns_arrive_whole_in_one_session(client: Client, converse: Callable[..., Conversation]) -> None:
    outcomes, failures = converse(client, LARGE, SHORT_CHARS)
    assert [*faults(outcomes, is_whole=True), *failures] == []
    assert len(outcomes) >= (2 if client.tool else 1) * TURNS


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_recorded_requests_keep_tools_at_all_budgets(client: Client, converse: Callable[..., Conversation]) -> None:
    outcomes, _ = converse(client, LARGE, SHORT_CHARS)
    assert budget_faults([outcome.request for outcome in outcomes]) == []


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_client_works_on_at_smallest_budget(client: Client, converse: Callable[..., Conversation]) -> None:
    whole, _ = converse(client, LARGE, SHORT_CHARS)
    budget = int(1.3 * fixed_tokens([outcome.request for outcome in whole]))
    outcomes, failures = converse(client, budget, LONG_CHARS)
    assert [*faults(outcomes, is_whole=False), *failures] == []
