"""What is looked at after each call of `torture.overflow`: the promises of `nexus.call`, one by one."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

from nexus.context import AssembledContext
from nexus.engine import Engine, available_tokens
from nexus.engine.overflow_recovery import MOST_CALLS, SMALLER, Answer
from nexus.errors import BudgetTooSmall, ContextOverflow, LateReply
from nexus.providers.errors import classify
from nexus.providers.replies import read_reply
from nexus.summarization import CompactionOutcome
from nexus.summarization.summarizer import MOST_PARTS, TRIES
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.ledger_entries import Entry
from torture.figures import lost, require
from torture.refusals import Provider, Sent
from torture.summarizers import POISON, Playing

VALID: Any = import_module("support.validity").CHECKS

COUNTED = (
    "rounds",
    "calls",
    "sends",
    "calls that got through",
    "calls that got through after a refusal",
    "calls of one's own recovered",
    "refusals",
    "texts of refusal met",
    "silent overflows",
    "silent overflows taken after all, with the doubt told",
    "ContextOverflow",
    "BudgetTooSmall",
    "late replies",
    "other errors that came through",
    "windows changed",
    "changes by others meanwhile",
    "compactions",
    "summariser calls",
    "sessions that went on with a sane provider",
    "stuck",
)

ROUNDED: Final = 4
"""Tokens by which a total differs from the sum of its parts, each rounded up."""

WHY: Final = (
    ("SummaryTimeout", "no answer in time"),
    ("TypeError", "a wrong type"),
    ("RuntimeError", "an error of its own"),
    ("it says nothing", "empty"),
    ("to be worth it", "not smaller"),
    ("without ##", "without the task"),
    ("of the identifiers", "names lost"),
    ("it has '", "a form that no summary has"),
    ("asking for something", "a question"),
    ("are repeats", "looping"),
    ("are allowed", "too long"),
)


@dataclass
class Scene:
    """One round: who takes part, and what is expected to be in the ledger."""

    dice: random.Random
    nx: Engine
    provider: Provider
    summarizer: Playing | None
    request: dict[str, Any]
    counts: Counter[str]
    session: str
    constant: bool = False
    answers: bool = False
    disturbed: bool = False
    own: bool = False
    """The call is the program's own, so that its event is stored with the answer."""
    others: list[str] = field(default_factory=list[str])
    known: list[str] = field(default_factory=list[str])
    recorded: tuple[AssembledContext, Any] | None = None
    made: tuple[CompactionOutcome, float] | None = None

    def __post_init__(self) -> None:
        self.known = [message.text() for message in self.nx.history(self.session)]
        compact, nx = self.nx.compact, self.nx

        def watched(*arguments: Any, **named: Any) -> CompactionOutcome:
            asked = self.summarizer.asked if self.summarizer else 0
            done = compact(*arguments, **named)
            calls = (self.summarizer.asked if self.summarizer else 0) - asked
            _compacted(self, done, named.get("plan"), calls)
            return done

        nx.compact = watched

    def send(self, meanwhile: Callable[[Scene], None]) -> Callable[[AssembledContext], Any]:
        """What `nexus.call` is given: the provider, with somebody else at work at the same time."""

        def sent(ctx: AssembledContext) -> Any:
            _as_told(self, ctx)
            meanwhile(self)
            marks = _marks(self)
            try:
                return self.provider.send(ctx)
            finally:
                self.provider.seen[-1].marks = marks

        return sent

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.nx.model


@dataclass
class Before:
    """How things stood before a call."""

    head: int
    sends: int
    limit: int
    event: Any


def before(scene: Scene, event: Any) -> Before:
    """Remembers how things stand."""
    scene.answers, scene.recorded, scene.others = not isinstance(event, str), None, []
    scene.disturbed, scene.own, scene.made = False, False, None
    head = scene.nx.ledger.store.head(scene.nx.ledger.thread(scene.session))[0]
    return Before(head, len(scene.provider.seen), available_tokens(scene.nx, model=scene.model), event)


