"""Cost and survival of every policy at an equal mean prompt: each gets the budget at which its mean prompt is 8k or 16k.

A policy that sends less is cheaper and forgets more, so that figures under equal budgets do not compare. Cost counts a
cached token as 0.1 and any other as 1.25. The floor is the policy's own prompts if each piece were processed once, when it
is first sent, so that what a policy never sends makes no floor lower. Parameters of Nexus were chosen on the sessions
named "tuned"; goals are judged on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import nexus
from benchmarks.bodies import Body, Remembered, leading_run, pieces_of, tokens_of
from benchmarks.peers.judging import openai_takes
from benchmarks.peers.side import text_of
from benchmarks.planted import PLANTS
from benchmarks.planting import (
    FIRST,
    TURN_5,
    TURN_20,
    put_into_result,
    put_into_turn,
    talkative_sessions,
    turn_sites,
    whole_results,
)
from benchmarks.policies import DOCUMENTED, HalfWindow, Policy, SlidingWindow, TrimMessages
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.sessions import Call, Session, long_sessions
from benchmarks.workspace import write_workspace
from nexus.assembly.fit.excerpts import is_user_turn
from nexus.assembly.record import with_sizes
from nexus.text.message_text import is_injected
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.settings import Strategy

COMMAND = "python -m benchmarks equal_prompt"
MODEL = "gpt-4o"
MEANS = (8_000, 16_000)
CACHED, PROCESSED = 0.1, 1.25
NO_LIMIT = 100_000_000
TUNED = ", tuned"
"""Ends the names of the sessions on which parameters were chosen: every second file."""

TAU_SESSIONS, TAU_TURNS = 3, 90
PLANTED_RESULTS = 12
"""Results per session that get a sentence, evenly over its first three quarters."""

EARLY_RESULT, LATE_RESULT = "early result", "late result"
PLACES = (FIRST[1], TURN_5, TURN_20, EARLY_RESULT, LATE_RESULT)
"""Where sentences are: in three user turns, and in results of the first and the second half of the planted ones."""

KEY_CHARS = 60
"""A user turn survives if the first 60 characters of its text are in the last body.

Of several texts it is the last one that the user typed: Claude Code sends outputs of commands and summaries in front of it.
"""

Mode: TypeAlias = tuple[Strategy, bool]
NEXUS: Mapping[str, Mode] = {
    "Nexus, cuts": ("keep_user_turns", False),
    "Nexus, cuts, digest": ("digest", False),
    "Nexus, cuts, oldest_first": ("oldest_first", False),
    "Nexus, cuts, middle_out": ("middle_out", False),
    "Nexus, compaction": ("keep_user_turns", True),
    "Nexus, compaction, oldest_first": ("oldest_first", True),
}
OTHERS: Mapping[str, Callable[[], Policy]] = {
    "sliding window, whole groups": SlidingWindow,
    "evict oldest groups to 50 %": HalfWindow,
    "LangChain trim_messages, documented": lambda: TrimMessages(DOCUMENTED),
}


@dataclass(frozen=True, slots=True)
class Planted:
    """A session with sentences in it, their keys by place, the user turns to look for, and the never-cut bodies."""

    name: str
    calls: tuple[Call, ...]
    keys: dict[str, tuple[str, ...]]
    user_turns: tuple[str, ...]
    whole: tuple[Body, ...]


@dataclass(slots=True)
class Sums:
    """Sums over calls, in tokens; `shown` counts each piece that was sent once, `whole_cost` is the whole list's cost."""

    calls: int = 0
    refused: int = 0
    invalid: int = 0
    prompt: int = 0
    processed: int = 0
    shown: int = 0
    never_shown: int = 0
    said: int = 0
    whole_cost: float = 0.0
    user_turns: list[int] = field(default_factory=lambda: [0, 0])
    facts: dict[str, list[int]] = field(default_factory=lambda: {place: [0, 0] for place in PLACES})
    shortened: int = 0
    """Calls in which a result of the event is not whole."""

    @property
    def mean(self) -> float:
        """Mean tokens of a prompt."""
        return self.prompt / self.calls if self.calls else 0.0

    @property
    def cost(self) -> float:
        """Cost in token equivalents."""
        return CACHED * (self.prompt - self.processed) + PROCESSED * self.processed

    @property
    def floor(self) -> float:
        """Cost of the same prompts with each piece processed once."""
        return CACHED * (self.prompt - self.shown) + PROCESSED * self.shown

    @property
    def ratio(self) -> float:
        """Processed tokens per shown token."""
        return self.processed / self.shown if self.shown else 0.0

    def row(self) -> tuple[Cell, ...]:
        """The cells of a table."""
        share = self.cost / self.whole_cost if self.whole_cost else None
        above = self.cost / self.floor if self.floor else None
        never = 100 * self.never_shown / self.said if self.said else None
        turns = percent(self.user_turns)
        facts = (f"{there}/{of}" for there, of in self.facts.values())
        bad = (self.shortened, self.refused, self.invalid)
        return (int(self.mean), share, above, self.ratio, never, turns, *facts, *bad)


