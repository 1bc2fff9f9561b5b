"""Use of the provider's prompt cache by a session's calls: reported against predicted, prefix breaks and their price.

Reported tokens are from the usage that is stored with each call. The prediction is the prefix report's, stored with the
manifest; an imported call has none, so the last reported prompt is expected to be read again. Prices are list prices of
the call's model, by the cache's lifetime that its usage reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.manifest_store import StoredManifest, manifest_of
from nexus.context import PrefixReport
from nexus.ledger.store import HistoryStore
from nexus.providers.costs import cost_of_reply
from nexus.providers.prompt_cache import CacheRule, cache_rule, price_of_break
from nexus.providers.received import items_of, mapping, number_of, text_of
from nexus.tokens.model import Model
from nexus.types.ledger_entries import Entry
from nexus.types.request import TokenUsage

_READ_ENTRIES = 500

LEAST_LOST = 0.05
"""Share of the last prompt that must be processed again for a break that no report declares. Providers cache in steps."""

_MINUTE_MS = 60_000


class CachedCall(Struct, frozen=True):
    """One call's use of the cache."""

    seq: int
    """Entry of the reply."""
    turn: int
    at_ms: int
    model: str
    input_tokens: int | None
    """The whole prompt; None if the provider reported no usage."""
    read_tokens: int
    written_tokens: int
    predicted_tokens: int | None
    """Tokens that a warm cache can reuse; None if unknown."""
    dollars: float | None
    """Cost of the whole call; None without usage or prices."""
    causes: tuple[str, ...] = ()
    """Reasons why the last prompt was not read; empty if it was."""
    lost_tokens: int = 0
    """Tokens of the last prompt that were processed again."""
    lost_dollars: float | None = None
    """What processing `lost_tokens` cost more than reading them; None without prices."""

    @property
    def share(self) -> float | None:
        """Part of the prompt that was read from the cache."""
        if self.input_tokens:
            return self.read_tokens / self.input_tokens
        return None


class CacheUse(Struct, frozen=True):
    """Sums over calls with reported usage."""

    calls: int
    """All calls."""
    reported_calls: int
    input_tokens: int
    read_tokens: int
    written_tokens: int
    share: float | None
    """Part of the input that was read from the cache."""
    predicted_share: float | None
    """Part of the input that was predicted to be read, of the calls with a prediction."""
    dollars: float | None
    unpriced_calls: int
    """Calls with usage and without prices, which `dollars` lacks."""
    breaks: int
    lost_tokens: int
    lost_dollars: float | None
    """Price of the breaks with known prices."""


def sum_calls(calls: list[CachedCall]) -> CacheUse:
    """Return the sums over a session's calls."""
    reported = [call for call in calls if call.input_tokens]
    predicted = [call for call in reported if call.predicted_tokens is not None]
    total, read = (sum(getattr(call, name) or 0 for call in reported) for name in ("input_tokens", "read_tokens"))
    expected = sum(min(call.predicted_tokens or 0, call.input_tokens or 0) for call in predicted)
    predicted_input = sum(call.input_tokens or 0 for call in predicted)
    priced = [call.dollars for call in reported if call.dollars is not None]
    broken = [call for call in calls if call.lost_tokens]
    prices = [call.lost_dollars for call in broken if call.lost_dollars is not None]
    return CacheUse(
        calls=len(calls),
        reported_calls=len(reported),
        input_tokens=total,
        read_tokens=read,
        written_tokens=sum(call.written_tokens for call in reported),
        share=read / total if total else None,
        predicted_share=expected / predicted_input if predicted_input else None,
        dollars=sum(priced) if priced else None,
        unpriced_calls=len(reported) - len(priced),
        breaks=len(broken),
        lost_tokens=sum(call.lost_tokens for call in broken),
        lost_dollars=sum(prices) if prices or not broken else None,
    )


def cached_calls(
    store: HistoryStore,
    thread: int,
    resolve: Callable[[str], Model],
    progress: Callable[[int, int], None] | None = None,
    *,
    after: int = 0,
) -> Iterator[CachedCall]:
    """Yield each call of a thread behind entry `after`, oldest first. Raises LedgerError for an unreadable manifest.

    The first of them is compared with none.
    """
    reader = _CallReader(resolve)
    end = store.thread(thread).head_seq
    for start in range(after, end, _READ_ENTRIES):
        until = min(start + _READ_ENTRIES, end)
        rows = {row.seq: row for row in store.assemblies(thread, start, until)}
        for entry in store.entries(thread, start, until):
            row = rows.get(entry.seq)
            manifest = manifest_of(row)
            is_call = manifest is not None or "usage" in entry.body
            if is_call or any(stored.message.role == "assistant" for stored in entry.rows):
                yield reader.call(entry, manifest)
            elif entry.kind in ("compaction", "clear", "undone"):
                reader.is_changed = True
        if progress is not None:
            progress(until, end)


