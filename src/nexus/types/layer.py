"""The five conceptual layers, the physical slots and the levels of trust (document 002).

`ahead` is where messages stand that a form puts between the system slot and the conversation (document 000).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Layer: TypeAlias = Literal["Workspace", "Persona", "Session", "Memory", "Event"]
Slot: TypeAlias = Literal["system", "ahead", "history", "current"]
Trust: TypeAlias = Literal["system", "workspace", "user", "tool", "web"]

LAYERS: tuple[Layer, ...] = ("Workspace", "Persona", "Session", "Memory", "Event")
