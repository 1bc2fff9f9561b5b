"""Cache reads of a recorded call, and the cause if it did not read the last prompt of its conversation.

The comparison is the engine's: the usage as reported, the manifests of both calls, and how this prompt follows the last one.
Here its findings get the names that are counted, and what only a proxy sees is added: breakpoints, and lists that the
client changed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Struct

from nexus.assembly.manifest_store import StoredManifest, manifest_of
from nexus.assembly.prefix_report import changes_before_history
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.analysis.cache_use import LEAST_LOST, CachedCall, cached_calls
from nexus.ledger.recorded_calls import last_call, last_of_view
from nexus.providers.prompt_cache import CacheRule, cache_rule, changed_settings
from nexus.providers.received import mapping
from nexus.proxy.reports import CacheReading, CallReport
from nexus.types.ledger_entries import AssemblyRow

FIRST: Final = "first call of the conversation"
TOO_SHORT: Final = "below the smallest cached prompt"
NO_BREAKPOINT: Final = "no breakpoint in the request"
EXPIRED: Final = "over the cache's lifetime"
MODEL: Final = "the client changed the model"
TOOLS: Final = "the client changed the tools"
SYSTEM: Final = "the client changed the system prompt"
SETTINGS: Final = "the client changed settings"
MESSAGES: Final = "the client changed an earlier message"
OWN_CUT: Final = "cut by this proxy"
UNKNOWN: Final = "unknown: dropped by the provider"

_NAMES: tuple[tuple[str, str], ...] = (
    ("to stay within the budget", OWN_CUT),
    ("images", OWN_CUT),
    ("results that it lacked", OWN_CUT),
    ("renders differently", OWN_CUT),
    ("model changed", MODEL),
    ("tools changed", TOOLS),
    ("tool definitions", TOOLS),
    ("system", SYSTEM),
    ("settings", SETTINGS),
    ("lifetime", EXPIRED),
    ("message", MESSAGES),
    ("history", MESSAGES),
    ("other turns", MESSAGES),
)
"""Names of causes by words of their texts: the engine's, and the provider's own reason. The first that is found counts."""

_MINUTE_MS = 60_000


class _LastCall(Struct, frozen=True):
    """The last call of the same conversation."""

    row: AssemblyRow
    thread: int
    is_other_list: bool
    """True if this list is not that one with more messages, so that it became a fork."""


def read_cache(nx: Engine, ctx: AssembledContext, report: CallReport) -> CacheReading | None:
    """Return what a call read from the cache that was just recorded; None without reported usage.

    Raises LedgerError for an unreadable manifest of the last call.
    """
    usage = report.usage
    if usage is None or not usage.input_tokens or not report.seq:
        return None
    last = _last_call(nx, report)
    if last is None:
        return CacheReading(usage.cache_read_tokens, 0, FIRST)
    calls = [*cached_calls(nx.ledger.store, last.thread, nx.resolve, after=last.row.seq - 1)]
    if not calls or not calls[0].input_tokens:
        return CacheReading(usage.cache_read_tokens, 0, detail="no usage was reported for the last call")
    expected_tokens = min(calls[0].input_tokens, usage.input_tokens)
    rule = cache_rule(ctx.accounting.model_info, hour=report.keeps_an_hour)
    lost_tokens = expected_tokens - usage.cache_read_tokens
    if lost_tokens <= max(rule.step_tokens, LEAST_LOST * expected_tokens):
        return CacheReading(usage.cache_read_tokens, expected_tokens)
    cause, detail = _without_cache(calls[0], expected_tokens, rule, report)
    if not cause:
        cause, detail = _change(nx, ctx, last, calls[-1], rule, report)
    return CacheReading(usage.cache_read_tokens, expected_tokens, cause, detail)


def _last_call(nx: Engine, report: CallReport) -> _LastCall | None:
    """Return the last call: of the session that a new fork left, else the one before on the same path."""
    row = last_of_view(nx.ledger.store, report.thread, "", report.seq - 1)
    parent = _last_of_parent(nx, report)
    if parent is not None and (row is None or parent.row.manifest.get("id") != row.manifest.get("id")):
        return parent
    if row is None:
        return None
    return _LastCall(row, report.thread, is_other_list=False)


def _change(
    nx: Engine, ctx: AssembledContext, last: _LastCall, call: CachedCall, rule: CacheRule, report: CallReport
) -> tuple[str, str]:
    """Return name and details of what differs from the last call; its age, if nothing does that explains the miss."""
    before = manifest_of(last.row)
    if before is None:
        return UNKNOWN, ""
    if last.is_other_list:
        causes = _changed_list(ctx, before)
    else:
        causes = _causes(ctx, before, call)
    reads_nothing = report.usage is not None and not report.usage.cache_read_tokens
    if not causes or (last.is_other_list and reads_nothing):
        causes = _expiry(last.row, report, rule) or causes
    cause, detail = _named(causes)
    if cause == SETTINGS:
        detail = ", ".join(_setting_names(nx, ctx, before)) or detail
    return cause, detail


def _last_of_parent(nx: Engine, report: CallReport) -> _LastCall | None:
    """Return the newest call of the session that a fork left; None for a call that is no new fork."""
    if report.action not in ("fork", "repeat"):  # a repeated list with another answer is a fork too
        return None
    thread = nx.ledger.store.thread_of(nx.ledger.sessions.metadata(report.session).owner_session)
    row = None if thread is None else last_call(nx.ledger.store, thread)
    if thread is None or row is None:
        return None
    return _LastCall(row, thread, is_other_list=True)


def _without_cache(last: CachedCall, expected_tokens: int, rule: CacheRule, report: CallReport) -> tuple[str, str]:
    """Return why nothing of the last prompt can have been cached; empty texts if it can."""
    if expected_tokens < rule.min_tokens:
        return TOO_SHORT, f"the smallest one has {rule.min_tokens:,} tokens"
    if report.format != "anthropic":
        return "", ""
    if not report.has_own_breakpoints and not report.adds_breakpoints:
        return NO_BREAKPOINT, ""
    if not last.read_tokens and not last.written_tokens:
        return NO_BREAKPOINT, "in the last one, so that nothing was stored"
    return "", ""


def _causes(ctx: AssembledContext, before: StoredManifest, call: CachedCall) -> list[str]:
    """Return the causes of a call that goes on from the last one: the engine's, of both calls' manifests if it has none."""
    prefix = ctx.accounting.prefix
    known = [cause for cause in call.causes if not cause.startswith(("unknown", "first call"))]
    if known:
        return known
    if prefix.state != "first":
        return [*prefix.causes]
    # The last call was made with another budget: its manifest is comparable up to the history.
    causes = changes_before_history(before, ctx.provenance.manifest)
    if not causes and (ctx.cut is not None or before.cut):
        causes.append("older messages were cut to stay within the budget, which is another one now")
    return causes


def _changed_list(ctx: AssembledContext, before: StoredManifest) -> list[str]:
    """Return the differences of a list that is not the last one with more messages."""
    causes = changes_before_history(before, ctx.provenance.manifest)
    mirrored = ctx.mirrored
    if not causes and mirrored is not None and mirrored.missing_count:  # without, the client asks once more
        causes.append(f"message {mirrored.stored_count + 1} is another one")
    return causes


def _expiry(last: AssemblyRow, report: CallReport, rule: CacheRule) -> list[str]:
    idle_ms = report.at_ms - last.at_ms
    if idle_ms < rule.ttl_ms:
        return []
    return [
        f"{idle_ms // _MINUTE_MS:,} minutes after the last call; the cache's lifetime is {rule.ttl_ms // _MINUTE_MS}"
    ]


def _named(causes: list[str]) -> tuple[str, str]:
    """Return the name of the first cause that has one, by the order of the names, with the texts of all."""
    for words, name in _NAMES:
        if any(words in cause for cause in causes):
            return name, "; ".join(causes)
    return UNKNOWN, "; ".join(causes)


def _setting_names(nx: Engine, ctx: AssembledContext, before: StoredManifest) -> list[str]:
    """Return the names of the settings that differ from the last call's."""
    data = nx.ledger.store.blob(before.blob_hashes.get("settings", ""))
    if data is None:
        return []
    return changed_settings(_flat(mapping(json.loads(data).get("config"))), _flat(ctx.model_config))


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with those that only the provider knows among the others."""
    return {**settings, **mapping(settings.get("extra")), "extra": None}
