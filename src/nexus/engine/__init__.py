"""Calls with a ledger: the engine that `nexus.open` returns, turns, recovery from overflows, replay of recorded calls.

`engine` is the handle, `async_engine` its awaited form, `turn` a turn that is stored step by step, `overflow_recovery`
sends a call and shrinks it when the provider refuses it. `mirror` finds the place of a program's own message list,
`analysis` looks at recorded calls again, and `simulation` plays recorded sessions under other conditions.
"""

from nexus.engine.engine import NEXT_MESSAGE, Engine, EngineOptions, available_tokens, open_engine, session_label
from nexus.engine.preparation import DEFAULT_PROFILE

__all__ = [
    "DEFAULT_PROFILE",
    "NEXT_MESSAGE",
    "Engine",
    "EngineOptions",
    "available_tokens",
    "open_engine",
    "session_label",
]
