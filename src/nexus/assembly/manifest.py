"""The manifest of a context, and how its prompt follows the last one. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.assembly.fit.cut import Fitted, Fixed
from nexus.assembly.inputs import Materials, planned
from nexus.assembly.prefix.compare import compare
from nexus.assembly.prefix.locate import Ground, located, measured, named, pinned_places, shown_before
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
class Slotted:
    """What stands before the conversation: the system slot's blocks and text, blocks that are messages, the tools.

    `entries` is how many earlier entries the blocks tell of.
    """

    blocks: list[Block]
    ahead: list[Block]
    system: str
    tools: tuple[ToolSpec, ...]
    fixed: Fixed
    entries: int


def manifest_of(
    request: Request, profile: Profile, given: Materials, fitted: Fitted, slot: Slotted, event: tuple[Message, ...]
) -> Manifest:
    """What is sent, by hashes and places; and beside that what its id does not depend on."""
    window = fitted.window
    cut = fitted.cut or window.cut
    fields: dict[str, Any] = {
        "view": given.view.name,
        "profile": profile.name,
        "model": request.model or given.model.name,
        "system": text_hash(slot.system),
        "blocks": {named(block): block.hash[:16] for block in slot.blocks},
        "tools": hashlib.sha256(msgspec.json.encode(slot.tools)).hexdigest(),
        "head": window.head,
        "head_hash": window.head_hash.hex(),
        "first": (window.first.seq, window.first.ord),
        "mark": given.mark.seq if given.mark else 0,
        "cut": cut.number if cut else 0,
        "config": hashlib.sha256(repr(sorted(request.model_config.items())).encode()).hexdigest()[:16],
        "supplied": len(fitted.shown) - fitted.ahead - len(event),
        "current": hashlib.sha256(msgspec.msgpack.encode(_hashable(event))).hexdigest(),
        "counter": given.counter.name,
        "factor": given.factor,
        "available": planned(request, given.model).available if request.most_tokens else request.available_tokens or 0,
        "render": RENDER_VERSION,
        "pins": pinned_places(window, fitted.spared),
        "ahead": {named(block): block.hash[:16] for block in slot.ahead},
        "form": profile.form,
        "begun": window.opens.begun,
        "heading": "" if window.opens.heading == PLAIN.heading else window.opens.heading,
    }
    if profile.form == "roles":  # the ids of the form that there was first are those of earlier versions
        fields = {name: value for name, value in fields.items() if name not in ("ahead", "form")}
    fields = {name: value for name, value in fields.items() if value or name not in ("begun", "heading")}
    made = Manifest(id=hashlib.sha256(repr(fields).encode("utf-8", "surrogatepass")).hexdigest()[:32], **fields)
    return msgspec.structs.replace(
        made,
        base=slot.fixed.total + window.tokens + fitted.closing_tokens + fitted.current_tokens,
        largest=given.view.largest,
        task=given.view.task,
        pin_kinds=tuple(pin.kind for pin in window.hidden()),
        persona=request.identity.persona,
        images=given.view.images,
        entries=slot.entries,
        marks=MARKS_VERSION,
    )


def prefix_of(given: Materials, sent: dict[str, Any], slot: Slotted, fitted: Fitted) -> PrefixReport:
    """Whether this call extends the last one; if not, where it breaks and what that costs."""
    before = given.last_manifest
    report = compare(before, sent, fitted.window)
    if before is None or report.state != "broken":
        stable = slot.fixed.total + fitted.window.tokens
        return msgspec.structs.replace(report, stable_tokens=int(stable * given.factor))
    ground = Ground(
        tools=slot.fixed.tools,
        system=slot.fixed.system,
        blocks=measured(slot.blocks, given.counter),
        ahead=measured(slot.ahead, given.counter),
        window=fitted.window,
        earlier=shown_before(before, given.window, given.mark) if fitted.cut is not None else None,
        counter=given.counter,
        factor=given.factor,
        model=given.model,
        current=fitted.current_tokens,
    )
    return located(report, before, sent, ground)


def _hashable(event: tuple[Message, ...]) -> bytes:
    return repr(event).encode("utf-8", "surrogatepass")
