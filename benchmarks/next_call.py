"""How long the next call's context takes, by the length of the session: cold, warm, and when the budget is exceeded.

A warm call is honestly warm: before each one another connection, as another process would, appends a whole turn, and the
timed part ends with the finished request body. Some bodies are compared, byte for byte, with those of a new engine on
the same file. LangChain's `trim_messages` gets the same messages under the same budget in the same rounds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_openai_messages, trim_messages
from langchain_core.messages.utils import count_tokens_approximately

import nexus
from benchmarks.bodies import Remembered
from benchmarks.measure import Spent, middle, process, timed
from benchmarks.policies import DOCUMENTED, as_langchain
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.workspace import write_workspace
from nexus.budget.measure import message_tokens
from nexus.ledger.entries import Commit, NewEntry
from nexus.ledger.sqlite import SqliteLedger
from nexus.message import Message, ToolCall, assistant, tool, user
from nexus.record import sized
from nexus.render.wire import openai

COMMAND = "python -m benchmarks next_call"
ROUNDS = 30
COLD_ROUNDS = 7
CHECK_EVERY = 10
LENGTHS = (100, 1_000, 10_000)
BUDGET_TOKENS = 400_000
"""So large that over 1,000 of the messages are in view right after a cut."""

LEAST_IN_VIEW = 1_000
MOST_CPU_MS = 2.0
RESULT_CHARS = 1_200
QUESTION = "And what does that mean for the next release?"

_WORDS = (
    "order basket price stock letter queue index table worker signal branch report window latency margin cache token "
    "budget ledger engine summary prefix session answer release review metric sample budget driver socket backup"
).split()


@dataclass(slots=True)
class Talk:
    """A synthetic session that grows by turns of four messages: text, call, result of 1,200 characters, text."""

    counter: Remembered
    random: random.Random = field(default_factory=lambda: random.Random(7))
    turns: int = 0
    messages: list[Message] = field(default_factory=list[Message])

    def turn(self) -> tuple[NewEntry, ...]:
        """The entries of one more turn, as two recorded calls and the turn's end."""
        self.turns += 1
        number, model = self.turns, "claude-sonnet-4-5"
        call = ToolCall(f"call_{number}", "search", json.dumps({"query": self._text(30), "limit": number % 20}))
        asked = (user(self._text(90)), assistant(self._text(60), call, id=f"a{number}", model=model))
        told = (tool(call.id, self._text(RESULT_CHARS), "search"), assistant(self._text(150), id=f"b{number}", model=model))
        self.messages.extend((*asked, *told))
        first = NewEntry(messages=sized(asked, self.counter), opens_turn=True, at_ms=number)
        return first, NewEntry(messages=sized(told, self.counter), at_ms=number), NewEntry("completed", at_ms=number)

    def tokens(self, after: int = 0) -> int:
        """The base count of the messages from number `after` on."""
        return sum(message_tokens(message, self.counter).tokens for message in self.messages[after:])

    def _text(self, chars: int) -> str:
        words = f"{self.turns}"
        while len(words) < chars:
            words += f" {self.random.choice(_WORDS)}"
        return words[:chars]


@dataclass(slots=True)
class Place:
    """A session on disk, the workspace, and the budget of the call that is measured."""

    workspace: Path
    ledger: Path
    talk: Talk
    budget: int = BUDGET_TOKENS

    def engine(self) -> nexus.Engine:
        """A new engine with a connection and caches of its own."""
        return nexus.open(self.workspace, ledger=self.ledger, clock_ms=lambda: 1)

    def append(self, other: SqliteLedger, turns: int = 1) -> None:
        """Appends turns through another connection."""
        entries = tuple(entry for _ in range(turns) for entry in self.talk.turn())
        other.commit("main", Commit(entries))


