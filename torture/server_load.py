"""Clients of a server that is killed again and again, and the record of the requests that it acknowledged.

The record is in the process of the clients, which is never killed. A client whose server dies sends the same request to
the next one, or gives it up. Each agent has one client, except those that two clients share.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Thread
from typing import Any, Final

from msgspec.structs import replace

from nexus.errors import ServerCallFailed
from nexus.server import forms
from nexus.server.client import Client
from torture.figures import lost, require
from torture.server_process import ModelScript, agents_in, reply_text
from torture.server_records import AgentRecord, LoadStopped, RequestRecord, Result, ServerGate, kind_of

LONGEST_PAUSE_S: Final = 0.2
"""Seconds between a message and a request about it, at most."""
OPEN_AGENTS: Final = 3
"""Agents of a client that are open at the same time, about."""

ACKNOWLEDGED: Final = "requests acknowledged"
REPEATED: Final = "requests repeated and answered once"
GIVEN_UP: Final = "requests given up"


class Load:
    """All clients of one ledger, with their agents.

    Attributes:
        gate: The server that they use.
        agents: The agents, by id.
        counts: Numbers of requests.
        failures: Errors of the clients.
    """

    def __init__(self, seed: int, script: ModelScript) -> None:
        self.gate, self.script, self.agents = ServerGate(), script, dict[str, AgentRecord]()
        self.counts, self.failures = Counter[str](), list[BaseException]()
        self.is_ending = False
        self.lock = Lock()
        kinds = [_Sender] * 3 + [_LoopClient] * 2 + [_SharedSender] * 2
        self._clients = [
            kind(self, f"{kind.letter}{number}", random.Random(f"{seed} {number}")) for number, kind in enumerate(kinds)
        ]
        self._threads = [Thread(target=self._run, args=(client,), daemon=True) for client in self._clients]

    def start(self) -> None:
        """Start the clients."""
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float) -> None:
        """Let each client end after its present request. Raises AssertionError if one has no answer."""
        self.is_ending = True
        for thread in self._threads:
            thread.join(timeout_s)
        self.check()
        waiting = [record.name for agent in self.records() for record in agent.requests if record.outcome == "waiting"]
        is_running = any(thread.is_alive() for thread in self._threads)
        require(not is_running and not waiting, f"requests without an answer: {waiting}")

    def check(self) -> None:
        """Raise AssertionError with the first problem that a client or the model met."""
        if self.failures:
            raise AssertionError(f"{type(self.failures[0]).__name__}: {self.failures[0]}") from self.failures[0]
        require(not self.script.problems, "; ".join(self.script.problems[:3]))

    def records(self) -> list[AgentRecord]:
        """Return all agents."""
        with self.lock:
            return list(self.agents.values())

    def add(self, agent: AgentRecord) -> AgentRecord:
        """Add an agent; return the record of its id."""
        with self.lock:
            return self.agents.setdefault(agent.agent_id, agent)

    def count(self, name: str) -> None:
        """Count a request."""
        with self.lock:
            self.counts[name] += 1

    def _run(self, client: _Client) -> None:
        try:
            while not self.is_ending:
                client.step()
            client.end()
        except LoadStopped:
            return
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the thread that waits
            self.failures.append(error)


class _Client:
    """One client, with one request at a time."""

    letter = ""
    repeated_share = 0.6
    """Of the messages without an answer after a death of the server; the others are given up."""

    def __init__(self, load: Load, name: str, dice: random.Random) -> None:
        self.load, self.name, self.dice = load, name, dice
        self._agents: list[AgentRecord] = []
        self._number = 0

    def step(self) -> None:
        """Send some requests."""
        raise NotImplementedError

    def end(self) -> None:
        """Send the last requests."""

    def call(self, action: Callable[[Client], Result]) -> tuple[Result, int]:
        """Call a server until one answers; return the result with the number of repetitions."""
        result, repetitions = self.load.gate.call(action, gives_up=lambda: False)
        self.load.count(ACKNOWLEDGED)
        if repetitions:
            self.load.count(REPEATED)
        assert result is not None
        return result, repetitions

    def retry(self, action: Callable[[Client], object], refusal: str) -> bool:
        """Call until a server answers; return whether it did the work now.

        A repetition may be refused with an error of the kind `refusal`: the server that died had done the work.
        """
        tries = 0

        def counted(client: Client) -> object:
            nonlocal tries
            tries += 1
            return action(client) or True

        try:
            self.call(counted)
        except ServerCallFailed as error:
            require(tries > 1 and kind_of(error) == refusal, f"{self.name}: {kind_of(error)}: {error}")
            self.load.count(ACKNOWLEDGED)
            self.load.count(REPEATED)
            return False
        return True

    # agents ------------------------------------------------------------------------------------------------------

    def create(self, agent_id: str = "") -> AgentRecord:
        """Create an agent, sometimes within another one."""
        self._number += 1
        agent_id = agent_id or f"{self.name}-{self._number}"
        parents = [agent for agent in self._agents if agent.state == "open" and agent.settings.permissions]
        parent = self.dice.choice(parents) if parents and self.dice.random() < 0.5 else None
        limits = parent.settings.permissions if parent is not None else ("read", "search", "write")
        permissions = tuple(limits[: self.dice.randint(1, len(limits))]) if self.dice.random() < 0.7 else ()
        settings = forms.CreateAgent(
            agent_id=agent_id,
            system=f"You are the agent {agent_id}, and no other one.",
            permissions=permissions,
            budget=self.dice.choice((None, 8_000)),
            parent_agent_id=parent.agent_id if parent is not None else None,
        )
        agent = self.load.add(AgentRecord(agent_id, settings))
        with agent.change("open"):
            self.retry(lambda client: client.call("create_agent", settings, forms.AgentCreated), "bad_setting")
        if not permissions and parent is not None:
            agent.settings = replace(settings, permissions=limits)
        self._agents.append(agent)
        return agent

    def pick(self) -> AgentRecord:
        """Return an open agent; a new one if there are few."""
        agents = [agent for agent in self._agents if agent.state == "open"]
        if len(agents) < OPEN_AGENTS and (not agents or self.dice.random() < 0.3):
            return self.create()
        return self.dice.choice(agents)

    def new_request(self, agent: AgentRecord) -> RequestRecord:
        """Add a message to an agent's record."""
        with self.load.lock:
            request = RequestRecord(f"{agent.agent_id}#{len(agent.requests) + 1}", self.name)
            agent.requests.append(request)
        self.load.script.expect(request.name, agent.prompt, agent.agent_ids)
        return request

    def send(self, agent: AgentRecord, request: RequestRecord) -> None:
        """Send a message, and check the answer. After a death of the server it is repeated, or given up."""
        gives_up = self.dice.random() >= self.repeated_share

        def send(client: Client) -> forms.SendResult:
            return client.agent(agent.agent_id).send(request.content, request.name)

        try:
            result, repetitions = self.load.gate.call(send, gives_up=lambda: gives_up)
        except ServerCallFailed as error:
            is_closed = agent.changes % 2 or agent.state != "open"
            is_refused = kind_of(error) in ("agent_closed", "no_such_agent") and is_closed
            require(is_refused, f"{request.name}: {kind_of(error)}: {error}")
            request.outcome = "refused"
            return
        if result is None:
            request.outcome = "given up"
            self.load.count(GIVEN_UP)
            return
        require(result.request_id == request.name, f"{request.name}: the answer is for {result.request_id}")
        request.outcome = "canceled" if result.cancelled is True else "answered"
        is_right = request.outcome == "canceled" or result.content == reply_text(request.name)
        require(is_right, f"{request.name} has the answer {result.content!r}")
        self.load.count(ACKNOWLEDGED)
        if repetitions:
            self.load.count(REPEATED)


