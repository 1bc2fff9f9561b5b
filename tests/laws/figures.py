"""What sessions met: counts of everything, and of how many sessions met it at all."""

from __future__ import annotations

from collections import Counter

from laws.scripts import Script
from nexus.types.message import ProviderFormat


def tell(met: Counter[str], script: Script, wire: ProviderFormat, figures: Counter[str]) -> None:
    """Adds one session's counts to `figures`."""
    figures["examples"] += 1
    figures[f"model of the {wire} form"] += 1
    for name in met:
        figures[name] += met[name]
    shares = {
        "with two or more cuts": met["cuts"] >= 2,
        "with a compaction after a compaction": met["compactions"] >= 2,
        "with three or more compactions": met["compactions"] >= 3,
        "with parallel calls": met["parallel calls"] > 0,
        "with undo or redo": met["undos"] + met["redos"] > 0,
        "with forks or rewinds": met["forks"] + met["rewinds"] > 0,
        "with refusals": met["refusals"] > 0,
        "with shortened results": met["contexts with shortened results"] > 0,
        "with pins": met["pins"] > 0,
        "with hostile messages": met["hostile entries"] > 0,
        "with middle_out": script.strategy == "middle_out",
        "with excerpts": met["contexts with excerpts"] > 0,
        "with old images as notes": met["contexts with old images as notes"] > 0,
    }
    figures.update({f"examples {name}": 1 for name, is_so in shares.items() if is_so})