def run() -> Outcome:
    """All lengths; each with Nexus and LangChain."""
    rows: list[tuple[Cell, ...]] = []
    warm: dict[int, Spent] = {}
    for length in LENGTHS:
        with TemporaryDirectory() as folder:
            place = _session(Path(folder), length)
            rows.extend(_cold(place))
            found, row = _warm(place)
            warm[length] = found
            rows.append(row)
            rows.extend(_langchain(place))
        with TemporaryDirectory() as folder:
            rows.append(_over(_filled(Path(folder), length)))
    longest, middling = warm[LENGTHS[-1]].cpu_ms, warm[LENGTHS[-2]].cpu_ms
    figures = f"{longest:.2f} ms; {middling:.2f} ms at {LENGTHS[-2]:,}"
    name = f"warm next call at {LENGTHS[-1]:,} messages, CPU"
    targets = (
        Target(name, f"under {MOST_CPU_MS} ms", figures, longest < MOST_CPU_MS),
        Target(
            "warm next call does not grow with the session", "at most 1.5 times for ten times the messages", figures,
            longest < 1.5 * middling,
        ),
    )
    columns = ("messages", "what", "CPU ms", "wall ms", "in view", "rounds")
    data = f"synthetic: turns of text, call, result of {RESULT_CHARS:,} characters, text; the layered profile"
    return Outcome((Table("The next call's context", COMMAND, data, columns, tuple(rows), _NOTES),), targets)


_NOTES = (
    "CPU and wall are medians. All of Nexus ends with the body of ctx.to_anthropic(); the ledger is a file.",
    "warm: before each call another connection appends a turn. over: the turn exceeds the budget, and a cut is made.",
    "cold engine: opening the ledger included. cold process: a whole python process, imports included.",
    "trim_messages has its documented settings (start_on human, end_on human or tool, system kept), the same budget and",
    "  messages; with the counts of all messages known beforehand, or counting approximately as its documentation advises.",
    f"The budget is {BUDGET_TOKENS:,} tokens, smaller for `over` where the session is shorter.",
)


