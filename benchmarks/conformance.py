"""Planted statements that survive compaction: the compaction conformance kit, its own strategies and Nexus's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.peers.comparing import ask
from benchmarks.peers.environment import ready, versions
from benchmarks.peers.job import EXTRACTIVE, KitJob, KitRow
from benchmarks.report import Cell, NotRun, Outcome, Table, Target

COMMAND = "python -m benchmarks conformance"

JOB = KitJob(budgets=(0.1, 0.2, 0.3), seeds=(1, 2, 3, 4), generated_seeds=tuple(range(1, 13)), rounds=5)
COLUMNS = (
    "strategy",
    *(f"{what} {share:.0%}" for what in ("survival", "updates", "stale", "pairs") for share in JOB.budgets),
)


def run() -> Outcome:
    """The tables of both suites. Raises NotRun when the kit cannot be installed or does not run."""
    python = ready()
    ended = ask(python, "benchmarks.peers.kit_child", JOB)
    if not ended.lines:
        raise NotRun("the compaction conformance kit gave no figures")
    rows = msgspec.json.decode(ended.lines[-1], type=list[KitRow])
    kit = f"compaction-conformance-kit {versions(python)['compaction-conformance-kit']}"
    suites = [row for row in rows if row.kind == "suites"]
    generated = [row for row in rows if row.kind == "generated"]
    data = f"{kit}, randomized and semantic sessions, seeds {', '.join(map(str, JOB.seeds))}"
    more = f"{kit}, generated sessions, seeds {JOB.generated_seeds[0]} to {JOB.generated_seeds[-1]}"
    tables = (
        _table("Compaction conformance kit, fixed budgets", data, suites, _NOTES),
        _table("Compaction conformance kit, generated sessions", more, generated, ()),
    )
    return Outcome(tables, _targets(suites))


_NOTES = (
    f"Each strategy compacts a session {JOB.rounds} times to 10, 20 and 30% of the transcript's characters, without a model.",
    "survival: planted rules, constraints, facts, goals and preferences that are still there. updates: updated facts with",
    "  only the new value. stale: old values still there, of all updates. pairs: pairs of similar facts with both still there.",
    "The kit ranks by survival, updates, pairs. Nexus's summarizer was developed with the kit's sessions at hand.",
)


def _table(title: str, data: str, rows: Sequence[KitRow], notes: tuple[str, ...]) -> Table:
    """Return one row per strategy, the best at the smallest budget first."""
    found: dict[str, list[KitRow]] = {}
    for row in sorted(rows, key=lambda row: (row.budget, not row.complies, -row.survived, -row.resolved)):
        found.setdefault(row.strategy, []).append(row)
    over = sorted(f"{row.strategy} at {row.budget:.0%}" for row in rows if not row.complies)
    notes += (f"Over the budget: {', '.join(over)}.",) if over else ()
    cells = tuple((name, *_cells(at)) for name, at in found.items())
    return Table(title, COMMAND, data, COLUMNS, cells, notes)


def _cells(rows: Sequence[KitRow]) -> Iterator[Cell]:
    """Yield the figures of one strategy, each at all budgets."""
    yield from (100 * row.survived for row in rows)
    yield from (100 * row.resolved for row in rows)
    yield from (f"{row.stale}/{row.updated}" for row in rows)
    yield from (None if row.distinct is None else 100 * row.distinct for row in rows)


def _targets(rows: Sequence[KitRow]) -> tuple[Target, ...]:
    """Nexus beside the best of the kit's own strategies that keeps the budget, by survival."""
    targets: list[Target] = []
    for budget in JOB.budgets:
        at = [row for row in rows if row.budget == budget and row.complies]
        ours = next((row.survived for row in at if row.strategy == EXTRACTIVE), 0.0)
        best = max((row for row in at if row.strategy != EXTRACTIVE), key=lambda row: row.survived)
        name = f"survival at {budget:.0%}, as the kit's best ({best.strategy})"
        targets.append(Target(name, f"at least {best.survived:.1%}", f"{ours:.1%}", ours >= best.survived))
    return tuple(targets)
