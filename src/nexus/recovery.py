"""A model call that gets through: compacted before it overflows, and made smaller when the provider says that it did.

Three calls at most. Each retry is smaller than the call before it, by our own count; once one got through, what the
provider told of its limit is remembered for the model. When nothing more can be left out, a typed error says what the parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.compaction import CompactionOutcome
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import BudgetTooSmall, CompactionSuperseded, ContextOverflow, HeadMoved
from nexus.providers.errors import OverflowVerdict, classify, detect_silent_overflow, learned_window
from nexus.providers.replies import read_reply
from nexus.types.compaction_plan import COMPACT_TO, RECOVER_TO
from nexus.types.ledger_entries import Committed
from nexus.types.message import ATTACHED, Message, Note, Part, Text, ToolCall
from nexus.types.request import AgentResult, Event

MOST_CALLS = 3
"""Calls of one request: the first, one after compaction to 40 %, one after cutting to 40 % of what failed."""

OUTPUT_SETTINGS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
LEAST_OUTPUT = 256
"""An answer is not asked for in fewer tokens: the prompt gets smaller instead."""

LESS_THAN_SENT = "usage:less than was sent"

SMALLER = 0.95
"""A retry takes at most this share of the tokens that did not fit."""


class Attempt(Struct, frozen=True):
    """One call: the tokens of its prompt by our count, what was available, and the verdict (None: it was answered).

    `after` says what was done before it.
    """

    tokens: int
    available: int
    after: str = ""
    verdict: OverflowVerdict | None = None


class Answer(Struct, frozen=True):
    """What came back: the context that got through, the reply as it was given, what was stored, and how it went."""

    ctx: AssembledContext
    reply: Any
    result: AgentResult
    committed: Committed
    attempts: tuple[Attempt, ...]
    compaction: tuple[CompactionOutcome, ...] = ()

    @property
    def was_recovered(self) -> bool:
        """Whether the first call did not fit."""
        return len(self.attempts) > 1


def call(
    nx: Engine,
    event: str | Event | Iterable[Message],
    send: Callable[[AssembledContext], Any],
    *,
    session: str | None = None,
    compact: bool = True,
    **request: Any,
) -> Answer:
    """Assembles, sends and records one call, and recovers when it does not fit.

    `send` takes the context and returns the provider's response (`lambda ctx: client.messages.create(**ctx.to_anthropic())`).
    When the context takes more than 85 % of what is available it is compacted before the call (`compact=False`: it is
    only cut when full). `request` is what `assemble` takes. Errors of `send` that are no overflow come through as they
    are, rate limits too. Raises ContextOverflow after three calls, and BudgetTooSmall when what is never cut is too large;
    then nothing was stored.
    """
    event = event if isinstance(event, (str, Event)) else tuple(event)
    work = _Work(nx, event, session, request, compact=compact)
    ctx = work.ready()
    return _sent(work, ctx, send)


def recover(
    nx: Engine, ctx: AssembledContext, error: object, send: Callable[[AssembledContext], Any], **request: Any
) -> Answer:
    """Goes on where a call of your own failed with an error that says it did not fit: see `call`.

    What `assemble` was given for the context holds for the smaller ones too, tools and settings included; `request`
    replaces some of it. Raises the error itself if it is an exception that is no overflow, else ContextOverflow.
    """
    work = _Work(nx, _event_of(ctx), ctx.session_label, {**_request_of(ctx), **request}, compact=True)
    verdict = classify(error, provider=ctx.provider, window=ctx.accounting.model_info.context_tokens)
    if verdict.kind != "overflow":
        if isinstance(error, BaseException):
            raise error
        raise ContextOverflow((), f"the error is no overflow but {verdict.kind}: {verdict.text}")
    work.attempts.append(Attempt(ctx.token_budget.used.total, ctx.token_budget.available, "", verdict))
    work.error = error if isinstance(error, BaseException) else None
    return _sent(work, work.smaller(ctx, verdict), send)


class _Work:
    """One request on its way: what was tried, and the steps by which it gets smaller."""

    def __init__(
        self,
        nx: Engine,
        event: str | Event | tuple[Message, ...],
        session: str | None,
        request: dict[str, Any],
        *,
        compact: bool,
    ) -> None:
        self.nx, self.event, self.session, self.request = nx, event, session, dict(request)
        self.compact = compact
        self.attempts: list[Attempt] = []
        self.compacted: list[CompactionOutcome] = []
        self.after = ""
        self.error: BaseException | None = None
        self.limit = 0
        self.least = 1

    def assemble(self, budget: int | None = None) -> AssembledContext:
        request: dict[str, Any] = dict(self.request)
        if budget is not None:
            request["budget"] = budget
        ctx = self.nx.assemble(self.event, session=self.session, **request)
        self.session = ctx.session_label
        return ctx

    def ready(self) -> AssembledContext:
        """The first context, compacted if that is due.

        What an earlier refusal taught is given up where what is never cut has no room under it: the provider decides.
        """
        try:
            ctx = self.assemble()
        except BudgetTooSmall:
            if not self.nx.forget_limit(self.request.get("model") or self.nx.model):
                raise
            ctx = self.assemble()
        if self.compact and ctx.compaction_due and self.compaction(ctx, COMPACT_TO, "context_limit"):
            ctx = self.assemble()
        return ctx

    def compaction(self, ctx: AssembledContext, share: float, trigger: Any) -> bool:
        """Compacts if that is worth it; another one that came first is as good."""
        plan = ctx.plan(trigger, share)
        if plan is None:
            return False
        try:
            done = self.nx.compact(ctx.session_label, plan=plan)
        except (CompactionSuperseded, HeadMoved):
            return True
        self.compacted.append(done)
        return bool(done)

    def smaller(self, ctx: AssembledContext, verdict: OverflowVerdict) -> AssembledContext:
        """A context that is provably smaller than one that did not fit. Raises ContextOverflow if there is none."""
        self.nx.recoveries[ctx.model] += 1
        if len(self.attempts) >= MOST_CALLS:
            raise ContextOverflow(self.attempts, f"{MOST_CALLS} calls did not fit, {_parts(ctx)}") from self.error
        if verdict.part == "output" and self.asks_for_less(ctx, verdict):
            self.after = "a shorter answer was asked for"
            # A shorter answer leaves more of the window, and others may have gone on: the prompt must not grow into it.
            same = self.fitted(ctx, ctx.token_budget.available, share=1.0)
            if same is not None:
                return same
        most = _most(ctx, verdict)
        made = self.compacted_to(ctx, most) or self.cut_to(ctx, most)
        if made is None:
            why = f"nothing more can be left out, {_parts(ctx)}"
            raise ContextOverflow(self.attempts, why) from self.error
        self.limit = most if _tells_of_tokens(verdict) else self.limit
        return made

    def compacted_to(self, ctx: AssembledContext, most: int) -> AssembledContext | None:
        """The context after compaction to 40 % of what it may take; None if that makes it no smaller, or was tried."""
        share = RECOVER_TO * most / ctx.token_budget.available
        if not self.compact or len(self.attempts) > 1 or not self.compaction(ctx, share, "overflow_recovery"):
            return None
        self.after = "compacted to 40 %"
        return self.fitted(ctx, most)

    def cut_to(self, ctx: AssembledContext, most: int) -> AssembledContext | None:
        """The context cut to 40 % of what it may take, or as far as it can be cut; None if that makes it no smaller."""
        self.after = "cut to 40 % of what did not fit"
        made = self.fitted(ctx, int(RECOVER_TO * most))
        if made is None:
            self.after = "cut to what is never cut"
            made = self.fitted(ctx, self.least) or self.fitted(ctx, int(SMALLER * ctx.token_budget.used.total))
        return made

    def fitted(self, failed: AssembledContext, budget: int, share: float = SMALLER) -> AssembledContext | None:
        """The context within a budget, if it is so much smaller than what failed.

        Where the budget is too small for what is never cut, `least` is what that takes.
        """
        try:
            ctx = self.assemble(max(budget, 1))
        except BudgetTooSmall as error:
            self.least = error.needed_tokens
            return None
        return ctx if ctx.token_budget.used.total <= share * failed.token_budget.used.total else None

    def learn(self, ctx: AssembledContext) -> None:
        """Remembers the limit once a context got through that is smaller than one that did not.

        Not before: a limit under which nothing can be sent would keep the next call from asking, and from learning.
        """
        if self.limit:
            self.nx.learn_limit(ctx.model, max(self.limit, ctx.token_budget.used.total))

    def asks_for_less(self, ctx: AssembledContext, verdict: OverflowVerdict) -> bool:
        """Lowers the tokens asked for as an answer to what the provider leaves; false if that is too little."""
        config = dict(self.request.get("model_config") or {})
        name = next((name for name in OUTPUT_SETTINGS if name in config), _output_setting(ctx))
        asked = config.get(name) or 0
        if not isinstance(asked, int):
            return False
        told = verdict.limit and not verdict.at_least
        room = verdict.limit - (verdict.input_tokens or ctx.token_budget.used.total) if told else asked // 2
        if room < LEAST_OUTPUT or (asked and room >= asked):
            return False
        self.request["model_config"] = {**config, name: room}
        return True


def _most(ctx: AssembledContext, verdict: OverflowVerdict) -> int:
    """The most that a prompt may take by our count: less than what failed, and what the provider told of its limit."""
    budget = ctx.token_budget
    failed = budget.used.total
    most = SMALLER * min(failed, budget.available)
    limit = learned_window(verdict)
    if limit is not None:
        told = limit if verdict.limit_of == "input" else max(limit - budget.reserve_response, limit // 2)
        counted = max(verdict.input_tokens or verdict.requested - verdict.output_tokens, 0)
        most = min(told * (failed / counted if counted > failed else 1.0), most)
    return max(int(most), 1)


def _parts(ctx: AssembledContext) -> str:
    """What a context that did not fit was made of, the largest part first."""
    used = ctx.token_budget.used
    sizes = {
        "system prompt": used.system_prompt,
        "tools": used.tools,
        "history": used.history,
        "current message": used.event,
    }
    named = sorted(((tokens, name) for name, tokens in sizes.items() if tokens), reverse=True)
    return f"of the last one {', '.join(f'{name} {tokens:,}' for tokens, name in named)}"


def _tells_of_tokens(verdict: OverflowVerdict) -> bool:
    """Whether it says how many tokens fit: not where bytes were too many, or a report may lack what was cached."""
    return verdict.part != "bytes" and verdict.source != LESS_THAN_SENT


def _output_setting(ctx: AssembledContext) -> str:
    """What the model's provider calls the most tokens of an answer."""
    if ctx.accounting.model_info.wire == "gemini":
        return "max_output_tokens"
    return (
        "max_completion_tokens"
        if ctx.accounting.model_info.wire == "openai" and ctx.accounting.model_info.reasoning
        else "max_tokens"
    )