COLUMNS = ("mean prompt", "cost", "cost/floor", "processed/shown", "never shown %", "user turns %", *PLACES, "shortened",
    "refused", "invalid")  # fmt: skip


def percent(found: Sequence[int]) -> float | None:
    """Return the share of those found, from their number and the number of all."""
    return 100 * found[0] / found[1] if found[1] else None


def run() -> Outcome:
    """All policies at both sizes, over the tuned and the other sessions apart."""
    counter = Remembered()
    tables: list[Table] = []
    targets: list[Target] = []
    for name, some in data_sets(counter).items():
        for mean in MEANS:
            long = [one for one in some if tokens_of(pieces_of(one.whole[-1]), counter) > 2 * mean]
            if not long:
                continue
            rows = {policy: at_mean(policy, long, mean, counter) for policy in (*NEXUS, *OTHERS)}
            cells = tuple((policy, budget, *sums.row()) for policy, (budget, sums) in rows.items())
            calls = sum(len(one.calls) for one in long)
            turns = sum(len(one.user_turns) for one in long)
            data = f"{', '.join(one.name for one in long)}: {calls} calls, {turns} user turns before the last call"
            columns = ("policy", "budget", *COLUMNS)
            tables.append(Table(f"Mean prompt of {mean:,} tokens: {name}", COMMAND, data, columns, cells, _NOTES))
            if not name.endswith(TUNED):
                targets += _targets(name, mean, {policy: sums for policy, (_, sums) in rows.items()})
    return Outcome(tuple(tables), tuple(targets))


def data_sets(counter: Remembered) -> dict[str, list[Planted]]:
    """The sessions by the set that they belong to."""
    claude = long_sessions()
    sets = {
        "Claude Code": claude[::2],
        "tau airline": talkative_sessions(TAU_SESSIONS, TAU_TURNS),
        f"Claude Code{TUNED}": claude[1::2],
    }
    return {name: [planted(one, at, counter) for at, one in enumerate(some)] for name, some in sets.items()}


