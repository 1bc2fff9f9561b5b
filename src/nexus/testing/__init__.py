"""For programs that use Nexus: a fixed clock, a word counter, a scripted model server, and checks of ledgers and buses.

The fake ledger is `nexus.extend.SqliteLedger(":memory:")`, the fake bus `nexus.bus.MemoryBus`. Nothing here needs pytest, and
nothing in Nexus imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.testing.bus_conformance import run as check_bus
    from nexus.testing.fakes import FixedClock, WordCounter
    from nexus.testing.ledger_conformance import run as check_ledger
    from nexus.testing.scripted_server import ModelServer, Response, model_server, reply

__all__ = [
    "FixedClock",
    "ModelServer",
    "Response",
    "WordCounter",
    "check_bus",
    "check_ledger",
    "model_server",
    "reply",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.testing.bus_conformance": "run as check_bus",
            "nexus.testing.fakes": "FixedClock WordCounter",
            "nexus.testing.ledger_conformance": "run as check_ledger",
            "nexus.testing.scripted_server": "ModelServer Response model_server reply",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
