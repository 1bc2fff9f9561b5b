"""For programs that use Nexus: a fixed clock, a word counter, and checks of ledgers and buses.

`model_server` has a scripted server that speaks the protocols of the providers. The fake ledger is
`nexus.extend.SqliteLedger(":memory:")`, the fake bus `nexus.bus.MemoryBus`. Nothing here needs pytest, and nothing in Nexus
imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.testing.bus_conformance import run as check_bus
    from nexus.testing.fakes import FixedClock, WordCounter
    from nexus.testing.ledger_conformance import run as check_ledger

__all__ = [
    "FixedClock",
    "WordCounter",
    "check_bus",
    "check_ledger",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.testing.bus_conformance": "run as check_bus",
            "nexus.testing.fakes": "FixedClock WordCounter",
            "nexus.testing.ledger_conformance": "run as check_ledger",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
