"""Counts of what models did since the server started, by tenant: tokens, costs, errors, cuts and compactions.

The page `/metrics` shows them. Labels are names of models and of kinds of failures, and their number is bounded; they never
contain the content of a request.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from threading import Lock
from typing import Literal, TypeAlias

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import ModelCallFailed
from nexus.models import ModelClient, ModelReply, StreamItem
from nexus.providers.costs import cost_of_reply
from nexus.providers.errors.failures import failure_of
from nexus.summarization.model_summarizer import ModelSummarizer
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.stream_events import CompactionEnd, Retry, StreamEvent

LOG = logging.getLogger("nexus.server")

MAX_MODELS = 100
"""Models of a tenant that are counted by name. Agents choose names freely, so further ones are counted as `other`."""
OTHER = "other"
_MODEL_CHARS = 100

Count: TypeAlias = Literal["calls", "tokens", "cost", "errors", "cuts", "compactions"]


class ModelCounts:
    """Counts of one server. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: defaultdict[tuple[str, Count], defaultdict[tuple[str, ...], float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._models: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, tenant: str, count: Count) -> dict[tuple[str, ...], float]:
        """Return the values of a count of a tenant by labels: the model, and for some counts a kind."""
        with self._lock:
            return dict(self._values.get((tenant, count), {}))

    def add_reply(self, tenant: str, model: str, usage: TokenUsage, cost_usd: float | None) -> None:
        """Count a call with its usage, and its cost at list prices; None for a model without prices."""
        uncached = max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0)
        tokens = {
            "input": uncached,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "output": usage.output_tokens,
        }
        with self._lock:
            name = self._name(tenant, model)
            self._values[tenant, "calls"][(name,)] += 1
            for kind, number in tokens.items():
                self._values[tenant, "tokens"][name, kind] += number
            if cost_usd is not None:
                self._values[tenant, "cost"][(name,)] += cost_usd

    def add_error(self, tenant: str, model: str, kind: str) -> None:
        """Count a failed try of a call by its kind (`nexus.failure_of`)."""
        self._add(tenant, "errors", model, kind)

    def add_cut(self, tenant: str, ctx: AssembledContext) -> None:
        """Count the cut of a context, if it made one."""
        if ctx.cut is not None:
            self._add(tenant, "cuts", ctx.model)

    def add_compaction(self, tenant: str, writer: str) -> None:
        """Count a compaction by the writer of its summary: the name of a model, or `extractive`."""
        self._add(tenant, "compactions", writer)

    def add_event(self, tenant: str, event: StreamEvent) -> None:
        """Count the compaction that an event of a turn reports."""
        if isinstance(event, CompactionEnd) and event.method:
            self.add_compaction(tenant, event.method)

    def add_record(self, tenant: str, ctx: AssembledContext, result: AgentResult) -> None:
        """Count a reply that a program with its own loop recorded, and the cut of its context."""
        self.add_cut(tenant, ctx)
        self.add_reply(tenant, ctx.model, result.usage, cost_of_reply(result.usage, ctx.accounting.model_info))

    def listen_to(self, tenant: str, engine: Engine) -> None:
        """Count the calls of the engine's summarizer too."""
        summarizer = engine.compactor.summarizer.model
        if isinstance(summarizer, ModelSummarizer):
            model = summarizer.name

            def listen(outcome: ModelReply | ModelCallFailed) -> None:
                if isinstance(outcome, ModelReply):
                    self.add_reply(tenant, model, outcome.result.usage, outcome.cost_usd)
                else:
                    self.add_error(tenant, model, outcome.failure_kind)

            summarizer.listen = listen

    def _add(self, tenant: str, count: Count, model: str, *labels: str) -> None:
        with self._lock:
            self._values[tenant, count][(self._name(tenant, model), *labels)] += 1

    def _name(self, tenant: str, model: str) -> str:
        """Return a model's name as a label: ASCII, and one of a bounded number."""
        name = model.encode("ascii", "backslashreplace").decode()[:_MODEL_CHARS]
        names = self._models[tenant]
        if name not in names and len(names) >= MAX_MODELS:
            return OTHER
        names.add(name)
        return name


class CountedModels:
    """The clients of a server's models for one tenant, which counts calls and logs failures. It does not own the clients."""

    def __init__(self, models: ModelClient, counts: ModelCounts, tenant: str) -> None:
        self._models = models
        self._counts = counts
        self._tenant = tenant

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        """Yield the items of a call; see `ModelClient.stream`."""
        self._counts.add_cut(self._tenant, ctx)
        try:
            async with aclosing(self._models.stream(ctx)) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        self._counts.add_reply(self._tenant, ctx.model, item.result.usage, item.cost_usd)
                    elif isinstance(item, Retry):
                        self._report(ctx, item.kind, is_final=False)
                    yield item
        except Exception as error:
            if isinstance(error, ModelCallFailed) and isinstance(error.reply, ModelReply):  # withheld, and paid
                reply = error.reply
                self._counts.add_reply(self._tenant, ctx.model, reply.result.usage, reply.cost_usd)
            self._report(ctx, failure_of(error).kind, is_final=True)
            raise

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        async with aclosing(self.stream(ctx)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    return item
        raise ModelCallFailed("the stream of the client ended without a reply", "error")

    async def aclose(self) -> None:
        """Do nothing: the clients are the server's."""

    def _report(self, ctx: AssembledContext, kind: str, *, is_final: bool) -> None:
        self._counts.add_error(self._tenant, ctx.model, kind)
        fields = {"tenant": self._tenant, "agent": ctx.session_label, "model": ctx.model, "kind": kind}
        text = "model call is made again"
        if is_final:
            text = "model call failed"
        LOG.warning("%s: %s", text, kind, extra={"fields": fields})
