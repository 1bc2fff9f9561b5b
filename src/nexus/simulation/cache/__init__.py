"""Cost of a recorded session at a provider under different truncation policies, Nexus's among them.

`points` reads the calls of a session from its ledger, `policies` replays them and renders each policy's bodies,
`pieces` splits bodies into segments, and `run` sends them through the simulated cache of
`nexus.providers.prompt_cache`.
"""

from __future__ import annotations

from nexus.simulation.cache.run import Breaks, PolicyResult, Simulation, simulate_session

__all__ = ["Breaks", "PolicyResult", "Simulation", "simulate_session"]