def _session(folder: Path, length: int) -> Place:
    """A session of `length` messages; where it exceeds the budget, its cut has been made and recorded."""
    place = _empty(folder)
    other = SqliteLedger(str(place.ledger))
    place.append(other, length // 4)
    _settle(place)
    other.close()
    return place


def _filled(folder: Path, length: int) -> Place:
    """A session of about `length` messages whose view fills the budget nearly to its end."""
    place = _empty(folder)
    other = SqliteLedger(str(place.ledger))
    place.append(other, length // 4)
    if place.talk.tokens() < BUDGET_TOKENS:
        with place.engine() as nx:
            place.budget = nx.assemble(QUESTION, budget=BUDGET_TOKENS).token_budget.used.total
        other.close()
        return place
    _settle(place)
    with place.engine() as nx:
        left = nx.assemble(QUESTION, budget=place.budget).token_budget.remaining
    before = len(place.talk.messages)
    while place.talk.tokens(before) * nx.resolve(nx.model).token_factor < left - 1_000:
        place.append(other)
    other.close()
    return place


def _empty(folder: Path) -> Place:
    (folder / "workspace").mkdir()
    return Place(write_workspace(folder / "workspace"), folder / "ledger.db", Talk(Remembered()))


def _settle(place: Place) -> None:
    """One recorded call, so that a cut that is due has been made."""
    with place.engine() as nx:
        nx.record(nx.assemble(QUESTION, budget=place.budget), nexus.AgentResult((assistant("Nothing."),)))
    place.talk.messages.extend((user(QUESTION), assistant("Nothing.")))


def _body(nx: nexus.Engine, place: Place) -> tuple[nexus.AssembledContext, dict[str, Any]]:
    ctx = nx.assemble(QUESTION, budget=place.budget)
    return ctx, ctx.to_anthropic()


def _warm(place: Place) -> tuple[Spent, tuple[Cell, ...]]:
    with place.engine() as nx:
        runs, in_view, cuts = _rounds(nx, place)
    if cuts or in_view < min(LEAST_IN_VIEW, len(place.talk.messages) - 4 * ROUNDS):
        raise AssertionError(f"a warm call shows {in_view} messages and made {cuts} cuts: it is not what is measured")
    found = middle(runs)
    return found, _row(place, "Nexus, warm", found, in_view, ROUNDS)


def _over(place: Place) -> tuple[Cell, ...]:
    with place.engine() as nx:
        _body(nx, place)
        runs, in_view, cuts = _rounds(nx, place, turns_first=4)
    if cuts != ROUNDS:
        raise AssertionError(f"{cuts} of {ROUNDS} calls over the budget made a cut")
    return _row(place, "Nexus, first over budget", middle(runs), in_view, ROUNDS)


def _rounds(nx: nexus.Engine, place: Place, turns_first: int = 1) -> tuple[list[Spent], int, int]:
    """The timed rounds, the fewest messages shown in one, and how many made a cut."""
    other = SqliteLedger(str(place.ledger))
    _body(nx, place)
    runs: list[Spent] = []
    in_view, cuts = 1 << 31, 0
    for number in range(ROUNDS):
        place.append(other, turns_first if number == 0 else 1)
        (ctx, body), spent = timed(lambda: _body(nx, place))
        runs.append(spent)
        in_view = min(in_view, len(ctx.history))
        cuts += ctx.cut is not None
        if number % CHECK_EVERY == 0:
            _check(place, body)
    other.close()
    return runs, in_view, cuts


def _check(place: Place, body: dict[str, Any]) -> None:
    with place.engine() as cold:
        again = _body(cold, place)[1]
    if json.dumps(body) != json.dumps(again):
        raise AssertionError("a warm engine's body differs from a new engine's")


def _cold(place: Place) -> Iterator[tuple[Cell, ...]]:
    def whole() -> int:
        with place.engine() as nx:
            return len(_body(nx, place)[0].history)

    whole()
    made = [timed(whole) for _ in range(COLD_ROUNDS)]
    yield _row(place, "Nexus, cold engine", middle([spent for _, spent in made]), made[0][0], COLD_ROUNDS)
    code = (
        f"import nexus; nx = nexus.open({str(place.workspace)!r}, ledger={str(place.ledger)!r}); "
        f"nx.assemble({QUESTION!r}, budget={place.budget}).to_anthropic()"
    )
    runs = [process(["-c", code]) for _ in range(COLD_ROUNDS)]
    yield _row(place, "Nexus, cold process", middle(runs), made[0][0], COLD_ROUNDS)


def _langchain(place: Place) -> Iterator[tuple[Cell, ...]]:
    """The same talk as LangChain messages, with the same counts; each round one turn longer."""
    known: list[BaseMessage] = []
    counts: dict[str, int] = {}

    def take(messages: Sequence[Message]) -> None:
        for message in messages:
            for item in openai.fragment(message):
                known.append(as_langchain(item, len(known)))
                counts[str(known[-1].id)] = message_tokens(message, place.talk.counter).tokens

    def exact(some: list[BaseMessage]) -> int:
        return sum(counts[str(message.id)] for message in some)

    take([Message("system", user("You are brief.").parts)])
    take(place.talk.messages)
    for name, count, rounds in (("counts known", exact, ROUNDS), ("approximate", count_tokens_approximately, 5)):
        trims: list[Spent] = []
        wholes: list[Spent] = []
        in_view = 0
        for _ in range(rounds):
            place.talk.turn()
            take(place.talk.messages[-4:])
            asked = HumanMessage(QUESTION, id="q")
            counts["q"] = 20
            call = [*known, asked]
            kept, trim = timed(
                lambda call=call, count=count: trim_messages(
                    call, max_tokens=place.budget, token_counter=count, strategy="last", include_system=True, **DOCUMENTED
                )
            )
            _, convert = timed(lambda kept=kept: convert_to_openai_messages(kept))
            trims.append(trim)
            wholes.append(Spent(trim.cpu_ms + convert.cpu_ms, trim.wall_ms + convert.wall_ms))
            in_view = len(kept)
        yield _row(place, f"trim_messages, {name}", middle(trims), in_view, rounds)
        yield _row(place, f"trim_messages, {name}, + to OpenAI dicts", middle(wholes), in_view, rounds)


def _row(place: Place, what: str, spent: Spent, in_view: int, rounds: int) -> tuple[Cell, ...]:
    return len(place.talk.messages), what, spent.cpu_ms, spent.wall_ms, in_view, rounds
