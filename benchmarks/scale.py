"""What grows with the number of sessions of a ledger: lists, search, a call, an unknown list, erasing, verification."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import nexus
from benchmarks.measure import Spent, middle, timed
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.scale_ledger import COMMON, fill, label
from benchmarks.sending import conversation
from nexus.ledger import maintenance

COMMAND = "python -m benchmarks scale"
SESSIONS = (100, 10_000, 100_000)
PAGE = 50
ROUNDS = 7
ERASURES = 2
LISTED = 200
MOST_PAGE_MS, MOST_SEARCH_MS, MOST_VERIFY_US = 20, 100, 40
FIRST_PAGE, SEARCH = "first page", "search, common word, by relevance"

_DATA = (
    "sessions of two turns of a question and an answer of 21 words; of fifty, two are forks and one is a worker; made "
    "from records by `LedgerStore.load`"
)


def run() -> Outcome:
    """Every figure for each number of sessions."""
    figures: dict[str, list[float]] = {}
    for sessions in SESSIONS:
        with TemporaryDirectory() as folder:
            for name, value in _measured(Path(folder, "ledger.db"), sessions):
                figures.setdefault(name, []).append(value)
    rows: list[tuple[Cell, ...]] = [(name, *(round(value, 2) for value in values)) for name, values in figures.items()]
    columns = ("CPU ms", *(f"{sessions:,} sessions" for sessions in SESSIONS))
    notes = (
        f"Medians of {ROUNDS}, of {ERASURES} for erasing. A page has {PAGE} sessions, the mirrored list {LISTED} messages.",
        "Erasing rewrites the search index and searches the file for the deleted text, so it grows with the file.",
    )
    return Outcome((Table("Sessions in one ledger", COMMAND, _DATA, columns, tuple(rows), notes),), _targets(figures))


def _targets(figures: Mapping[str, list[float]]) -> tuple[Target, ...]:
    most = {FIRST_PAGE: MOST_PAGE_MS, SEARCH: MOST_SEARCH_MS, _VERIFY: MOST_VERIFY_US}
    units = {_VERIFY: "µs"}
    targets = list[Target]()
    for name, limit in most.items():
        unit = units.get(name, "ms")
        value = figures[name][-1]
        what = f"{name}, {SESSIONS[-1]:,} sessions, CPU"
        targets.append(Target(what, f"at most {limit} {unit}", f"{value:.1f} {unit}", value <= limit))
    return tuple(targets)


_VERIFY = "verify, µs a message"


def _measured(path: Path, sessions: int) -> list[tuple[str, float]]:
    """Return the figures of one ledger by name: CPU milliseconds, and microseconds a message for verification."""
    store = fill(path, sessions)
    messages = sum(thread.messages for thread in store.threads())
    store.close()
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        numbers = itertools.count()
        works: dict[str, Callable[[], object]] = {
            FIRST_PAGE: lambda: nx.sessions(limit=PAGE),
            "page in the middle": lambda: nx.sessions(limit=PAGE, offset=sessions // 2),
            SEARCH: lambda: nx.ledger.search(COMMON),
            "search, common word, newest first": lambda: nx.ledger.search(COMMON, order="newest"),
            "begin, assemble, record": lambda: _call(nx, label(next(numbers))),
            "mirror, unknown list": lambda: _mirror(nx, next(numbers)),
            "sessions that one spawned": lambda: nx.ledger.sessions.spawned(label(26)),
        }
        found = [(name, _cpu_ms(work, ROUNDS)) for name, work in works.items()]
        first = iter(range(30, 30 + ERASURES))
        found.append(("erase one", _cpu_ms(lambda: nx.ledger.upkeep.erase(label(next(first))), ERASURES)))
    damages, spent = timed(lambda: maintenance.verify(path))
    if damages:
        raise AssertionError(f"the ledger is damaged: {damages[0]}")
    return [*found, (_VERIFY, spent.cpu_ms * 1_000 / messages)]


def _cpu_ms(work: Callable[[], object], rounds: int) -> float:
    spent: list[Spent] = [timed(work)[1] for _ in range(rounds)]
    return middle(spent).cpu_ms


def _call(nx: nexus.Engine, session: str) -> None:
    """Answer one event in a session without a model."""
    turn = nx.begin("And now?", session=session)
    turn.assemble()
    turn.record(nexus.AgentResult((nexus.assistant("It is a row."),)))


def _mirror(nx: nexus.Engine, number: int) -> None:
    """Assemble a list that no session has."""
    nx.mirror([{"role": "user", "content": f"list {number}"}, *conversation(LISTED)[1:]])
