"""What a recorded session would have cost at a provider, with Nexus and with other ways to trim a history.

`points` reads the calls of a session from its ledger, `policies` plays them again and renders what each policy sends,
`pieces` cuts the bodies into segments, and `run` sends them through the simulated cache of `nexus.providers.prompt_cache`.
"""

from __future__ import annotations

from nexus.simulation.cache.run import Breaks, PolicyResult, Simulation, simulate_session

__all__ = ["Breaks", "PolicyResult", "Simulation", "simulate_session"]