class _Sender(_Client):
    """Sends messages, and does everything else that agents offer."""

    letter = "s"

    def step(self) -> None:
        agent = self.pick()
        kinds = (self._send, self._cancel, self._look, self._compact, self._fork, self._close, self._destroy)
        (kind,) = self.dice.choices(kinds, (60, 8, 8, 8, 6, 3, 5))
        kind(agent)

    def _send(self, agent: AgentRecord) -> None:
        self.send(agent, self.new_request(agent))

    def _during(self, agent: AgentRecord, action: Callable[[RequestRecord], bool]) -> None:
        """Send a message, and do something while it is under way; `action` returns whether that ended it."""
        request = self.new_request(agent)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self.send, agent, request)
            time.sleep(self.dice.random() * LONGEST_PAUSE_S)
            if action(request):
                request.last_life = self.load.script.life
            sending.result()

    def _cancel(self, agent: AgentRecord) -> None:
        def cancel(request: RequestRecord) -> bool:
            request.is_cancel_sent = True
            result, _ = self.call(lambda client: client.agent(agent.agent_id).cancel(request.name))
            request.is_cancel_acknowledged = result.cancelled
            return result.cancelled

        self._during(agent, cancel)

    def _look(self, agent: AgentRecord) -> None:
        self.call(lambda client: client.agent(agent.agent_id).get_context())

    def _compact(self, agent: AgentRecord) -> None:
        self.call(lambda client: client.agent(agent.agent_id).compact())

    def _fork(self, agent: AgentRecord) -> None:
        """Fork the agent when none of its turns runs or waits."""
        if any(request.outcome != "answered" for request in agent.requests) or agent.source is not None:
            return
        self._number += 1
        new_id, turns = f"{self.name}-{self._number}", len(agent.requests)
        turn = self.dice.randint(1, turns) if turns and self.dice.random() < 0.5 else None
        fork = self.load.add(AgentRecord(new_id, agent.settings, agent, turns if turn is None else turn))
        with fork.change("open"):
            self.retry(lambda client: client.agent(agent.agent_id).fork(new_id, turn), "bad_setting")
        self._agents.append(fork)

    def _close(self, agent: AgentRecord) -> None:
        def close(_request: RequestRecord) -> bool:
            with agent.change("closed"):
                return self.retry(lambda client: client.agent(agent.agent_id).shutdown(), "agent_closed")

        self._during(agent, close)

    def _destroy(self, agent: AgentRecord) -> None:
        """Destroy an agent, sometimes while it answers; sometimes create it again: its session continues."""

        def destroy(_request: RequestRecord | None = None) -> bool:
            with agent.change("destroyed"):
                success, repetitions = self.call(lambda client: client.destroy_agent(agent.agent_id))
                require(success or repetitions, f"agent {agent.agent_id} is gone")
                return success

        if self.dice.random() < 0.5:
            self._during(agent, destroy)
            return
        destroy()
        if self.dice.random() < 0.6:
            prompt = f"You are the agent {agent.agent_id} again, for the time {agent.changes}."
            settings = forms.CreateAgent(agent_id=agent.agent_id, system=prompt)
            agent.settings = settings
            with agent.change("open"):
                self.retry(lambda client: client.call("create_agent", settings, forms.AgentCreated), "bad_setting")


