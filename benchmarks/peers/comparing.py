"""The comparison itself: courses, one process for each peer and task, then the tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from benchmarks.bodies import Remembered
from benchmarks.peers import synthetic
from benchmarks.peers.course import Course, course_of
from benchmarks.peers.environment import ready, versions
from benchmarks.peers.figures import Sums, figures, whole_tokens
from benchmarks.peers.job import Job, Replayed, Took
from benchmarks.peers.registry import BUDGET, NEXUS, PEERS, SUMMARY_WORDS, Peer
from benchmarks.report import Cell, NotRun, Outcome, Table, Target
from benchmarks.sessions import ROOT, sessions

COMMAND = "python -m benchmarks peers"
REPLAY_CPU_S, TIMES_CPU_S = 120, 60
MEMORY_BYTES = 4 << 30
MOST_WALL_S = 300
"""A child that waits without working is ended after this."""

ROUNDS = {100: 15, 1_000: 9, 10_000: 5}

COLUMNS = (
    "peer", "OpenAI %", "Anthropic %", "over %", "over own %", "first task %", "latest user %", "event %", "cached %",
    "breaks", "mean prompt %", "summaries", "calls",
)  # fmt: skip
TIME_COLUMNS = ("peer", *(f"{what} {length:,}" for what in ("first", "next") for length in ROUNDS))
SETTING_COLUMNS = ("peer", "version", "settings", "its budget counts")


class Ended(Struct, frozen=True):
    """A child's lines, and why there are not more: it reached a limit of CPU time, memory or time, or it failed."""

    lines: tuple[bytes, ...]
    stopped: Literal["", "limit", "failed"] = ""


class Found(Struct, frozen=True):
    """What a peer sent, by course, and what is shown for a course that is not there."""

    courses: dict[str, Replayed]
    missing: str


def compare() -> Outcome:
    """All peers: the tables of figures (one for each kind of session), of times and of settings."""
    python = ready()
    counter = Remembered()
    real = _long_courses(counter)
    made = [course_of(synthetic.session(), counter)]
    kinds = {
        "synthetic": (made, f"one synthetic session of {synthetic.CALLS} calls"),
        "real": (real, f"Claude Code, {', '.join(course.name for course in real)}"),
    }
    found = {one.name: _replayed(python, one, (*real, *made)) for one in PEERS}
    times = tuple(_time_row(python, one) for one in PEERS if one.is_timed)
    tables: list[Table] = []
    for kind, (courses, data) in kinds.items():
        rows = [_row(one, found[one.name], courses, counter) for one in PEERS] if courses else []
        raised = [line for one in PEERS for line in _raised(one, found[one.name], courses)]
        tables.extend([_table(kind, data, rows, raised, has_real=bool(real))] if rows else [])
    tables.append(Table(TIMES, COMMAND, _TIME_DATA, TIME_COLUMNS, times, _TIME_NOTES))
    tables.append(_settings(versions(python)))
    return Outcome(tuple(tables), _targets(found[NEXUS], (*real, *made), counter))


def _long_courses(counter: Remembered) -> list[Course]:
    """The real sessions whose whole body is over twice the budget; none where the data is missing."""
    try:
        courses = [course_of(session, counter) for session in sessions()]
    except NotRun:
        return []
    return [course for course in courses if whole_tokens(course, counter)[-1] > 2 * BUDGET]


