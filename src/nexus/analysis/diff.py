"""Two calls beside each other: the first thing that differs, in words and in bytes, and what of the prompt was kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.fit.cut import FitResult
from nexus.assembly.manifest_store import StoredManifest
from nexus.assembly.prefix.compare import compare_manifests
from nexus.assembly.prefix.locate import PrefixCosts, block_tokens, locate_break
from nexus.context import AssembledContext
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import tools_tokens
from nexus.types.message import ProviderFormat

EXCERPT_BYTES = 60
"""What is shown of each body from the first byte that differs on, and before it."""


class Difference(Struct, frozen=True):
    """How a later call's prompt follows an earlier one's.

    `extends`: the earlier body, but for its closing brackets, is the beginning of the later one; `broken`: it is not, for
    the `causes`, at the thing `at`; `same`: there is no difference. `byte` is the first that differs in the JSON of the
    bodies (in the later call's own form, cache marks left out), `common`, `earlier` and `later` what stands before it and
    from it on. `stable_tokens` stay a prefix, `again_tokens` are processed again or anew; of these `lost_tokens` would
    have been read from a warm cache, which costs `price` dollars (None: no price is known).
    """

    earlier_call: str
    later_call: str
    state: Literal["same", "extends", "broken"]
    causes: tuple[str, ...]
    at: str
    byte: int
    earlier_bytes: int
    later_bytes: int
    common: str
    earlier: str
    later: str
    stable_tokens: int
    reprocessed_tokens: int
    lost_tokens: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two calls: its context, how it was made to fit, its manifest as stored, and its name."""

    ctx: AssembledContext
    fitted: FitResult
    manifest: StoredManifest
    call: str


def diff_prompts(old: Side, new: Side, counter: TokenCounter) -> Difference:
    """The difference between two calls; which of them came first does not matter to it."""
    earlier, later = (_json(_body(side.ctx, new.ctx.accounting.model_info.wire)) for side in (old, new))
    byte = first_difference(earlier, later)
    state: Literal["same", "extends", "broken"] = "broken"
    if earlier == later:
        state = "same"
    elif byte >= len(earlier) - len(b"]}"):
        state = "extends"
    now = new.ctx.provenance.manifest
    report = compare_manifests(old.manifest, now, new.fitted.window)
    causes = report.causes
    if old.manifest.view != now.view:
        # Two views have cuts of their own, which have nothing to do with each other.
        alike = replace(old.manifest, cut=now.cut, first=now.first, pins=now.pins, pin_kinds=now.pin_kinds)
        causes = compare_manifests(alike, now, new.fitted.window).causes
        causes = (f"the view is another one: {now.view} after {old.manifest.view}", *causes)
    total = new.ctx.token_budget.used.total
    stable, lost, price, at = total, 0, None, ""
    if state == "extends":
        stable = min(old.ctx.token_budget.used.total, total)
    elif state == "broken":
        found = locate_break(report, old.manifest, now, _ground(old, new, counter))
        stable, lost, price, at = found.stable_tokens, found.lost_tokens, found.price, found.at
        causes = causes or ("what was sent differs, and nothing that is declared does",)
    return Difference(
        old.call,
        new.call,
        state,
        causes if state == "broken" else (),
        at,
        byte,
        len(earlier),
        len(later),
        _text(earlier[max(byte - EXCERPT_BYTES, 0) : byte]),
        _text(earlier[byte : byte + EXCERPT_BYTES]),
        _text(later[byte : byte + EXCERPT_BYTES]),
        stable,
        total - stable,
        lost,
        price,
    )


def first_difference(one: bytes, other: bytes) -> int:
    """The first byte that differs; the length of the shorter one where it is the beginning of the other."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _ground(old: Side, new: Side, counter: TokenCounter) -> PrefixCosts:
    ctx = new.ctx
    blocks, ahead = ([block for block in ctx.provenance.blocks if block.slot == slot] for slot in ("system", "ahead"))
    taken = tools_tokens((tool.definition() for tool in ctx.tools), counter)
    fitted = new.fitted
    history = fitted.window.tokens + fitted.closing_tokens + fitted.current_tokens
    return PrefixCosts(
        tools=taken,
        system=ctx.provenance.manifest.base - history - taken,
        blocks=block_tokens(blocks, counter),
        preamble_blocks=block_tokens(ahead, counter),
        window=new.fitted.window,
        earlier=old.ctx.messages,
        counter=counter,
        factor=ctx.provenance.manifest.factor,
        model=ctx.accounting.model_info,
        current=new.fitted.current_tokens,
    )


def _body(ctx: AssembledContext, wire: ProviderFormat) -> dict[str, Any]:
    """The body in a form, without the cache marks: these move with every call and are no part of the prefix."""
    body = ctx.to_provider(wire)
    for name in ("tools", "system", "messages") if wire == "anthropic" else ():
        for item in cast("list[dict[str, Any]]", body.get(name, [])):
            item.pop("cache_control", None)
            if name == "messages":
                item["content"] = [
                    {key: value for key, value in block.items() if key != "cache_control"} for block in item["content"]
                ]
    return body


def _json(body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(body)


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
