"""Nexus beside other projects that keep a conversation within a budget: same sessions, same judges, one run.

The peers are heavy and no part of Nexus. `environment` installs them, pinned, into `.bench/peers`; each runs there in a
process of its own (`child`), through its public functions (`*_side`), with the settings that `registry` names. What
comes back are the bodies that each would send; `figures` judges and counts all of them in the same way.
"""

from __future__ import annotations

from benchmarks.report import Outcome


def run() -> Outcome:
    """The comparison. Raises NotRun when the peers cannot be installed."""
    from benchmarks.peers.comparing import compare

    return compare()