class _CallReader:
    """Compares each call with the one before it."""

    def __init__(self, resolve: Callable[[str], Model]) -> None:
        self._resolve = resolve
        self._rules: dict[tuple[str, bool], tuple[Model, CacheRule]] = {}
        self._model = ""
        self._hour = False
        """True if the newest tokens in the cache are kept for an hour."""
        self._last: CachedCall | None = None  # the last call with reported usage
        self._has_calls = False
        self.is_changed = False
        """True if the history was compacted or cleared since that call."""

    def call(self, entry: Entry, manifest: StoredManifest | None) -> CachedCall:
        """Return the next call."""
        prefix, is_recorded = (None, False) if manifest is None else (manifest.prefix, True)
        authors = (row.message.model for row in reversed(entry.rows) if row.message.model)
        self._model = text_of(entry.body.get("model")) or next(authors, "") or self._model
        model, rule = self._rule()
        fields = mapping(entry.body.get("usage"))
        usage = TokenUsage(**{name: number_of(fields.get(name)) for name in TokenUsage.__struct_fields__})
        if usage.cache_write_tokens:
            self._hour = 2 * usage.cache_write_1h_tokens > usage.cache_write_tokens
        call = CachedCall(
            seq=entry.seq,
            turn=entry.turn,
            at_ms=entry.at_ms,
            model=self._model,
            input_tokens=usage.input_tokens or None,
            read_tokens=usage.cache_read_tokens,
            written_tokens=usage.cache_write_tokens,
            predicted_tokens=self._predicted(prefix, is_recorded=is_recorded),
            dollars=cost_of_reply(usage, model) if usage.input_tokens and self._model else None,
        )
        is_first = not self._has_calls
        self._has_calls = True
        if not call.input_tokens:
            is_broken = prefix is not None and prefix.state == "broken"
            if prefix and is_broken:
                return _with_loss(call, prefix.causes, prefix.lost_tokens, prefix.price)
            return call
        if manifest is not None and manifest.reported != call.input_tokens:
            # An agent's sum over several calls, or another model's report: neither is of this prompt.
            edits = tuple(
                f"the provider edited the prompt ({kind})" for kind in _texts(entry.body.get("context_edits"))
            )
            return replace(call, predicted_tokens=None, causes=edits)
        if is_first:
            call = replace(call, causes=("first call",))
        else:
            reason = text_of(entry.body.get("cache_miss_reason"))
            call = self._with_break(call, call.input_tokens, prefix, rule, reason, is_recorded=is_recorded)
        self._last = call
        self.is_changed = False
        return call

    def _rule(self) -> tuple[Model, CacheRule]:
        """Return the model of the newest call, and the rule of its cache."""
        key = self._model, self._hour
        if key not in self._rules:
            model = self._resolve(self._model)
            self._rules[key] = model, cache_rule(model, hour=self._hour)
        return self._rules[key]

    def _predicted(self, prefix: PrefixReport | None, *, is_recorded: bool) -> int | None:
        """Return the stored prediction; for an imported call the last prompt, unless the history was changed."""
        if prefix is not None:
            if prefix.state == "first":
                return 0
            return prefix.stable_tokens
        if is_recorded or self.is_changed:
            return None
        if self._last is None:
            if self._has_calls:
                return None
            return 0
        if self._last.model == self._model:
            return self._last.input_tokens
        return 0

    def _with_break(
        self,
        call: CachedCall,
        tokens: int,
        prefix: PrefixReport | None,
        rule: CacheRule,
        reason: str,
        *,
        is_recorded: bool,
    ) -> CachedCall:
        """Return the call with its loss and the causes, if the last prompt was not read again.

        `reason` is the provider's own word for the cause.
        """
        last = self._last
        causes = [f"{reason.replace('_', ' ')} (the provider's reason)"] if reason else []
        causes += prefix.causes if prefix is not None else ()
        if prefix is not None and prefix.state == "first":
            causes.append("first call with this profile, provider format or budget")
        if last is None or not last.input_tokens:
            lost_tokens = prefix.lost_tokens if prefix is not None else 0
            if causes:
                return _with_loss(call, tuple(causes), lost_tokens, self._price(lost_tokens, tokens))
            return call
        reusable = min(last.input_tokens, tokens)
        lost_tokens = max(reusable - call.read_tokens, 0)
        is_loss = lost_tokens > max(rule.step_tokens, LEAST_LOST * reusable)
        if not causes and not is_loss:
            return call
        if prefix is None and last.model != call.model:
            causes.append(f"the model changed from {last.model or 'an unnamed one'}")
        if prefix is None and self.is_changed:
            causes.append("the history was compacted or cleared")
        idle_ms = 0
        if call.at_ms and last.at_ms:
            idle_ms = call.at_ms - last.at_ms
        is_short = is_loss and call.read_tokens < LEAST_LOST * (call.predicted_tokens or reusable)
        if idle_ms >= rule.ttl_ms and (is_short or (is_loss and not causes)):
            lifetime = rule.ttl_ms // _MINUTE_MS
            causes.append(f"{idle_ms // _MINUTE_MS:,} minutes after the last call; the cache's lifetime is {lifetime}")
        if not causes and reusable < rule.min_tokens:
            causes.append(f"the last prompt was shorter than the smallest cached prefix ({rule.min_tokens:,} tokens)")
        if not causes and is_recorded:
            causes.append("unknown: the prompt extends the last one" if prefix else "unknown: not stored with the call")
        if not causes:
            causes.append("unknown: the file does not contain the prompt")
        return _with_loss(call, tuple(causes), lost_tokens, self._price(lost_tokens, tokens))

    def _price(self, lost_tokens: int, prompt_tokens: int) -> float | None:
        price = price_of_break(lost_tokens, self._rule()[0], prompt_tokens=prompt_tokens, hour=self._hour)
        if price is None:
            return None
        return float(price)


def _texts(value: Any) -> list[str]:
    return [*filter(None, map(text_of, items_of(value)))]


def _with_loss(call: CachedCall, causes: tuple[str, ...], tokens: int, price: float | None) -> CachedCall:
    return replace(call, causes=causes, lost_tokens=tokens, lost_dollars=price)
