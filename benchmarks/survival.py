"""Sentences stated once in real sessions that are still in the body of the last call, under small budgets.

Each session is replayed call by call, with one sentence planted at each place. Nexus runs with its defaults and either
only cuts or compacts with the extractive summary when a context reports that it is due (`nexus.call`). The others choose
from the full messages of the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import astuple, replace

import nexus
from benchmarks.bodies import Body, Remembered, pieces_of, tokens_of
from benchmarks.peers.judging import anthropic_body, anthropic_takes, check_anthropic, check_openai, openai_takes
from benchmarks.peers.side import text_of
from benchmarks.planting import FIRST, RESULT, TURN_5, TURN_20, Planted, claude_sessions, planted, tau_sessions
from benchmarks.policies import DOCUMENTED, HalfWindow, HeadAndTail, Policy, TrimMessages
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.sessions import Call, Session
from benchmarks.workspace import write_workspace
from nexus.assembly.record import with_sizes
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.settings import Strategy

COMMAND = "python -m benchmarks survival"
MODEL = "gpt-4o"
SHARES = (0.10, 0.25, 0.50)
LATER = (TURN_5, TURN_20, RESULT)
NO_LIMIT = 100_000_000
CLAUDE_ROUNDS, TAU_SESSIONS, TAU_ROUNDS = 4, 20, 2
PUBLISHED = 24.0
"""Per cent of sentences in a middle turn that the best of the usual policies keeps at 25 % of a session's tokens.

Newest-that-fit, `trim_messages` and the last 20 messages, over 181 transcripts; 5 to 24 at 10 and 25 %.
"""
LEAST_TOKENS = 2_000
"""Of a conversation of fewer tokens, a tenth does not hold the six sentences themselves: it has a table of its own."""
CLAUDE, TAU, SMALL = "Claude Code", "tau airline", "Claude Code, under 2,000 tokens"

Mode: TypeAlias = tuple[Strategy, bool]
"""How a cut chooses, and whether the session is compacted."""
MIDDLE_OUT = ", middle_out"
NEXUS: Mapping[str, Mode] = {
    "Nexus, cuts": ("keep_user_turns", False),
    "Nexus, cuts, oldest_first": ("oldest_first", False),
    "Nexus, cuts, middle_out": ("middle_out", False),
    "Nexus, compaction": ("keep_user_turns", True),
}


class Sent(Struct, frozen=True):
    """What one session came to: the texts of the last body (None: nothing was sent), and sums over all calls.

    `share` is what each prompt took of the budget, added up; `refused` counts BudgetTooSmall, `over` bodies of more
    tokens than the budget, `invalid` bodies that OpenAI or Anthropic would not take.
    """

    last: str | None = None
    calls: int = 0
    share: float = 0.0
    refused: int = 0
    over: int = 0
    invalid: int = 0

    def refusing(self) -> Sent:
        """These with one more call that was refused."""
        return replace(self, last=None, refused=self.refused + 1)

    def sending(self, body: Body, budget: int, counter: Remembered, *, is_valid: bool) -> Sent:
        """These with one more body."""
        prompt = tokens_of(pieces_of(body), counter)
        last = "\n".join(text_of(message.get("content")) for message in body["messages"])
        invalid, over = self.invalid + (not is_valid), self.over + (prompt > budget)
        return Sent(last, self.calls + 1, self.share + prompt / budget, self.refused, over, invalid)


class Sums(Struct, frozen=True):
    """Over sessions: how many sentences were looked for at each place and found, and the sums of `Sent`."""

    found: dict[str, int] = field(default_factory=dict[str, int])
    looked_for: dict[str, int] = field(default_factory=dict[str, int])
    unsent: int = 0
    sent: Sent = Sent()

    def plus(self, session: Planted, sent: Sent) -> Sums:
        """These with one session more. Sentences of a session whose last call was refused are looked for nowhere."""
        totals = Sent("", *(one + two for one, two in zip(astuple(self.sent)[1:], astuple(sent)[1:], strict=True)))
        if sent.last is None:
            return Sums(self.found, self.looked_for, self.unsent + 1, totals)
        found, looked_for = dict(self.found), dict(self.looked_for)
        for place, plant in session.plants.items():
            looked_for[place] = looked_for.get(place, 0) + 1
            found[place] = found.get(place, 0) + (plant.key in sent.last)
        return Sums(found, looked_for, self.unsent, totals)

    def percent(self, *places: str) -> float | None:
        """The share of the sentences at these places that were found, in per cent."""
        looked_for = sum(self.looked_for.get(place, 0) for place in places)
        return 100 * sum(self.found.get(place, 0) for place in places) / looked_for if looked_for else None


Found: TypeAlias = dict[tuple[float, str], Sums]
"""Sums by share and policy."""


def run() -> Outcome:
    """Both sets of sessions, under each budget; sessions that are too small for that by themselves."""
    counter = Remembered()
    every = claude_sessions()
    large = [session for session in every if _conversation_tokens(session, counter) >= LEAST_TOKENS]
    small = [session for session in every if session not in large]
    found = {
        CLAUDE: (large, CLAUDE_ROUNDS, survey(_planted(large, CLAUDE_ROUNDS), counter)),
        TAU: (taus := tau_sessions(TAU_SESSIONS), TAU_ROUNDS, survey(_planted(taus, TAU_ROUNDS), counter)),
        SMALL: (small, CLAUDE_ROUNDS, survey(_planted(small, CLAUDE_ROUNDS), counter)),
    }
    tables = tuple(
        replace(table(f"Sentences found: {name}", data_of(name, len(some), rounds, sums), sums), detail=name == SMALL)
        for name, (some, rounds, sums) in found.items()
    )
    tables = (*tables[:-2], replace(tables[-2], notes=(*tables[-2].notes, note_on_small(found[SMALL][2]))), tables[-1])
    judged = [target for name in (CLAUDE, TAU) for target in _targets(name, found[name][2])]
    return Outcome(tables, tuple(judged))


def data_of(name: str, sessions: int, rounds: int, found: Found) -> str:
    """Return the description of a set of sessions, with the number of calls that each policy gets."""
    sent = next(iter(found.values())).sent
    joined = ", five conversations each" if name == TAU else ""
    calls = sent.calls + sent.refused
    return f"{name}, {sessions} sessions{joined}, each replayed {rounds} times with other sentences: {calls:,} calls"


def note_on_small(found: Found) -> str:
    """Return a note on the sessions that are too small for the page's tables, and the calls that Nexus refuses in them."""
    refused = {
        share: max(found[share, mode].sent.refused for mode in NEXUS) for share in sorted({share for share, _ in found})
    }
    sent = next(iter(found.values())).sent
    figures = ", ".join(f"{count} at {share:.0%}" for share, count in refused.items())
    return (
        f"Sessions under {LEAST_TOKENS:,} tokens are not in these tables: Nexus refuses some of their "
        f"{sent.calls + sent.refused} calls with BudgetTooSmall ({figures})."
    )


