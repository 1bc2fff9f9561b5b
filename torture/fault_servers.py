"""Kills of a server at named points: behind acknowledged requests, and within a turn whose client is gone.

A server process gets an agent, an answered request, an own loop of its client and a message whose model never answers.
It is killed then. The next process must have all of it, and end the message's turn without a repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import nexus
from nexus.errors import ServerCallFailed
from nexus.server.client import Client
from nexus.testing.model_server import ModelServer, hang, model_server
from torture.figures import lost, require
from torture.processes import answer
from torture.server_process import MODEL, ModelScript, ServerProcess, reply_text

AGENT, LOOP_AGENT, CHILD = "answering", "looping", "answering-child"
PROMPT: Final = "You are the agent answering, and no other one."
ANSWERED, UNANSWERED, LATER, RECORDED = f"{AGENT}#1", f"{AGENT}#2", f"{AGENT}#3", f"{LOOP_AGENT}#1"
MODEL_CALL_S: Final = 60.0
POINTS: Final = 4
"""The agent's settings, the answered request, the recorded reply, and the turn that the next process continues."""


def killed_servers(folder: Path) -> int:
    """Kill a server within a turn, and check that the next one has everything and ends the turn."""
    return answer(_kill_and_check, folder)  # a process with threads must not be forked


def _kill_and_check(folder: Path) -> int:
    ledger, script = str(folder / "l.db"), ModelScript(1)
    for name in (ANSWERED, UNANSWERED, LATER):
        script.expect(name, PROMPT, frozenset({AGENT}))
    with model_server(script.step) as model:
        _run_and_kill(ServerProcess(folder, ledger, model.openai_url), model)
        model.script(script.step)
        server = ServerProcess(folder, ledger, model.openai_url)
        try:
            client = server.wait_until_it_serves()
            server.wait_until_idle()
            _check(client)
            server.stop()
        finally:
            server.kill()
    require(not script.problems, "; ".join(script.problems))
    with nexus.open(ledger=ledger, model=MODEL) as nx:
        ends = {label: [turn.status for turn in nx.ledger.turns(label)] for label in (AGENT, LOOP_AGENT)}
    require(ends == {AGENT: ["completed"] * 3, LOOP_AGENT: ["completed"]}, f"the turns are {ends}")
    return POINTS


def _run_and_kill(server: ServerProcess, model: ModelServer) -> None:
    """Send all requests, and kill the server while the model is called for the last one."""
    with ThreadPoolExecutor(1) as pool:
        try:
            client = server.wait_until_it_serves()
            agent = client.create_agent(AGENT, system=PROMPT, permissions=["read"])
            agent.send(_text(ANSWERED), ANSWERED)
            loop = client.create_agent(LOOP_AGENT)
            loop.begin(_text(RECORDED), RECORDED)
            loop.record(reply_text(RECORDED), loop.assemble().context_id)
            model.script(hang())
            model.requests.clear()
            sending = pool.submit(agent.send, _text(UNANSWERED), UNANSWERED)
            _wait(lambda: bool(model.requests))
        finally:
            server.kill()
        require(isinstance(sending.exception(), ServerCallFailed), "a killed server has answered")


def _check(client: Client) -> None:
    agent_ids = [info.agent_id for info in client.list_agents()]
    require(agent_ids == [AGENT, LOOP_AGENT], f"the agents are {agent_ids}")
    agent = client.agent(AGENT)
    wanted = [(role, text) for name in (ANSWERED, UNANSWERED) for role, text in _turn(name)]
    for moment in ("before", "after"):
        stored = [(message.role, message.text()) for message in agent.get_messages().messages]
        require(stored == wanted, f"{moment} the repetition of {UNANSWERED} its agent has {stored}, not {wanted}")
        for name in (ANSWERED, UNANSWERED):
            content = agent.send(_text(name), name).content
            require(content == reply_text(name), f"{name} has the answer {content!r}")
    texts = [message.text() for message in client.agent(LOOP_AGENT).get_messages().messages]
    require(texts == [text for _, text in _turn(RECORDED)], f"agent {LOOP_AGENT} has {texts}")
    agent.send(_text(LATER), LATER)  # the script checks the settings in its prompt
    try:
        client.create_agent(CHILD, permissions=["write"], parent_agent_id=AGENT)
    except ServerCallFailed as error:
        require(error.code == "not_allowed", f"agent {CHILD}: {error}")
    else:
        lost(f"agent {AGENT} has more permissions than before")


def _turn(name: str) -> list[tuple[str, str]]:
    return [("user", _text(name)), ("assistant", reply_text(name))]


def _text(name: str) -> str:
    return f"Please answer the question {name}."


def _wait(is_met: Callable[[], bool]) -> None:
    until = time.monotonic() + MODEL_CALL_S
    while not is_met():
        require(time.monotonic() < until, f"the model was not called within {MODEL_CALL_S:.0f} s")
        time.sleep(0.01)


def prepare() -> None:
    """Nothing is prepared: a process that forks often is kept small."""


CASES: Final = (killed_servers,)

FOUND_BY: Final = (
    ("forgotten_settings", killed_servers, "has the settings"),
    ("unresumed_requests", killed_servers, "before the repetition"),
    ("renamed_requests", killed_servers, "after the repetition"),
)
"""Each broken build of `torture.broken`, the case that finds it, and a part of what that case reports."""
