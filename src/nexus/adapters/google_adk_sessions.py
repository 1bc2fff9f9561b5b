"""Google ADK: a session service that keeps sessions, their events and their state in a ledger.

    runner = Runner(app=app, session_service=NexusSessionService(nexus.open(ledger="ledger.db")))

A session's state is what its events say. State of a user or an app is what the events of all its sessions say.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

import nexus
from nexus.adapters.item_log import ItemLog


class NexusSessionService(BaseSessionService):
    """Keeps each session's events as documents of a ledger, with the session's user as principal."""

    def __init__(self, nx: nexus.Engine) -> None:
        self.nx = nexus.AsyncEngine(nx)
        self._sessions = ItemLog(nx.store, "google-adk")
        self._states = ItemLog(nx.store, "google-adk-state")
        """Changes of the state that sessions share, by prefix, app and user."""

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Raises ADK's AlreadyExistsError."""
        path = (app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        if await self.nx.run(self._sessions.read, path):
            raise AlreadyExistsError(f"Session with id {path[-1]} already exists.")
        beginning = Event(author="user", actions=EventActions(state_delta=state or {}))
        await self.nx.run(self._store, path, beginning)
        session = await self.get_session(app_name=app_name, user_id=user_id, session_id=path[-1])
        assert session is not None
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events and all state; None if there is none."""
        return await self.nx.run(self._session, (app_name, user_id, session_id.strip()), config or GetSessionConfig())

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return a user's sessions, or all of an app, without their events, the last one that changed at the end."""
        path = (app_name,) if user_id is None else (app_name, user_id)
        lists = await self.nx.run(self._sessions.lists, path)
        lists.sort(key=lambda info: info.updated_ms)
        without_events = GetSessionConfig(num_recent_events=0)
        sessions = [await self.nx.run(self._session, info.path, without_events) for info in lists]
        return ListSessionsResponse(sessions=[session for session in sessions if session is not None])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session. What the plugin recorded of its calls stays until `nexus ledger erase`."""
        await self.nx.run(self._sessions.delete, (app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that a user's sessions share, without its prefix."""
        return _state_after(await self.nx.run(self._states.read, ("user", app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event, unless it is part of a stream, and add it to the session."""
        if event.partial:
            return event
        event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        await self.nx.run(self._store, (session.app_name, session.user_id, session.id), event)
        return event

    def _store(self, path: tuple[str, ...], event: Event) -> None:
        app_name, user_id, _session_id = path
        delta = event.actions.state_delta
        for prefix, shared, owner in _shared_states(app_name, user_id):
            values = {name.removeprefix(prefix): value for name, value in delta.items() if name.startswith(prefix)}
            if values:
                self._states.append(shared, [values], owner)
        self._sessions.append(path, [event.model_dump(mode="json", by_alias=True, exclude_none=True)], user_id)

    def _session(self, path: tuple[str, ...], config: GetSessionConfig) -> Session | None:
        events = [Event.model_validate(item) for item in self._sessions.read(path)]
        if not events:
            return None
        app_name, user_id, session_id = path
        state = _state_after(event.actions.state_delta for event in events)
        for prefix, shared, _owner in _shared_states(app_name, user_id):
            state |= {prefix + name: value for name, value in _state_after(self._states.read(shared)).items()}
        later_events = [event for event in events[1:] if event.timestamp >= (config.after_timestamp or 0)]
        if config.num_recent_events is not None:
            later_events = later_events[max(len(later_events) - config.num_recent_events, 0) :]
        return Session(
            app_name=app_name,
            user_id=user_id,
            id=session_id,
            state=state,
            events=later_events,
            last_update_time=events[-1].timestamp,
        )


def _shared_states(app_name: str, user_id: str) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Return the prefixes of state that sessions share, where it is kept, and whose it is."""
    return (State.APP_PREFIX, ("app", app_name), ""), (State.USER_PREFIX, ("user", app_name, user_id), user_id)


def _state_after(deltas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the state after these changes; `temp:` is not kept."""
    state = dict[str, Any]()
    for delta in deltas:
        state |= {name: value for name, value in delta.items() if not name.startswith(State.TEMP_PREFIX)}
    return state
