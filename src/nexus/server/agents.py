"""The agents of one tenant: sessions of its ledger, with the settings that each was created with.

Settings are documents of the ledger, so an agent is there again after a restart, and in every process that shares the
ledger. Its conversation is the session of its id.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.engine import Engine, session_label
from nexus.errors import AgentError, BadReference, BadSetting, NotAllowed, NotFound
from nexus.ledger.documents import AGENT, change_document
from nexus.ledger.sessions import Document, SessionMetadata
from nexus.server.forms import AgentInfo, AgentSettings, CreateAgent, RequestKey
from nexus.types.decoding import decodable
from nexus.types.request import checked_settings
from nexus.types.settings import Settings, SettingsChanges

ID_CHARS = 200
MOST_DECODED = 1_000
"""Agents of a tenant that are kept decoded, at most."""

_EVENT = "request:"


class StoredAgent(Struct, frozen=True, omit_defaults=True):
    """An agent as the ledger has it."""

    agent_id: str
    settings: AgentSettings
    """With the limits of its parent."""
    created_ms: int = 0
    is_closed: bool = False
    is_destroyed: bool = False

    @property
    def options(self) -> SettingsChanges:
        """The arguments of `Engine.assemble` for its turns; JSON values."""
        return self.settings.changes_from(Settings())


def decode_agent(document: dict[str, Any]) -> StoredAgent:
    """Return an agent from the body of its document; older ones have null for what was left out."""
    settings = {name: value for name, value in document.get("settings", {}).items() if value is not None}
    return msgspec.convert({**document, "settings": settings}, decodable(StoredAgent))


class StoredAgents:
    """The agents of an engine's ledger. All methods block: the engine's thread runs them."""

    def __init__(self, engine: Engine) -> None:
        self._nx = engine
        self._decoded: dict[str, tuple[Document, StoredAgent]] = {}  # as each was read last, by id

    def create(self, settings: CreateAgent) -> StoredAgent:
        """Create an agent within its parent, with its session; with `if_exists` "continue" return an existing one.

        Raises BadSetting for an id in use or other settings, AgentError for an existing agent that was shut down,
        NotAllowed, NotFound for its parent, NotFound, BadSetting, LedgerError.
        """
        if settings.agent_id is None:
            agent_id = uuid.uuid4().hex[:8]
        else:
            agent_id = settings.agent_id
        _check_id(agent_id)
        stored = AgentSettings(**{name: getattr(settings, name) for name in AgentSettings.__struct_fields__})
        may_exist = settings.if_exists == "continue"
        if may_exist and (agent := self._read(agent_id)) is not None:
            _check_same(agent, stored)
            return self.get(agent_id)
        return self._add(agent_id, self._within_parent(stored), wanted=stored if may_exist else None)

    def _add(self, agent_id: str, settings: AgentSettings, *, wanted: AgentSettings | None = None) -> StoredAgent:
        """Store an agent and its session. `wanted`: settings with which it may exist, made by another program meanwhile."""
        agent = StoredAgent(agent_id, replace(settings, agent_id=agent_id), self._nx.clock_ms())
        checked_settings(Settings().with_changes(agent.options))
        if settings.profile:
            self._nx.profiles.resolve(settings.profile)
        label = session_label(self._nx, agent_id, **agent.options)  # raises for an invalid name and a denied session

        def add(document: dict[str, Any] | None) -> dict[str, Any]:
            if document is None:
                return msgspec.to_builtins(agent)
            existing = decode_agent(document)
            if existing.is_destroyed:
                return msgspec.to_builtins(agent)
            if wanted is None:
                raise BadSetting(f'agent {agent_id!r} exists (pass if_exists="continue", or use another id)')
            _check_same(existing, wanted)
            return document

        if self._nx.ledger.resolve(label) is None:
            try:
                self._nx.ledger.sessions.create(label, SessionMetadata(parent_session=settings.parent_agent_id or ""))
            except BadReference:
                if self._nx.ledger.resolve(label) is None:  # else another process has just made it
                    raise
        document, _ = change_document(self._nx.ledger.store, AGENT, agent_id, add)
        return decode_agent(document)

    def get(self, agent_id: str, *, may_be_closed: bool = False) -> StoredAgent:
        """Return an agent with its present rights.

        Raises NotFound, NotAllowed, and AgentError after a `shutdown` unless the agent may be closed.
        """
        agent = self._find(agent_id)
        if agent.is_closed and not may_be_closed:
            raise _closed(agent_id)
        return replace(agent, settings=self._present(agent.settings))

    def list(self) -> tuple[AgentInfo, ...]:
        """Return all agents, oldest first."""
        with self._nx.ledger.snapshot():
            stored = [decode_agent(document.body) for document in self._nx.ledger.store.documents(AGENT)]
            agents = [self._info(agent) for agent in stored if not agent.is_destroyed]
        return tuple(sorted(agents, key=lambda agent: (agent.created_at, agent.agent_id)))

    def _info(self, agent: StoredAgent) -> AgentInfo:
        label = self._nx.ledger.resolve(agent.agent_id) or agent.agent_id  # it may have been renamed
        session = self._nx.ledger.store.session_info(label)
        messages = session.messages if session is not None else 0
        at = datetime.fromtimestamp(agent.created_ms / 1000, UTC).isoformat(timespec="milliseconds")
        parent = agent.settings.parent_agent_id
        model = agent.settings.model or self._nx.model
        return AgentInfo(agent.agent_id, at, messages, agent.is_closed, parent, model)

    def close(self, agent_id: str) -> StoredAgent:
        """Let an agent accept no more. Raises NotFound."""
        return self._change(agent_id, is_closed=True)

    def destroy(self, agent_id: str) -> StoredAgent:
        """Remove an agent; its session stays. Raises NotFound."""
        return self._change(agent_id, is_closed=True, is_destroyed=True)

    def fork(self, agent: StoredAgent, new_id: str | None, turn: int | None) -> StoredAgent:
        """Create an agent with the settings of another, and its history up to a turn. Raises as `create`."""
        new_id = uuid.uuid4().hex[:8] if new_id is None else new_id
        _check_id(new_id)
        if self._nx.ledger.resolve(new_id) is None:
            self._nx.ledger.fork(new_id, agent.agent_id, turn=turn)
        elif not self._is_unused_fork(new_id, agent.agent_id, turn):
            raise BadSetting(f"session {new_id!r} exists (use another id)")
        return self._add(new_id, agent.settings)

    def _is_unused_fork(self, label: str, source: str, turn: int | None) -> bool:
        """Return whether a session is this fork without an agent: a process was killed before it stored the agent."""
        ledger = self._nx.ledger
        thread = ledger.thread_info(label)
        owner = ledger.sessions.metadata(label).owner_session
        is_unused = thread.head_seq == thread.fork_seq and self._nx.ledger.store.document(AGENT, label) is None
        return is_unused and owner == ledger.resolve(source) and turn in (None, thread.turn)

    def _find(self, agent_id: str) -> StoredAgent:
        agent = self._read(agent_id)
        if agent is None:
            raise _no_such_agent(agent_id)
        return agent

    def _read(self, agent_id: str) -> StoredAgent | None:
        """Return an agent; None if there is none, or it was destroyed."""
        document = None
        if is_valid_id(agent_id):
            document = self._nx.ledger.store.document(AGENT, agent_id)
        if document is None:
            return None
        before, agent = self._decoded.get(agent_id, (None, None))
        if agent is None or before != document:
            agent = decode_agent(document.body)
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
            self._decoded[agent_id] = (document, agent)
        if agent.is_destroyed:
            return None
        return agent

    def _change(self, agent_id: str, **changes: Any) -> StoredAgent:
        def change(document: dict[str, Any] | None) -> dict[str, Any]:
            if document is None:
                raise _no_such_agent(agent_id)
            agent = decode_agent(document)
            if agent.is_destroyed:
                raise _no_such_agent(agent_id)
            return msgspec.to_builtins(replace(agent, **changes))

        document, _ = change_document(self._nx.ledger.store, AGENT, agent_id, change)
        return decode_agent(document)

    def _present(self, settings: AgentSettings) -> AgentSettings:
        """Return settings with at most the rights of all ancestors, which may have been created again with fewer."""
        ids = {settings.agent_id}
        parent_id = settings.parent_agent_id
        while parent_id is not None and parent_id not in ids and (parent := self._read(parent_id)) is not None:
            settings = _narrowed(settings, parent.settings)
            ids.add(parent_id)
            parent_id = parent.settings.parent_agent_id
        return settings

    def _within_parent(self, settings: AgentSettings) -> AgentSettings:
        """Return settings with at most the parent's rights, read from the ledger. Raises NotAllowed, NotFound."""
        if settings.parent_agent_id is None:
            return settings
        parent = self.get(settings.parent_agent_id)
        limits = parent.settings
        return replace(
            settings,
            permissions=_within(settings.permissions, limits.permissions, parent.agent_id),
            toolset=_same(settings.toolset, limits.toolset, "toolset", parent.agent_id),
            principal=_principal(settings.principal, limits.principal, parent.agent_id),
        )


