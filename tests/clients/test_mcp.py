"""Claude Code and Codex with `nexus mcp`: they start it over standard input and output, and their model finds a fact with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nexus
from clients.installation import is_installed
from clients.programs import CLIENTS, Client, Home, environment_of
from nexus.testing.model_server import ModelRequest, Response, model_server, reply
from nexus.types.message import ToolCall

FACT = "The harbor crane is serviced on 14 March by Jonas."
QUESTION = "When does Jonas service the cranes?"
SEARCH = {"claude": "mcp__nexus__search", "codex": "exec"}


class SearchingModel:
    """A scripted model that searches the past once, and answers with what it found."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Response:
        """Call the tool first; then say whether its result has the fact."""
        self.requests.append(request)
        number = str(len(self.requests))
        listed = json.dumps(request.body)
        if FACT in listed:
            return reply("It is serviced on 14 March.", reply_id=number)(request)
        if len(self.requests) > 3:
            return reply("I did not find it.", reply_id=number)(request)
        query = json.dumps({"query": QUESTION})
        name = SEARCH[self._client.name]
        code = f"const r = await tools.mcp__nexus__search({query}); text(JSON.stringify(r))"
        if len(self.requests) == 1:  # Codex does not wait for its servers: a model that answers at once must
            code = "await new Promise((done) => setTimeout(done, 4000)); text('waited')"
        arguments = code if name == "exec" else query
        return reply("I look.", ToolCall(f"call_{number}_f3a9c2e8b1d7", name, arguments), reply_id=number)(request)


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    assert is_installed(), "the clients are not installed (run `make clients`, which needs npm)"


@pytest.mark.parametrize("client", CLIENTS[:2], ids=lambda client: client.name)
def test_client_finds_a_fact_of_a_past_session_over_stdio(
    client: Client, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    ledger = tmp_path / "ledger.db"
    with nexus.open(ledger=ledger) as nx:
        nx.record(nx.assemble(FACT, session="crane"), nexus.AgentResult((nexus.assistant("Noted."),)))
    model = SearchingModel(client)
    with model_server(model) as provider:
        home = Home(tmp_path / "home", provider.anthropic_url)
        environment = environment_of(client, home)
        command = [sys.executable, "-m", "nexus", "mcp", "install", client.name, "--yes", "--ledger", str(ledger)]
        installed = subprocess.run(command, env=environment, cwd=home.work, capture_output=True, text=True, check=False)
        assert installed.returncode == 0, installed.stderr
        if client.name == "claude":
            words = ["--allowedTools=mcp__nexus__search", "-p"]
            client = Client(client.name, client.format, lambda *_: words, client.set_up)
        printed = client.run_turn(home, environment, QUESTION, is_first=True)
    record_property("requests", len(model.requests))
    assert "14 March" in printed