def _sent(work: _Work, ctx: AssembledContext, send: Callable[[AssembledContext], Any]) -> Answer:
    """Sends until it fits, three times at most.

    An answer to a prompt that may have been cut in silence is taken where no smaller one can be sent: the attempts show
    the doubt.
    """
    while True:
        used, available = ctx.token_budget.used.total, ctx.token_budget.available
        reply, verdict, work.error = _try(ctx, send)
        work.attempts.append(Attempt(used, available, work.after, verdict))
        smaller: AssembledContext | None = None
        if verdict is not None:
            try:
                smaller = work.smaller(ctx, verdict)
            except ContextOverflow:
                if not _answers(reply):
                    raise
        if smaller is None:
            if verdict is None:
                work.learn(ctx)
            done = work.nx.record(ctx, reply)
            return Answer(ctx, reply, read_reply(reply), done, tuple(work.attempts), tuple(work.compacted))
        ctx = smaller


def _try(
    ctx: AssembledContext, send: Callable[[AssembledContext], Any]
) -> tuple[Any, OverflowVerdict | None, Exception | None]:
    """The reply, and the verdict if the call did not fit, with or without an error."""
    try:
        reply = send(ctx)
    except Exception as error:
        verdict = classify(error, provider=ctx.provider, window=ctx.accounting.model_info.context_tokens)
        if verdict.kind != "overflow":
            raise
        return None, verdict, error
    result = read_reply(reply)
    verdict = detect_silent_overflow(
        result.usage,
        window=ctx.accounting.model_info.context_tokens,
        stop_reason=result.stop_reason,
        text_empty=not _answers(reply),
        sent=ctx.token_budget.used.total,
    )
    # Gateways that leave cached tokens out of their count report less than was sent, and all is well.
    if verdict is not None and verdict.source == LESS_THAN_SENT and _answers(reply):
        return reply, None, None
    return reply, verdict, None


