"""The five conceptual layers, the three physical slots and the levels of trust (document 002)."""

from __future__ import annotations

from typing import Literal, TypeAlias

Layer: TypeAlias = Literal["Workspace", "Persona", "Session", "Memory", "Event"]
Slot: TypeAlias = Literal["system", "history", "current"]
Trust: TypeAlias = Literal["system", "workspace", "user", "tool", "web"]

LAYERS: tuple[Layer, ...] = ("Workspace", "Persona", "Session", "Memory", "Event")
