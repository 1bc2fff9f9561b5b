"""The sessions that a session's calls spawned, the sessions that these spawned, and so on: state, tokens and cost."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nexus.cli._output import LABEL_CHARS, shortened
from nexus.cli._usage import ReportedUsage, reported_usage
from nexus.engine import Engine
from nexus.ledger.replay import TurnStatus
from nexus.ledger.sessions import SessionInfo, SessionStatus
from nexus.render.console import printable

MOST_LEVELS = 20
"""Levels that are read; sessions linked by hand may be nested deeper than a terminal or a reader of JSON can take."""


class Worker(Struct, frozen=True):
    """A spawned session, with the turn and call that spawned it."""

    session: str
    parent_turn: int
    parent_call_id: str
    task: str
    task_status: str
    status: SessionStatus
    state: TurnStatus | None
    """State of the newest turn; None before the first one."""
    turns: int
    tokens: int
    """Base tokens of all messages."""
    reported: ReportedUsage
    spawned: tuple[str, ...]
    """Labels of the sessions that this one spawned."""
    workers: tuple[Worker, ...]
    """The same sessions in full; empty at the deepest level that is read."""

    def lines(self, level: int = 1) -> Iterator[str]:
        """Yield the worker and its workers as lines, indented by level."""
        indent = "  " * level
        details = [self.state or "no turn yet"]
        details += [self.status] * (self.status != "active")
        details += [f"turn {self.parent_turn}"] * bool(self.parent_turn)
        details += [f"call {shortened(printable(self.parent_call_id))}"] * bool(self.parent_call_id)
        yield f"{indent}{shortened(printable(self.session))}: {', '.join([*details, *self._usage()])}"
        if self.task:
            # The task's first characters are enough: a stored task may be megabytes.
            yield f"{indent}    {shortened(printable(self.task[: LABEL_CHARS + 1]))}"
        for worker in self.workers:
            yield from worker.lines(level + 1)
        if len(self.workers) < len(self.spawned):
            yield f"{indent}  {len(self.spawned)} more: nexus session show {shortened(printable(self.session))}"

    def _usage(self) -> Iterator[str]:
        models = (*self.reported.models, *self.reported.summaries)
        if not models:
            return
        tokens = sum(usage.input_tokens for usage in models), sum(usage.output_tokens for usage in models)
        yield f"{tokens[0]:,} + {tokens[1]:,} tokens"
        dollars = [usage.dollars for usage in models if usage.dollars is not None]
        if len(dollars) == len(models):
            yield f"{sum(dollars):,.4f} USD"

    def count(self) -> int:
        """Return the number of workers in this part of the tree."""
        return 1 + sum(worker.count() for worker in self.workers)


def worker_tree(nx: Engine, label: str, levels: int = MOST_LEVELS) -> tuple[Worker, ...]:
    """Return the sessions that a session spawned, oldest first, and as many levels of those that these spawned."""
    if not levels:
        return ()
    return tuple(_worker(nx, info, levels - 1) for info in _spawned(nx, label))


def _spawned(nx: Engine, label: str) -> list[SessionInfo]:
    return sorted(nx.ledger.store.spawned(label), key=lambda info: info.thread)


def _worker(nx: Engine, info: SessionInfo, levels: int) -> Worker:
    metadata = nx.ledger.sessions.metadata(info.label)
    newest = nx.ledger.turns(info.label, nx.ledger.thread_info(info.label).turn)
    return Worker(
        info.label,
        metadata.parent_turn,
        metadata.parent_call_id,
        metadata.task,
        metadata.task_status,
        metadata.status,
        newest[-1].status if newest else None,
        info.turns,
        info.tokens,
        reported_usage(nx, info.label),
        tuple(child.label for child in _spawned(nx, info.label)),
        worker_tree(nx, info.label, levels),
    )