def _answers(reply: Any) -> bool:
    """Whether a reply has a text or a call."""
    return reply is not None and any(_says(part) for message in read_reply(reply).messages for part in message.parts)


def _says(part: Part) -> bool:
    return isinstance(part, ToolCall) or (isinstance(part, Text) and bool(part.text.strip()))


def _event_of(ctx: AssembledContext) -> Event:
    """The event of a context, to be assembled again: as it was given, at its time, or as far as a saved one tells."""
    at_ms = max((message.at_ms for message in ctx.event), default=0)
    if ctx.provenance.request is not None:
        return replace(ctx.provenance.request.event, at_ms=at_ms)
    results = tuple(message for message in ctx.event if message.role == "tool")
    said = [message for message in ctx.event if message.role != "tool"]
    content = tuple(part for message in said for part in message.parts if not _is_made(part))
    source = next((message.source for message in said), "human")
    return Event(content=content, results=results, id=ctx.source_event_id or "", at_ms=at_ms, source=source)


def _is_made(part: Part) -> bool:
    """Whether assembly makes the part anew: all notes but the files that a user attached."""
    return isinstance(part, Note) and not part.origin.startswith(ATTACHED)


def _request_of(ctx: AssembledContext) -> dict[str, Any]:
    """What `assemble` was given for a context, besides the event and the session."""
    budget = {"budget": ctx.token_budget.available} if ctx.token_budget.direct else {}
    return {
        "model": ctx.model,
        "profile": ctx.provenance.manifest.profile,
        "tools": [
            *(ctx.provenance.tool_definitions or [tool.definition() for tool in ctx.tools]),
            *(one.definition for one in ctx.provenance.denied_tools),
        ],
        "model_config": ctx.model_config,
        "role": ctx.role,
        "task": ctx.provenance.routing.task,
        "manager": ctx.provenance.routing.manager,
        "principal": ctx.provenance.identity.principal,
        "persona": ctx.provenance.identity.persona,
        "user_profile": ctx.provenance.identity.user_profile,
        "toolset": ctx.toolset_name,
        "permissions": ctx.permissions_granted,
        "skills": ctx.provenance.request.skills if ctx.provenance.request else (),
        "blocks": ctx.provenance.request.blocks if ctx.provenance.request else {},
        **budget,
    }
