"""Three turns of six real clients through `mirror`, replayed: `tests/interchange/clients` has the shapes of their requests.

`python -m clients.record` (see `tests/clients`) recorded them; their texts are invented. In the second turn the model calls
two tools at once.

| client | what is particular about its list |
|---|---|
| Claude Code | `system` messages in the list, also at its end; a plain string or a list of blocks for the same message |
| Codex | tools and developer messages are items of the list; calls of a custom tool |
| opencode | a title is asked for beside the conversation, under the same id |
| Gemini CLI | ids of its own; a route is asked for with nearly the same list; a resumed list has each result twice |
| aider | no tools; ends with a `system` message; the files move to the end in every turn |
| llm | the plainest list |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.testing.scripted_replies import ScriptedReply, reply_body
from nexus.types.message import ToolCall
from support.client_requests import LARGE, ClientRequest, assemble, budget_faults, faults, replay
from support.mirrored_body import LIST_KEYS, Json

FIXTURES = sorted((Path(__file__).parent / "clients").glob("*.json"))


def read_requests(path: Path) -> list[ClientRequest]:
    """Return the requests of a fixture. Each repeats the fields of the one before of its kind that it does not have."""
    recorded = json.loads(path.read_text())
    requests: list[ClientRequest] = []
    bodies: dict[bool, Json] = {}
    key = LIST_KEYS[recorded["format"]]
    for number, item in enumerate(recorded["requests"], 1):
        earlier = bodies.get(item["is_side"], {})
        listed = [*earlier.get(key, ())[: item["repeats"]], *item["body"][key]]
        merged = {**earlier, **item["body"], key: listed}
        body = {name: value for name, value in merged.items() if value is not None}
        bodies[item["is_side"]] = body
        calls = tuple(ToolCall(*call) for call in item["reply"]["calls"])
        custom = frozenset(call.name for call in calls if call.name == "exec")
        stop: Any = "tool_calls" if calls else "stop"
        scripted = ScriptedReply(
            item["reply"]["text"], calls, stop=stop, model=item["model"], id=str(number), custom_tools=custom
        )
        reply = nexus.read_reply(reply_body(recorded["format"], scripted))
        requests.append(
            ClientRequest(recorded["format"], item["model"], body, reply, item["conversation"], item["is_side"])
        )
    return requests


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_three_turns_arrive_whole_in_one_session(path: Path) -> None:
    requests = read_requests(path)
    assert faults(replay(requests, LARGE), is_whole=True) == []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_tools_and_instructions_stay_whole_at_small_budgets(path: Path) -> None:
    assert budget_faults(read_requests(path)) == []


@pytest.mark.parametrize("path", [path for path in FIXTURES if path.stem != "gemini"], ids=lambda path: path.stem)
def test_lists_that_fit_may_be_sent_as_they_came(path: Path) -> None:
    """Gemini CLI is left out: its resumed lists have each result twice, and its first request has no ids."""
    with nexus.open(ledger=":memory:") as nx:
        for request in read_requests(path):
            ctx = assemble(nx, request, LARGE)
            assert ctx.mirrored is not None and ctx.mirrored.unchanged
            nx.record(ctx, request.reply)
