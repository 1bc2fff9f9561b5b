"""The manifest of a context, and how its prompt follows the last one. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.assembly.fit.cut import FitResult, FixedTokens
from nexus.assembly.inputs import AssemblyInputs, plan_budget
from nexus.assembly.prefix.compare import compare_manifests
from nexus.assembly.prefix.locate import (
    PrefixCosts,
    block_key,
    block_tokens,
    locate_break,
    pinned_places,
    previously_visible,
)
from nexus.context import Manifest, PrefixReport
from nexus.text.frames import MARKS_VERSION
from nexus.text.message_text import RENDER_VERSION
from nexus.types.block import Block, text_hash
from nexus.types.history import PLAIN
from nexus.types.message import Message
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.tool_definition import ToolSpec


@dataclass(frozen=True, slots=True)
class RenderedPrefix:
    """What stands before the conversation: the system slot's blocks and text, blocks that are messages, the tools.

    `entries` is how many earlier entries the blocks tell of.
    """

    blocks: list[Block]
    preamble_blocks: list[Block]
    system: str
    tools: tuple[ToolSpec, ...]
    fixed: FixedTokens
    entries: int


def build_manifest(
    request: Request,
    profile: Profile,
    inputs: AssemblyInputs,
    fitted: FitResult,
    prefix: RenderedPrefix,
    event: tuple[Message, ...],
) -> Manifest:
    """What is sent, by hashes and places; and beside that what its id does not depend on."""
    window = fitted.window
    cut = fitted.cut or window.cut
    fields: dict[str, Any] = {
        "view": inputs.view.name,
        "profile": profile.name,
        "model": request.model or inputs.model.name,
        "system": text_hash(prefix.system),
        "blocks": {block_key(block): block.hash[:16] for block in prefix.blocks},
        "tools": hashlib.sha256(msgspec.json.encode(prefix.tools)).hexdigest(),
        "head": window.head,
        "head_hash": window.head_hash.hex(),
        "first": (window.first.seq, window.first.ord),
        "mark": inputs.mark.seq if inputs.mark else 0,
        "cut": cut.number if cut else 0,
        "config": hashlib.sha256(repr(sorted(request.model_config.items())).encode()).hexdigest()[:16],
        "supplied": len(fitted.visible) - fitted.closing_count - len(event),
        "current": hashlib.sha256(msgspec.msgpack.encode(_hashable(event))).hexdigest(),
        "counter": inputs.counter.name,
        "factor": inputs.factor,
        "available": plan_budget(request, inputs.model).available
        if request.most_tokens
        else request.available_tokens or 0,
        "render": RENDER_VERSION,
        "pins": pinned_places(window, fitted.spared),
        "ahead": {block_key(block): block.hash[:16] for block in prefix.preamble_blocks},
        "form": profile.message_format,
        "begun": window.header.started,
        "heading": "" if window.header.summary_heading == PLAIN.summary_heading else window.header.summary_heading,
    }
    if profile.message_format == "roles":  # the ids of the form that there was first are those of earlier versions
        fields = {name: value for name, value in fields.items() if name not in ("ahead", "form")}
    fields = {name: value for name, value in fields.items() if value or name not in ("begun", "heading")}
    made = Manifest(id=hashlib.sha256(repr(fields).encode("utf-8", "surrogatepass")).hexdigest()[:32], **fields)
    return msgspec.structs.replace(
        made,
        base=prefix.fixed.total + window.tokens + fitted.closing_tokens + fitted.current_tokens,
        largest=inputs.view.max_tool_result_tokens,
        task=inputs.view.pin_first_message,
        pin_kinds=tuple(pin.kind for pin in window.hidden_pins()),
        persona=request.identity.persona,
        images=inputs.view.images,
        entries=prefix.entries,
        marks=MARKS_VERSION,
    )


def prefix_report(
    inputs: AssemblyInputs, sent: dict[str, Any], prefix: RenderedPrefix, fitted: FitResult
) -> PrefixReport:
    """Whether this call extends the last one; if not, where it breaks and what that costs."""
    before = inputs.last_manifest
    report = compare_manifests(before, sent, fitted.window)
    if before is None or report.state != "broken":
        stable = prefix.fixed.total + fitted.window.tokens
        return msgspec.structs.replace(report, stable_tokens=int(stable * inputs.factor))
    ground = PrefixCosts(
        tools=prefix.fixed.tools,
        system=prefix.fixed.system,
        blocks=block_tokens(prefix.blocks, inputs.counter),
        preamble_blocks=block_tokens(prefix.preamble_blocks, inputs.counter),
        window=fitted.window,
        earlier=previously_visible(before, inputs.window, inputs.mark) if fitted.cut is not None else None,
        counter=inputs.counter,
        factor=inputs.factor,
        model=inputs.model,
        current=fitted.current_tokens,
    )
    return locate_break(report, before, sent, ground)


def _hashable(event: tuple[Message, ...]) -> bytes:
    return repr(event).encode("utf-8", "surrogatepass")