def planted(session: Session, number: int, counter: Remembered) -> Planted:
    """The session with a sentence at each place that it has, and in some of its results."""
    calls = list(session.calls)
    plants = (PLANTS[(number * PLANTED_RESULTS + place) % len(PLANTS)] for place in count())
    keys: dict[str, list[str]] = {place: [] for place in PLACES}
    for place, at in turn_sites(session.calls).items():
        plant = next(plants)
        calls[at] = put_into_turn(calls[at], plant.text)
        keys[place].append(plant.key)
    sites = [(at, result) for at, call in enumerate(calls[: len(calls) * 3 // 4]) for result in whole_results(call)]
    step = max(len(sites) // PLANTED_RESULTS, 1)
    for place, (at, call_id) in enumerate(sites[::step][:PLANTED_RESULTS]):
        plant = next(plants)
        calls[at] = put_into_result(calls[at], call_id, plant.text)
        keys[EARLY_RESULT if place < PLANTED_RESULTS // 2 else LATE_RESULT].append(plant.key)
    user_turns: list[str] = []
    for call in calls[:-1]:
        said = nexus.Message("user", call.event.content)
        if call.event.content and is_user_turn(said):
            user_turns.append(_typed_texts(said)[-1].strip()[:KEY_CHARS])
    whole = tuple(body for body in bodies(calls, NO_LIMIT, counter, ("oldest_first", False)) if body is not None)
    by_place = {place: tuple(found) for place, found in keys.items()}
    return Planted(session.name, tuple(calls), by_place, tuple(user_turns), whole)


def _typed_texts(message: nexus.Message) -> list[str]:
    texts = [part for part in message.parts if isinstance(part, nexus.Text)]
    return [part.text for part in texts if not is_injected(nexus.Message("user", (part,)))] or [message.text()]


def bodies(calls: Iterable[Call], budget: int, counter: Remembered, mode: Mode) -> list[Body | None]:
    """The bodies that Nexus sends for these calls; None where it refuses."""
    strategy, compact = mode
    sent: list[Body | None] = []
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {"strategy": strategy, "counter": counter, "model": MODEL, "calibrate": False}
        with nexus.open(write_workspace(Path(folder)), ledger=":memory:", clock_ms=lambda: 1, **options) as nx:
            for call in calls:
                answer = nexus.AgentResult(call.reply)
                try:
                    ctx = nexus.call(nx, call.event, lambda _, said=answer: said, compact=compact, budget=budget).ctx
                except nexus.BudgetTooSmall:
                    said = call.event.results or (nexus.Message("user", call.event.content, at_ms=call.event.at_ms),)
                    entry = NewEntry(
                        messages=with_sizes((*said, *call.reply), nx.counter), starts_turn=not call.event.results
                    )
                    nx.ledger.store.commit("main", Commit((entry,)))
                    sent.append(None)
                    continue
                sent.append(ctx.to_openai())
    return sent


def at_mean(policy: str, some: Sequence[Planted], mean: int, counter: Remembered) -> tuple[int, Sums]:
    """The budget at which the policy's mean prompt is `mean` tokens, within 2 %, and its sums there."""
    budget = int(mean / 0.7)
    best: tuple[int, Sums] = budget, Sums()
    for _ in range(6):
        sums = survey(policy, some, budget, counter)
        if abs(sums.mean - mean) <= abs(best[1].mean - mean):
            best = budget, sums
        if abs(sums.mean - mean) <= 0.02 * mean:
            break
        budget = int(budget * mean / max(sums.mean, 1))
    return best


def survey(policy: str, some: Iterable[Planted], budget: int, counter: Remembered) -> Sums:
    """The sums of a policy over sessions, under one budget."""
    sums = Sums()
    for session in some:
        if policy in NEXUS:
            sent = bodies(session.calls, budget, counter, NEXUS[policy])
        else:
            sent = chosen(session.whole, OTHERS[policy](), budget, counter)
        add(sums, session, sent, budget, counter)
    return sums


def chosen(whole: Iterable[Body], policy: Policy, budget: int, counter: Remembered) -> list[Body | None]:
    """What a policy sends of the never-cut bodies; None where it sends more than the budget."""
    sent: list[Body | None] = []
    for body in whole:
        head, *pieces = [counter.count(piece) for piece in pieces_of(body)]
        kept = policy.choose(body["messages"], pieces, budget - head)
        made = {**body, "messages": [body["messages"][index] for index in kept]}
        is_within = head + sum(pieces[index] for index in kept) <= budget and len(kept) > 1
        sent.append(made if is_within else None)
    return sent


def add(sums: Sums, session: Planted, sent: Sequence[Body | None], budget: int, counter: Remembered) -> None:
    """Add one session to the sums."""
    before: tuple[str, ...] = ()
    shown_pieces = set[str]()
    whole_before = 0
    for whole, body in zip(session.whole, sent, strict=True):
        whole_now = tokens_of(pieces_of(whole), counter)
        new, whole_before = whole_now - whole_before, whole_now
        sums.whole_cost += CACHED * (whole_now - new) + PROCESSED * new
        pieces = pieces_of(body) if body else ()
        if body is None:
            sums.refused += 1
            continue
        prompt = tokens_of(pieces, counter)
        sums.shown += tokens_of(tuple(piece for piece in dict.fromkeys(pieces) if piece not in shown_pieces), counter)
        shown_pieces.update(pieces)
        sums.calls += 1
        sums.prompt += prompt
        sums.processed += prompt - leading_run(before, pieces, counter)
        sums.invalid += not openai_takes(body) or prompt > budget
        results = [text_of(m.get("content")) for m in whole["messages"][_event_at(whole) :] if m["role"] == "tool"]
        there = {text_of(message.get("content")) for message in body["messages"]}
        sums.shortened += any(text not in there for text in results)
        before = pieces
    said = tuple(dict.fromkeys(pieces_of(session.whole[-1])))
    sums.said += tokens_of(said, counter)
    sums.never_shown += tokens_of(tuple(piece for piece in said if piece not in shown_pieces), counter)
    last = next((body for body in reversed(sent) if body is not None), None)
    text = "\n".join(text_of(message.get("content")) for message in last["messages"]) if last else ""
    places = ((sums.facts[place], keys) for place, keys in session.keys.items())
    for found, keys in ((sums.user_turns, session.user_turns), *places):
        found[0] += sum(key in text for key in keys)
        found[1] += len(keys)


def _event_at(body: Body) -> int:
    messages = body["messages"]
    return max((at + 1 for at, message in enumerate(messages) if message["role"] == "assistant"), default=1)


_NOTES = (
    "cost: of all prompts, cached tokens at 0.1 and others at 1.25, as a share of the cost of the whole list.",
    "cost/floor: the same over the cost of these prompts if each piece were processed once. processed/shown: tokens that were",
    "  not cached over the tokens of all pieces that were sent. never shown: the share of the whole list that no prompt had",
    "  whole.",
    "user turns: those whose beginning is in the last body. turn and result columns: planted sentences found by their key,",
    "  of all.",
    "shortened: calls in which a new result is not whole. invalid: bodies that OpenAI rejects or that exceed the budget.",
)


def _targets(name: str, mean: int, rows: Mapping[str, Sums]) -> list[Target]:
    """The goals of the default strategy."""
    targets: list[Target] = []
    for policy, most_ratio, (small, large) in (
        ("Nexus, cuts", 1.25, (92.0, 97.0)),
        ("Nexus, compaction", 1.3, (95.0, 98.0)),
    ):
        least_turns = small if mean <= MEANS[0] else large
        sums = rows[policy]
        turns, above = percent(sums.user_turns) or 0.0, sums.cost / sums.floor
        label = f"{name}, {mean:,}: {policy}"
        targets.append(Target(f"{label}: cost/floor", "at most 1.12", f"{above:.2f}", above <= 1.12))
        targets.append(
            Target(f"{label}: processed/shown", f"at most {most_ratio}", f"{sums.ratio:.2f}", sums.ratio <= most_ratio)
        )
        targets.append(
            Target(
                f"{label}: user turns",
                f"at least {least_turns:.0f} %",
                f"{turns:.1f} % of {sums.user_turns[1]}",
                turns >= least_turns,
            )
        )
    results = [rows["Nexus, compaction"].facts[place] for place in (EARLY_RESULT, LATE_RESULT)]
    found = [sum(numbers) for numbers in zip(*results, strict=True)]
    share, least = percent(found), 50.0 if mean <= MEANS[0] else 80.0
    if share is not None:
        goal = f"at least {least:.0f} %"
        name = f"{name}, {mean:,}: facts in results"
        targets.append(Target(name, goal, f"{share:.0f} % of {found[1]}", share >= least))
    return targets