def _conversation_tokens(session: Session, counter: Remembered) -> int:
    """The tokens of everything but the system message, at the last call."""
    return sum(counter.count(piece) for piece in pieces_of(never_cut(session.calls, counter)[-1])[2:])


def _planted(some: Sequence[Session], rounds: int) -> list[Planted]:
    """Each session so many times, each time with the next sentences of the list."""
    return [planted(one, number) for number, one in enumerate(one for one in some for _ in range(rounds))]


def survey(some: Iterable[Planted], counter: Remembered, shares: Sequence[float] = SHARES) -> Found:
    """All policies over sessions with sentences in them, at budgets that are shares of what each session takes."""
    found: Found = {(share, name): Sums() for share in shares for name in (*NEXUS, *OTHERS)}
    for session in some:
        whole = never_cut(session.calls, counter)
        tokens = [counter.count(piece) for piece in pieces_of(whole[-1])]
        for share in shares:
            budget = tokens[0] + tokens[1] + int(share * sum(tokens[2:]))
            sent = {name: replay(session.calls, budget, counter, mode) for name, mode in NEXUS.items()}
            sent |= {name: chosen(whole, tokens, make(), budget, counter) for name, make in OTHERS.items()}
            for name, one in sent.items():
                found[share, name] = found[share, name].plus(session, one)
    return found


def never_cut(calls: Iterable[Call], counter: Remembered) -> list[Body]:
    """The bodies of all calls, with everything in them."""
    bodies: list[Body] = []
    with TemporaryDirectory() as folder, _engine(Path(folder), counter) as nx:
        for call in calls:
            ctx = nx.assemble(call.event, budget=NO_LIMIT)
            bodies.append(ctx.to_openai())
            nx.record(ctx, nexus.AgentResult(call.reply))
    return bodies


def replay(calls: Iterable[Call], budget: int, counter: Remembered, mode: Mode) -> Sent:
    """What Nexus sends for these calls. A refused call is counted; what was said is recorded all the same."""
    total = Sent()
    strategy, compact = mode
    with TemporaryDirectory() as folder, _engine(Path(folder), counter, strategy) as nx:
        for call in calls:
            answer = nexus.AgentResult(call.reply)
            try:
                ctx = nexus.call(nx, call.event, lambda _, said=answer: said, compact=compact, budget=budget).ctx
            except nexus.BudgetTooSmall:
                _keep(nx, call)
                total = total.refusing()
                continue
            body = ctx.to_openai()
            is_valid = not check_openai(body) and not check_anthropic(ctx.to_anthropic())
            total = total.sending(body, budget, counter, is_valid=is_valid)
    return total


