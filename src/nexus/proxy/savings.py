"""Cost of calls the other way: without the proxy, or with cache breakpoints that the client did not set.

The other way is simulated: the list as the client sent it, which the ledger has, goes through the simulated cache of
`nexus.providers.prompt_cache` at list prices. It is compared with the usage that the provider reported; without usage
there is no figure. Nothing here runs while a call waits.

The simulated cache is the best case: it drops nothing before its time. Tokens of a list are scaled so that a call that
was sent whole has those that were reported. Until the first change in a conversation both ways are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.engine import Engine
from nexus.errors import NoSuchSession
from nexus.providers.costs import cost_of_reply
from nexus.providers.prompt_cache import (
    Cache,
    CacheCall,
    CacheRule,
    CacheSegment,
    cache_rule,
    dollars,
)
from nexus.proxy.cache_breakpoints import AT_SYSTEM, AT_TOOLS
from nexus.proxy.reports import MAX_REPORTS, CallReport, stored_reports
from nexus.tokens.model import Model

CHANGED = ("marked", "healed", "fitted")
"""Outcomes of calls that were changed on their way."""

_CHANGING_MODES = ("heal", "fit")

_FIXED_SEGMENTS = 2
"""Segments before the list: tools, and system prompt."""


class CallCost(Struct, frozen=True):
    """Cost of one call's input in USD, as reported and the other way."""

    id: str
    is_changing: bool
    """True for a call in `heal` or `fit`, whose other way is without the proxy; False for `record`: with breakpoints."""
    reported_usd: float = 0.0
    simulated_usd: float | None = None
    """The other way; None without a figure."""
    why: str = ""
    """Why there is no figure."""


class Savings(Struct, frozen=True):
    """Sums over calls in USD of input."""

    calls: int
    """Calls with a figure."""
    reported_usd: float
    simulated_usd: float
    """The other way."""
    missing: dict[str, int] = {}
    """Calls without a figure, by the reason."""


def sum_costs(costs: Iterable[CallCost], *, is_changing: bool) -> Savings:
    """Return the sums over the calls of `heal` and `fit`, or over those of `record`."""
    reported_usd = simulated_usd = 0.0
    calls = 0
    missing = Counter[str]()
    for cost in costs:
        if cost.is_changing != is_changing:
            continue
        if cost.simulated_usd is None:
            missing[cost.why] += 1
            continue
        calls += 1
        reported_usd += cost.reported_usd
        simulated_usd += cost.simulated_usd
    return Savings(calls, reported_usd, simulated_usd, dict(missing))


def newest_costs(nx: Engine, ids: Container[str] | None = None) -> list[CallCost]:
    """Return the costs of calls of the ledger: of these ids, or of as many as a proxy keeps. Raises LedgerError."""
    reports = stored_reports(nx.ledger.store)
    if ids is None:
        ids = {report.id for report in reports[-MAX_REPORTS:]}
    conversations = {_conversation(report) for report in reports if report.id in ids}
    chosen = [report for report in reports if _conversation(report) in conversations]
    return [cost for cost in call_costs(nx, chosen) if cost.id in ids]


def call_costs(nx: Engine, reports: Iterable[CallReport]) -> Iterator[CallCost]:
    """Yield the costs of calls, oldest first; none for calls that failed, and that have no other way.

    Raises LedgerError for an unreadable ledger.

    Args:
        nx: The engine whose ledger has the calls.
        reports: All calls of their conversations, so that the cache is as warm as it was.
    """
    simulator = _Simulator(nx)
    for report in sorted(reports, key=lambda report: (report.at_ms, report.id)):
        cost = simulator.cost(report)
        if cost is not None:
            yield cost


class _Simulator:
    """The caches of the other way."""

    def __init__(self, nx: Engine) -> None:
        self._nx = nx
        self._caches: dict[tuple[str, str, bool, bool], Cache] = {}
        self._lists: dict[tuple[int, str], _ThreadList] = {}
        self._changed = set[tuple[str, str, str]]()
        """Conversations that a call was changed in."""

    def cost(self, report: CallReport) -> CallCost | None:
        """Return the cost of the next call; None for one that failed, or that has no other way."""
        is_changing = report.mode in _CHANGING_MODES
        is_unmarked = report.is_unmarked
        if report.error or report.outcome == "refused" or report.status >= 400:
            return None
        conversation = _conversation(report)
        if report.outcome in CHANGED:
            self._changed.add(conversation)
        model = self._nx.resolve(report.model or self._nx.model)
        why, reported_usd = _reported(report, model)
        simulated_usd = None
        if not why:
            why, simulated_usd = self._simulated(report, model, with_marks=is_unmarked)
        if not is_changing and not is_unmarked:
            return None
        if not why and is_changing and conversation not in self._changed:
            simulated_usd = reported_usd
        return CallCost(report.id, is_changing, reported_usd, simulated_usd, why)

    def _simulated(self, report: CallReport, model: Model, *, with_marks: bool) -> tuple[str, float | None]:
        """Return why a call has no figure, or the cost of its input the other way."""
        usage = report.usage
        assert usage is not None
        thread_list = self._list(report, model)
        call = thread_list.call(report)
        if call is None:
            return "no longer in the ledger", None
        whole_tokens = usage.input_tokens
        if report.outcome == "fitted":
            whole_tokens = max(whole_tokens, round(thread_list.whole_tokens(report) * _scale(report)))
        if whole_tokens > model.max_input_tokens:
            return "more than the model takes", None
        rule = cache_rule(model, hour=report.keeps_an_hour)
        breakpoints: tuple[int, ...] = ()
        if rule.uses_breakpoints and (with_marks or report.has_own_breakpoints):
            breakpoints = _breakpoints(report.breakpoints, len(call.segments), rule)
        key = (report.user, report.model, report.keeps_an_hour, with_marks)
        cache = self._caches.setdefault(key, Cache(rule))
        outcome = cache.send(replace(call, breakpoints=breakpoints))
        rates = rule.rates_at(whole_tokens)
        cost = outcome.read * rates.read + outcome.written * rates.write + outcome.uncached * rates.input
        return "", float(dollars(round(cost * whole_tokens / max(outcome.prompt, 1))))

    def _list(self, report: CallReport, model: Model) -> _ThreadList:
        key = (report.thread, model.name)
        if key not in self._lists:
            self._lists[key] = _ThreadList(self._nx, report, model)
        return self._lists[key]


