"""The compaction conformance kit in the peers' environment: its own strategies, and Nexus's deterministic summariser.

The glue knows nothing of the kit's sessions: turns become messages, the budget is in characters because the kit counts
characters, and what an earlier round returned comes back as the previous summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from compaction_kit import (
    CompactedContext,
    Turn,
    build_generated_session,
    run_budget_benchmark,  # pyright: ignore[reportUnknownVariableType]
    run_conformance,
)
from compaction_kit.cli import COMPACTORS

from benchmarks.peers.job import EXTRACTIVE, KitJob, KitRow
from nexus.summarization.extractive.summary import summarize
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Role, Text, TokenSize


class Characters:
    """A counter for which a character is a token."""

    name = "characters"

    def count(self, text: str) -> int:
        """The characters."""
        return len(text)


class Extractive:
    """Nexus's summariser as the kit calls a strategy."""

    name = EXTRACTIVE

    def compact(self, turns: Sequence[Turn], round_num: int = 1, budget_chars: int | None = None) -> CompactedContext:
        """The summary of the turns, or from the second round on of the summary before."""
        previous = turns[0].text if round_num > 1 else ""
        rows = () if round_num > 1 else tuple(_row(at, turn) for at, turn in enumerate(turns, 1))
        limit = sys.maxsize if budget_chars is None else budget_chars
        text = summarize(rows, limit, Characters(), previous=previous)
        return CompactedContext(text, self.name, round_num)


def _row(at: int, turn: Turn) -> StoredMessage:
    return StoredMessage(MessageRef(at, 0), Message(cast("Role", turn.role), (Text(turn.text),)), TokenSize(0, 0, 0))


def main() -> None:
    """Writes a row for each strategy and budget: the kit's own suites, then its generated sessions."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=KitJob)
    factories: dict[str, Callable[[], Any]] = {EXTRACTIVE: Extractive, **COMPACTORS}
    payload = cast("dict[str, Any]", run_budget_benchmark(factories, job.budgets, seeds=job.seeds, rounds=job.rounds))
    rows = [_suites(entry) for entry in payload["entries"]]
    rows += [_generated(name, make, budget, job) for budget in job.budgets for name, make in factories.items()]
    sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")


def _suites(entry: dict[str, Any]) -> KitRow:
    conflicts = entry["semantic"]["conflicts"]
    return KitRow(
        "suites",
        entry["compactor"],
        entry["budget_fraction"],
        entry["budget_compliant"],
        entry["randomized"]["overall_final_survival"],
        entry["semantic"]["resolved_rate"],
        conflicts["stale"],
        conflicts["n"],
        entry["semantic"]["distinct_pair_rate"],
    )


def _generated(name: str, make: Callable[[], Any], budget: float, job: KitJob) -> KitRow:
    survived = planted = stale = resolved = updated = 0
    complies = True
    for seed in job.generated_seeds:
        session, canaries = build_generated_session(seed)
        run = run_conformance(session, make(), rounds=job.rounds, canaries=canaries, budget_fraction=budget)
        complies = complies and all(one.within_budget for one in run.rounds)
        text = run.rounds[-1].context.text.lower()
        planted += len(canaries)
        survived += sum(run.rounds[-1].survived.values())
        for canary in (one for one in canaries if one.superseded_tokens):
            has_stale = any(token.lower() in text for token in canary.superseded_tokens)
            has_latest = all(token.lower() in text for token in canary.required_tokens)
            updated, stale, resolved = updated + 1, stale + has_stale, resolved + (has_latest and not has_stale)
    rate = resolved / updated if updated else 0.0
    return KitRow("generated", name, budget, complies, survived / planted, rate, stale, updated)


if __name__ == "__main__":
    main()
