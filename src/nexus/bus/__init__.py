"""The bus: messages between functions of one process, or of many through NATS.

`open_bus` returns a `Bus`, which publishes, requests and subscribes `Message`s. docs/bus.md has the guarantees, and
`nexus.testing.bus_conformance` checks them for any bus.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexus.bus.memory import MemoryBus
    from nexus.bus.message import Message
    from nexus.bus.nats import NatsBus
    from nexus.bus.open import open_bus
    from nexus.bus.port import Bus, DeadLetter, Function, Redelivery, Subscription

_MODULES = {
    "Bus": "port",
    "DeadLetter": "port",
    "Function": "port",
    "MemoryBus": "memory",
    "Message": "message",
    "NatsBus": "nats",
    "Redelivery": "port",
    "Subscription": "port",
    "open_bus": "open",
}

__all__ = [
    "Bus",
    "DeadLetter",
    "Function",
    "MemoryBus",
    "Message",
    "NatsBus",
    "Redelivery",
    "Subscription",
    "open_bus",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use: asyncio and nats-py cost time."""
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'nexus.bus' has no attribute {name!r}")
        return getattr(import_module(f"nexus.bus.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)
