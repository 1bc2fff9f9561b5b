"""A proxy's own pages: its state, its conversations, and one call with its omissions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nexus.engine import Engine
from nexus.engine.analysis.explain import Explanation
from nexus.engine.analysis.replay import explain_call, replay_call
from nexus.errors import NexusError, NotFound
from nexus.ledger.recorded_calls import RecordedCall
from nexus.proxy.reports import CallReport
from nexus.proxy.savings import Savings
from nexus.proxy.settings import ProxySettings
from nexus.render.console import printable_lines
from nexus.types.counts import count_noun

SHOWN_CALLS = 20
SHOWN_TEXT_CHARS = 2_000


class ProxyConversation(Struct, kw_only=True):
    """The newest calls of one client's conversation, summed up."""

    client: str
    session: str
    model: str = ""
    conversation: str = ""
    calls: int = 0
    tokens: int = 0
    """Of the newest call, as sent."""
    budget: int = 0
    input_tokens: int = 0
    """As the provider reported it, for all calls."""
    cache_read_tokens: int = 0
    cost_usd: float | None = None
    omitted: int = 0
    """Messages that the newest call was sent without."""
    last_ms: int = 0


class CacheReads(Struct, frozen=True):
    """Cache reads of calls, as the provider reported them."""

    input_tokens: int
    read_tokens: int
    misses: dict[str, int]
    """Calls that did not read the last prompt of their conversation, by the name of the cause."""
    unmarked_calls: int
    """Calls in `record` whose client set no cache breakpoints, where the provider caches nothing without."""


def cache_use_of(reports: Iterable[CallReport]) -> CacheReads:
    """Return the sums over calls."""
    input_tokens = read_tokens = unmarked_calls = 0
    misses = Counter[str]()
    for report in reports:
        if report.usage is not None:
            input_tokens += report.usage.input_tokens
            read_tokens += report.usage.cache_read_tokens
        if report.cache is not None and report.cache.cause:
            misses[report.cache.cause] += 1
        unmarked_calls += report.is_unmarked
    return CacheReads(input_tokens, read_tokens, dict(misses.most_common()), unmarked_calls)


def status_of(settings: ProxySettings, counts: Mapping[str, int], reports: Iterable[CallReport]) -> dict[str, Any]:
    """Return the state of a proxy as JSON values; `reports`: the newest first."""
    newest = [*reports]
    return {
        "mode": settings.mode,
        "budget": settings.budget,
        "no_text": settings.no_text,
        "retain": settings.retain,
        "counts": dict(counts),
        "cache": msgspec.to_builtins(cache_use_of(newest)),
        "conversations": [msgspec.to_builtins(conversation) for conversation in conversations(newest)],
        "calls": [msgspec.to_builtins(report) for report in newest[:SHOWN_CALLS]],
    }


def conversations(reports: Iterable[CallReport]) -> list[ProxyConversation]:
    """Return the conversations of these calls, the one with the newest call first."""
    by_name: dict[tuple[str, str, str], ProxyConversation] = {}
    for report in reports:
        name = (report.client, report.user, report.session or report.conversation)
        conversation = by_name.get(name)
        if conversation is None:
            conversation = by_name[name] = ProxyConversation(
                client=report.client,
                session=report.session,
                model=report.model,
                conversation=report.conversation,
                tokens=report.tokens,
                budget=report.budget,
                omitted=report.omitted,
                last_ms=report.at_ms,
            )
        conversation.calls += 1
        if report.usage is not None:
            conversation.input_tokens += report.usage.input_tokens
            conversation.cache_read_tokens += report.usage.cache_read_tokens
        if report.cost_usd is not None:
            conversation.cost_usd = (conversation.cost_usd or 0.0) + report.cost_usd
    return [*by_name.values()]


def recorded_call_of(nx: Engine, report: CallReport) -> RecordedCall:
    """Return a call as the ledger has it. Raises NotFound for one that is not recorded, BadReference for an erased one."""
    if not report.thread:
        if report.no_text:
            raise NotFound(
                f"call {report.id} was recorded without text: there is no replay, undo or text of it",
                code="call_not_recorded",
            )
        why = "; ".join(report.reasons) or report.error or "it is still under way"
        raise NotFound(
            f"call {report.id} is not recorded: {why.removeprefix('not recorded: ')}", code="call_not_recorded"
        )
    return nx.calls.find_on(report.thread, report.session, report.turn, report.number or None)


def explanation_of(nx: Engine, report: CallReport) -> Explanation:
    """Return what happened to each message of a recorded call. Raises as `recorded_call_of` and `Engine.explain`."""
    call = recorded_call_of(nx, report)
    return explain_call(nx.calls.dependencies, replay_call(nx.calls.dependencies, call))


