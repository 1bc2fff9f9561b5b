"""Records of agents and requests as their clients expect them, and the gate to the server that runs now."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import Literal, TypeAlias, TypeVar

from nexus.errors import ServerCallFailed
from nexus.server import forms
from nexus.server.client import Client
from torture.figures import require

Result = TypeVar("Result")
State: TypeAlias = Literal["new", "open", "closed", "destroyed"]
Outcome: TypeAlias = Literal["waiting", "answered", "canceled", "failed", "open", "given up", "refused"]
"""`open` is a turn that its client leaves open, `refused` a request to an agent that was closed meanwhile."""


@dataclass(eq=False)
class RequestRecord:
    """A message to an agent, and what its client got."""

    name: str
    """Its request id; part of its text."""
    client: str
    outcome: Outcome = "waiting"
    turn: int = 0
    """Turn of a client's own loop, once it was acknowledged."""
    is_cancel_sent: bool = False
    is_cancel_acknowledged: bool = False
    last_life: int | None = None
    """The last server that may call the model for it: its cancellation or its agent's end was acknowledged."""

    @property
    def content(self) -> str:
        """The text of the message."""
        return f"Please answer the question {self.name}."


@dataclass(eq=False)
class AgentRecord:
    """An agent as its client expects it."""

    agent_id: str
    settings: forms.CreateAgent
    source: AgentRecord | None = None
    """The agent that it is a fork of."""
    shared_turns: int = 0
    """Turns of the source that it has."""
    state: State = "new"
    changes: int = 0
    """Odd while the answer to a change of the state is missing."""
    requests: list[RequestRecord] = field(default_factory=list[RequestRecord])

    @property
    def agent_ids(self) -> frozenset[str]:
        """The agents whose words it may have."""
        return frozenset({self.agent_id, *(self.source.agent_ids if self.source is not None else ())})

    @property
    def prompt(self) -> str:
        """The beginning of its prompts."""
        permissions = "\n".join(f"- {name}" for name in self.settings.permissions)
        return f"{self.settings.system}\n\n" + (f"# Permissions\n\n{permissions}\n\n" if permissions else "")

    @contextmanager
    def change(self, state: State) -> Generator[None]:
        """Change the state within the block; until its end either one is correct."""
        self.changes += 1
        yield
        self.state = state
        self.changes += 1


class LoadStopped(Exception):
    """No further server will run."""


def kind_of(error: ServerCallFailed) -> str:
    """Return the kind of an error; a path without an agent is refused by HTTP."""
    return "no_such_agent" if error.status == 404 else error.code


class ServerGate:
    """Gives clients the server that runs now, and holds them while there is none."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._client: Client | None = None
        self._life, self._is_over = 0, False
        self.under_way = 0
        """Requests without an answer so far."""

    def open(self, client: Client) -> None:
        """Let clients use a server."""
        with self._changed:
            self._client, self._life = client, self._life + 1
            self._changed.notify_all()

    def close(self) -> int:
        """Let no client begin; call it before the server is killed. Returns the number of requests under way."""
        with self._changed:
            self._client = None
            self._changed.notify_all()
            return self.under_way

    def end(self) -> None:
        """Let all clients fail."""
        with self._changed:
            self._is_over, self._client = True, None
            self._changed.notify_all()

    def call(self, action: Callable[[Client], Result], *, gives_up: Callable[[], bool]) -> tuple[Result | None, int]:
        """Call a server, after its death the next one; return the result with the number of repetitions.

        `gives_up` decides after each death; the result is None then. Raises ServerCallFailed for an answer that is an
        error, AssertionError for a server that closes a connection and was not killed.
        """
        repetitions = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._client is not None)
                client, life = self._client, self._life
                if client is None:
                    raise LoadStopped
                self.under_way += 1
            try:
                return action(client), repetitions
            except ServerCallFailed as error:
                if error.code != "connection":
                    raise
                with self._changed:  # it is closed before a kill
                    is_killed = self._is_over or self._client is None or self._life != life
                require(is_killed, f"a server that was not killed left a request: {error}")
            finally:
                with self._changed:
                    self.under_way -= 1
            if gives_up():
                return None, repetitions
            repetitions += 1
