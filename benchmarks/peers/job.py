"""What parent and child tell each other: a job, and lines of results."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from benchmarks.peers.course import Course, Messages

EXTRACTIVE = "Nexus, nexus.summarization.extractive.summary"
"""The name under which the conformance kit is given Nexus's deterministic summariser."""


class Job(Struct, frozen=True):
    """What to do: replay the courses under a budget, or time sessions of one length. Limits in seconds and bytes."""

    peer: str
    cpu_s: int
    memory_bytes: int
    budget: int = 0
    courses: tuple[Course, ...] = ()
    length: int = 0
    rounds: int = 0


class Replayed(Struct, frozen=True):
    """What a peer sent in one course: each body as numbers of messages, None where it raised an error.

    `anthropic` holds bodies in Anthropic's form, from those that make it; their lists of messages are numbers too.
    """

    course: str
    messages: Messages
    bodies: tuple[tuple[int, ...] | None, ...]
    anthropic: tuple[dict[str, Any] | None, ...]
    summaries: int
    errors: dict[str, int]


class Took(Struct, frozen=True):
    """CPU milliseconds of a first step over the budget, and of the next call. Those of one round."""

    first: float
    after: float


class KitJob(Struct, frozen=True):
    """What the conformance kit runs: budgets as shares of the transcript, seeds of its sessions, rounds of compaction."""

    budgets: tuple[float, ...]
    seeds: tuple[int, ...]
    generated_seeds: tuple[int, ...]
    rounds: int


class KitRow(Struct, frozen=True):
    """One strategy at one budget: shares of what survived and of updates resolved, stale values present of `updated`.

    `distinct` is the share of pairs of similar facts of which both survived; None where the sessions have no such pairs.
    """

    kind: str
    strategy: str
    budget: float
    complies: bool
    survived: float
    resolved: float
    stale: int
    updated: int
    distinct: float | None = None
