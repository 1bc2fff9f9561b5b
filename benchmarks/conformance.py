"""How much of what matters survives compaction: the compaction conformance kit, its own strategies beside Nexus's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.peers.comparing import ask
from benchmarks.peers.environment import ready, versions
from benchmarks.peers.job import EXTRACTIVE, KitJob, KitRow
from benchmarks.report import Cell, NotRun, Outcome, Table, Target

COMMAND = "python -m benchmarks conformance"

JOB = KitJob(budgets=(0.1, 0.2, 0.3), seeds=(1, 2, 3, 4), generated_seeds=tuple(range(1, 13)), rounds=5)
COLUMNS = ("budget", "strategy", "in budget", "survival %", "updates resolved %", "stale values", "distinct pairs %")


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
    data = f"{kit}, its randomised and semantic sessions, seeds {', '.join(map(str, JOB.seeds))}"
    more = f"{kit}, its generated sessions, seeds {JOB.generated_seeds[0]} to {JOB.generated_seeds[-1]}"
    tables = (
        _table("Compaction conformance kit, fixed budgets", data, suites, _NOTES),
        _table("The same on generated sessions", more, generated, ()),
    )
    return Outcome(tables, _targets(suites))


_NOTES = (
    f"Each strategy compacts a session {JOB.rounds} times over, each time its own output, to a share of the transcript's",
    "  characters. No model is called. survival: planted rules, constraints, facts, goals and preferences that are found",
    "  after the last round. stale values: earlier values of updated facts that are still there, of all updates.",
    "The kit ranks by: in budget, survival, updates resolved, distinct pairs. Nexus's summariser was written with the",
    "  kit's sessions at hand.",
)


def _table(title: str, data: str, rows: Sequence[KitRow], notes: tuple[str, ...]) -> Table:
    order = sorted(rows, key=lambda row: (row.budget, not row.complies, -row.survived, -row.resolved))
    cells = tuple(_cells(row) for row in order)
    return Table(title, COMMAND, data, COLUMNS, cells, notes)


def _cells(row: KitRow) -> tuple[Cell, ...]:
    return (
        f"{row.budget:.0%}",
        row.strategy,
        "yes" if row.complies else "no",
        100 * row.survived,
        100 * row.resolved,
        f"{row.stale} of {row.updated}",
        None if row.distinct is None else 100 * row.distinct,
    )


def _targets(rows: Sequence[KitRow]) -> tuple[Target, ...]:
    """Nexus beside the best of the kit's own strategies that keeps the budget, by survival."""
    targets: list[Target] = []
    for budget in JOB.budgets:
        at = [row for row in rows if row.budget == budget and row.complies]
        ours = next((row.survived for row in at if row.strategy == EXTRACTIVE), 0.0)
        best = max((row for row in at if row.strategy != EXTRACTIVE), key=lambda row: row.survived)
        name = f"survival at {budget:.0%}, the kit's best being {best.strategy}"
        targets.append(Target(name, f"at least {best.survived:.1%}", f"{ours:.1%}", ours >= best.survived))
    return tuple(targets)
