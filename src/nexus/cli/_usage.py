"""Usage that providers reported for a session's calls, and its cost at the list prices of the session's own models."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from nexus.cli._output import count_noun
from nexus.engine import Engine
from nexus.providers.costs import cost_of_reply
from nexus.providers.received import items_of, mapping, number_of, text_of
from nexus.types.ledger_entries import IMPORTED_REQUEST, Entry
from nexus.types.request import TokenUsage

SHORT_TOKENS = 50
"""Base tokens of a reply that a report may lack."""


class ModelUsage(Struct, frozen=True):
    """Reported tokens of one model's calls; `input_tokens` includes cache reads and writes."""

    model: str
    calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    dollars: float | None
    """Cost at list prices; None for a model without prices."""
    cache_write_1h_tokens: int = 0
    """Those of `cache_write_tokens` that are kept for an hour."""
    short_outputs: int = 0
    """Calls whose reported output tokens are fewer than their reply has, as in files that were written mid-stream."""
    is_rejected: bool = False
    """True for summaries that were rejected; extractive ones replaced them."""


class ReportedUsage(Struct, frozen=True):
    """Reported usage of a session: the newest call, and all calls by model."""

    last_model: str
    last_input_tokens: int
    models: tuple[ModelUsage, ...]
    is_imported: bool
    """True if the newest call is from an imported file."""
    tools: int | None = None
    """Number of tools in its request, if the file has the system prompt and tools; else None."""
    summaries: tuple[ModelUsage, ...] = ()
    """The calls for summaries, which are in none of the others; `calls` counts summaries."""

    def lines(self) -> tuple[str, str]:
        """Return the newest call's tokens and the cost as texts; empty without usage."""
        if not self.models and not self.summaries:
            return "", ""
        costs = [
            (usage.dollars, f"{count_noun(usage.calls, 'call')} to {usage.model or 'unnamed models'}")
            for usage in self.models
        ]
        for usage in self.summaries:
            noun = "rejected summary"
            if usage.model and not usage.is_rejected:
                noun = "summary"
            costs.append((usage.dollars, count_noun(usage.calls, noun) + (usage.model and f" by {usage.model}")))
        short = sum(usage.short_outputs for usage in self.models)
        bound = "at least " if short else ""
        priced = [f"{bound}{dollars:,.4f} for {calls}" for dollars, calls in costs if dollars is not None]
        unpriced = [f"unknown for {calls}" for dollars, calls in costs if dollars is None]
        cost = f"USD at list prices: {', '.join(priced + unpriced)}"
        total = sum(usage.input_tokens for usage in self.models)
        if total:
            cost += f"; {sum(usage.cache_read_tokens for usage in self.models) / total:.1%} of input cached"
        if short:
            cost += f"; {short_outputs(short)}"
        return self._newest_call() if self.models else "", cost

    def _newest_call(self) -> str:
        """Return the newest call's tokens as a text."""
        text = f"{self.last_input_tokens:,} input tokens in the newest call to {self.last_model or 'an unnamed model'}"
        if not self.is_imported:
            return text
        tools = "tools, which the file does not contain"
        if self.tools is not None:
            tools = count_noun(self.tools, "tool")
        return f"{text}, with the system prompt and {tools}"


class ReportedCall(Struct, frozen=True):
    """A call with the usage that its provider reported, or the calls for one summary."""

    model: str
    usage: TokenUsage
    dollars: float | None
    """Cost at list prices; None for a model without prices."""
    at_ms: int
    key: str
    """The same for the same call in all sessions that share it."""
    is_summary: bool = False
    is_rejected: bool = False
    """True for a summary that an extractive one replaced."""
    reply_tokens: int = 0
    """Base tokens of the reply."""

    @property
    def is_output_short(self) -> bool:
        """True if the reported output tokens are fewer than half of the reply's."""
        return self.reply_tokens > 2 * self.usage.output_tokens + SHORT_TOKENS


class _Calls(Struct):
    """The calls of a session, by key; the newest one with input; and what its file has."""

    calls: dict[str, ReportedCall] = {}
    last: ReportedCall | None = None
    is_imported: bool = False
    """True if the newest call is from an imported file."""
    tools: int | None = None