def chosen(whole: Sequence[Body], tokens: Sequence[int], policy: Policy, budget: int, counter: Remembered) -> Sent:
    """What a policy sends of the never-cut messages of each call; `tokens` are those of the pieces of the last body."""
    total = Sent()
    for body in whole:
        messages: list[dict[str, Any]] = body["messages"]
        kept = policy.choose(messages, tokens[1 : len(messages) + 1], budget - tokens[0])
        made = {**body, "messages": [messages[index] for index in kept]}
        is_valid = openai_takes(made) and anthropic_takes(anthropic_body(made))
        total = total.sending(made, budget, counter, is_valid=is_valid)
    return total


def _engine(folder: Path, counter: Remembered, strategy: Strategy = "keep_user_turns") -> nexus.Engine:
    root = write_workspace(folder)
    return nexus.open(
        root, ledger=":memory:", model=MODEL, clock_ms=lambda: 1, counter=counter, strategy=strategy, calibrate=False
    )


def _keep(nx: nexus.Engine, call: Call) -> None:
    """Writes what was said to the ledger, though nothing could be sent."""
    said = call.event.results or (nexus.Message("user", call.event.content, at_ms=call.event.at_ms),)
    messages = with_sizes((*said, *call.reply), nx.counter)
    nx.ledger.store.commit("main", Commit((NewEntry(messages=messages, starts_turn=not call.event.results),)))


OTHERS: Mapping[str, Callable[[], Policy]] = {
    "LangChain trim_messages, documented": lambda: TrimMessages(DOCUMENTED),
    "LangChain trim_messages, defaults": lambda: TrimMessages({}),
    "evict oldest groups to 50 %": HalfWindow,
    "first message, newest groups": HeadAndTail,
}


def table(title: str, data: str, found: Found) -> Table:
    """Return one row for each budget and policy, without `middle_out` rows that equal the row above."""
    columns = ("budget", "policy", "first turn %", *(f"{place} %" for place in LATER), "mean prompt %", "refused", "over",
        "invalid")  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for (share, name), sums in found.items():
        sent = sums.sent
        mean = 100 * sent.share / sent.calls if sent.calls else None
        percents = (sums.percent(*FIRST), *(sums.percent(place) for place in LATER))
        cells = (*percents, mean, sent.refused, sent.over, sent.invalid)
        if not (name.endswith(MIDDLE_OUT) and rows and rows[-1][2:] == cells):
            rows.append((f"{share:.0%}", name, *cells))
    return Table(title, COMMAND, data, columns, tuple(rows), _NOTES)


_NOTES = (
    "budget: the system message plus this share of the conversation's o200k tokens. mean prompt: % of the budget.",
    "Forty sentences (rules, preferences, dates, names, ports, paths in five languages) each have a key, such as a number",
    "  or path. %: keys found word for word in the last body. The sentences were written first; the summarizer's rules for",
    "  sentences without a cue were made with these losses in view.",
    "first turn: at its start, middle and end. turn 5, turn 20: these user messages; in shorter sessions, at a quarter and",
    "  three quarters of the calls. tool result: inside a result in the middle of the session.",
    "cuts: Nexus's default, without compaction. compaction: nexus.call with the extractive summary when full.",
    "  middle_out: only where it differs from the row above.",
    "refused: calls with BudgetTooSmall. over: bodies over the budget. invalid: bodies that OpenAI or Anthropic reject.",
)


def _targets(name: str, found: Found) -> list[Target]:
    """The first turn in all modes, the others where a summary is made, and nothing invalid or over the budget."""
    targets: list[Target] = []
    shares = sorted({share for share, _ in found})
    worst = {share: min(found[share, mode].percent(*FIRST) or 0.0 for mode in NEXUS) for share in shares}
    told = ", ".join(f"{percent:.1f} % at {share:.0%}" for share, percent in worst.items())
    targets.append(Target(f"{name}: first turn, every mode", "100 %", told, all(one == 100 for one in worst.values())))
    for place in (TURN_5, TURN_20, RESULT):
        for share in shares[:2]:
            ours = min(found[share, mode].percent(place) or 0.0 for mode, (_, compact) in NEXUS.items() if compact)
            best = max(found[share, other].percent(place) or 0.0 for other in OTHERS)
            targets.append(
                Target(
                    f"{name}: {place} at {share:.0%}, compaction",
                    f"over {max(best, PUBLISHED):.1f} % (others: {best:.1f} %)",
                    f"{ours:.1f} %",
                    ours > max(best, PUBLISHED),
                )
            )
    bad = sum(sums.sent.invalid + sums.sent.over for (_, mode), sums in found.items() if mode in NEXUS)
    targets.append(Target(f"{name}: invalid or oversized bodies of Nexus", "none", f"{bad}", bad == 0))
    return targets
