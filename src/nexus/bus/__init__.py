"""The bus: messages between functions of one process, or of many through NATS.

`open_bus` returns a `Bus`, which publishes, requests and subscribes `Message`s. docs/bus.md has the guarantees, and
`nexus.testing.bus_conformance` checks them for any bus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.bus.memory import MemoryBus
    from nexus.bus.message import Message
    from nexus.bus.nats import NatsBus
    from nexus.bus.open import open_bus
    from nexus.bus.port import Bus, DeadLetter, Function, Redelivery, Subscription

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

if not TYPE_CHECKING:  # type checkers then report names that do not exist; asyncio and nats-py cost time
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.bus.memory": "MemoryBus",
            "nexus.bus.message": "Message",
            "nexus.bus.nats": "NatsBus",
            "nexus.bus.open": "open_bus",
            "nexus.bus.port": "Bus DeadLetter Function Redelivery Subscription",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
