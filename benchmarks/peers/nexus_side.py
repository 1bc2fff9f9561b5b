"""Nexus, driven as a program would: assemble, make the body, record the answer."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nexus
from benchmarks.peers.course import MODEL, NO_LIMIT, Exchange, Messages
from benchmarks.peers.cpu import cpu_ms
from benchmarks.peers.side import Setting, Side, Usage
from benchmarks.talk import QUESTION, TURN_MESSAGES, Place
from benchmarks.workspace import write_workspace
from nexus.assembly.record import with_sizes
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import assistant


class NexusSide(Side):
    """An engine with a ledger in memory. The timed step ends with the finished OpenAI body."""

    def __init__(self, setting: Setting) -> None:
        self._folder = TemporaryDirectory()
        root = write_workspace(Path(self._folder.name))
        self._nx = nexus.open(root, ledger=":memory:", model=MODEL, clock_ms=lambda: 1)
        self._budget, self._tools = setting.budget, setting.tools
        self._exchange: Exchange | None = None
        self._ctx: nexus.AssembledContext | None = None

    def hear(self, exchange: Exchange) -> None:
        """Takes the event, and forgets the context of the call before."""
        self._exchange, self._ctx = exchange, None

    def step(self) -> dict[str, Any]:
        """The body."""
        assert self._exchange is not None
        self._ctx = self._nx.assemble(self._exchange.source.event, budget=self._budget, tools=self._tools)
        return self._ctx.to_openai()

    def shown(self, made: dict[str, Any]) -> Messages:
        """The body's messages."""
        return made["messages"]

    def anthropic(self, made: dict[str, Any]) -> dict[str, Any] | None:
        """The same context in Anthropic's form."""
        assert made is not None
        return self._ctx.to_anthropic() if self._ctx else None

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Records the answer; after a refused call, what was said is written to the ledger all the same."""
        call = exchange.source
        if self._ctx is not None:
            told = nexus.TokenUsage(usage.input_tokens, usage.output_tokens)
            self._nx.record(self._ctx, nexus.AgentResult(call.reply, told))
            return
        heard = call.event.results or (nexus.Message("user", call.event.content, at_ms=call.event.at_ms),)
        messages = with_sizes((*heard, *call.reply), self._nx.counter)
        self._nx.ledger.store.commit("main", Commit((NewEntry(messages=messages, starts_turn=not call.event.results),)))


def times(length: int) -> tuple[float, float]:
    """CPU milliseconds of the first step over the budget, and of the call after it: each reads a turn just added.

    The ledger is a file, the budget half of the session. Before the first step the engine has assembled once, as in a
    program that was running. Raises AssertionError where the first step makes no cut, or the second one does.
    """
    with TemporaryDirectory() as folder:
        place = _place(Path(folder), length)
        other = place.connection()
        spent: list[float] = []
        with place.engine() as nx:
            budget = nx.assemble(QUESTION, budget=NO_LIMIT).token_budget.used.total // 2
            _called(nx, budget)
            for is_first in (True, False):
                place.append(other)
                gc.collect()
                ctx, cpu = cpu_ms(lambda: _called(nx, budget))
                spent.append(cpu)
                if (ctx.cut is not None) is not is_first:
                    raise AssertionError("the first step has to make a cut, and only that one")
                nx.record(ctx, nexus.AgentResult(_ANSWER))
        other.close()
    return spent[0], spent[1]


_ANSWER = (assistant("Nothing."),)


def _place(folder: Path, length: int) -> Place:
    """A session of so many messages on disk, of which nothing was ever cut."""
    (folder / "workspace").mkdir()
    place = Place(length, write_workspace(folder / "workspace"), folder / "ledger.db")
    other = place.connection()
    place.append(other, length // TURN_MESSAGES)
    other.close()
    return place


def _called(nx: nexus.Engine, budget: int) -> nexus.AssembledContext:
    """A context whose body was made."""
    ctx = nx.assemble(QUESTION, budget=budget)
    ctx.to_openai()
    return ctx