def after(scene: Scene, was: Before, done: Answer | None, error: BaseException | None) -> None:
    """Everything that is promised of one call."""
    sent = scene.provider.seen[was.sends :]
    scene.counts["calls"] += 1
    scene.counts["sends"] += len(sent)
    require(len(sent) <= MOST_CALLS, f"{len(sent)} calls of the provider for one request")
    for one in sent:
        _valid(scene, one)
    _smaller(scene, sent)
    _refusals(scene, sent)
    _outcome(scene, sent, done, error)
    _stored(scene, was, done, error)
    _limits(scene, sent, done)


def whole(scene: Scene) -> None:
    """The whole history is what was said, in order, once."""
    found = [message.text() for message in scene.nx.history(scene.session)]
    require(found == scene.known, f"the ledger has {len(found)} messages and not the {len(scene.known)} that were said")


def too_small(scene: Scene, event: Any, error: BudgetTooSmall) -> None:
    """What is never cut does not fit into the believed window, or into what a provider's refusal taught of the real one.

    The session itself is then not stuck: an engine that has learned nothing assembles it.
    """
    learned = available_tokens(scene.nx, model=scene.model)
    fresh = Engine(
        None, scene.nx.ledger.store, model=scene.model, models=scene.nx.models, calibrate=scene.nx.settings.calibrate
    )
    try:
        fresh.assemble(event, session=scene.session, **scene.request)
    except BudgetTooSmall:
        scene.counts["at last: what is never cut is larger than the believed window"] += 1
        return
    require(
        learned < available_tokens(fresh, model=scene.model), f"the session is stuck, and no limit was learned: {error}"
    )
    require(error.needed_tokens > learned, f"the session is stuck: a sane provider is not asked, {error}")
    scene.counts["at last: what is never cut is larger than what a refusal taught of the window"] += 1


def told(counts: Counter[str]) -> dict[str, int | str]:
    """The counts in their order: the main ones, then the rest by name."""
    counts["texts of refusal met"] = sum(name.startswith("refused: ") for name in counts)
    rest = sorted(name for name in counts if name not in COUNTED)
    return {name: counts[name] for name in (*COUNTED, *rest)}


def _valid(scene: Scene, one: Sent) -> None:
    problems = VALID[scene.provider.form](one.body)
    require(not problems, f"a body that {scene.provider.form} would refuse: {problems[:3]}")
    require(
        POISON not in json.dumps(one.body, ensure_ascii=False), "what a summariser was told not to write is in a prompt"
    )
    used, budget = one.ctx.token_budget.used.total, one.ctx.token_budget.available
    require(used <= budget, f"{used} tokens are used, {budget} are available")
    require([spec.name for spec in one.ctx.tools] == ["run"], "the tools are gone from a request")


def _smaller(scene: Scene, sent: list[Sent]) -> None:
    """Each retry is smaller, by our count and by the provider's; or it asks for a shorter answer to no more."""
    for first, then in pairwise(sent):
        ours, theirs = first.ctx.token_budget.used.total, then.ctx.token_budget.used.total
        if then.output < first.output or (then.output and not first.output):
            require(theirs <= ours, f"a retry with a shorter answer has {theirs} tokens after {ours}")
            continue
        require(theirs <= SMALLER * ours, f"a retry has {theirs} tokens after {ours}")
        if scene.constant:
            require(
                then.tokens < first.tokens, f"a retry has {then.tokens} of the provider's tokens after {first.tokens}"
            )


def _refusals(scene: Scene, sent: list[Sent]) -> None:
    for one in sent:
        if one.refused:
            scene.counts["refusals"] += 1
            scene.counts[f"refused: {one.refused}"] += 1
        if one.silent:
            scene.counts["silent overflows"] += 1
            scene.counts[f"silent: {one.silent}"] += 1


