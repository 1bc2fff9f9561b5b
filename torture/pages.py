"""Whole pages of the file are damaged, or its log is: what assembly asks is as it was, was so earlier, or is reported.

A page that is zeroed, filled with rubbish, swapped with another, written over another or cut off must be noticed. A page
that was never written (the disk kept what was there before) may bring back what was true before that write. SQLite takes
of a log what is whole from its start: the ledger must then be as it was after one commit, all sessions after the same.
`verify` reports that unless the log is cut off or deleted: then nothing shows that there were later commits.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Final

from nexus.errors import LedgerError
from nexus.ledger import maintenance
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit
from torture import library, traffic
from torture.bit_flips import NO_EFFECT, REPORTED, SILENT, compared
from torture.figures import Figures, Progress, lost, require
from torture.library import Question, Reply
from torture.processes import Signal, answer, killed, started

NAME = "pages"
ROUNDS = 4_000

PAGE: Final = 4096
OF_FILE: Final = ("zeroed page", "page of rubbish", "pages swapped", "page written over another", "end cut off")
LOST_WRITE: Final = "page not written"
OF_LOG: Final = ("log cut", "log flipped", "log page zeroed", "log deleted")
VERIFIED: Final = ("log flipped", "log page zeroed")
"""Damage of a log that leaves later commits behind it."""

COMMITS_OF_A_DAMAGE: Final = 3
"""Newest commits that may be lost unreported: those that a damage hits, and the one after it."""

DAMAGES: Final = (*OF_FILE, LOST_WRITE, *OF_LOG)
DAMAGES_OF_A_PROCESS: Final = 25

EARLIER = "as it was earlier"
SESSIONS: Final = ("a", "b", "c")
COMMITS: Final = 60
"""Commits in the log of a process that was killed; number k is an append to session k % 3."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Damages so many copies. Raises AssertionError when one was silently a history that never was."""
    older, original, logged = (folder / f"{name}.db" for name in ("older", "original", "logged"))
    answer(_make, older, original)
    _make_log(logged)
    counts = Counter[str]()
    for begin in range(0, rounds, DAMAGES_OF_A_PROCESS):
        numbers = range(begin, min(begin + DAMAGES_OF_A_PROCESS, rounds))
        counts.update(answer(_look, older, original, folder / "damaged.db", seed, numbers))
        counts.update(answer(_look_at_logs, logged, folder / "log.db", seed, numbers))
        progress(numbers[-1] + 1, rounds)
    return Figures(NAME, rounds, {name: counts[name] for name in sorted(counts)} | {"silently another history": 0})


def _make(older: Path, original: Path) -> None:
    library.make(older)
    shutil.copyfile(older, original)
    ledger = SqliteLedger(str(original))
    for number in range(14, 18):
        ledger.commit("first", traffic.append("first", number))
        ledger.commit("fork", Commit(traffic.append("fork", number).entries))
    ledger.close()


def _make_log(path: Path) -> None:
    """A ledger whose process was killed: its commits are in the log alone."""
    done = Signal()
    pid = started(_fill_log, path, done)
    require(done.wait(), "the process that should fill the log ended by itself; what it said stands above")
    killed(pid)