def ask(python: Path, module: str, job: Struct) -> Ended:
    """What a module of the peers' environment writes for a job. The last line of its errors is shown when it fails."""
    command = [str(python), "-m", module]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    try:
        done = subprocess.run(
            command,
            input=msgspec.json.encode(job),
            capture_output=True,
            cwd=ROOT,
            env=environment,
            timeout=MOST_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as over:
        return Ended(tuple((over.stdout or b"").splitlines()), "limit")
    lines = tuple(done.stdout.splitlines())
    if done.returncode > 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        print(f"benchmarks: {module} failed: {said[-1] if said else done.returncode}", file=sys.stderr)
    return Ended(lines, "failed" if done.returncode > 0 else "limit" if done.returncode else "")


def _replayed(python: Path, one: Peer, courses: Sequence[Course]) -> Found:
    """What the peer sent; of one that was stopped, the courses that it had finished."""
    job = Job(one.name, REPLAY_CPU_S, MEMORY_BYTES, BUDGET, tuple(courses))
    ended = ask(python, "benchmarks.peers.child", job)
    made = (msgspec.json.decode(line, type=Replayed) for line in ended.lines)
    return Found({replayed.course: replayed for replayed in made}, _missing(ended, REPLAY_CPU_S))


def _missing(ended: Ended, cpu_s: int) -> str:
    """What stands in the place of figures that a child did not give."""
    return "failed" if ended.stopped == "failed" else f"> {cpu_s} CPU-s"


def _sums(one: Peer, found: Found, courses: Iterable[Course], counter: Remembered) -> Sums:
    parts = (figures(course, found.courses[course.name], BUDGET, one.counts, counter) for course in courses)
    return sum(parts, Sums())


def _row(one: Peer, found: Found, courses: Sequence[Course], counter: Remembered) -> tuple[Cell, ...]:
    if any(course.name not in found.courses for course in courses):
        return (one.name, *[found.missing] * (len(COLUMNS) - 1))
    sums = _sums(one, found, courses, counter)
    shares = (sums.openai, sums.anthropic, sums.over, sums.over_own, sums.first, sums.latest, sums.event)
    percents = [_percent(share, sums.sent) for share in shares]
    if one.counts == "no tokens":
        percents[3] = None
    cached = _percent(sums.cached, sums.whole_prompt)
    breaks = f"{sums.breaks} of {sums.followed}"
    mean = _percent(sums.prompt, sums.sent * BUDGET)
    return (one.name, *percents, cached, breaks, mean, sums.summaries, sums.sent)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _raised(one: Peer, found: Found, courses: Sequence[Course]) -> Iterator[str]:
    """A note on the errors that the peer raised in these courses, if it did."""
    errors: Counter[str] = Counter()
    for course in courses:
        if course.name in found.courses:
            errors.update(found.courses[course.name].errors)
    if errors:
        yield f"{one.name} raised {', '.join(f'{name} {count} times' for name, count in errors.items())}."


def _table(kind: str, data: str, rows: Sequence[tuple[Cell, ...]], raised: Sequence[str], *, has_real: bool) -> Table:
    missing = () if has_real else ("The real sessions were not available.",)
    title = f"Budget of {BUDGET:,} tokens, {kind} sessions"
    return Table(title, COMMAND, data, COLUMNS, tuple(rows), (*missing, *_NOTES, *raised))


_NOTES = (
    "Every peer gets the same full messages call by call, and the usage that the provider would report. cached and breaks",
    "  cover all calls; other columns those from the first one whose full body exceeds the budget.",
    "OpenAI, Anthropic: bodies that independent checkers accept, translated for Anthropic without repairs.",
    "over: whole bodies, with tools and system message, over the budget (o200k of compact JSON). over own: the same for what",
    "  the peer's budget counts; - without a token budget.",
    "first task, latest user, event: bodies with the first and latest user text word for word, and with all of the current",
    "  event.",
    "cached: common prefix of consecutive bodies, as a share of all tokens. breaks: bodies that do not start with the whole",
    "  previous body. mean prompt: % of the budget.",
    f"summaries: model calls for one, each answered with the same {SUMMARY_WORDS} words; their cost is in no column.",
)

TIMES = "CPU ms of one call"
_TIME_DATA = "synthetic: turns of text, call, result of 1,200 characters, text; budget of half the session's tokens"
_TIME_NOTES = (
    "first: the first call over the budget in a session of that many messages. next: the call after it.",
    f"Medians of {', '.join(f'{rounds} rounds at {length:,}' for length, rounds in ROUNDS.items())}; user and system time.",
    "Nexus: from the ledger file to the finished body. Others: their own step on messages in memory. openai-agents'",
    "  SQLiteSession includes its Runner.",
)


def _time_row(python: Path, one: Peer) -> tuple[Cell, ...]:
    first: list[Cell] = []
    after: list[Cell] = []
    for length, rounds in ROUNDS.items():
        job = Job(one.name, TIMES_CPU_S, MEMORY_BYTES, length=length, rounds=rounds)
        ended = ask(python, "benchmarks.peers.child", job)
        took = [msgspec.json.decode(line, type=Took) for line in ended.lines]
        missing = _missing(ended, TIMES_CPU_S)
        first.append(median(one.first for one in took) if took else missing)
        after.append(median(one.after for one in took) if took else missing)
    return (one.name, *first, *after)


def _settings(installed: dict[str, str]) -> Table:
    rows = tuple((one.name, installed.get(one.package, "?"), one.settings, one.counts) for one in PEERS)
    notes = (
        "Apart from the budget, settings are defaults or as documented. The keep rows limit the kept history in tokens instead",
        "  of messages or runs.",
    )
    return Table("Versions and settings", COMMAND, "none", SETTING_COLUMNS, rows, notes)


def _targets(found: Found, courses: Sequence[Course], counter: Remembered) -> tuple[Target, ...]:
    one = next(peer for peer in PEERS if peer.name == NEXUS)
    sums = _sums(one, found, courses, counter)
    valid = f"{sums.openai} and {sums.anthropic} of {sums.sent}"
    return (
        Target(
            "bodies of Nexus valid for OpenAI and Anthropic", "all", valid, sums.openai == sums.anthropic == sums.sent
        ),
        Target("bodies of Nexus over the budget", "none", str(sums.over), not sums.over),
    )
