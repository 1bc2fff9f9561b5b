"""Comparison of two calls: the first difference, in words and in bytes, and the reusable part of the prompt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from nexus.assembly.fit.result import FitResult
from nexus.assembly.gather import REQUEST_TOKENS
from nexus.assembly.manifest_store import StoredManifest
from nexus.assembly.prefix_report import PrefixCosts, block_tokens, compare_manifests, locate_break
from nexus.context import AssembledContext
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import tools_tokens
from nexus.tokens.scale import TokenScale
from nexus.types.block import PREAMBLE
from nexus.types.message import ProviderFormat

EXCERPT_BYTES = 60
"""Length of each excerpt around the first difference."""


class Difference(Struct, frozen=True):
    """Comparison of a later call's prompt with an earlier one's.

    Bodies are compared in the later call's provider format, without cache breakpoints.
    """

    earlier_call: str
    later_call: str
    state: Literal["same", "extends", "broken"]
    """`extends`: the earlier body without its closing brackets is a prefix of the later one. `broken`: it is not."""
    causes: tuple[str, ...]
    at: str
    """The first differing part of a broken prompt."""
    byte: int
    """Offset of the first byte that differs."""
    earlier_bytes: int
    later_bytes: int
    common: str
    """Excerpt of both bodies before the first difference."""
    earlier_excerpt: str = field(name="earlier")
    later_excerpt: str = field(name="later")
    stable_tokens: int
    """Tokens that remain a prefix."""
    reprocessed_tokens: int
    """Tokens that are new or processed again."""
    lost_tokens: int
    """Reprocessed tokens that a warm cache would have had."""
    price: float | None
    """Dollars for the lost tokens; None without prices."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two calls."""

    ctx: AssembledContext
    fitted: FitResult
    manifest: StoredManifest
    call: str
    """The call's name in messages."""


def diff_prompts(old: Side, new: Side, counter: TokenCounter) -> Difference:
    """Compare two calls; `old` need not be the earlier one in time."""
    wire = new.ctx.accounting.model_info.provider_format
    old_body, new_body = (msgspec.json.encode(_body(side.ctx, wire)) for side in (old, new))
    byte = first_difference(old_body, new_body)
    state: Literal["same", "extends", "broken"] = "broken"
    if old_body == new_body:
        state = "same"
    elif byte >= len(old_body) - len(b"]}"):
        state = "extends"
    manifest = new.ctx.provenance.manifest
    report = compare_manifests(old.manifest, manifest, new.fitted)
    causes = report.causes
    if old.manifest.view != manifest.view:
        # Each view has its own cuts: a difference between cuts of two views is no cause.
        same_cut = replace(
            old.manifest,
            cut=manifest.cut,
            first=manifest.first,
            pins=manifest.pins,
            pin_kinds=(),
            opening_hash=manifest.opening_hash,
        )
        causes = compare_manifests(same_cut, manifest, new.fitted).causes
        causes = (f"the view changed: {manifest.view} after {old.manifest.view}", *causes)
    total = new.ctx.token_budget.used.total
    stable_tokens = total
    lost_tokens = 0
    price = None
    at = ""
    if state == "extends":
        stable_tokens = min(old.ctx.token_budget.used.total, total)
    elif state == "broken":
        fitted = new.fitted
        blocks = new.ctx.provenance.blocks
        tools = tools_tokens((tool.counted() for tool in new.ctx.tools), counter)
        conversation = fitted.window.tokens + fitted.closing_tokens + fitted.current_tokens
        costs = PrefixCosts(
            tools=tools,
            system=manifest.base - conversation - tools,
            blocks=block_tokens([block for block in blocks if block.slot == "system"], counter),
            preamble_blocks=block_tokens([block for block in blocks if block.slot == PREAMBLE], counter),
            window=fitted.window,
            earlier_messages=old.ctx.messages,
            scale=TokenScale(
                new.ctx.accounting.model_info,
                new.ctx.token_budget,
                counter,
                manifest.factor,
                manifest.content_factor,
            ),
            request=REQUEST_TOKENS,
            system_text=new.ctx.system_prompt,
            current=fitted.current_tokens,
        )
        prefix_break = locate_break(report, old.manifest, manifest, costs)
        stable_tokens = prefix_break.stable_tokens
        lost_tokens = prefix_break.lost_tokens
        price = prefix_break.price
        at = prefix_break.at
        causes = causes or ("the bodies differ, but no declared input does",)
    return Difference(
        earlier_call=old.call,
        later_call=new.call,
        state=state,
        causes=causes if state == "broken" else (),
        at=at,
        byte=byte,
        earlier_bytes=len(old_body),
        later_bytes=len(new_body),
        common=old_body[max(byte - EXCERPT_BYTES, 0) : byte].decode("utf-8", "replace"),
        earlier_excerpt=old_body[byte : byte + EXCERPT_BYTES].decode("utf-8", "replace"),
        later_excerpt=new_body[byte : byte + EXCERPT_BYTES].decode("utf-8", "replace"),
        stable_tokens=stable_tokens,
        reprocessed_tokens=total - stable_tokens,
        lost_tokens=lost_tokens,
        price=price,
    )


def first_difference(first: bytes, second: bytes) -> int:
    """Return the offset of the first byte that differs; the shorter length if one is a prefix of the other."""
    # A binary search over slices compares in C; a loop over bytes takes seconds for a body of megabytes.
    low = 0
    high = min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low


def _body(ctx: AssembledContext, wire: ProviderFormat) -> dict[str, Any]:
    """Return the body without cache breakpoints, which move with every call and are not part of the prefix."""
    body = ctx.to_provider(wire)
    for name in ("tools", "system", "messages") if wire == "anthropic" else ():
        for item in cast("list[dict[str, Any]]", body.get(name, [])):
            item.pop("cache_control", None)
            if name == "messages":
                item["content"] = [
                    {key: value for key, value in block.items() if key != "cache_control"} for block in item["content"]
                ]
    return body