def explained(nx: Engine, report: CallReport, ledger: str | None = None) -> dict[str, Any]:
    """Return a call's report with what happened to each message, or why that cannot be said, as JSON values.

    `ledger` is the name of the ledger for commands; None for the user's own.
    """
    values: dict[str, Any] = msgspec.to_builtins(report)
    if not report.thread:
        return values
    values["commands"] = commands_of(report, ledger)
    try:
        values["explanation"] = msgspec.to_builtins(explanation_of(nx, report))
    except NexusError as error:
        values["not_explained"] = f"{error.code}: {error}"
    return values


def commands_of(report: CallReport, ledger: str | None) -> list[str]:
    """Return the commands that show more of a recorded call, and that undo its cut. `ledger`: None for the user's own."""
    commands = [f"nexus explain --call {report.id} --full", f"nexus replay --call {report.id}"]
    if report.outcome == "fitted":
        commands.append(f"nexus proxy undo {report.id}")
    if ledger is None:
        return commands
    return [f"{command} --ledger {shlex.quote(ledger)}" for command in commands]


def text_of_call(values: Mapping[str, Any]) -> str:
    """Return an explained call for people; names that clients sent do not control a terminal."""
    return printable_lines("\n".join(_lines(values))) + "\n"


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    yield f"call {values['id']}: {values['client']}, {values.get('model') or 'no model'}, {values['path']}"
    yield f"  {values.get('outcome', 'as_received').replace('_', ' ')} ({values.get('mode')})"
    for reason in values.get("reasons", ()):
        yield f"  {reason}"
    if values.get("error"):
        yield f"  error: {values['error']}"
    yield from _cache_lines(values)
    if values.get("session"):
        yield f"  recorded in {values['session']}, turn {values.get('turn')}, call {values.get('number')}"
        yield from (f"  {command}" for command in values.get("commands", ()))
    if values.get("no_text"):
        yield "  without text: there is no replay, no undo and no text of it"
        yield f"  request: {values.get('received_bytes', 0):,} bytes, SHA-256 {values.get('request_sha256', '')}"
        yield f"  answer: {values.get('answer_bytes', 0):,} bytes, SHA-256 {values.get('answer_sha256', '')}"
    if values.get("not_explained"):
        yield f"  not explained: {values['not_explained']}"
    explanation = values.get("explanation")
    if not explanation:
        return
    yield f"  {explanation['used']:,} of {explanation['available']:,} tokens"
    for line in explanation["lines"]:
        if line["state"] != "included":
            yield f"  {line['state']}: {line['name']} ({line['full_tokens']:,} tokens): {line['reason']}"
            yield from (f"    {text}" for text in line.get("text", "")[:SHOWN_TEXT_CHARS].splitlines())


def _cache_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a call read from the cache, and its cost the other way if that was simulated."""
    cache = values.get("cache")
    if cache:
        read = f"{cache['read_tokens']:,} tokens read from the cache"
        if cache["expected_tokens"]:
            read = (
                f"{cache['read_tokens']:,} of the last prompt's {cache['expected_tokens']:,} tokens read from the cache"
            )
        detail = f" ({cache['detail']})" if cache["detail"] else ""
        cause = f": {cache['cause']}" if cache["cause"] else ""
        yield f"  {read}{cause}{detail}"
    cost = values.get("cost")
    if not cost:
        return
    way = "without the proxy" if cost["is_changing"] else "with cache breakpoints"
    if cost["simulated_usd"] is None:
        yield f"  cost {way}: no figure ({cost['why']})"
    else:
        yield f"  input: ${cost['reported_usd']:.4f} as reported, ${cost['simulated_usd']:.4f} {way} (simulated)"


def summary_of(calls: Iterable[CallReport], savings: Savings | None = None) -> str:
    """Return the sums of calls in one line; `savings` are those of the calls in `heal` and `fit`."""
    calls = [*calls]
    used = [call.usage for call in calls if call.usage is not None]
    prompt = sum(usage.input_tokens for usage in used)
    read = sum(usage.cache_read_tokens for usage in used)
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    parts = [count_noun(len(calls), "call")]
    if prompt:
        parts.append(f"{count_noun(prompt, 'token')} of input, {100 * read // prompt} % from the cache")
    if costs:
        parts.append(f"${sum(costs):.2f} at list prices")
    changed = sum(1 for call in calls if call.outcome in ("fitted", "healed"))
    if changed:
        parts.append(f"{changed} shortened or repaired")
    if savings is not None and savings.calls:
        difference = savings.simulated_usd - savings.reported_usd
        word = "less" if difference >= 0 else "more"
        parts.append(f"${abs(difference):.2f} {word} input than without the proxy (simulated)")
    return ", ".join(parts)