def reported_usage(nx: Engine, label: str) -> ReportedUsage:
    """Return the usage that providers reported for the calls of a session."""
    read = _read_calls(nx, label)
    sums: tuple[dict[tuple[str, bool], ModelUsage], dict[tuple[str, bool], ModelUsage]] = ({}, {})
    for call in read.calls.values():
        of_kind = sums[call.is_summary]
        key = (call.model, call.is_rejected)
        total = of_kind.get(key) or ModelUsage(call.model, 0, 0, 0, 0, 0, 0.0, is_rejected=call.is_rejected)
        of_kind[key] = _with_call(total, call)
    models, summaries = (tuple(of_kind.values()) for of_kind in sums)
    model, tokens = (read.last.model, read.last.usage.input_tokens) if read.last else ("", 0)
    return ReportedUsage(model, tokens, models, read.is_imported, read.tools, summaries)


def reported_calls(nx: Engine, label: str) -> list[ReportedCall]:
    """Return the calls of a session with reported usage, oldest first, those for summaries included."""
    return list(_read_calls(nx, label).calls.values())


def project_of(nx: Engine, label: str) -> str:
    """Return the folder in which an imported session took place; empty for other sessions."""
    first = next(iter(nx.ledger.iter_entries(label, 0, 1)), None)
    if first is not None:
        return text_of(mapping(first.body.get("imported")).get("cwd"))
    return ""


def _read_calls(nx: Engine, label: str) -> _Calls:
    read = _Calls()
    model = ""
    has_file = False
    for entry in nx.ledger.iter_entries(label):
        if entry.kind == "compaction":
            tokens = number_of(entry.body.get("call_tokens"))
            written = number_of(entry.body.get("call_output_tokens"))
            if tokens:
                usage = TokenUsage(max(tokens - written, 0), written)
                call = _call(nx, text_of(entry.body.get("model")), usage, entry, is_summary=True)
                is_rejected = entry.body.get("type") == "extractive"
                read.calls[call.key] = replace(call, is_rejected=is_rejected)
            continue
        model = text_of(entry.body.get("model")) or model
        model = next((row.message.model for row in reversed(entry.rows) if row.message.model), model)
        has_file = has_file or "imported" in entry.body
        if request := mapping(entry.body.get(IMPORTED_REQUEST)):
            read.tools = len(items_of(request.get("tools")))
        fields = mapping(entry.body.get("usage"))
        usage = TokenUsage(**{name: number_of(fields.get(name)) for name in TokenUsage.__struct_fields__})
        if usage.input_tokens:
            read.is_imported = has_file and "model" not in entry.body  # recorded calls name theirs
            # Parts of one reply that were imported one after the other are one call, with the usage of the last part.
            reply_id = ""
            if read.is_imported and entry.rows:
                reply_id = entry.rows[0].message.id
            call = _call(nx, model, usage, entry, reply_id)
            if (part := read.calls.get(call.key)) is not None:
                call = replace(call, reply_tokens=call.reply_tokens + part.reply_tokens)
            read.last = read.calls[call.key] = call
    return read


def _call(
    nx: Engine, model: str, usage: TokenUsage, entry: Entry, reply_id: str = "", *, is_summary: bool = False
) -> ReportedCall:
    cost = None
    if model:
        cost = cost_of_reply(usage, nx.resolve(model))
    if is_summary:
        tokens = 0
    else:
        tokens = sum(row.size.tokens for row in entry.rows if row.message.role == "assistant")
    return ReportedCall(model, usage, cost, entry.at_ms, reply_id or entry.hash.hex(), is_summary, reply_tokens=tokens)


def short_outputs(calls: int) -> str:
    """Return a sentence about calls whose reported output is too low."""
    return f"{count_noun(calls, 'call')} reported fewer output tokens than {'its reply' if calls == 1 else 'their replies'} had"


def _with_call(total: ModelUsage, call: ReportedCall) -> ModelUsage:
    usage = call.usage
    cost = call.dollars
    return ModelUsage(
        total.model,
        total.calls + 1,
        total.input_tokens + usage.input_tokens,
        total.cache_read_tokens + usage.cache_read_tokens,
        total.cache_write_tokens + usage.cache_write_tokens,
        total.output_tokens + usage.output_tokens,
        None if cost is None or total.dollars is None else total.dollars + cost,
        total.cache_write_1h_tokens + usage.cache_write_1h_tokens,
        total.short_outputs + call.is_output_short,
        total.is_rejected,
    )
