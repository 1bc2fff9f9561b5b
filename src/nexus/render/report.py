"""The report: what is in, what is out and why, tokens, and where the cache boundary is, as plain text."""

from __future__ import annotations

from nexus.context import AssembledContext, TokenLine
from nexus.render.turnlog.lines import parse_entry_text


def report(ctx: AssembledContext) -> str:
    """Several lines of text, without colour."""
    lines = [
        f"Context for session {ctx.session_label!r}: {ctx.model} ({ctx.provider}), profile {ctx.provenance.manifest.profile}",
        _budget(ctx),
        *_reported(ctx),
        *_due(ctx),
        "",
        "In:",
        *(
            _line(item)
            for item in ctx.accounting.token_breakdown
            if item.tokens or item.messages or item.layer == "Memory"
        ),
        "",
        *_out(ctx),
        *(f"Warning: {note.source}: {note.message}" for note in ctx.warnings),
        *(f"Repaired: {what} ({count})" for what, count in sorted(ctx.repairs.changes.items())),
        _cache(ctx),
    ]
    return "\n".join(lines)


def _budget(ctx: AssembledContext) -> str:
    budget = ctx.token_budget
    share = 100 * budget.used.total / budget.available if budget.available else 0
    origin = (
        "set directly"
        if budget.direct
        else f"window {budget.model_limit:,} − response {budget.reserve_response:,} − tools {budget.reserve_tools:,}"
    )
    used = f"{budget.used.total:,} of {budget.available:,} tokens used ({share:.1f} %)"
    return f"Budget: {used}, {budget.remaining:,} free; available: {origin}"


def _reported(ctx: AssembledContext) -> list[str]:
    anchor = ctx.accounting.anchor
    if anchor is None:
        return []
    since = f"{abs(anchor.added_tokens):,} {'added' if anchor.added_tokens >= 0 else 'taken away'} since"
    both = f"that is {anchor.tokens:,}, beside {ctx.token_budget.used.total:,} counted"
    return [f"Reported: {anchor.reported_tokens:,} tokens for the last call, {since}: {both}"]


def _due(ctx: AssembledContext) -> list[str]:
    """A word when it is time to compact."""
    if not ctx.compaction_due:
        return []
    return [f"Compaction is due: everything takes {ctx.accounting.full_share:.0%} of what is available (nexus compact)"]


def _line(item: TokenLine) -> str:
    what = (
        f"{item.name}: {item.messages} message{'s' if item.messages != 1 else ''}"
        if item.messages and item.slot == "history"
        else item.name
    )
    return f"  {item.tokens:>9,}  {item.layer:<9}  {item.slot:<7}  {what} [{item.source}]"


def _out(ctx: AssembledContext) -> list[str]:
    out: list[str] = []
    opening = (parse_entry_text(message.text()) or message.text() for message in ctx.history.opening)
    marker = next((text for text in opening if text.startswith("[Earlier messages left out")), "")
    if marker:
        own = ctx.cut is not None and ctx.cut.reason != "old images"
        out.append(f"  {marker.strip('[]')} ({'by a cut that this call makes' if own else 'since an earlier cut'})")
    if ctx.cut is not None and ctx.cut.reason == "old images":
        out.append(
            "  images of older turns, with a note in the place of each (`nexus history SESSION --images FOLDER`)"
        )
    if ctx.provenance.manifest.mark and not ctx.cut:
        out.append("  what was said before the session was last compacted or cleared (`nexus history` shows it)")
    if ctx.provenance.shows_one_turn:
        count = ctx.provenance.manifest.entries
        told = (
            f"what {count} {'entry' if count == 1 else 'entries'} of the shared memory tell{'s' if count == 1 else ''}"
        )
        out.append(f"  of earlier turns all but {told} (`nexus history` shows it)")
    capped = [block for block in ctx.provenance.blocks if block.omitted_chars]
    out.extend(f"  {block.source}: {block.omitted_chars:,} characters beyond the size cap" for block in capped)
    out.extend(f"  {names} (tools): {why}" for why, names in _withheld(ctx).items())
    return ["Out:", *out, ""] if out else ["Out: nothing", ""]


def _withheld(ctx: AssembledContext) -> dict[str, str]:
    """The tools that are not offered, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for tool in ctx.provenance.denied_tools:
        by_reason.setdefault(tool.why, []).append(tool.name)
    return {why: ", ".join(names) for why, names in by_reason.items()}


def _cache(ctx: AssembledContext) -> str:
    stable = f"{ctx.accounting.prefix.stable_tokens:,} tokens up to the end of the history"
    if ctx.accounting.prefix.state == "first":
        return f"Cache boundary: {stable}; nothing was sent before in this view"
    if ctx.accounting.prefix.state == "extends":
        return f"Cache boundary: {stable} extend the last call"
    at, lost = (
        f"the prefix breaks at {ctx.accounting.prefix.at}",
        f"{ctx.accounting.prefix.lost_tokens:,} tokens are processed again",
    )
    cost = f", for ${ctx.accounting.prefix.price:.4f}" if ctx.accounting.prefix.price else ""
    kept = f"{ctx.accounting.prefix.stable_tokens:,} tokens"
    return f"Cache boundary: {kept}; {at} because {'; '.join(ctx.accounting.prefix.causes)}: {lost}{cost}"