def _outcome(scene: Scene, sent: list[Sent], done: Answer | None, error: BaseException | None) -> None:
    """What came out: an answer that fitted, or a typed error, or the provider's own."""
    counts, last = scene.counts, sent[-1] if sent else None
    if error is None:
        counts["calls that got through"] += 1
        if last is None:
            lost("an answer without a call")
        if done is not None:
            _answered(scene, sent, done)
        return
    if isinstance(error, BudgetTooSmall):
        counts["BudgetTooSmall"] += 1
        counts[f"BudgetTooSmall: {_largest(error)}"] += 1
        require(not sent, "BudgetTooSmall after a call was sent")
    elif isinstance(error, ContextOverflow):
        counts["ContextOverflow"] += 1
        counts[f"ContextOverflow: {'three calls' if len(sent) == MOST_CALLS else 'nothing more to leave out'}"] += 1
        require(len(error.attempts) == len(sent), f"{len(error.attempts)} attempts are told, {len(sent)} were made")
        require(last is not None and not last.fits, "ContextOverflow though the last call fitted")
    elif isinstance(error, LateReply):
        counts["late replies"] += 1
        require(scene.disturbed, "LateReply though nobody began another turn")
        require(bool(error.stored_as), "a late reply that is stored nowhere")
    else:
        ours = last is not None and error is last.error and not last.refused
        require(ours, f"an error that is not the provider's: {type(error).__name__}: {error}")
        counts["other errors that came through"] += 1
        assert last is not None
        kind = classify(error).kind
        require(_marks(scene) == last.marks, f"a compaction after an error of the kind {kind}")


def _answered(scene: Scene, sent: list[Sent], done: Answer) -> None:
    """The answer is of the last call, which fitted; where it did not, that is told."""
    last = sent[-1]
    require(done.ctx is last.ctx, "the answer is told with another context than the last one")
    require(len(done.attempts) == len(sent), f"{len(done.attempts)} attempts are told, {len(sent)} were made")
    scene.counts["calls that got through after a refusal"] += len(sent) > 1
    if last.silent:
        require(
            done.attempts[-1].verdict is not None, f"an overflow in silence ({last.silent}) was taken for an answer"
        )
        scene.counts["silent overflows taken after all, with the doubt told"] += 1
    else:
        require(last.fits, "what got through is larger than the provider's window")


def _stored(scene: Scene, was: Before, done: Answer | None, error: BaseException | None) -> None:
    """The ledger has each event once, then its answer, or a failed turn. A call of one's own stores both or nothing."""
    new: list[Entry] = scene.nx.ledger.entries(scene.session, was.head)
    ctx, reply = (done.ctx, done.reply) if done is not None else scene.recorded or (None, None)
    event = [message.text() for message in ctx.event] if ctx is not None else _texts(was.event)
    said = [message.text() for message in read_reply(reply).messages] if ctx is not None else []
    marks = Counter(entry.kind for entry in new)
    # Nothing is stored of what did not fit, unless a compaction of the stored turn made it so.
    may_fail = not isinstance(error, BudgetTooSmall) or (marks["compaction"] > 0 and marks["failed"] > 0)
    failed = error is not None and not scene.own and may_fail
    if scene.own:
        wanted = [*scene.others, *(event if ctx is not None else ()), *said]
    else:
        wanted = [*(event if ctx is not None or failed else ()), *scene.others, *said]
    found = [row.message.text() for entry in new for row in entry.rows]
    require(found == wanted, f"{len(found)} messages were stored, {len(wanted)} were said: {_differ(found, wanted)}")
    scene.known += wanted
    is_failed = failed and not scene.others  # another turn ends that one
    require(marks["failed"] == is_failed, f"{marks['failed']} failed turns were stored, {int(is_failed)} failed")
    if ctx is not None:
        together = [row.message.text() for row in next(entry for entry in reversed(new) if entry.rows).rows]
        require(together == ([*event, *said] if scene.own else said), "an answer is in an entry with other messages")


def _texts(event: Any) -> list[str]:
    return [event] if isinstance(event, str) else [message.text() for message in event]


