"""A client of the server for Python programs: methods with typed results, and the events of an agent's turns.

It uses the standard library alone, and one connection per request. Methods block; an asynchronous program calls them in
threads.

    client = Client("http://127.0.0.1:8765", token)
    agent = client.create_agent(system_prompt="You are a librarian.")
    print(agent.send("Which book is it?").content)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Literal, TypeVar, Unpack
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from nexus.errors import BadSetting, ServerCallFailed
from nexus.server import forms
from nexus.text.as_received import ReceivedFormat
from nexus.types.decoding import decodable
from nexus.types.settings import SettingsChanges
from nexus.types.validation import check_options

Result = TypeVar("Result")


class ServerEvent(Struct, frozen=True):
    """An event of an agent's turn: its type, its data, and the id from which a later stream continues."""

    type: str
    data: dict[str, Any]
    id: str = ""


class Client:
    """A client of one server and token.

    Args:
        url: Address of the server.
        token: The token of the server's token file.
        timeout_s: Seconds without a byte after which a request fails; a turn may take long.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 1_800.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting(f"server address {url!r} invalid (use http://127.0.0.1:8765)")
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"Client({self._parts.geturl()!r})"

    def agent(self, agent_id: str) -> AgentClient:
        """Return the client of an agent without asking the server: the agent may have been made by another program."""
        return AgentClient(self, agent_id)

    def create_agent(
        self,
        agent_id: str | None = None,
        *,
        parent_agent_id: str | None = None,
        if_exists: Literal["error", "continue"] = "error",
        **settings: Unpack[SettingsChanges],
    ) -> AgentClient:
        """Create an agent; an id whose session exists continues that session.

        Args:
            agent_id: Its id; by default a new one.
            parent_agent_id: Agent whose rights are the most that this one may have.
            if_exists: `continue` returns the client of an existing agent. It is an error if the agent has another
                value for a setting that is passed, or was shut down.
            **settings: Settings of its calls (`nexus.Settings`); by default the server's, and a child's permissions,
                toolset and principal are its parent's.

        Raises BadSetting, NotAllowed, ServerCallFailed.
        """
        check_options("create_agent", settings, SettingsChanges, "agent_id parent_agent_id if_exists")
        names = settings.get("permissions")
        if names is not None and not (names := tuple(names)):
            raise BadSetting("permissions empty: a call without any has all of its principal's (name one or more)")
        place = forms.CreateAgent(agent_id=agent_id, parent_agent_id=parent_agent_id, if_exists=if_exists)
        params = place.with_changes(settings)
        return self.agent(self.call("create_agent", params, forms.AgentCreated).agent_id)

    def list_agents(self) -> tuple[forms.AgentInfo, ...]:
        """Return the agents, oldest first."""
        return self.call("list_agents", forms.NoParams(), forms.AgentList).agents

    def destroy_agent(self, agent_id: str) -> bool:
        """Remove an agent, and return whether there was one; its session stays."""
        return self.call("destroy_agent", forms.DestroyAgent(agent_id), forms.AgentDestroyed).success

    def shutdown_server(self) -> forms.ServerStopping:
        """Stop the server when running turns have ended."""
        return self.call("shutdown_server", forms.NoParams(), forms.ServerStopping)

    def discover(self) -> dict[str, Any]:
        """Return the OpenRPC document of the server's methods."""
        return self.call("rpc.discover", forms.NoParams(), dict[str, Any])

    def call(self, method: str, params: Struct, kind: type[Result], path: str = "/rpc") -> Result:
        """Call a method and return its result. Raises ServerCallFailed."""
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": msgspec.to_builtins(params)}
        headers = {"Content-Type": "application/json"}
        with self._response("POST", path, headers, msgspec.json.encode(request)) as response:
            status = response.status
            body = response.read()
        answer = _object(body, status)
        if "result" in answer:
            return msgspec.convert(answer["result"], decodable(kind))
        raise _failure(answer, status)

    def stream(self, path: str, last_event_id: str = "") -> Generator[ServerEvent]:
        """Yield the server-sent events of a path. Raises ServerCallFailed."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        with self._response("GET", path, headers, None) as response:
            if response.status != 200:
                raise _failure(_object(response.read(), response.status), response.status)
            fields: dict[str, str] = {}
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    yield ServerEvent(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
                    fields = {}

    @contextmanager
    def _response(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Generator[HTTPResponse]:
        connect = HTTPConnection
        if self._parts.scheme == "https":
            connect = HTTPSConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        try:
            place = self._parts.path.rstrip("/") + path
            connection.request(method, place, body, {**headers, "Authorization": f"Bearer {self._token}"})
            with connection.getresponse() as response:
                yield response
        except (OSError, HTTPException) as error:
            text = f"server {self._parts.geturl()} not reached: {error or type(error).__name__}"
            raise ServerCallFailed(text, code="connection") from error
        finally:
            connection.close()


class AgentClient:
    """A client of one agent.

    Attributes:
        agent_id: The agent's id.
    """

    def __init__(self, client: Client, agent_id: str) -> None:
        self._client = client
        self.agent_id = agent_id
        self._path = forms.url_of(agent_id)

    def __repr__(self) -> str:
        return f"AgentClient({self.agent_id!r})"

    def send(self, content: str, request_id: forms.RequestKey | None = None) -> forms.SendResult:
        """Send a user's message and wait for the answer. The same `request_id` again does not run again."""
        return self._call("send", forms.Send(content, request_id), forms.SendResult)

    def cancel(self, request_id: forms.RequestKey) -> forms.CancelResult:
        """Cancel a request under way."""
        return self._call("cancel", forms.Cancel(request_id), forms.CancelResult)

    def events(self, last_event_id: str = "") -> Generator[ServerEvent]:
        """Yield the events of the agent's turns, from now on or behind an event. The first one is `open` or `gap`."""
        return self._client.stream(f"{self._path}/events", last_event_id)

    def get_tokens(self) -> forms.TokenCounts:
        """Return the tokens of the next context."""
        return self._call("get_tokens", forms.NoParams(), forms.TokenCounts)

    def get_context(self) -> forms.ContextInfo:
        """Return the number of messages of the next context, and whether it has a system prompt."""
        return self._call("get_context", forms.NoParams(), forms.ContextInfo)

    def get_messages(self, offset: int = 0, limit: int = 100) -> forms.MessageList:
        """Return messages of the session, oldest first; a negative offset counts from the newest."""
        return self._call("get_messages", forms.GetMessages(offset, limit), forms.MessageList)

    def compact(self, focus: str = "") -> forms.CompactResult:
        """Replace older messages by a summary now."""
        return self._call("compact", forms.Compact(focus), forms.CompactResult)

    def fork(self, new_agent_id: str | None = None, turn: int | None = None) -> AgentClient:
        """Create an agent with this one's settings and its history up to a turn."""
        created = self._call("fork", forms.Fork(new_agent_id, turn), forms.AgentCreated)
        return AgentClient(self._client, created.agent_id)

    def explain(self, turn: int | None = None, call: int | None = None) -> forms.ExplainResult:
        """Explain a recorded call, or the next one."""
        return self._call("explain", forms.Explain(turn, call), forms.ExplainResult)

    def shutdown(self) -> bool:
        """End the agent's running requests and accept no more."""
        return self._call("shutdown", forms.NoParams(), forms.Success).success

    def begin(
        self, content: str, request_id: forms.RequestKey | None = None, tools: Sequence[dict[str, Any]] = ()
    ) -> forms.TurnState:
        """Store a user's message, and begin its turn for a loop of this program."""
        return self._call("begin", forms.Begin(content, request_id, tuple(tools)), forms.TurnState)

    def assemble(
        self,
        results: Sequence[forms.CallResult] = (),
        tools: Sequence[dict[str, Any]] = (),
        model: str = "",
        format: ReceivedFormat | None = None,  # noqa: A002 - the name of the param
    ) -> forms.AssembledBody:
        """Store results of tools, and assemble the request body of the open turn's next call."""
        params = forms.Assemble(tuple(results), tuple(tools), model, format)
        return self._call("assemble", params, forms.AssembledBody)

    def record(
        self,
        reply: dict[str, Any] | str | None = None,
        context_id: str = "",
        *,
        result: forms.ReplyResult | None = None,
    ) -> forms.RecordResult:
        """Store the reply to an assembled context: a provider's response or a text, or a `result` in neutral parts."""
        return self._call("record", forms.RecordReply(reply, context_id, result), forms.RecordResult)

    def fail(
        self, error: str, kind: forms.FailureKind = "error", partial: str = "", *, turn: int = 0
    ) -> forms.TurnState:
        """End the open turn as failed; refused if it is another one than `turn`."""
        return self._call("fail", forms.Fail(error, kind, partial, turn), forms.TurnState)

    def mirror(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        model: str = "",
        format: ReceivedFormat | None = None,  # noqa: A002 - the name of the param
        reserve: int = 0,
        *,
        conversation: str = "",
        window: bool = False,
    ) -> forms.AssembledBody:
        """Assemble the request body for a program that has its whole message list."""
        params = forms.Mirror(tuple(messages), tuple(tools), model, format, reserve, conversation, window)
        return self._call("mirror", params, forms.AssembledBody)

    def fit(
        self,
        messages: Sequence[forms.ListMessage],
        tools: Sequence[dict[str, Any]] = (),
        model: str = "",
        reserve: int = 0,
        *,
        conversation: str = "",
    ) -> forms.FittedList:
        """Return which messages to send, for a program that has its whole list in types of its own."""
        params = forms.Fit(tuple(messages), tuple(tools), model, reserve, conversation)
        return self._call("fit", params, forms.FittedList)

    def _call(self, method: str, params: Struct, kind: type[Result]) -> Result:
        return self._client.call(method, params, kind, self._path)


def _object(body: bytes, status: int) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ServerCallFailed(f"server answered {status} without a JSON object", code="bad_reply") from error


def _failure(answer: dict[str, Any], status: int) -> ServerCallFailed:
    error: dict[str, Any] = answer.get("error") or {}
    data: dict[str, Any] = error.get("data") or {}
    text = str(error.get("message", f"server answered {status}"))
    return ServerCallFailed(text, code=str(data.get("code", "")), rpc_code=int(error.get("code", 0)), status=status)
