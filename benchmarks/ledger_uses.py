"""Cost of forks, session lists, search and concurrent appends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from threading import Thread

from benchmarks.bare import SESSION, in_turns
from benchmarks.measure import Spent, middle, timed
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.turns import DATA, TURN_MESSAGES, TURNS, WINDOW_TURNS, Turns, open_ledger
from nexus.ledger.sessions import Query
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry, StoredMessage

COMMAND = "python -m benchmarks ledger"
FORKS = 100
WINDOW_ROUNDS = 100
FIRST_ROUNDS = 15
SESSIONS_ROUNDS = 3
SEARCH_ROUNDS = 30
THREADS, THREAD_TURNS, THREAD_ROUNDS = 8, 800, 3
QUERIES = (("one word", "fork"), ("two words", "prompt cache"), ("Chinese, a run of four", "全文检索"))
MOST_FORKED = 1.5


def forks(file: Path) -> Outcome:
    """Two chains of forks on the ledger: at its head, and each with one of the newest turns of its own."""
    ledger = open_ledger(file)
    one = in_turns({"sessions": ledger.sessions}, SESSIONS_ROUNDS)["sessions"]
    made: list[Spent] = []
    behind = through = SESSION
    for number in range(FORKS):
        made.append(timed(partial(ledger.fork, f"head-{number}", behind, TURNS))[1])
        behind = f"head-{number}"
    for number, entry in enumerate(islice(Turns().take(TURNS), TURNS - FORKS, None)):
        made.append(timed(partial(ledger.fork, f"turn-{number}", through, TURNS - FORKS + number))[1])
        through = f"turn-{number}"
        ledger.commit(through, Commit((entry,)))
    names = {"no fork": SESSION, f"behind {FORKS} forks": behind, f"{FORKS} forks, one turn in each": through}
    threads = {name: ledger.thread_of(session) or 0 for name, session in names.items()}
    reads = {name: partial(_window, ledger, thread) for name, thread in threads.items()}
    plain = _window(ledger, threads["no fork"])
    if len(plain) != WINDOW_TURNS * TURN_MESSAGES or any(read() != plain for read in reads.values()):
        raise AssertionError("the window through forks shows other messages than the one without")
    windows = in_turns(reads, WINDOW_ROUNDS)
    every = in_turns({"sessions": ledger.sessions}, SESSIONS_ROUNDS)["sessions"]
    ledger.close()
    rows = [(f"window, {name}", spent) for name, spent in windows.items()]
    rows += [(f"first read, {name}", _first(file, thread)) for name, thread in threads.items()]
    rows.append(("a fork", middle(made)))
    rows.append(("list of 1 session", one))
    rows.append((f"list of {2 * FORKS + 1} sessions", every))
    cells = tuple((name, spent.wall_ms, spent.cpu_ms) for name, spent in rows)
    table = Table("Forks", COMMAND, DATA, ("what", "wall ms", "CPU ms"), cells, _FORK_NOTES)
    return Outcome((table,), tuple(_fork_targets({name: spent.wall_ms for name, spent in windows.items()})))


_FORK_NOTES = (
    f"window: the newest {WINDOW_TURNS} turns, verified and decoded. behind: each fork adds nothing. one turn in each: the",
    f"  window's turns are in {WINDOW_TURNS} threads. first read: by a newly opened ledger, opening excluded.",
    "list: SqliteLedger.sessions(), with the counts of each session.",
)


def _fork_targets(windows: dict[str, float]) -> list[Target]:
    plain, *forked = windows.items()
    return [
        Target(
            f"window of {WINDOW_TURNS} turns, {name} / {plain[0]}",
            f"at most {MOST_FORKED}",
            f"{wall_ms / plain[1]:.2f}",
            wall_ms <= MOST_FORKED * plain[1],
        )
        for name, wall_ms in forked
    ]


def _window(ledger: SqliteLedger, thread: int) -> list[StoredMessage]:
    return [row for entry in ledger.entries(thread, TURNS - WINDOW_TURNS) for row in entry.rows]


def _first(file: Path, thread: int) -> Spent:
    runs: list[Spent] = []
    for _ in range(FIRST_ROUNDS):
        ledger = open_ledger(file)
        runs.append(timed(partial(_window, ledger, thread))[1])
        ledger.close()
    return middle(runs)


def searches(file: Path) -> Outcome:
    """Queries among all messages, by relevance and by age."""
    ledger = open_ledger(file)
    cells: list[tuple[Cell, ...]] = []
    for what, text in QUERIES:
        found = len(ledger.search(Query(text, limit=TURNS * TURN_MESSAGES)))
        if not found:
            raise AssertionError(f"no message has {text!r}")
        works = {
            "relevance": partial(ledger.search, Query(text)),
            "newest": partial(ledger.search, Query(text, order="newest")),
        }
        for order, spent in in_turns(works, SEARCH_ROUNDS).items():
            cells.append((what, text, order, found, spent.wall_ms, spent.cpu_ms))
    ledger.close()
    columns = ("query", "text", "order", "matches", "wall ms", "CPU ms")
    notes = ("The first 20 hits, checked against their hashes, with their sessions. Medians.",)
    return Outcome((Table("Search", COMMAND, DATA, columns, tuple(cells), notes),))


def many_threads(file: Path) -> Outcome:
    """Appends by one thread and by several at a time, to one new ledger."""
    entries = list(Turns().take(THREAD_TURNS))
    ledger = open_ledger(file)
    rates: dict[int, list[float]] = {1: [], THREADS: []}
    for number in range(THREAD_ROUNDS):
        for count, found in rates.items():
            shares = {f"{number}-{count}-{at}": entries[at::count] for at in range(count)}
            spent = timed(partial(_at_one_time, ledger, shares))[1]
            found.append(THREAD_TURNS / spent.wall_ms * 1e3)
    ledger.close()
    cells = tuple((f"{count}", median(found)) for count, found in rates.items())
    columns = ("threads", "turns per second")
    data = f"{THREAD_TURNS} of the same turns per round, one session per thread, in a new ledger"
    notes = ("Every append is on disk when it returns. Waiting appends share one sync.",)
    return Outcome((Table("Concurrent appends", COMMAND, data, columns, cells, notes),))


def _at_one_time(ledger: SqliteLedger, shares: Mapping[str, Sequence[NewEntry]]) -> None:
    def append(session: str, share: Sequence[NewEntry]) -> None:
        for entry in share:
            ledger.commit(session, Commit((entry,)))

    threads = [Thread(target=append, args=share) for share in shares.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(ledger.thread(ledger.thread_of(name) or 0).turn != len(share) for name, share in shares.items()):
        raise AssertionError("a thread's appends are not all there")
