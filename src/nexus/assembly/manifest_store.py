"""What a stored manifest tells beside hashes, so that its call can be made again: written by `record`, read by replay.

The history stands in the ledger. What does not is stored once, by its SHA-256: the system slot's blocks, the tools and
those withheld, and the model's facts with its settings. A manifest names the hashes, so what stays the same from call to call costs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadEntry
from nexus.ledger.codec import body_json
from nexus.ledger.text_encoding import to_json
from nexus.tokens.model import Model
from nexus.types.block import Block
from nexus.types.ledger_entries import Cut, StoredMessage

NoteState: TypeAlias = Literal["placed", "seen", "left out"]


class Settings(Struct, frozen=True):
    """The model's facts as they were, and the settings that were sent (None: one of them had no JSON form)."""

    model: Model
    config: dict[str, Any] | None


class NoteMetadata(Struct, frozen=True, array_like=True):
    """A block of the current message without its text: `placed` in it, `seen` in the history already, or `left out`."""

    state: NoteState
    layer: str
    name: str
    source: str
    trust: str


class StoredManifest(Struct, frozen=True):
    """`body` is the body's hash ("": it had no JSON form), `inputs` the hashes of blocks, tools and settings.

    `events` counts the messages of the event, which begin the recorded entry; `opens` says that a user spoke; `made` is
    the cut that this call made, `uncut` what everything would have taken without it. `context_json` is the system prompt's
    record of document 002. All have defaults: a manifest of an earlier version has none of them.
    """

    body: str = ""
    inputs: dict[str, str] = {}
    session: str = ""
    events: int = 0
    opens: bool = True
    notes: tuple[NoteMetadata, ...] = ()
    made: Cut | None = None
    uncut: int = 0
    context_json: dict[str, Any] = {}


def stored_manifest(ctx: AssembledContext) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The fields that a stored manifest gets, and the blobs that they name."""
    body, config = _body(ctx)
    blocks = [block for block in ctx.provenance.blocks if block.slot in ("system", "ahead")]
    parts: dict[str, Any] = {"settings": Settings(ctx.accounting.model_info, config)}
    if blocks:
        parts["blocks"] = blocks
    if ctx.tools:
        parts["tools"] = ctx.tools
    if ctx.provenance.denied_tools:
        parts["withheld"] = ctx.provenance.denied_tools
    blobs = {name: to_json(value).encode() for name, value in parts.items()}
    sent = StoredManifest(
        body,
        {name: hashlib.sha256(data).hexdigest() for name, data in blobs.items()},
        ctx.session_label,
        len(ctx.event),
        ctx.provenance.starts_turn,
        tuple(
            NoteMetadata(state, block.layer, block.name, block.source, block.trust)
            for state, found in _notes(ctx)
            for block in found
        ),
        ctx.cut,
        ctx.token_budget.uncut,
        ctx.provenance.context_json,
    )
    return msgspec.to_builtins(sent), tuple(blobs.values())


def parse_stored_manifest(manifest: Mapping[str, Any]) -> StoredManifest:
    """What a stored manifest tells. Raises msgspec.ValidationError where a field has another shape."""
    return msgspec.convert(
        {name: manifest[name] for name in StoredManifest.__struct_fields__ if name in manifest}, StoredManifest
    )


def with_stored_fields(ctx: AssembledContext, sent: StoredManifest, rows: Sequence[StoredMessage]) -> AssembledContext:
    """A context that was made again, with what its manifest and its entry's `rows` tell and no assembly can find out."""
    budget = replace(ctx.token_budget, uncut=sent.uncut)
    provenance = dataclasses.replace(ctx.provenance, context_json=sent.context_json)
    ctx = dataclasses.replace(ctx, cut=sent.made, token_budget=budget, provenance=provenance)
    return with_stored_meta(ctx, sent, rows)


def with_stored_meta(ctx: AssembledContext, sent: StoredManifest, rows: Sequence[StoredMessage]) -> AssembledContext:
    """The context with what was kept beside the text of its user's message, which begins the entry of `rows`."""
    said = [row.message for row in rows][: sent.events]
    if not said or said[-1].role != "user":
        return ctx
    event, current = ((*shown[:-1], replace(shown[-1], meta=said[-1].meta)) for shown in (ctx.event, ctx.current))
    return dataclasses.replace(ctx, event=event, current=current)


def _body(ctx: AssembledContext) -> tuple[str, dict[str, Any] | None]:
    """The body's hash and the settings; empty where a setting has no JSON form, as a class that a client takes."""
    try:
        body_json(ctx.model_config)
        digest = ctx.body_hash
    except (BadEntry, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return "", None
    return digest, ctx.model_config


def _notes(ctx: AssembledContext) -> list[tuple[NoteState, tuple[Block, ...]]]:
    placed = tuple(block for block in ctx.provenance.blocks if block.slot == "current")
    return [
        ("placed", placed),
        ("seen", ctx.provenance.already_in_history),
        ("left out", ctx.provenance.omitted_blocks),
    ]