def _fill_log(path: Path, done: Signal) -> None:
    SqliteLedger(str(path)).close()
    traffic.frequent_checkpoints(0)
    ledger = SqliteLedger(str(path))
    for number in range(COMMITS):
        traffic.write(ledger, SESSIONS[number % 3], number // 3 + 1)
    done.give()
    signal.pause()


def _look(older: Path, original: Path, path: Path, seed: int, numbers: range) -> Counter[str]:
    before, content = older.read_bytes(), original.read_bytes()
    library.leave_alone(path, content)
    whole = SqliteLedger(str(path))
    asked = library.questions(whole)
    whole.close()
    now = library.replies(path, asked)
    library.leave_alone(path, before)
    then = library.replies(path, asked)
    counts = Counter[str]()
    for number in numbers:
        kind = DAMAGES[number % len(DAMAGES)]
        if kind in OF_LOG:
            continue
        library.leave_alone(path, _damaged(kind, before, content, library.dice_for(seed, number)))
        found = library.replies(path, asked)
        effect = _earlier(asked, now, then, found) if kind == LOST_WRITE else _strict(kind, number, asked, now, found)
        counts[f"{kind}: {effect}"] += 1
    return counts


def _strict(kind: str, number: int, asked: list[Question], wanted: list[Reply], found: list[Reply]) -> str:
    effect, what = compared(asked, wanted, found)
    require(effect != SILENT, f"{kind} (round {number}): {what}")
    return effect


def _earlier(asked: list[Question], now: list[Reply], then: list[Reply], found: list[Reply]) -> str:
    """Each reply is one of now or of before the write, or an error."""
    effect = NO_EFFECT
    for question, new, old, reply in zip(asked, now, then, found, strict=True):
        require(not reply.foreign, f"{LOST_WRITE}: {question.name}: {reply.error}")
        if reply.error and not new.error:
            effect = REPORTED
        elif reply.value != new.value and question.needed:
            require(reply.value == old.value, f"{LOST_WRITE}: {question.name} says {str(reply.value)[:200]}")
            effect = EARLIER if effect == NO_EFFECT else effect
    return effect


def _damaged(kind: str, before: bytes, content: bytes, dice: random.Random) -> bytes:
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    one, other = dice.sample(range(len(pages)), 2)
    if kind == "zeroed page":
        pages[one] = bytes(PAGE)
    elif kind == "page of rubbish":
        pages[one] = dice.randbytes(PAGE)
    elif kind == "pages swapped":
        pages[one], pages[other] = pages[other], pages[one]
    elif kind == "page written over another":
        pages[one] = pages[other]
    elif kind == "end cut off":
        return content[: dice.randrange(1, len(content))]
    else:
        old = [before[at : at + PAGE] for at in range(0, len(before), PAGE)]
        one = dice.choice([at for at, page in enumerate(old) if page != pages[at]])
        pages[one] = old[one]
    return b"".join(pages)


def _look_at_logs(logged: Path, path: Path, seed: int, numbers: range) -> Counter[str]:
    content, log = logged.read_bytes(), Path(f"{logged}-wal").read_bytes()
    counts = Counter[str]()
    for number in numbers:
        kind = DAMAGES[number % len(DAMAGES)]
        if kind in OF_LOG:
            library.leave_alone(path, content)
            changed = _damaged_log(kind, log, library.dice_for(seed, number))
            if changed is not None:
                Path(f"{path}-wal").write_bytes(changed)
            reported = kind in VERIFIED and bool(maintenance.verify(path))
            effect, done = _log_effect(path)
            if kind in VERIFIED and done < COMMITS - COMMITS_OF_A_DAMAGE:
                require(
                    reported, f"{kind} (round {number}): verify finds nothing, and {COMMITS - done} commits are lost"
                )
            counts[f"{kind}: {effect}{', reported by verify' * reported}"] += 1
    return counts


def _damaged_log(kind: str, log: bytes, dice: random.Random) -> bytes | None:
    at = dice.randrange(len(log))
    if kind == "log deleted":
        return None
    if kind == "log cut":
        return log[:at]
    changed = bytearray(log)
    if kind == "log flipped":
        changed[at] ^= 1 << dice.randrange(8)
    else:
        changed[at : at + PAGE] = bytes(len(changed[at : at + PAGE]))
    return bytes(changed)


def _log_effect(path: Path) -> tuple[str, int]:
    """All sessions are as they were after the same commit, whose number is returned, or it is reported."""
    try:
        ledger = SqliteLedger(str(path))
        found = [traffic.check(ledger, session, 0, COMMITS).appends for session in SESSIONS]
        ledger.close()
    except LedgerError as error:
        return f"reported ({type(error).__name__})", COMMITS
    done = sum(found)
    if found != [(done + 2 - place) // 3 for place in range(3)]:
        lost(f"sessions are as they were after different commits: {found}")
    return (NO_EFFECT if done == COMMITS else EARLIER), done
