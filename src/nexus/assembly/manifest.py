"""The manifest of a context, and the comparison of its prompt with the last one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nexus.assembly.fit.choose import ChosenFit
from nexus.assembly.fit.repair import is_synthetic_result
from nexus.assembly.gather import REQUEST_TOKENS, SYSTEM_SOURCE, SystemPrompt
from nexus.assembly.inputs import AssemblyInputs
from nexus.assembly.prefix_report import (
    PrefixCosts,
    block_tokens,
    compare_manifests,
    image_change,
    locate_break,
    pinned_places,
    previously_visible,
    stable_tokens_if_extended,
)
from nexus.context import Manifest, PrefixReport
from nexus.providers.prompt_cache import cached_settings
from nexus.text.frames import MARKS_VERSION
from nexus.types.block import Block, block_key, text_hash
from nexus.types.history import PLAIN
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.sanitize import sanitize_text

_LATER_KEYS = frozenset(
    {
        "id",
        "base",
        "largest",
        "task",
        "pin_kinds",
        "persona",
        "images",
        "entries",
        "marks",
        "whole_new_results",
        "content",
        "cached_settings",
        "lookup",
        "image_limits",
        "image_edge",
        "image_notes",
    }
)
"""Stored keys that came later than the id, or that follow from the others."""

_ID_FIELDS = tuple(
    (field.encode_name, field.name)
    for field in msgspec.structs.fields(Manifest)
    if field.encode_name not in _LATER_KEYS
)
"""Stored keys and attributes that the id covers, in stored order. Listed once, because `fields` takes as long as a warm call."""

_FORMAT_KEYS = ("ahead", "form")
_KEYS_IF_SET = ("opening", "begun", "heading", "system_parts", "system_names", "list_pins")


def build_manifest(
    request: Request,
    profile: Profile,
    inputs: AssemblyInputs,
    system: SystemPrompt,
    chosen: ChosenFit,
    settings: Mapping[str, Any],
) -> Manifest:
    """Return the manifest of a prompt. Its id is a hash of everything that determines the prompt.

    `settings` are the request's under the provider's own names.
    """
    result = chosen.result
    preamble = chosen.preamble
    event = chosen.event
    window = result.window
    scale = inputs.scale
    view = inputs.view
    caller = inputs.mirrored
    cut = result.cut or window.cut
    heading = window.rules.header.summary_heading
    if request.most_tokens:
        bounded = scale.budget.available
    else:
        bounded = request.settings.budget or 0
    manifest = Manifest(
        id="",
        view=view.name,
        profile=profile.name,
        model=request.settings.model or scale.model.name,
        system=text_hash(system.text),
        blocks={block_key(block): block.hash[:16] for block in system.blocks},
        tools=hashlib.sha256(msgspec.json.encode(system.tools)).hexdigest(),
        head=window.head,
        head_hash=window.path.head_hash.hex(),
        first=(window.first.seq, window.first.ord),
        mark=inputs.session.mark_seq,
        cut=cut.number if cut else 0,
        config=hashlib.sha256(repr(sorted(request.settings.model_config.items())).encode()).hexdigest()[:16],
        synthetic_results=sum(
            message.role == "tool" and is_synthetic_result(message)
            for message in result.visible[result.closing_count :]
        ),
        current=hashlib.sha256(msgspec.msgpack.encode(_utf8(repr(event)))).hexdigest(),
        counter=scale.counter.name,
        factor=scale.factor,
        available=bounded,
        render=view.render,
        pins=pinned_places(window, result.verbatim_indexes),
        base=preamble.fixed.total + window.tokens + result.closing_tokens + result.current_tokens,
        max_tool_result_tokens=view.max_tool_result_tokens,
        pin_first_message=view.pin_first_message,
        whole_new_results=view.whole_new_results,
        lookup=window.rules.lookup,
        opening_hash=window.opening_hash(),
        persona=request.settings.persona,
        images=view.images,
        preamble_blocks={block_key(block): block.hash[:16] for block in preamble.blocks},
        message_format=view.message_format.name,
        entries=preamble.entries,
        session_header=window.rules.header.started,
        summary_heading="" if heading == PLAIN.summary_heading else heading,
        frame_tags=MARKS_VERSION,
        content_factor=scale.content_factor,
        cached_settings=cached_settings(scale.model, settings),
        image_limits=view.image_limits,
        image_edge=result.images.edge_px,
        image_notes=result.images.notes,
        list_pins=caller.pins,
        system_parts=_system_parts(caller.system_parts, system.blocks),
        system_names=caller.system_names if _ends_system(caller.system_names, system.blocks) else (),
    )
    return msgspec.structs.replace(manifest, id=_manifest_id(manifest, is_format_hashed=view.message_format.is_hashed))


def _system_parts(parts: tuple[tuple[int, int], ...], blocks: Sequence[Block]) -> tuple[tuple[int, int], ...]:
    """Return the blocks in which the caller's system prompt came, unless it is another one by now."""
    if len(parts) > 1 and _ends_system(parts, blocks):
        return parts
    return ()


def _ends_system(parts: Sequence[tuple[Any, ...]], blocks: Sequence[Block]) -> bool:
    """Return True if the last part ends with the caller's system prompt."""
    text = ""
    if blocks and blocks[0].source == SYSTEM_SOURCE:
        text = sanitize_text(blocks[0].text)
    return bool(parts) and parts[-1][1] == len(text)


def _manifest_id(manifest: Manifest, *, is_format_hashed: bool) -> str:
    """Return the hash of the manifest's stored keys and values, in their stored order."""
    fields: dict[str, Any] = {}
    for key, name in _ID_FIELDS:
        value = getattr(manifest, name)
        if (key in _FORMAT_KEYS and not is_format_hashed) or (key in _KEYS_IF_SET and not value):
            continue
        fields[key] = value
    return hashlib.sha256(_utf8(repr(fields))).hexdigest()[:32]


def prefix_report(inputs: AssemblyInputs, manifest: Manifest, system: SystemPrompt, chosen: ChosenFit) -> PrefixReport:
    """Return whether this call extends the last one; if not, where it breaks and what that costs."""
    last = inputs.last.manifest
    scale = inputs.scale
    result = chosen.result
    fixed = chosen.preamble.fixed
    report = compare_manifests(last, manifest, result)
    if last is None or report.state != "broken":
        prefix_tokens = fixed.total + result.window.tokens
        stable_tokens = int(prefix_tokens * scale.factor)
        if last is not None:
            stable_tokens = stable_tokens_if_extended(last, prefix_tokens, scale.factor)
        return msgspec.structs.replace(report, stable_tokens=stable_tokens)
    costs = PrefixCosts(
        tools=fixed.tools,
        system=fixed.system,
        blocks=block_tokens(system.blocks, scale.counter),
        preamble_blocks=block_tokens(chosen.preamble.blocks, scale.counter),
        window=result.window,
        earlier_messages=previously_visible(last, inputs.window, inputs.session.mark)
        if result.cut is not None
        else None,
        scale=scale,
        request=REQUEST_TOKENS,
        system_text=system.text,
        current=result.current_tokens,
        image_change=image_change(last, result),
    )
    return locate_break(report, last, manifest, costs)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
