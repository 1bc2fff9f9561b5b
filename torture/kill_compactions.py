"""Two processes append to one session and compact it; one or both are killed at a random moment.

Every compaction says after which mark it was planned (`expected_checkpoint`). After a kill the session must be what it was
before the commit or after it: all that was acknowledged is there once, what was refused is not, each mark follows the
one that it was planned after, and no row is left alone.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from nexus.errors import CompactionSuperseded
from nexus.ledger.replay import live_checkpoints
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import STEPS, Commit, Compaction, Entry, NewEntry, SizedMessage
from nexus.types.message import TokenSize, assistant, user
from torture import traffic
from torture.figures import Figures, Progress, require, shares
from torture.processes import Numbers, Signal, answer, ended, killed, started

NAME = "kill_compactions"
ROUNDS = 10_000

MOST_STEPS = 1_000
"""Steps of one process in one round, at most."""

STOP, RETURNED, STEPS_OF = 0, 1, (3, 3 + MOST_STEPS)
"""Cells: whether the survivor should end; which step's commit returned last, of each process; the states of steps."""

NOT_BEGUN, BEGUN, ACKNOWLEDGED, REFUSED = range(4)
PROCESSES: Final = ("a", "b")
LONGEST_SECONDS = 0.03
ROUNDS_OF_A_FILE = 25
BOTH = 0.5
"""Share of the rounds in which both processes are killed."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kills in so many rounds. Raises AssertionError with what was lost, doubled or left between."""
    dice, cells = random.Random(seed), Numbers(3 + 2 * MOST_STEPS)
    counts = Counter[str](dict.fromkeys(COUNTED, 0))
    for number in range(rounds):
        path, session = folder / f"{number // ROUNDS_OF_A_FILE}.db", f"r{number}"
        cells.clear()
        both = dice.random() < BOTH
        _kill_one(path, session, cells, dice, both=both)
        counts["processes killed"] += 1 + both
        counts.update(_inside(cells, both=both))
        last = number % ROUNDS_OF_A_FILE == ROUNDS_OF_A_FILE - 1
        whole = last or number % 25 == 24 or number == rounds - 1
        counts.update(answer(check_session, path, session, cells, whole=whole))
        if last:
            for old in folder.glob(f"{path.name}*"):
                old.unlink()
        progress(number + 1, rounds)
    text = "acknowledged steps lost, doubled or in part, marks between old and new, orphans"
    return Figures(NAME, rounds, shares(counts, COUNTED[1:3], counts[COUNTED[0]]) | {text: 0})


COUNTED: Final = (
    "processes killed",
    "kills inside the commit of a compaction or undo",
    "kills inside the commit of an append",
    "steps acknowledged",
    "compactions and undos refused, because another mark came first",
    "steps stored and not acknowledged",
    "steps repeated after a kill, each there once",
    "repeated marks refused as superseded by themselves",
)


def _kill_one(path: Path, session: str, cells: Numbers, dice: random.Random, *, both: bool) -> None:
    signals = [Signal() for _ in PROCESSES]
    storm = dice.random() < 0.5
    pids = [started(_work, path, session, which, cells, ready, storm=storm) for which, ready in enumerate(signals)]
    for ready in signals:
        require(ready.wait(), "a process that should append ended by itself; what it said stands above")
    time.sleep(dice.random() * LONGEST_SECONDS)
    killed(pids[0])
    if both:
        killed(pids[1])
        return
    cells[STOP] = 1
    code = ended(pids[1])
    require(code == 0, f"the process that was not killed ended with {code}; what it said stands above")


def _work(path: Path, session: str, which: int, cells: Numbers, ready: Signal, *, storm: bool) -> None:
    if storm:
        traffic.frequent_checkpoints(50)
    ledger = SqliteLedger(str(path))
    ledger.commit(session, Commit((append_of(session, PROCESSES[which], 0),)))
    ready.give()
    for step in range(1, MOST_STEPS):
        if cells[STOP]:
            break
        commit = next_step(ledger, session, PROCESSES[which], step)
        state = STEPS_OF[which] + step
        cells[state] = BEGUN
        done = was_written(ledger, session, commit)
        cells[RETURNED + which] = step
        cells[state] = ACKNOWLEDGED if done else REFUSED
    ledger.close()


