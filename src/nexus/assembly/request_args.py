"""A request from what a program gives by keywords: the event from text, messages or an Event, and where it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadEvent
from nexus.types.message import Image, Message, Text
from nexus.types.request import AgentRole, Event, Identity, Permissions, Request, Routing
from nexus.types.tool_definition import ToolSource, definitions_of


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
    """The request as given; the engine fills in its own model, persona and limits. Without a session: `Routing.own`."""
    return Request(
        event,
        Routing("main", role, task, manager, own=True) if session is None else Routing(session, role, task, manager),
        identity=Identity(principal, persona, dict(user_profile or {})),
        permissions=Permissions(toolset, (permissions,) if isinstance(permissions, str) else tuple(permissions)),
        model=model,
        tools=definitions_of(tools),
        model_config=dict(model_config or {}),
        available_tokens=budget,
        profile=profile,
        skills=(skills,) if isinstance(skills, str) else tuple(skills),
        blocks=dict(blocks or {}),
    )


def as_event(event: str | Event | Iterable[Message], images: Sequence[Image]) -> Event:
    """The event for a user's text, an Event, or results of tool calls, with images. Raises BadEvent."""
    if isinstance(event, Event):
        return replace(event, content=(*event.content, *images)) if images else event
    if isinstance(event, str):
        return Event(content=(Text(event), *images))
    messages = tuple(event)
    strange = next((message for message in messages if message.role not in ("tool", "user")), None)
    if strange is not None or (messages and messages[0].role != "tool"):
        given = strange.role if strange is not None else messages[0].role
        raise BadEvent(
            f"an event of messages holds results of tools (nexus.tool(…)), not a message of role {given!r}: "
            "give a user's words as text, and record what the assistant said"
        )
    return Event(results=messages, content=tuple(images))
