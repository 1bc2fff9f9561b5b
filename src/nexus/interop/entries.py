"""A transcript's steps as entries to append: each knows its position, compactions what they cover, images their size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.interop.transcript import Step, Transcript
from nexus.types.ledger_entries import Compaction, NewEntry
from nexus.types.message import Image, Message, Part, ToolResult
from nexus.workspace.images.load import with_dimensions


def ledger_entries(nx: Engine, steps: tuple[Step, ...], known: Mapping[str, int], head: int) -> Iterator[NewEntry]:
    """The entries to append, in order. Positions are counted from `head`, which the commit insists on."""
    seqs = dict(known)
    covers_from, next_seq = 1, head + 1
    for step in steps:
        new = step.without(known)
        here = next_seq if new is not None else seqs.get(step.keys[0], 0) if step.keys else 0
        if step.kind == "clear":
            covers_from = here + 1
        if new is not None:
            body = _compaction(step, covers_from, here, seqs) if step.kind == "compaction" else _body(step)
            yield NewEntry(
                step.kind,
                with_sizes(map(_with_image_sizes, new.messages), nx.counter),
                body,
                new.at_ms,
                new.opens_turn,
                new.keys,
            )
            seqs.update(dict.fromkeys(new.keys, here))
            next_seq += 1
        if step.kind == "compaction":
            covers_from = seqs.get(step.kept_from, here + 1)
        end = f"{step.keys[-1]}:end" if step.keys else ""
        if step.closes_turn and end and end not in known:
            yield NewEntry("completed", at_ms=step.at_ms, keys=(end,))
            next_seq += 1


def _with_image_sizes(message: Message) -> Message:
    """Files seldom say how large an image is, and its tokens depend on that."""
    parts = tuple(_part_with_sizes(part) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _part_with_sizes(part: Part) -> Part:
    if isinstance(part, Image):
        return with_dimensions(part)
    if isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
        return replace(part, content=tuple(with_dimensions(i) if isinstance(i, Image) else i for i in part.content))
    return part


def import_source(transcript: Transcript) -> dict[str, Any]:
    """What the file says about the conversation as a whole, kept with its first entry."""
    told = {
        "format": transcript.format,
        "source": transcript.source_id,
        "cwd": transcript.cwd,
        "model": transcript.model,
    }
    meta = {"meta": json.loads(transcript.meta)} if transcript.meta else {}
    return {**{name: value for name, value in told.items() if value}, **meta}


def _body(step: Step) -> dict[str, Any]:
    body: dict[str, Any] = {**step.facts}
    if step.usage is not None:
        body["usage"] = msgspec.to_builtins(step.usage)
    if step.stop_reason:
        body["stop_reason"] = step.stop_reason
    return body


def _compaction(step: Step, covers_from: int, here: int, seqs: Mapping[str, int]) -> dict[str, Any]:
    first_kept = seqs.get(step.kept_from, here + 1)
    compaction = Compaction(
        covers_from=covers_from,
        covers_to=min(here, first_kept) - 1,
        first_kept=first_kept,
        summary=step.summary,
        type="imported",
        trigger=step.trigger or "manual",
        tokens_before=step.tokens_before,
    )
    return {**step.facts, **msgspec.to_builtins(compaction)}
