"""Checks of a server's ledger against the record of its clients: through the next server, and directly at the end."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

from nexus.engine import Engine
from nexus.errors import ServerCallFailed
from nexus.ledger.documents import AGENT
from nexus.ledger.replay import RecordedTurn
from nexus.ledger.sessions import EVENT_STATES, PENDING
from nexus.server.agents import decode_agent, event_id
from nexus.server.client import Client
from nexus.server.forms import AgentSettings
from nexus.types.message import Message, ToolCall
from torture.figures import lost, require
from torture.server_load import Load
from torture.server_process import TOKEN, ModelScript, agents_in, reply_text
from torture.server_records import AgentRecord, RequestRecord, State, kind_of

MAX_MESSAGES: Final = 1_000
ENDED: Final = ("completed", "failed", "interrupted")


def check_server(client: Client, load: Load, dice: random.Random) -> int:
    """Check the list of agents, and one agent's messages; return the number of agents that were expected and are there.

    Clients may use the server meanwhile: what they change is not compared.
    """
    before: list[tuple[AgentRecord, int, State]] = [(agent, agent.changes, agent.state) for agent in load.records()]
    infos = {info.agent_id: info for info in client.list_agents()}
    stable: list[tuple[AgentRecord, State]] = [
        (agent, state) for agent, changes, state in before if agent.changes == changes and changes % 2 == 0
    ]
    restored = 0
    for agent, state in stable:
        info = infos.get(agent.agent_id)
        if state == "destroyed":
            require(info is None, f"agent {agent.agent_id} was destroyed, and is listed")
        elif state != "new":
            require(info is not None, f"agent {agent.agent_id} was created, and is lost")
            assert info is not None
            require(
                info.should_shutdown == (state == "closed"), f"agent {agent.agent_id} is {state}, and listed as {info}"
            )
            require(
                info.parent_agent_id == agent.settings.parent_agent_id, f"agent {agent.agent_id} has another parent"
            )
            restored += 1
    if stable:
        agent, state = dice.choice(stable)
        _check_agent(client, agent, state)
    return restored


def _check_agent(client: Client, agent: AgentRecord, state: State) -> None:
    """Check that an agent has each answered request once, with its reply; or that it is destroyed."""
    answered = [request for request in list(agent.requests) if request.outcome == "answered"]
    changes = agent.changes
    try:
        messages = client.agent(agent.agent_id).get_messages(limit=MAX_MESSAGES).messages
    except ServerCallFailed as error:
        is_gone = state == "destroyed" and kind_of(error) == "no_such_agent"
        is_expected = agent.changes != changes or state == "new" or is_gone
        require(is_expected, f"agent {agent.agent_id}, which is {state}: {kind_of(error)}: {error}")
        return
    require(state != "destroyed" or agent.changes != changes, f"agent {agent.agent_id} is destroyed, and answers")
    texts = [(message.role, message.text()) for message in messages]
    for request in answered:
        times = texts.count(("user", request.content))
        require(times == 1, f"{request.name} was answered, and its message is there {times} times")
        times = texts.count(("assistant", reply_text(request.name)))
        require(times == 1, f"{request.name} was answered, and its reply is there {times} times")


# at the end ----------------------------------------------------------------------------------------------------------


def check_ledger(nx: Engine, load: Load) -> Counter[str]:
    """Check all agents and sessions of a ledger whose server has stopped; return numbers of turns by status."""
    records, statuses = load.records(), Counter[str]()
    labels = {info.label for info in nx.sessions(include_inactive=True)}
    strangers = labels - {agent.agent_id for agent in records}
    require(not strangers, f"there are sessions that no client created: {sorted(strangers)}")
    created = [agent for agent in records if agent.state != "new"]
    names: dict[str, dict[str, int]] = {}
    for agent in created:
        _check_settings(nx, agent)
        turns = {turn.number: turn for turn in nx.ledger.turns(agent.agent_id)}
        names[agent.agent_id] = _check_session(nx, agent, turns, load.script)
        statuses.update(turn.status for number, turn in turns.items() if number > agent.shared_turns)
    for agent in created:
        _check_queue(nx, agent, names[agent.agent_id])
    return statuses


def _check_settings(nx: Engine, agent: AgentRecord) -> None:
    document = nx.ledger.store.document(AGENT, agent.agent_id)
    if document is None:
        lost(f"agent {agent.agent_id} was created, and its settings are lost")
    stored = decode_agent(document.body)
    passed = {name: getattr(agent.settings, name) for name in AgentSettings.__struct_fields__}
    wanted = AgentSettings(**{**passed, "agent_id": agent.agent_id})
    require(stored.settings == wanted, f"agent {agent.agent_id} has the settings {stored.settings}, not {wanted}")
    flags = stored.is_closed, stored.is_destroyed
    is_expected = flags == (agent.state != "open", agent.state == "destroyed")
    require(is_expected, f"agent {agent.agent_id} is {agent.state}, and stored as {flags}")


def _check_session(
    nx: Engine, agent: AgentRecord, turns: dict[int, RecordedTurn], script: ModelScript
) -> dict[str, int]:
    """Check the turns of an agent; return the names of its messages with the number of their turns."""
    label = agent.agent_id
    messages: dict[int, list[Message]] = {number: [] for number in turns}
    for entry in nx.ledger.entries(label):
        for row in entry.rows:
            messages.setdefault(entry.turn, []).append(row.message)
    strangers = agents_in(message.text() for rows in messages.values() for message in rows) - agent.agent_ids
    require(not strangers, f"the session of {label} has words of {sorted(strangers)}")
    names: dict[str, int] = {}
    for number, rows in messages.items():
        users = [TOKEN.findall(message.text())[-1] for message in rows if message.role == "user"]
        require(len(users) == 1, f"turn {number} of {label} has the messages {users}")
        require(users[0] not in names, f"{users[0]} has the turns {names.get(users[0])} and {number}")
        names[users[0]] = number
    inherited = [request.name for request in agent.source.requests[: agent.shared_turns]] if agent.source else []
    require(list(names)[: len(inherited)] == inherited, f"{label} is a fork with {inherited}, and has {list(names)}")
    requests = {request.name: request for request in agent.requests}
    unknown = set(names) - set(inherited) - set(requests)
    require(not unknown, f"the session of {label} has {sorted(unknown)}, which were never sent to it")
    for request in agent.requests:
        number = names.get(request.name, 0)
        _check_request(agent, request, turns.get(number), messages.get(number, []), script.calls[request.name])
        is_over = request.last_life is None or script.lives.get(request.name, 0) <= request.last_life
        require(is_over, f"the end of {request.name} was acknowledged, and the next server continued it")
    for client in {request.client for request in agent.requests}:
        sent_names = [request.name for request in agent.requests if request.client == client and request.name in names]
        order = [name for name in names if name in requests and requests[name].client == client]
        require(order == sent_names, f"{label} was asked {sent_names}, and has {order}")
    return names


def _check_request(
    agent: AgentRecord, request: RequestRecord, turn: RecordedTurn | None, messages: list[Message], calls: int
) -> None:
    """Check that a request has the turn that its client expects."""
    name, outcome = request.name, request.outcome
    if turn is None:
        require(outcome not in ("answered", "failed", "open"), f"{name} was {outcome}, and is lost")
        require(not calls or outcome == "canceled", f"the model was called for {name}, which is lost")
        return
    wanted = {"answered": ("completed",), "canceled": ("interrupted",), "failed": ("interrupted", "failed")}
    may_be_canceled = agent.changes > 2 or request.is_cancel_sent
    default = ("completed", "interrupted") if may_be_canceled else ("completed",)
    if outcome == "open":
        require(turn.status not in ("completed", "failed"), f"{name} was left open, and its turn is {turn.status}")
    else:
        require(turn.status in wanted.get(outcome, default), f"{name} was {outcome}, and its turn is {turn.status}")
    if request.is_cancel_acknowledged:
        require(turn.status != "completed", f"{name} was canceled, and is answered ({outcome})")
    require(request.turn in (0, turn.number), f"{name} was turn {request.turn}, and is turn {turn.number}")
    texts = [message.text() for message in messages if message.role == "assistant" and message.text()]
    if turn.status == "completed":
        require(texts == [reply_text(name)], f"{name} has the replies {texts}")
        _check_calls(name, messages)
    else:
        require(all(reply_text(name).startswith(text) for text in texts), f"{name} has the replies {texts}")


def _check_calls(name: str, messages: list[Message]) -> None:
    """Check that each tool call of a completed turn is there once, with one result."""
    asked_ids = [part.id for message in messages for part in message.parts if isinstance(part, ToolCall)]
    result_ids = [result.call_id for message in messages for result in message.results()]
    require(asked_ids == result_ids, f"{name} has the calls {asked_ids} and the results {result_ids}")
    require(len(asked_ids) == len(set(asked_ids)) <= 1, f"{name} has the calls {asked_ids}")


def _check_queue(nx: Engine, agent: AgentRecord, names: dict[str, int]) -> None:
    """Check the queue of a session: each request once, none pending, answered in the order of acceptance."""
    label = agent.agent_id
    rows = nx.ledger.store.queued_events(label, EVENT_STATES)
    requests = {event_id(label, request.name): request for request in agent.requests}
    for row in rows:
        require(row.id in requests, f"the queue of {label} has {row.id}, which was never sent")
        request = requests[row.id]
        require(row.state not in PENDING, f"{request.name} is still {row.state} (its client: {request.outcome})")
        if request.outcome == "answered":
            is_done = (row.state, row.turn) == ("done", names[request.name])
            require(is_done, f"{request.name} was answered, and is {row.state} in turn {row.turn}")
    turns = [row.turn for row in rows if row.turn]
    require(turns == sorted(turns), f"the queue of {label} was answered in the turns {turns}")


def describe(statuses: Counter[str]) -> dict[str, Any]:
    """Return the numbers of turns as figures."""
    return {f"turns {status}": statuses[status] for status in ENDED}
