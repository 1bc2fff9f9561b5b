"""The stored manifest: the manifest of a call with everything that replay needs besides the history.

The history is in the ledger. The rest is stored once, by its SHA-256: the blocks of the system prompt, the offered and
the denied tools, and the model's limits and prices with its settings. A manifest names the hashes, so what stays the same from call
to call takes no space.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from nexus.context import AssembledContext, Manifest, PrefixReport
from nexus.errors import BadReference, LedgerError
from nexus.ledger.codec import body_json
from nexus.ledger.text_encoding import to_json
from nexus.tokens.model import Model
from nexus.types.block import PREAMBLE, Block
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import AssemblyRow, Cut, StoredMessage

NoteState: TypeAlias = Literal["placed", "seen", "left out"]


class StoredSettings(Struct, frozen=True):
    """The model's limits and prices at the time of the call, and the settings that were sent."""

    model: Model
    config: dict[str, Any] | None
    """None if a setting had no JSON form."""


class NoteMetadata(Struct, frozen=True, array_like=True):
    """A block of the current message without its text: in the message, already in the history, or omitted."""

    state: NoteState
    layer: str
    name: str
    source: str
    trust: str


class StoredManifest(Manifest, frozen=True):
    """A manifest as it is stored with its turn. Manifests of earlier versions lack some fields, which have defaults."""

    answered: bool = True
    """False if the turn has no reply."""

    reported: int = 0
    """Input tokens that the provider reported; 0 if unknown."""

    body: str = ""
    """Hash of the request body; empty if a setting had no JSON form."""

    blob_hashes: dict[str, str] = field(default_factory=dict[str, str], name="inputs")
    """Hashes of the stored blocks, tools and settings, by name."""

    session: str = ""

    event_messages: int = field(default=0, name="events")
    """Number of the event's messages, which begin the recorded entry unless `event_seqs` names others."""

    event_seqs: tuple[int, ...] = ()
    """Entries with the event's first messages, if they were stored before the call; the others begin its own entry."""

    starts_turn: bool = field(default=True, name="opens")
    """True if the event starts a turn."""

    notes: tuple[NoteMetadata, ...] = ()

    new_cut: Cut | None = field(default=None, name="made")
    """The cut that this call made."""

    uncut: int = 0
    """Tokens that everything would have taken without this cut."""

    context_json: dict[str, Any] = field(default_factory=dict[str, Any])
    """Record of the system prompt's parts (see `nexus.types.request.system_record`)."""

    prefix: PrefixReport | None = None
    """How the prompt follows the last one, as reported before the call."""

    recorded_at: int = 0
    """Seq of the call's entry. It is read from the ledger row, not stored in the manifest."""


_MISSING: dict[str, Any] = {
    **dict.fromkeys(("id", "view", "profile", "model", "system", "tools", "head_hash", "config", "current"), ""),
    **dict.fromkeys(("head", "mark", "cut", "supplied", "available", "render"), 0),
    "blocks": {},
    "first": (0, 0),
    "counter": "",
    "factor": 1.0,
}
"""Values for keys that a manifest of an earlier version may lack and that have no default."""


def stored_manifest(ctx: AssembledContext, *, answered: bool, reported: int) -> tuple[dict[str, Any], list[bytes]]:
    """Return the JSON value of a context's stored manifest, and the blobs that it names by hash."""
    body = ""
    config = None
    with suppress(BadReference, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        body_json(ctx.model_config)  # a setting such as a class has no JSON form
        body = ctx.body_hash
        config = ctx.model_config
    blocks = [block for block in ctx.provenance.blocks if block.slot in ("system", PREAMBLE)]
    parts: dict[str, Any] = {"settings": StoredSettings(ctx.accounting.model_info, config)}
    if blocks:
        parts["blocks"] = blocks
    if ctx.tools:
        parts["tools"] = ctx.tools
    if ctx.provenance.denied_tools:
        parts["withheld"] = ctx.provenance.denied_tools
    states: tuple[tuple[NoteState, Iterable[Block]], ...] = (
        ("placed", (block for block in ctx.provenance.blocks if block.slot == "current")),
        ("seen", ctx.provenance.already_in_history),
        ("left out", ctx.provenance.omitted_blocks),
    )
    blobs = {name: to_json(value).encode() for name, value in parts.items()}
    manifest = StoredManifest(
        **asdict(ctx.provenance.manifest),
        answered=answered,
        reported=reported,
        body=body,
        blob_hashes={name: hashlib.sha256(data).hexdigest() for name, data in blobs.items()},
        session=ctx.session_label,
        event_messages=len(ctx.event),
        event_seqs=ctx.provenance.stored_event.seqs if ctx.provenance.stored_event is not None else (),
        starts_turn=ctx.provenance.starts_turn,
        notes=tuple(
            NoteMetadata(state, block.layer, block.name, block.source, block.trust)
            for state, noted in states
            for block in noted
        ),
        new_cut=ctx.cut,
        uncut=ctx.token_budget.uncut,
        context_json=ctx.provenance.context_json,
        prefix=ctx.accounting.prefix,
    )
    stored = msgspec.to_builtins(manifest)
    del stored["recorded_at"]
    if not manifest.event_seqs:
        del stored["event_seqs"]
    return stored, list(blobs.values())


def parse_stored_manifest(manifest: Mapping[str, Any]) -> StoredManifest:
    """Parse the manifest of a ledger row. Raises msgspec.ValidationError if a field has another type."""
    return msgspec.convert({**_MISSING, **manifest}, decodable(StoredManifest))


def manifest_of(row: AssemblyRow | None) -> StoredManifest | None:
    """Return the manifest of a ledger row, None without one. Raises LedgerError if it is unreadable."""
    if row is None:
        return None
    try:
        return parse_stored_manifest({**row.manifest, "recorded_at": row.seq})
    except msgspec.ValidationError as error:
        raise LedgerError(f"manifest of entry {row.seq} unreadable: {error}") from error


def with_stored_fields(
    ctx: AssembledContext, manifest: StoredManifest, rows: Sequence[StoredMessage]
) -> AssembledContext:
    """Return a replayed context with fields restored from the stored manifest and the entry's `rows`."""
    budget = replace(ctx.token_budget, uncut=manifest.uncut)
    provenance = dataclasses.replace(
        ctx.provenance, context_json=manifest.context_json, starts_turn=manifest.starts_turn
    )
    ctx = dataclasses.replace(ctx, cut=manifest.new_cut, token_budget=budget, provenance=provenance)
    return with_stored_meta(ctx, manifest, rows)


def with_stored_meta(
    ctx: AssembledContext, manifest: StoredManifest, rows: Sequence[StoredMessage]
) -> AssembledContext:
    """Return the context with the metadata of its user message, which begins the entry of `rows`."""
    messages = [row.message for row in rows][: manifest.event_messages]
    if not messages or messages[-1].role != "user":
        return ctx
    meta = messages[-1].meta
    event, current = ((*part[:-1], replace(part[-1], meta=meta)) for part in (ctx.event, ctx.current))
    return dataclasses.replace(ctx, event=event, current=current)
