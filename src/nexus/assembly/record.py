"""What a recorded reply teaches about counting: its report against the count of the context that was sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from nexus.assembly import manifest_store as sent
from nexus.context import AssembledContext
from nexus.tokens.calibration import Calibration, initial_calibration, update_calibration_factor
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.tokens.model import Model
from nexus.tokens.model_names import base_model_name, same_model
from nexus.types.ledger_entries import AssemblyRow, Commit, NewEntry, SizedMessage, StoredCalibration
from nexus.types.message import Image, Message, ToolResult
from nexus.types.request import AgentResult

_BASE_COUNTER = "o200k_base"
_BY = " by "


def calibration_key(model: str, counter: str) -> str:
    """The model's name in a calibration: its bare name, with the counter where that is not o200k's."""
    bare = base_model_name(model)
    return bare if counter == _BASE_COUNTER else f"{bare}{_BY}{counter}"


def parse_calibration_key(calibrated: str) -> str:
    """The model that a calibration is about, by the name that it is stored under."""
    return calibrated.split(_BY, 1)[0]


def calibration_factor(model: Model, calibration: StoredCalibration | None) -> float:
    """The model's tokens per base token: as learned, else, or where that is the same 64th, the model's own factor."""
    own = model.token_factor
    moved = calibration is not None and calibration.factor_64 != initial_calibration(own).factor_64
    return _learned(calibration).factor if calibration and moved else own


def reported_tokens(ctx: AssembledContext, result: AgentResult) -> int:
    """The input tokens that the provider reported for the context; 0 where the report is of something else.

    An agent that called the model several times reports the sum of its calls, which is no prompt's size. Where another
    model answered than the one that the context was made for, it counted by its own vocabulary; a name that nobody
    knows, as a deployment's, may stand for any model.
    """
    if len(result.messages) != 1 or result.messages[0].role != "assistant":
        return 0
    answered = result.model or result.messages[0].model
    own = not answered or not ctx.accounting.model_info.known
    own = own or any(same_model(answered, name) for name in (ctx.model, ctx.accounting.model_info.matched))
    tokens = result.usage.input_tokens
    # An AgentResult is made by callers, and a fraction would not come back from the ledger as it was hashed.
    return tokens if own and isinstance(tokens, int) else 0


def update_calibration(
    ctx: AssembledContext, result: AgentResult, earlier: StoredCalibration | None, now_ms: int
) -> StoredCalibration | None:
    """The calibration after this reply; None if it teaches nothing new.

    That is also so where the prompt has images: what they cost is the largest of three providers' formulas.
    """
    before = _learned(earlier) if earlier else initial_calibration(ctx.accounting.model_info.token_factor)
    after = update_calibration_factor(before, ctx.provenance.manifest.base, reported_tokens(ctx, result))
    if after == before or any(map(_has_image, ctx.messages)):
        return None
    return StoredCalibration(after.factor_64, after.samples, now_ms)


def _learned(calibration: StoredCalibration) -> Calibration:
    return Calibration(calibration.factor_64, calibration.samples)


def _has_image(message: Message) -> bool:
    return any(
        isinstance(part, Image)
        or (isinstance(part, ToolResult) and any(isinstance(block, Image) for block in part.content))
        for part in message.parts
    )


def with_sizes(messages: Iterable[Message], counter: TokenCounter) -> tuple[SizedMessage, ...]:
    """The messages with their base counts: taken here, once, when they are written."""
    return tuple(SizedMessage(message, message_tokens(message, counter)) for message in messages)


def build_commit(ctx: AssembledContext, result: AgentResult, counter: TokenCounter, now_ms: int) -> Commit:
    """The commit for a context that was sent and its result. Recording the same pair twice adds nothing.

    The turn stays open while tool calls wait for results; it is closed as completed, or as failed with the error.
    """
    model = result.model or ctx.model
    produced = tuple(
        message if message.role != "assistant" else replace(message, model=message.model or model)
        for message in result.messages
    )
    key = f"context:{ctx.provenance.manifest.id}"
    turn = NewEntry(
        messages=with_sizes((*ctx.event, *produced), counter),
        body={
            "model": model,
            "provider": ctx.provider,
            "role": ctx.role,
            **({"principal": ctx.provenance.identity.principal} if ctx.provenance.identity.principal else {}),
            "toolset": ctx.toolset_name,
            "permissions": list(ctx.permissions_granted),
            "source_event": ctx.source_event_id,
            "workspace": ctx.workspace_path,
            "usage": msgspec.to_builtins(result.usage),
            "stop_reason": result.stop_reason,
            **({"tools": [tool.name for tool in ctx.tools]} if ctx.provenance.starts_turn and ctx.tools else {}),
            **({"permissions_used": list(result.permissions_used)} if result.permissions_used else {}),
        },
        at_ms=now_ms,
        opens_turn=ctx.provenance.starts_turn,
        keys=(key,),
    )
    entries = [turn]
    if result.error is not None:
        entries.append(NewEntry("failed", body={"error": result.error}, at_ms=now_ms, keys=(f"{key}:end",)))
    elif not unanswered_calls(produced):
        entries.append(NewEntry("completed", at_ms=now_ms, keys=(f"{key}:end",)))
    answered = any(message.role == "assistant" for message in produced)
    told, blobs = sent.stored_manifest(ctx)
    fields = {
        **msgspec.to_builtins(ctx.provenance.manifest),
        "answered": answered,
        "reported": reported_tokens(ctx, result),
    }
    manifest = AssemblyRow(ctx.provenance.manifest.view, {**fields, **told}, now_ms)
    follows = (
        (ctx.provenance.manifest.head, bytes.fromhex(ctx.provenance.manifest.head_hash))
        if ctx.provenance.manifest.head
        else None
    )
    # A context of a session that had nothing yet says so too: it must not be added to what it never saw.
    expected = None if follows else 0
    return Commit(tuple(entries), ctx.cut, manifest, follows=follows, expected_head=expected, blobs=blobs)


def unanswered_calls(messages: Iterable[Message]) -> bool:
    """Whether some tool call among the messages has no result yet."""
    open_calls: set[str] = set()
    for message in messages:
        open_calls.update(call.id for call in message.calls())
        open_calls.difference_update(result.call_id for result in message.results())
    return bool(open_calls)