def _check_same(agent: StoredAgent, settings: AgentSettings) -> None:
    """Raise BadSetting if an agent has another value for a setting that is passed, AgentError if it was shut down."""
    if agent.is_closed:
        raise _closed(agent.agent_id)
    defaults = AgentSettings()
    for field in msgspec.structs.fields(AgentSettings):
        name = field.name
        value = getattr(settings, name)
        if name != "agent_id" and value not in (getattr(defaults, name), getattr(agent.settings, name)):
            text = f"agent {agent.agent_id!r} exists with another {field.encode_name}"
            raise BadSetting(f"{text} (destroy it and create it again: its session continues)")


def _closed(agent_id: str) -> AgentError:
    return AgentError(f"agent {agent_id!r} was shut down (destroy it, and create it again to continue)")


def event_id(agent_id: str, request_id: RequestKey) -> str:
    """Return the id of the event of a request: requests of two agents, and `1` and `"1"`, are different."""
    return f"{_EVENT}{agent_id}:{msgspec.json.encode(request_id).decode()}"


def request_of(agent_id: str, name: str) -> RequestKey | None:
    """Return the request of an agent that an event is of; None for another event, such as a worker's report."""
    text = name.removeprefix(f"{_EVENT}{agent_id}:")
    if text != name:
        return msgspec.json.decode(text, type=decodable(RequestKey))
    return None