def was_written(ledger: SqliteLedger, session: str, commit: Commit) -> bool:
    """Whether it was written: a mark that another mark came before is refused."""
    try:
        ledger.commit(session, commit)
    except CompactionSuperseded:
        require(commit.expected_checkpoint is not None, "an append was refused because of a compaction")
        return False
    return True


def next_step(ledger: SqliteLedger, session: str, name: str, step: int) -> Commit:
    """What a process does at a step: appends, then compacts, and now and then takes the newest compaction back."""
    if step % 2:
        return Commit((append_of(session, name, step),))
    thread = ledger.thread_of(session) or 0
    with ledger.snapshot():
        head = ledger.head(thread)[0]
        marks = ledger.checkpoints(thread)
    after, holds = (marks[0].seq if marks else 0), live_checkpoints(marks).checkpoint
    keys = (f"{session}/{name}/{step}",)
    if step % 6 == 0 and holds is not None:
        body = {"of": holds.seq, "name": name, "step": step, "after": after}
        return Commit((NewEntry("undone", body=body, keys=keys),), expected_checkpoint=after)
    made = Compaction(1, max(head - 2, 1), max(head - 1, 2), f"A summary of {head} entries. " * 40)
    body = {**msgspec.to_builtins(made), "name": name, "step": step, "after": after}
    return Commit((NewEntry("compaction", body=body, keys=keys),), expected_checkpoint=after)


def append_of(session: str, name: str, step: int) -> NewEntry:
    text = f"{session} {name} {step} " + "x" * (step * 701 % 3_000)
    said = (user(text), assistant(text[::-1]))
    messages = tuple(SizedMessage(one, TokenSize(step, step, step)) for one in said)
    return NewEntry(
        messages=messages, body={"name": name, "step": step}, starts_turn=True, keys=(f"{session}/{name}/{step}",)
    )


def _inside(cells: Numbers, *, both: bool) -> dict[str, int]:
    """In what kind of commit the kills came."""
    found = Counter[str]()
    for which in range(2 if both else 1):
        step = cells[RETURNED + which] + 1
        if cells[STEPS_OF[which] + step] == BEGUN:
            kind = "an append" if step % 2 else "a compaction or undo"
            found[f"kills inside the commit of {kind}"] += 1
    return found


def check_session(path: Path, session: str, cells: Numbers, *, whole: bool) -> dict[str, int]:
    """Counts of what is there, when all is as it must be; then repeats what was not acknowledged."""
    ledger = SqliteLedger(str(path))
    entries = _entries(ledger, session)
    there = _check_steps(session, entries, cells)
    _check_marks(ledger, session, entries)
    counts = Counter[str](_counted(cells))
    for which, name in enumerate(PROCESSES):
        step = cells[RETURNED + which] + 1
        if cells[STEPS_OF[which] + step] == BEGUN:
            stored = (name, step) in there
            counts["steps stored and not acknowledged"] += stored
            counts.update(_repeat(ledger, session, entries, name, step, stored=stored))
    entries = _entries(ledger, session)
    repeated = Counter((one.body["name"], one.body["step"]) for one in entries)
    require(max(repeated.values(), default=1) == 1, f"session {session}: a repeated step is there twice")
    _check_marks(ledger, session, entries)
    ledger.close()
    if whole:
        traffic.sound(path)
    return counts


def _entries(ledger: SqliteLedger, session: str) -> list[Entry]:
    thread = ledger.thread_of(session)
    require(thread is not None, f"session {session} is gone")
    entries = list(ledger.entries(thread or 0))
    require([one.seq for one in entries] == list(range(1, len(entries) + 1)), f"session {session}: seq has gaps")
    return entries