class _SharedSender(_Client):
    """Sends messages to an agent that another client uses at the same time."""

    letter = "p"

    def step(self) -> None:
        if not self._agents:
            self._agents.append(self._shared_agent())
        agent = self._agents[0]
        self.send(agent, self.new_request(agent))

    def _shared_agent(self) -> AgentRecord:
        settings = forms.CreateAgent(agent_id="pair", system="You are the agent pair, and no other one.")
        agent = self.load.add(AgentRecord("pair", settings))
        try:
            self.call(lambda client: client.call("create_agent", settings, forms.AgentCreated))
        except ServerCallFailed as error:
            require(error.code == "bad_setting", f"{error}")
        agent.state = "open"
        return agent


class _LoopClient(_Client):
    """Calls the model itself, and has the server store each step."""

    letter = "o"

    def step(self) -> None:
        agent = self.pick()
        request = self.new_request(agent)
        self._begin(agent, request)
        with_tool = self.dice.random() < 0.3
        if with_tool:
            self._record_tool_call(agent, request)
        if self.dice.random() < 0.1:
            self._fail(agent, request)
        else:
            self._record(agent, request, reply_text(request.name))

    def end(self) -> None:
        agent = self.pick()
        request = self.new_request(agent)
        self._begin(agent, request)
        request.outcome = "open"

    def _begin(self, agent: AgentRecord, request: RequestRecord) -> forms.TurnState:
        """Begin a turn, or return its state."""
        state, _ = self.call(lambda client: client.agent(agent.agent_id).begin(request.content, request.name))
        is_same = request.turn in (0, state.turn)
        require(is_same, f"{request.name} is turn {state.turn}, and was turn {request.turn} before")
        request.turn = state.turn
        return state

    def _record_tool_call(self, agent: AgentRecord, request: RequestRecord) -> None:
        """Record a reply that calls a tool, then store its result with the next call's context."""
        call = {"id": f"call-{request.name}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        reply = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
        while not self._begin(agent, request).tool_calls:  # else a server that died has stored it
            self._record_once(agent, reply)
        result = forms.CallResult(str(call["id"]), f"Result for {request.name}.", "look")
        while self._begin(agent, request).tool_calls:
            self._call_if_waiting(lambda client: client.agent(agent.agent_id).assemble([result]))

    def _record(self, agent: AgentRecord, request: RequestRecord, reply: str) -> None:
        if self._record_once(agent, reply):
            request.outcome = "answered"
        state = self._begin(agent, request)
        require(state.status == "completed", f"{request.name} has a reply, and its turn is {state.status}")
        request.outcome = "answered"

    def _record_once(self, agent: AgentRecord, reply: dict[str, Any] | str) -> bool:
        """Assemble and record a reply; return False if a server that died has stored it already."""
        body = self._call_if_waiting(lambda client: client.agent(agent.agent_id).assemble())
        if body is None:
            return False
        texts = [str(message["content"]) for message in body.body["messages"]]
        require(
            texts[0].startswith(agent.prompt),
            f"{agent.agent_id} has the settings {texts[0][:80]!r}",
        )
        strangers = agents_in(texts) - agent.agent_ids
        require(not strangers, f"the prompt for {agent.agent_id} has words of {sorted(strangers)}")
        recorded = self._call_if_waiting(lambda client: client.agent(agent.agent_id).record(reply, body.context_id))
        return recorded is not None

    def _fail(self, agent: AgentRecord, request: RequestRecord) -> None:
        self._call_if_waiting(lambda client: client.agent(agent.agent_id).fail("the client stops", "aborted"))
        state = self._begin(agent, request)
        require(state.status in ("failed", "interrupted"), f"{request.name} failed, and its turn is {state.status}")
        request.outcome = "failed"

    def _call_if_waiting(self, action: Callable[[Client], Result]) -> Result | None:
        """Call until a server answers; None if a repetition finds that the work is done."""
        repetitions = 0

        def counted(client: Client) -> Result:
            nonlocal repetitions
            repetitions += 1
            return action(client)

        try:
            return self.call(counted)[0]
        except ServerCallFailed as error:
            if error.code != "bad_event" or repetitions < 2:
                lost(f"{self.name}: {error.code}: {error}")
            return None
