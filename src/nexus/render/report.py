"""The report of a context as plain text: included and omitted parts with reasons, tokens, and the cache boundary."""

from __future__ import annotations

import shlex

from nexus.context import AssembledContext, PrefixReport, engine_state
from nexus.types.message import Message


def report(ctx: AssembledContext) -> str:
    """Return the report: several lines without color."""
    manifest = ctx.provenance.manifest
    accounting = ctx.accounting
    budget = ctx.token_budget
    total = budget.used.total
    limits = f"window {budget.model_limit:,} − response {budget.reserve_response:,} − tools {budget.reserve_tools:,}"
    available = "set directly" if budget.direct else limits
    share = 0
    if budget.available:
        share = 100 * total / budget.available
    used = f"{total:,} of {budget.available:,} tokens used ({share:.1f} %)"
    lines = [
        f"Context for session {ctx.session_label!r}: {ctx.model} ({ctx.provider}), profile {manifest.profile}",
        f"Budget: {used}, {budget.remaining:,} free; available: {available}",
    ]
    if anchor := accounting.anchor:
        change = f"{abs(anchor.added_tokens):,} {'added' if anchor.added_tokens >= 0 else 'removed'} since"
        totals = f"{anchor.tokens:,} in total, {total:,} by counting"
        lines.append(f"Reported: {anchor.reported_tokens:,} tokens for the last call, {change}: {totals}")
    if ctx.compaction_due:
        lines.append(f"Compaction due: {accounting.full_share:.0%} of the available tokens needed (nexus compact)")
    lines += ["", "Included:"]
    for item in accounting.token_breakdown:
        name = item.name
        if item.messages and item.slot == "history":
            name = f"{name}: {item.messages} {'message' if item.messages == 1 else 'messages'}"
        if item.tokens or item.messages or item.layer == "Memory":
            lines.append(f"  {item.tokens:>9,}  {item.layer:<9}  {item.slot:<7}  {name} [{item.source}]")
    lines.append("")
    if omitted := omission_lines(ctx):
        lines += ["Omitted:", *omitted]
    else:
        lines.append("Omitted: nothing")
    lines.append("")
    lines += (f"Warning: {warning.source}: {warning.message}" for warning in ctx.warnings)
    lines += (f"Repaired: {change} ({count})" for change, count in sorted(ctx.repairs.changes.items()))
    return "\n".join([*lines, _cache(ctx.accounting.prefix)])


def omission_lines(ctx: AssembledContext) -> list[str]:
    """Return what a context omits, and why, a line each."""
    lines: list[str] = []
    manifest = ctx.provenance.manifest
    cut = ctx.cut
    engine = engine_state(ctx)
    opening = map(engine.plain_text if engine else Message.text, ctx.history.opening)
    notice = next((text for text in opening if text.startswith("[Earlier messages left out")), "")
    if notice:
        is_new = cut is not None and cut.reason != "old images"
        origin = "by an earlier truncation"
        if is_new:
            origin = "by a truncation in this call"
        lines.append(f"  {notice.strip('[]')} ({origin})")
    if cut is not None and cut.reason == "old images":
        command = f"nexus history {shlex.quote(ctx.session_label)} --images FOLDER"
        lines.append(f"  images of older turns, each replaced by a note (`{command}`)")
    if manifest.mark and not cut:
        lines.append("  messages before the session's last compaction or clear (shown by `nexus history`)")
    if (memory := ctx.provenance.memory) is not None:
        if manifest.entries == 1:
            entries = "1 entry"
        else:
            entries = f"{manifest.entries} entries"
        lines.append(f"  earlier turns, except {entries} of the {memory.name} (shown by `nexus history`)")
    capped = [block for block in ctx.provenance.blocks if block.omitted_chars]
    lines += (f"  {block.source}: {block.omitted_chars:,} characters beyond the size cap" for block in capped)
    by_reason: dict[str, list[str]] = {}
    for tool in ctx.provenance.denied_tools:
        by_reason.setdefault(tool.reason, []).append(tool.name)
    return lines + [f"  {', '.join(names)} (tools): {reason}" for reason, names in by_reason.items()]


def _cache(prefix: PrefixReport) -> str:
    stable = f"Cache boundary: {prefix.stable_tokens:,} tokens"
    if prefix.state == "first":
        return f"{stable} up to the end of the history; first call in this view"
    if prefix.state == "extends":
        return f"{stable} up to the end of the history extend the last call"
    cost = f", for ${prefix.price:.4f}" if prefix.price else ""
    changes = f"the prefix changes at {prefix.at} because {'; '.join(prefix.causes)}"
    return f"{stable}; {changes}: {prefix.lost_tokens:,} tokens are processed again{cost}"
