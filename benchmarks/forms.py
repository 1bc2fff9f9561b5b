"""Cost of each context format, by the simulated caches of two providers and by a real server's reports.

Real sessions are played in each format. One whole conversation is also sent to llama.cpp's server on loopback, which
reports with each answer the tokens it had in its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

import nexus
from benchmarks.bodies import Remembered
from benchmarks.forms_played import AFTER_ANSWER_MS, AFTER_CALL_MS, FORMS, NOTE_EVERY, TIMEZONE, Form, Sent, play
from benchmarks.forms_served import NAME, RULE, WINDOW, Served, serve
from benchmarks.planting import JOINED, claude_sessions, tau_sessions
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.sessions import Session
from nexus.engine.simulation.cache import Segmenter
from nexus.providers.prompt_cache import CacheRule, CacheTotals, cache_rule, simulate, sum_outcomes
from nexus.tokens.model import Model

COMMAND = "python -m benchmarks forms"
MODELS = {"Anthropic": "claude-sonnet-4-5", "OpenAI": "gpt-5.5"}
BESIDE = "layered"
"""The form that the others are compared with."""

DIALOGUES = 6
SERVED_CONVERSATION = 13
SERVED_MODEL = "gpt-4o"
"""The model whose form the server speaks. It counts about a tenth less than the server's own tokenizer."""

SERVED_BUDGET = WINDOW * 3 // 4
SIDE_BY_SIDE = 2
MOST_APART = 0.03


class Cost(Struct, frozen=True):
    """One form over several sessions: prompt tokens, those read from the cache, US cents; all of an average session."""

    prompt: int
    share: float
    cents: float


def run() -> Outcome:
    """Both kinds of sessions through the simulator, and the conversation on the server."""
    counter = Remembered()
    agents, dialogues = claude_sessions(), tau_sessions(DIALOGUES)
    conversation = tau_sessions(SERVED_CONVERSATION, joined=1)[-1]
    tables = [
        _table("agent sessions", f"Claude Code, {len(agents)} sessions, {_size(agents)}", agents, counter),
        _table(
            "dialogues", f"tau, {DIALOGUES} sessions of {JOINED} conversations, {_size(dialogues)}", dialogues, counter
        ),
    ]
    rows = _served(conversation, counter)
    apart = max(abs(one.share - simulated.share) for _, one, simulated in rows)
    measured = f"at most {100 * apart:.1f} points"
    target = Target("cached share, simulator and server", "within 3 points", measured, apart <= MOST_APART)
    return Outcome((*tables, _served_table(conversation, rows)), (target,))


def simulated(sent: Sequence[Sent], model: Model, rule: CacheRule, counter: Remembered) -> CacheTotals:
    """The sums over a session's calls, with a cache that is empty at first; answers are left out."""
    segmenter = Segmenter(model, counter)
    return sum_outcomes(simulate((segmenter.call(one.body, one.at_ms, 0) for one in sent), rule))


def cost_of(sessions: Sequence[Session], form: Form, model: Model, counter: Remembered) -> Cost:
    """What an average one of the sessions costs in a form, at the model's provider."""
    rule = cache_rule(model)
    sums = [simulated(play(session, form, model.name, counter), model, rule, counter) for session in sessions]
    prompt = sum(one.prompt for one in sums)
    dollars = float(sum(one.input_dollars for one in sums))
    share = sum(one.read for one in sums) / prompt
    return Cost(prompt // len(sessions), share, 100 * dollars / len(sessions))


def _table(kind: str, data: str, sessions: Sequence[Session], counter: Remembered) -> Table:
    with nexus.open(None, ledger=":memory:") as nx:
        models = {maker: nx.resolve(name) for maker, name in MODELS.items()}
    found = {
        form.name: {maker: cost_of(sessions, form, model, counter) for maker, model in models.items()} for form in FORMS
    }
    columns = ["format", "prompt tokens"]
    for maker in MODELS:
        columns += [f"{maker} cached %", f"{maker} cents", f"{maker} / {BESIDE}"]
    rows: list[tuple[Cell, ...]] = []
    for name, costs in found.items():
        first = next(iter(costs.values()))
        row: list[Cell] = [name, first.prompt]
        for maker, cost in costs.items():
            row += [100 * cost.share, cost.cents, cost.cents / found[BESIDE][maker].cents]
        rows.append(tuple(row))
    return Table(f"Cost by context format: {kind}", COMMAND, data, tuple(columns), tuple(rows), _NOTES)


def _served(conversation: Session, counter: Remembered) -> list[tuple[str, Served, CacheTotals]]:
    """Each form's name, what the server reported, and what the simulator says of the same bodies."""
    forms = [form for form in FORMS if form.on_server]
    with nexus.open(None, ledger=":memory:") as nx:
        model = nx.resolve(SERVED_MODEL)
    sent = [play(conversation, form, SERVED_MODEL, counter, budget=SERVED_BUDGET) for form in forms]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        served = [*pool.map(serve, ([one.body for one in calls] for calls in sent))]
    expected = [simulated(calls, model, RULE, counter) for calls in sent]
    return [(form.name, *both) for form, both in zip(forms, zip(served, expected, strict=True), strict=True)]


def _served_table(conversation: Session, rows: Sequence[tuple[str, Served, CacheTotals]]) -> Table:
    columns = ("format", "prompt tokens", "cached tokens", "cached %", "simulated %")
    cells = tuple((name, one.prompt, one.cached, 100 * one.share, 100 * expected.share) for name, one, expected in rows)
    data = f"one tau conversation, {_size([conversation])}, context window of {WINDOW:,} tokens"
    return Table("Cost by context format: local server", COMMAND, data, columns, cells, _SERVED_NOTES)


def _size(sessions: Sequence[Session]) -> str:
    calls = [call for session in sessions for call in session.calls]
    return f"{len(calls):,} calls in {sum(not call.event.results for call in calls):,} turns"


_NOTES = (
    f"Averages per session, in US cents for prompts only. Models: {', '.join(MODELS.values())}. Cache rules and prices are",
    "  those of nexus cache simulate, with five idle minutes. Nothing is cut.",
    "prompt tokens: all tokens sent, in Claude's tokens. / layered: ratio of cents.",
    "tagged and tagged_stable are shorter because they show at most 20 truncated entries of earlier turns.",
    f"Workspace: examples/agent with examples/tools.json, zone {TIMEZONE}. Its memory file grows by one line every",
    f"  {NOTE_EVERY} calls. Missing times: {AFTER_ANSWER_MS // 1000} s per user, {AFTER_CALL_MS // 1000} s per tool. The clock shows minutes.",
)
_SERVED_NOTES = (
    f"llama.cpp's server (xllamacpp) with {NAME} on loopback, a new one per format. cached tokens: reported by the server.",
    "  Answers are one token long.",
    "simulated: for the same bodies, in o200k tokens of JSON instead of the server's chat template.",
)
