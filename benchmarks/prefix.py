"""Share of each prompt that the provider's cache can reuse when real sessions are replayed under a small budget.

Every row sees the same messages: the bodies that Nexus makes under a budget that nothing exceeds, with results of tools
over 2,000 tokens shortened to that (the ledger has the whole). Each policy picks from them what it sends under the real one; Nexus itself runs as in a program: assemble, answer, record. A call for
which a policy sends no whole current event, or more than the budget, is counted and left out of all averages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

import nexus
from benchmarks.bodies import Body, Pieces, Remembered, extends, leading_run, pieces_of, serialised, tokens_of
from benchmarks.hindsight import course_of, most_prompt
from benchmarks.policies import OTHERS, Policy
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.sessions import Call, Session, sessions
from benchmarks.workspace import write_workspace
from nexus.assembly.record import with_sizes
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.settings import Strategy

COMMAND = "python -m benchmarks prefix"
BUDGETS = (16_000, 32_000)
MODEL = "gpt-4o"
NEXUS: dict[str, Strategy] = {
    "Nexus": "keep_user_turns",
    "Nexus, oldest_first": "oldest_first",
    "Nexus, middle_out": "middle_out",
}
LARGEST_RESULT = 2_000
NO_LIMIT = 100_000_000
MOST_RATIO, LEAST_PROMPT = 1.2, 0.65

Sent: TypeAlias = Body | None
"""A body, or None for a call that was refused."""


class Sums(Struct, frozen=True):
    """What is added up over calls.

    In tokens: `prompt` all that was sent, `cached` of it the leading runs that repeat the body sent before, `new` what
    a never-cut history gained at the calls that were sent. `full` counts the calls at which a never-cut history would
    exceed the budget, `full_prompt` what was sent at those.
    """

    calls: int = 0
    failed: int = 0
    broken_pairs: int = 0
    moves: int = 0
    prompt: int = 0
    cached: int = 0
    new: int = 0
    full: int = 0
    full_prompt: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def ratio(self) -> float:
        """Tokens processed (sent and not cached) over tokens that are new."""
        return (self.prompt - self.cached) / self.new if self.new else 0.0

    @property
    def share(self) -> float:
        """The cached share of all that was sent."""
        return self.cached / self.prompt if self.prompt else 0.0

    def mean_prompt(self, budget: int) -> float:
        """The mean prompt as a share of the budget."""
        return self.prompt / self.calls / budget if self.calls else 0.0

    def mean_full_prompt(self, budget: int) -> float | None:
        """The same over the calls at which a never-cut history would exceed the budget."""
        return self.full_prompt / self.full / budget if self.full else None


def run() -> Outcome:
    """All policies over all long sessions, for both budgets."""
    counter = Remembered()
    tables: list[Table] = []
    targets: list[Target] = []
    whole = [(session, replay(session.calls, NO_LIMIT, counter)) for session in sessions()]
    for budget in BUDGETS:
        found = [(s, bodies) for s, bodies in whole if tokens_of(pieces_of(_last(bodies)), counter) > 2 * budget]
        results = {session.name: _compare(session, bodies, budget, counter) for session, bodies in found}
        data = f"Claude Code, {', '.join(results)} (whole body over {2 * budget:,} tokens)"
        together = {name: sum((rows[name] for rows in results.values()), Sums()) for name in _names()}
        courses = [course_of([body for body in bodies if body], counter) for _, bodies in found]
        bound = most_prompt(courses, budget, MOST_RATIO)
        note = (
            f"Upper bound: at {MOST_RATIO} tokens processed per new token, dropping whole groups oldest first allows a "
            f"mean prompt of {bound:.1%}, even with knowledge of the future."
        )
        title = f"Budget of {budget:,} tokens"
        tables.append(_table(title, data, budget, together.items(), (*_NOTES, note)))
        rows = [(f"{session}: {name}", sums) for session, named in results.items() for name, sums in named.items()]
        tables.append(replace(_table(f"{title}, by session", data, budget, rows), detail=True))
        targets.extend(_target(name, together[name], budget, bound) for name in NEXUS)
    return Outcome(tuple(tables), tuple(targets))


def replay(
    calls: Iterable[Call], budget: int, counter: Remembered, strategy: Strategy = "keep_user_turns"
) -> list[Sent]:
    """The OpenAI bodies that Nexus sends for these calls; None where it refuses, which does not end the session."""
    with TemporaryDirectory() as folder:
        root = write_workspace(Path(folder))
        with nexus.open(
            root,
            ledger=":memory:",
            model=MODEL,
            clock_ms=lambda: 1,
            counter=counter,
            max_tool_result_tokens=LARGEST_RESULT,
            strategy=strategy,
        ) as nx:
            return [_send(nx, call, budget) for call in calls]


def _send(nx: nexus.Engine, call: Call, budget: int) -> Sent:
    try:
        ctx = nx.assemble(call.event, budget=budget)
    except nexus.BudgetTooSmall:
        said = call.event.results or (nexus.Message("user", call.event.content, at_ms=call.event.at_ms),)
        messages = with_sizes((*said, *call.reply), nx.counter)
        nx.ledger.store.commit("main", Commit((NewEntry(messages=messages, starts_turn=not call.event.results),)))
        return None
    body = ctx.to_openai()
    nx.record(ctx, nexus.AgentResult(call.reply))
    return body


def _compare(session: Session, whole: Sequence[Sent], budget: int, counter: Remembered) -> dict[str, Sums]:
    bodies = [body for body in whole if body is not None]
    sent: dict[str, list[Sent]] = {
        name: replay(session.calls, budget, counter, strategy) for name, strategy in NEXUS.items()
    }
    for name, make in OTHERS:
        sent[name] = _chosen(bodies, make(), budget, counter)
    return {name: measure(bodies, made, budget, counter) for name, made in sent.items()}


def _chosen(whole: Sequence[Body], policy: Policy, budget: int, counter: Remembered) -> list[Sent]:
    out: list[Sent] = []
    for body in whole:
        messages: list[dict[str, Any]] = body["messages"]
        head, *pieces = pieces_of(body)
        room = budget - counter.count(head)
        kept = policy.choose(messages, [counter.count(piece) for piece in pieces], room)
        out.append({**body, "messages": [messages[index] for index in kept]})
    return out


def measure(whole: Sequence[Body], sent: Sequence[Sent], budget: int, counter: Remembered) -> Sums:
    """The sums over one session: `whole` are the bodies of the never-cut history, `sent` those of a policy."""
    sums = Sums()
    before: Pieces = ()
    whole_before = 0
    for never_cut, body in zip(whole, sent, strict=True):
        whole_now = tokens_of(pieces_of(never_cut), counter)
        new, whole_before = whole_now - whole_before, whole_now
        pieces = pieces_of(body) if body else ()
        prompt = tokens_of(pieces, counter)
        if not body or prompt > budget or not _shows_event(never_cut, body):
            sums += Sums(failed=1)
            continue
        moved = bool(before) and not extends(before, pieces)
        cached = leading_run(before, pieces, counter)
        full_prompt = prompt if whole_now > budget else 0
        sums += Sums(
            1, 0, int(_has_broken_pairs(body)), int(moved), prompt, cached, new, int(full_prompt > 0), full_prompt
        )
        before = pieces
    return sums


def _shows_event(full: Body, body: Body) -> bool:
    """Whether the body ends with the whole event: all that came after the last answer."""
    messages: list[dict[str, Any]] = full["messages"]
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    event = messages[(answers[-1] if answers else 0) + 1 :]
    return [serialised(message) for message in body["messages"][-len(event) :]] == [serialised(m) for m in event]


def _has_broken_pairs(body: Body) -> bool:
    """Whether some result has no call before it, or some call no result: OpenAI refuses such a body."""
    called: list[str] = []
    answered: list[str] = []
    for message in body["messages"]:
        called.extend(call["id"] for call in message.get("tool_calls") or ())
        answered.extend([message["tool_call_id"]] if message["role"] == "tool" else [])
    return sorted(called) != sorted(answered)


def _table(title: str, data: str, budget: int, rows: Iterable[tuple[str, Sums]], notes: tuple[str, ...] = ()) -> Table:
    shown = ("cached %", "mean prompt %", "once full %", "per new token", "breaks", "calls", "failed", "broken pairs")
    cells: list[tuple[Cell, ...]] = []
    for name, sums in rows:
        full = sums.mean_full_prompt(budget)
        shares = (100 * sums.share, 100 * sums.mean_prompt(budget), None if full is None else 100 * full)
        cells.append((name, *shares, sums.ratio, sums.moves, sums.calls, sums.failed, sums.broken_pairs))
    return Table(title, COMMAND, data, ("policy", *shown), tuple(cells), notes)


_NOTES = (
    "One call per answer in the file. Bodies in OpenAI's format, compact JSON, o200k tokens.",
    "cached: common prefix of consecutive bodies, as a share of all tokens sent. breaks: calls whose body does not start",
    "  with the whole previous body.",
    "mean prompt: % of the budget. once full: the same over calls whose full history exceeds the budget.",
    "per new token: tokens sent and not cached, per token added to the full history. 1.0 is the minimum; below it, new",
    "  messages were never sent.",
    "failed: the whole current event did not fit. broken pairs: a call without its result or the reverse, which the",
    "  provider rejects.",
)


def _target(name: str, sums: Sums, budget: int, bound: float) -> Target:
    return Target(
        f"{name}, {budget:,}: tokens processed per new token",
        f"at most {MOST_RATIO}, mean prompt at least {LEAST_PROMPT:.0%}",
        f"{sums.ratio:.2f}, {sums.mean_prompt(budget):.1%} (bound: {MOST_RATIO}, {bound:.1%})",
        sums.ratio <= MOST_RATIO and sums.mean_prompt(budget) >= LEAST_PROMPT,
    )


def _names() -> list[str]:
    return [*NEXUS, *(name for name, _ in OTHERS)]


def _last(bodies: Sequence[Sent]) -> Body:
    return next(body for body in reversed(bodies) if body)