def is_valid_id(agent_id: str) -> bool:
    """Return whether an id has a valid length and characters; it is a segment of a URL's path too."""
    is_name = 0 < len(agent_id) <= ID_CHARS and agent_id.isprintable() and agent_id == agent_id.strip()
    return is_name and "/" not in agent_id and agent_id not in (".", "..")


def _check_id(agent_id: str) -> None:
    if not is_valid_id(agent_id):
        raise BadSetting(
            f"agent id invalid: 1 to {ID_CHARS} printable characters without '/' and without spaces around it (use another "
            "id, or none for a new one)"
        )


def _no_such_agent(agent_id: str) -> NotFound:
    return NotFound(f"agent {agent_id[:ID_CHARS]!r} not found (create it, or list agents)", code="no_such_agent")


def _within(names: tuple[str, ...], limits: tuple[str, ...], parent: str) -> tuple[str, ...]:
    """Return the permissions of a child: its own, or its parent's. Raises NotAllowed for one that the parent lacks."""
    if not names or not limits:
        return names or limits
    if missing := sorted(set(names) - set(limits)):
        raise NotAllowed(f"permission {missing[0]!r} not granted: agent {parent!r} lacks it (leave it out)")
    return names


def _same(value: str, limit: str, what: str, parent: str) -> str:
    """Return the parent's value, or the child's if the parent has none. Raises NotAllowed for another one."""
    if limit and value not in ("", limit):
        raise NotAllowed(f"{what} {value!r} not granted: agent {parent!r} has {limit!r} (leave it out)")
    return limit or value


def _principal(value: str, limit: str, parent: str) -> str:
    """Return the parent's principal, or none if it has none. Raises NotAllowed for another one."""
    if value not in ("", limit):
        reason = "has none, and another one may have more rights"
        if limit:
            reason = f"has {limit!r}"
        raise NotAllowed(f"principal {value!r} not granted: agent {parent!r} {reason} (leave it out)")
    return limit


def _narrowed(settings: AgentSettings, limits: AgentSettings) -> AgentSettings:
    """Return settings without the rights that a parent lacks. Raises NotAllowed if no permission is left."""
    names = settings.permissions
    if names and limits.permissions:
        names = tuple(name for name in names if name in limits.permissions)
        if not names:
            text = f"agent {settings.agent_id!r} has no permission that its parent {limits.agent_id!r} still has"
            raise NotAllowed(f"{text} (destroy it, and create it again)")
    return replace(
        settings,
        permissions=names or limits.permissions,
        toolset=limits.toolset or settings.toolset,
        principal=limits.principal,
    )