class _ThreadList:
    """The list of a thread as segments of a simulated prompt. A call has the first ones."""

    def __init__(self, nx: Engine, first: CallReport, model: Model) -> None:
        self._segments: list[CacheSegment] = []
        self._ends: dict[int, int] = {}
        """Number of segments before the reply of a call, by its entry."""
        self._sums = [0]
        """Base tokens of the first messages."""
        self._counts: dict[int, int] = {}
        """Number of messages before the reply of a call, by its entry."""
        self._manifests: dict[int, dict[str, Any]] = {}
        store = nx.ledger.store
        try:
            head = store.thread(first.thread).head_seq
            self._manifests = {row.seq: row.manifest for row in store.assemblies(first.thread, 0, head)}
            entries = [*store.entries(first.thread, 0, head)]
        except NoSuchSession:  # erased since
            return
        factor = self._factor(first) * _scale(first)
        for entry in entries:
            if entry.seq in self._manifests:
                self._ends[entry.seq] = len(self._segments)
                self._counts[entry.seq] = len(self._sums) - 1
            for row in entry.rows:
                base_tokens = row.size.on(model.provider_format)
                self._sums.append(self._sums[-1] + base_tokens)
                blocks = max(len(row.message.parts), 1)
                tokens = round(base_tokens * factor)
                name = f"{entry.hash.hex()}:{row.ref.ord}"
                for number in range(blocks):
                    part_tokens = tokens * (number + 1) // blocks - tokens * number // blocks
                    self._segments.append(CacheSegment(f"{name}:{number}", part_tokens))

    def call(self, report: CallReport) -> CacheCall | None:
        """Return a call with the whole list; None if the ledger does not have it any more."""
        manifest = self._manifests.get(report.seq)
        if manifest is None:
            return None
        start, messages = manifest.get("cached_settings") or ("", "")
        scale = _scale(report)
        tools = CacheSegment(f"{start}:{manifest.get('tools')}", round(report.tools_tokens * scale))
        system = CacheSegment(f"{manifest.get('system')}:{messages}", round(report.system_tokens * scale))
        return CacheCall(report.at_ms, (tools, system, *self._segments[: self._ends[report.seq]]))

    def whole_tokens(self, report: CallReport) -> float:
        """Return the counted tokens of a call with the whole list."""
        base_tokens = self._sums[self._counts[report.seq]]
        return report.system_tokens + report.tools_tokens + base_tokens * self._factor(report)

    def _factor(self, report: CallReport) -> float:
        """Return a call's counted tokens per base token."""
        return float(self._manifests.get(report.seq, {}).get("factor") or 1.0)


def _reported(report: CallReport, model: Model) -> tuple[str, float]:
    """Return why a call has no figure, or the cost of its input as reported."""
    usage = report.usage
    if report.no_text:
        return "recorded without text", 0.0
    if usage is None or not usage.input_tokens:
        return ("not recorded" if usage is None else "no usage reported"), 0.0
    if not report.seq or not report.tokens:
        return "the same as an earlier call", 0.0
    cost = cost_of_reply(replace(usage, output_tokens=0), model)
    if cost is None:
        return "no prices known", 0.0
    return "", cost


def _conversation(report: CallReport) -> tuple[str, str, str]:
    return report.client, report.user, report.conversation or report.session


def _scale(report: CallReport) -> float:
    """Return the provider's tokens per counted token of a call."""
    if report.usage is None or not report.tokens:
        return 1.0
    return report.usage.input_tokens / report.tokens


def _breakpoints(places: Sequence[int], length: int, rule: CacheRule) -> tuple[int, ...]:
    """Return breakpoints as numbers of segments."""
    before_list = {AT_TOOLS: 1, AT_SYSTEM: _FIXED_SEGMENTS}
    ends = {min(before_list.get(place, place + _FIXED_SEGMENTS), length) for place in places}
    return tuple(sorted(ends)[-rule.max_breakpoints :])
