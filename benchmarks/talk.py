"""A synthetic session on disk, as long as wanted, for measuring how long a call takes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import nexus
from benchmarks.bodies import Remembered
from benchmarks.workspace import write_workspace
from nexus.assembly.record import with_sizes
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, ToolCall, assistant, tool, user

BUDGET_TOKENS = 360_000
"""So large that over 1,000 of the messages are in view right after a cut."""

RESULT_CHARS = 1_200
TURN_MESSAGES = 4
QUESTION = "And what does that mean for the next release?"

_WORDS = (
    "order", "basket", "price", "stock", "letter", "queue", "index", "table", "worker", "signal", "branch", "report",
    "window", "latency", "margin", "cache", "token", "ledger", "engine", "summary", "prefix", "session", "answer",
)  # fmt: skip


@dataclass(slots=True)
class Talk:
    """A session that grows by turns of four messages: text, call, result of 1,200 characters, text. Always the same."""

    counter: Remembered = field(default_factory=Remembered)
    random: random.Random = field(default_factory=lambda: random.Random(7))
    turns: int = 0
    messages: list[Message] = field(default_factory=list[Message])

    def turn(self) -> tuple[NewEntry, ...]:
        """The entries of one more turn: two recorded calls and the turn's end."""
        self.turns += 1
        number, model = self.turns, "claude-sonnet-4-5"
        call = ToolCall(f"call_{number}", "search", json.dumps({"query": self._text(30), "limit": number % 20}))
        asked = (user(self._text(90)), assistant(self._text(60), call, id=f"a{number}", model=model))
        result = tool(call.id, self._text(RESULT_CHARS), "search")
        told = (result, assistant(self._text(150), id=f"b{number}", model=model))
        self.messages.extend((*asked, *told))
        first = NewEntry(messages=with_sizes(asked, self.counter), starts_turn=True, at_ms=number)
        return (
            first,
            NewEntry(messages=with_sizes(told, self.counter), at_ms=number),
            NewEntry("completed", at_ms=number),
        )

    def _text(self, chars: int) -> str:
        words = f"{self.turns}"
        while len(words) < chars:
            words += f" {self.random.choice(_WORDS)}"
        return words[:chars]


@dataclass(slots=True)
class Place:
    """A session on disk of about `length` messages, its workspace, and the budget of the call that is measured."""

    length: int
    workspace: Path
    ledger: Path
    talk: Talk = field(default_factory=Talk)
    budget: int = BUDGET_TOKENS

    def engine(self) -> nexus.Engine:
        """A new engine with a connection and caches of its own."""
        return nexus.open(self.workspace, ledger=self.ledger, clock_ms=lambda: 1)

    def connection(self) -> SqliteLedger:
        """Another connection to the same file."""
        return SqliteLedger(str(self.ledger))

    def append(self, other: SqliteLedger, turns: int = 1) -> None:
        """Appends turns through another connection, in one commit."""
        entries = tuple(entry for _ in range(turns) for entry in self.talk.turn())
        other.commit("main", Commit(entries))

    def used(self) -> int:
        """The tokens of the next call as a new engine counts them."""
        with self.engine() as nx:
            return nx.assemble(QUESTION, budget=self.budget).token_budget.used.total


def made(folder: Path, length: int) -> Place:
    """A session of `length` messages; where it exceeds the budget, its cut has been made and recorded."""
    place = _empty(folder, length)
    other = place.connection()
    place.append(other, length // TURN_MESSAGES)
    other.close()
    _settle(place)
    return place


def filled(folder: Path, length: int, *, room_turns: int) -> Place:
    """A session of about `length` messages with room for `room_turns` turns until the next cut.

    One that is longer than the budget has made its cut before; of a shorter one, the budget is set to its size.
    """
    place = _empty(folder, length)
    other = place.connection()
    place.append(other, length // TURN_MESSAGES)
    with place.engine() as nx:
        is_cut = nx.assemble(QUESTION, budget=place.budget).cut is not None
    if is_cut:
        _settle(place)
    before = place.used()
    place.append(other)
    used = place.used()
    turn = used - before
    if is_cut:
        place.append(other, (place.budget - used) // turn - 10 * room_turns)
        place.append(other, (place.budget - place.used()) // turn - room_turns)
    else:
        place.budget = used + room_turns * turn
    other.close()
    return place


def _empty(folder: Path, length: int) -> Place:
    (folder / "workspace").mkdir(parents=True)
    return Place(length, write_workspace(folder / "workspace"), folder / "ledger.db")


def _settle(place: Place) -> None:
    """One recorded call, so that a cut that is due has been made."""
    with place.engine() as nx:
        nx.record(nx.assemble(QUESTION, budget=place.budget), nexus.AgentResult((assistant("Nothing."),)))
