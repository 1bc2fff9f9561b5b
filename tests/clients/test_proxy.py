"""Three turns of each client through `nexus proxy`: as received in one session, within a budget, and over a restart."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nexus
from clients.installation import is_installed
from clients.programs import CLIENTS, Client, Home, environment_of
from clients.scripted_agent import NOTES, TURNS, ScriptedAgent, note_text, prompt
from nexus.engine.analysis.replay import replay_call
from nexus.proxy.installation import install, plan
from nexus.testing.model_server import ModelServer, model_server
from proxy.running import running_proxy

SHORT_CHARS, LONG_CHARS = 1_500, 12_000

BUDGETS = {"claude": 20_000, "codex": 20_000, "opencode": 14_000, "gemini": 14_000, "aider": 5_000, "llm": 5_000}
"""Tokens that leave each client its tools and system prompt, and room for some of the notes."""

Report = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    assert is_installed(), "the clients are not installed (run `make clients`, which needs npm)"


def hold_conversation(
    client: Client, folder: Path, chars: int, **settings: Any
) -> tuple[list[Report], list[str], ModelServer]:
    """Run a client for three turns, each behind a proxy of its own; return the reports, and why it failed."""
    agent = ScriptedAgent(client)
    reports: list[Report] = []
    failures: list[str] = []
    with model_server(agent) as provider:
        home: Home | None = None
        for turn in range(TURNS):
            with running_proxy(provider, folder / "l.db", **settings) as running:
                fresh = Home(folder / "home", running.url)
                if home is None:
                    environment = environment_of(client, fresh)
                    for name in (name for names in NOTES.values() for name in names):
                        fresh.write(f"work/{name}", note_text(name, chars))
                else:
                    environment = {
                        **environment,
                        **client.set_up(fresh),
                        "HTTP_PROXY": running.url,
                        "HTTPS_PROXY": running.url,
                    }
                home = fresh
                home.write(f"work/new-{turn}.txt", "another listing of the folder")
                try:
                    printed = client.run_turn(home, environment, prompt(turn), is_first=not turn)
                    if f"Turn {turn} is done." not in printed:
                        failures.append(f"turn {turn} has no answer: {printed[-300:]}")
                except AssertionError as error:
                    failures.append(str(error))
                reports += reversed(running.get("/nexus/status").json()["calls"])
        return reports, failures, provider


def sessions_of(client: Client, reports: list[Report]) -> tuple[set[str], set[str]]:
    """Return the sessions of the conversation, and those of requests beside it."""
    beside = {report["session"] for report in reports if any(name in report["model"] for name in client.side_models)}
    return {report["session"] for report in reports} - beside, beside


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_three_turns_go_on_as_received_and_are_one_session(client: Client, tmp_path: Path) -> None:
    reports, failures, provider = hold_conversation(client, tmp_path, SHORT_CHARS)
    assert failures == []
    assert {report["outcome"] for report in reports} == {"as_received"}
    assert [report["reasons"] for report in reports if report["reasons"]] == []
    conversation, _ = sessions_of(client, reports)
    assert len(conversation) == 1
    assert "" not in conversation
    assert all(request.headers["via"].startswith("1.1 nexus-proxy") for request in provider.requests)
    with nexus.open(ledger=tmp_path / "l.db") as nx:
        for report in reports:
            call = nx.calls.find_on(report["thread"], report["session"], report["turn"], report["number"])
            replay_call(nx.calls.dependencies, call)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_client_works_on_within_a_budget(client: Client, tmp_path: Path) -> None:
    reports, failures, _ = hold_conversation(client, tmp_path, LONG_CHARS, mode="fit", budget=BUDGETS[client.name])
    assert failures == []
    assert all(report["tokens"] <= BUDGETS[client.name] for report in reports)
    assert any(report["outcome"] == "fitted" for report in reports)
    assert all(report["session"] for report in reports)
    conversation, _ = sessions_of(client, reports)
    assert len(conversation) == 1


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_installed_client_gives_up_while_no_proxy_runs(name: str, tmp_path: Path) -> None:
    (client,) = (client for client in CLIENTS if client.name == name)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and never listens
        home = Home(tmp_path / "home", f"http://127.0.0.1:{unused.getsockname()[1]}")
        environment = environment_of(client, home)
        change = plan(name, home.url, tmp_path, environment, home.path)
        install(change, tmp_path)
        if name == "codex":  # without the settings of its arguments
            client = replace(client, arguments=_codex_arguments)
        with pytest.raises(AssertionError, match=rf"(?s)^{name} ended with 1: .*(ECONNREFUSED|Connection failed)"):
            client.run_turn(home, environment, prompt(0), is_first=True)


def _codex_arguments(_home: Home, _continues: bool) -> list[str]:
    return ["exec", "--skip-git-repo-check"]