def _check_steps(session: str, entries: list[Entry], cells: Numbers) -> Counter[tuple[str, int]]:
    there = Counter((str(one.body["name"]), int(one.body["step"])) for one in entries)
    for which, name in enumerate(PROCESSES):
        for step in range(1, MOST_STEPS):
            state, count = cells[STEPS_OF[which] + step], there[name, step]
            allowed = {NOT_BEGUN: (0,), BEGUN: (0, 1), ACKNOWLEDGED: (1,), REFUSED: (0,)}[state]
            told = ("never begun", "begun", "acknowledged", "refused")[state]
            require(count in allowed, f"session {session}: step {step} of {name} was {told} and is there {count} times")
    for one in entries:
        if one.kind == "messages":
            wanted = append_of(session, one.body["name"], one.body["step"])
            said = [(row.message, row.size) for row in one.rows]
            same = said == [(sized.message, sized.size) for sized in wanted.messages]
            require(same, f"session {session}: entry {one.seq} is not as it was written")
    return there


def _check_marks(ledger: SqliteLedger, session: str, entries: list[Entry]) -> None:
    """Each mark follows the one it was planned after; what holds is the newest that was not taken back."""
    thread = ledger.thread_of(session) or 0
    marks = [one for one in entries if one.kind not in STEPS]
    require(ledger.checkpoints(thread) == marks[::-1], f"session {session}: the marks are not those among the entries")
    require(
        ledger.head(thread) == (entries[-1].seq, entries[-1].hash), f"session {session}: head is not the last entry"
    )
    before, holding = 0, list[int]()
    for mark in marks:
        planned = mark.body["after"]
        require(
            planned == before, f"session {session}: mark {mark.seq} was planned after {planned} and follows {before}"
        )
        before = mark.seq
        if mark.kind == "undone":
            require(
                holding and holding.pop() == mark.body["of"], f"session {session}: {mark.seq} undoes what did not hold"
            )
        else:
            made = msgspec.convert(mark.body, Compaction)
            require(
                made.covers_to < made.first_kept <= mark.seq, f"session {session}: compaction {mark.seq} covers itself"
            )
            holding.append(mark.seq)
    holds = live_checkpoints(marks[::-1]).checkpoint
    require(
        (holds.seq if holds else 0) == (holding[-1] if holding else 0), f"session {session}: another compaction holds"
    )


def _repeat(
    ledger: SqliteLedger, session: str, entries: list[Entry], name: str, step: int, *, stored: bool
) -> dict[str, int]:
    """Does again what was not acknowledged, as its process would have: with the same key."""
    if stored:
        entry = next(one for one in entries if (one.body["name"], one.body["step"]) == (name, step))
        again = append_of(session, name, step) if entry.kind == "messages" else _same(session, entry)
        after = entry.body.get("after")
        commit = Commit((again,), expected_checkpoint=after)
    else:
        commit = next_step(ledger, session, name, step)
    try:
        added = ledger.commit(session, commit).added
    except CompactionSuperseded:
        require(
            stored and commit.expected_checkpoint is not None, f"session {session}: step {step} of {name} was refused"
        )
        return {"repeated marks refused as superseded by themselves": 1}
    require(added == (not stored), f"session {session}: step {step} of {name}, repeated, added {added} entries")
    return {"steps repeated after a kill, each there once": 1}


def _same(session: str, entry: Entry) -> NewEntry:
    key = f"{session}/{entry.body['name']}/{entry.body['step']}"
    return NewEntry(entry.kind, body=entry.body, keys=(key,))


def _counted(cells: Numbers) -> dict[str, int]:
    states = [cells[start + step] for start in STEPS_OF for step in range(1, MOST_STEPS)]
    return {
        "steps acknowledged": states.count(ACKNOWLEDGED),
        "compactions and undos refused, because another mark came first": states.count(REFUSED),
    }
