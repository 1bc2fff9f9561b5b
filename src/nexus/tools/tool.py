"""A tool as a value: what the model is told of it, what it is for, and the function behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from nexus.types.request import AgentRole
from nexus.types.tool_metadata import OWN


class Tool(Struct, frozen=True, gc=False):
    """A tool. `schema` is the JSON Schema of its parameters, `category` what it is for (`messaging`, `spawning`, …).

    `roles` are the agents' roles that may have it, empty for all; `function` is None for a tool that runs elsewhere.
    Category and roles are no part of the definition: they decide whether a model is told of the tool at all.
    """

    name: str
    description: str
    schema: dict[str, Any]
    category: str = ""
    roles: tuple[AgentRole, ...] = ()
    function: Callable[..., Any] | None = None

    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as a new dict."""
        parameters = msgspec.to_builtins(self.schema)
        inner = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": inner}

    def offer(self) -> dict[str, Any]:
        """The definition with what decides whether a model is told of the tool: its category and roles, if it has any."""
        told: dict[str, Any] = {"category": self.category} if self.category else {}
        if self.roles:
            told["roles"] = list(self.roles)
        return {**self.definition(), OWN: told} if told else self.definition()
