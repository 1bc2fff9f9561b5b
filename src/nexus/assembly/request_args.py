"""Requests built from the keyword arguments of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadEvent
from nexus.types.message import Image, Message, Text
from nexus.types.request import AgentRole, Event, Identity, Permissions, Request, Routing
from nexus.types.tool_definition import ToolSource, tool_definitions


def build_request(
    event: Event,
    session: str | None,
    *,
    model: str = "",
    tools: Sequence[dict[str, Any]] | ToolSource = (),
    budget: int | None = None,
    profile: str = "layered",
    model_config: Mapping[str, Any] | None = None,
    role: AgentRole = "unified",
    task: str = "",
    manager: str = "",
    persona: str = "",
    principal: str = "",
    user_profile: Mapping[str, Any] | None = None,
    toolset: str = "",
    permissions: str | Iterable[str] = (),
    skills: str | Iterable[str] = (),
    blocks: Mapping[str, str] | None = None,
) -> Request:
    """Return the request. The engine adds its own model, persona and limits. Without a session, the policy chooses it."""
    return Request(
        event,
        Routing("main", role, task, manager, own=True) if session is None else Routing(session, role, task, manager),
        identity=Identity(principal, persona, dict(user_profile or {})),
        permissions=Permissions(toolset, (permissions,) if isinstance(permissions, str) else tuple(permissions)),
        model=model,
        tools=tool_definitions(tools),
        model_config=dict(model_config or {}),
        available_tokens=budget,
        profile=profile,
        skills=(skills,) if isinstance(skills, str) else tuple(skills),
        blocks=dict(blocks or {}),
    )


def as_event(event: str | Event | Iterable[Message], images: Sequence[Image]) -> Event:
    """Return the event for a user's text, an Event, or results of tool calls, with images. Raises BadEvent."""
    if isinstance(event, Event):
        return replace(event, content=(*event.content, *images)) if images else event
    if isinstance(event, str):
        return Event(content=(Text(event), *images))
    messages = tuple(event)
    wrong = next((message for message in messages if message.role not in ("tool", "user")), None)
    if wrong is None and messages and messages[0].role != "tool":
        wrong = messages[0]
    if wrong is not None:
        raise BadEvent(
            f"event has a message of role '{wrong.role}' where tool results are expected (pass results as "
            "nexus.tool(…) and user input as text, and record assistant messages)"
        )
    return Event(results=messages, content=tuple(images))