def _limits(scene: Scene, sent: list[Sent], done: Answer | None) -> None:
    """After what the provider told of its limit and a smaller prompt that got through, no more is taken than was told."""
    told = sent[-2].told if done is not None and len(sent) > 1 and not sent[-1].silent else 0
    if told and scene.provider.case.part != "output":
        limit, used = available_tokens(scene.nx, model=scene.model), sent[-1].ctx.token_budget.used.total
        require(limit <= max(told, used), f"{limit} tokens are taken as the limit, {told} were told")
        scene.counts["limits learned from what was told"] += 1


def _compacted(scene: Scene, done: CompactionOutcome, plan: CompactionPlan | None, calls: int) -> None:
    """A compaction's row and figures are right, and the summariser was not asked without end."""
    counts = scene.counts
    counts["summariser calls"] += calls
    require(calls <= MOST_PARTS * TRIES, f"the summariser was asked {calls} times for one compaction")
    for tried in done.attempts:
        known = next((name for mark, name in WHY if mark in tried.reason), tried.reason)
        counts[f"summary refused: {known}"] += 1
    if not done:
        counts["compactions without a use"] += 1
        return
    scene.made = (done, plan.factor) if plan is not None else None
    counts["compactions"] += 1
    (entry,) = scene.nx.ledger.entries(scene.session, done.entry - 1, done.entry + 1)[:1]
    body = entry.body
    counts[f"compactions by {'a model' if body['type'] == 'summary' else 'rule'}"] += 1
    require(entry.kind == "compaction" and body["summary"] == done.summary, "the row of a compaction is another one")
    for name in ("tokens_before", "tokens_after", "summary_tokens", "call_tokens", "duration_ms"):
        require(body[name] == getattr(done, name), f"the row's {name} is {body[name]}, {getattr(done, name)} was told")
        require(body[name] >= 0, f"{name} is {body[name]}")
    require(body["covers_from"] <= body["first_kept"] <= done.entry, "a compaction covers what is not there")
    require(body["tokens_after"] < body["tokens_before"], "a compaction that made nothing smaller was stored")
    is_paid = body["type"] == "summary" or bool(done.attempts)  # a rejected summary is its model's too
    require(is_paid or not body["model"], "an extractive summary without a try of a model names one")
    require(body["type"] != "summary" or bool(body["model"]), "a model's summary names no model")
    if plan is not None:
        own = scene.nx.counter.count(done.summary)
        require(
            done.summary_tokens == math.ceil(own * plan.factor), f"a summary of {own} tokens: {done.summary_tokens}"
        )
        require(done.tokens_before == math.ceil(plan.tokens_before * plan.factor), "tokens_before is not the plan's")


def _as_told(scene: Scene, ctx: AssembledContext) -> None:
    """The context after a compaction takes what that one told, or less: pins and results are counted at their most.

    New results are left out, because they may have been truncated before and have room afterwards.
    """
    if scene.made is None or scene.disturbed:
        return
    (done, factor), scene.made = scene.made, None
    if (
        ctx.provenance.manifest.mark == done.entry
        and not ctx.provenance.manifest.cut
        and ctx.provenance.manifest.factor == factor
    ):
        tokens = ctx.token_budget.used
        used = tokens.total - (tokens.event if scene.answers else 0)
        require(used <= done.tokens_after + ROUNDED, f"{used} tokens after a compaction that told {done.tokens_after}")
        scene.counts["contexts after a compaction that take no more than it told"] += 1


def _marks(scene: Scene) -> int:
    """The number of compactions in the session."""
    return sum(
        entry.kind == "compaction" for entry in scene.nx.ledger.store.checkpoints(scene.nx.ledger.thread(scene.session))
    )


def _largest(error: BudgetTooSmall) -> str:
    return max(error.parts, key=lambda name: error.parts[name])


def _differ(found: list[str], wanted: list[str]) -> str:
    pairs = zip(found, wanted, strict=False)
    return next(
        (f"{one[:60]!r} is not {other[:60]!r}" for one, other in pairs if one != other), "some are missing or more"
    )
