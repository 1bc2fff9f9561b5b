"""What a reply becomes in the ledger: turn, cut and manifest, in one commit."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from nexus.assembly import manifest_store as sent
from nexus.assembly.usage_calibration import reported_tokens
from nexus.context import AssembledContext
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import AssemblyRow, Commit, NewEntry, Sized
from nexus.types.message import Message
from nexus.types.request import AgentResult


def sized(messages: Iterable[Message], counter: TokenCounter) -> tuple[Sized, ...]:
    """The messages with their base counts: taken here, once, when they are written."""
    return tuple(Sized(message, message_tokens(message, counter)) for message in messages)


def commit_of(ctx: AssembledContext, result: AgentResult, counter: TokenCounter, now_ms: int) -> Commit:
    """The commit for a context that was sent and its result. Recording the same pair twice adds nothing.

    The turn stays open while tool calls wait for results; it is closed as completed, or as failed with the error.
    """
    model = result.model or ctx.model
    produced = tuple(
        message if message.role != "assistant" else replace(message, model=message.model or model)
        for message in result.messages
    )
    key = f"context:{ctx.manifest.id}"
    turn = NewEntry(
        messages=sized((*ctx.event, *produced), counter),
        body={
            "model": model,
            "provider": ctx.provider,
            "role": ctx.role,
            **({"principal": ctx.identity.principal} if ctx.identity.principal else {}),
            "toolset": ctx.toolset_name,
            "permissions": list(ctx.permissions_granted),
            "source_event": ctx.source_event_id,
            "workspace": ctx.workspace_path,
            "usage": msgspec.to_builtins(result.usage),
            "stop_reason": result.stop_reason,
            **({"tools": [tool.name for tool in ctx.tools]} if ctx.opens_turn and ctx.tools else {}),
            **({"permissions_used": list(result.permissions_used)} if result.permissions_used else {}),
        },
        at_ms=now_ms,
        opens_turn=ctx.opens_turn,
        keys=(key,),
    )
    entries = [turn]
    if result.error is not None:
        entries.append(NewEntry("failed", body={"error": result.error}, at_ms=now_ms, keys=(f"{key}:end",)))
    elif not waiting(produced):
        entries.append(NewEntry("completed", at_ms=now_ms, keys=(f"{key}:end",)))
    answered = any(message.role == "assistant" for message in produced)
    told, blobs = sent.told(ctx)
    fields = {**msgspec.to_builtins(ctx.manifest), "answered": answered, "reported": reported_tokens(ctx, result)}
    manifest = AssemblyRow(ctx.manifest.view, {**fields, **told}, now_ms)
    follows = (ctx.manifest.head, bytes.fromhex(ctx.manifest.head_hash)) if ctx.manifest.head else None
    # A context of a session that had nothing yet says so too: it must not be added to what it never saw.
    expected = None if follows else 0
    return Commit(tuple(entries), ctx.cut, manifest, follows=follows, expected_head=expected, blobs=blobs)


def waiting(messages: Iterable[Message]) -> bool:
    """Whether some tool call among the messages has no result yet."""
    open_calls: set[str] = set()
    for message in messages:
        open_calls.update(call.id for call in message.calls())
        open_calls.difference_update(result.call_id for result in message.results())
    return bool(open_calls)
