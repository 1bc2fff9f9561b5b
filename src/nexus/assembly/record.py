"""Commits of calls and replies, and the calibration of token counts by reported usage."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from nexus.assembly.fit.repair import is_synthetic_result
from nexus.assembly.formats.protocol import MessageFormat
from nexus.assembly.formats.registry import find_format
from nexus.assembly.manifest_store import stored_manifest
from nexus.context import AssembledContext, Manifest, StoredEvent, engine_state
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.providers.server_edits import has_compaction
from nexus.tokens.calibration import Calibration, initial_calibration, is_counted, update_calibration_factor
from nexus.tokens.counter import BASE_COUNTER, TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model import Model, resolve
from nexus.tokens.model_names import base_model_name, same_model
from nexus.types.ledger_entries import AssemblyRow, Commit, NewEntry, SizedMessage, StoredCalibration, TurnPosition
from nexus.types.message import Image, Message, ToolResult
from nexus.types.request import AgentResult
from nexus.types.stop_reasons import stop_reason
from nexus.workspace.plugins.guard import describe_error

_BY = " by "
_BY_CONTENT = f"{_BY}content"


def calibration_key(model: Model, counter: str) -> str:
    """Return a model's name in a calibration: its base name, with the count that was calibrated if not o200k's.

    Another count is the estimate by content, another counter's, or both.
    """
    name = base_model_name(model.name)
    estimated = _BY_CONTENT if model.content else ""
    if counter == BASE_COUNTER:
        return f"{name}{estimated}"
    return f"{name}{estimated}{_BY}{counter}"


def parse_calibration_key(calibrated: str) -> tuple[str, bool]:
    """Return the model of a calibration key, and True if the calibration is of the estimate by content."""
    name, *suffixes = calibrated.split(_BY)
    return name, suffixes[:1] == ["content"]


def calibration_factor(model: Model, calibration: StoredCalibration | None) -> float:
    """Return the calibrated factor, or the model's initial one if that is the same 64th.

    A correction of the estimate by content never lowers it: what one session's prose used less of, the next session's
    code uses more of, and a count that is too low breaks the budget.
    """
    if calibration is None or calibration.factor_64 == initial_calibration(model.initial_factor).factor_64:
        return model.initial_factor
    factor = _as_calibration(calibration).factor
    if model.content:
        return max(factor, model.initial_factor)
    return factor


def provisional_factor(model: Model, calibrated: float) -> tuple[float, float | None]:
    """Return a model's factor before the content of a prompt is known, and the correction of the factor by content.

    A model without rates for content has no correction: its calibrated factor is final.
    """
    if model.content:
        return (calibrated * model.token_factor, calibrated)
    return (calibrated, None)


def reported_tokens(ctx: AssembledContext, result: AgentResult) -> int:
    """Return the input tokens that the provider reported for the context; 0 if the report is not about this prompt.

    A provider that edited the prompt reports only the rest of it, and so does one that ignores the messages before its
    compaction. An agent that called the model several times reports the sum of its calls. If another model answered, it
    counted by its own vocabulary; an unknown name, such as a deployment's, may be any model.
    """
    if len(result.messages) != 1 or result.messages[0].role != "assistant" or result.calls > 1:
        return 0
    if result.context_edits or _any_message(ctx, "compaction", has_compaction):
        return 0
    model = result.model or result.messages[0].model
    model_info = ctx.accounting.model_info
    same = not model or not model_info.known
    same = same or any(same_model(model, name) for name in (ctx.model, model_info.matched))
    tokens = result.usage.input_tokens
    # Callers make an AgentResult. A fraction would not be read from the ledger as it was hashed.
    if same and isinstance(tokens, int):
        return tokens
    return 0


def _any_message(ctx: AssembledContext, name: str, test: Callable[[Message], bool]) -> bool:
    return ctx.history.has_any(name, test) or any(map(test, ctx.current))


def update_calibration(
    ctx: AssembledContext, result: AgentResult, read_calibration: Callable[[], StoredCalibration | None], now_ms: int
) -> StoredCalibration | None:
    """Return the calibration after this reply, None if it is unchanged; the stored one is read if the reply counts.

    Prompts with images do not count, because an image counts as the largest of three providers' formulas.
    """
    manifest = ctx.provenance.manifest
    counted = math.ceil(manifest.base * manifest.content_factor)
    reported = reported_tokens(ctx, result)
    if not is_counted(counted, reported) or _any_message(ctx, "image", _has_image):
        return None
    stored = read_calibration()
    if stored:
        before = _as_calibration(stored)
    else:
        before = initial_calibration(ctx.accounting.model_info.initial_factor)
    after = update_calibration_factor(before, counted, reported)
    if after == before:
        return None
    return StoredCalibration(after.factor_64, after.samples, now_ms)


def _as_calibration(calibration: StoredCalibration) -> Calibration:
    return Calibration(calibration.factor_64, calibration.samples)


def _has_image(message: Message) -> bool:
    return any(
        isinstance(part, Image)
        or (isinstance(part, ToolResult) and any(isinstance(block, Image) for block in part.content))
        for part in message.parts
    )


def with_sizes(messages: Iterable[Message], counter: TokenCounter) -> tuple[SizedMessage, ...]:
    """Return the messages with their base counts, which are taken once, when a message is written."""
    return tuple(SizedMessage(message, message_tokens(message, counter)) for message in messages)


def _read_reply(
    message_format: MessageFormat, message: Message, is_offered: Callable[[str], bool], call_id: str
) -> Message:
    """Return a reply as its format reads it. A plugin's format that fails, or loses a call, loses no paid reply."""
    try:
        meaning: object = message_format.reply(message, is_offered, call_id)
        if not isinstance(meaning, Message):
            problem = f"returned {type(meaning).__name__} and not a Message"
        elif lost_calls := {call.id for call in message.calls()} - {call.id for call in meaning.calls()}:
            problem = f"dropped the calls {', '.join(sorted(lost_calls))}"
        else:
            return meaning
    except Exception as error:  # noqa: BLE001 - code of a plugin
        problem = describe_error(error)
    text = f"`reply` of the format {message_format.name!r} {problem}: the reply is stored as it was received"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
    return message


def _produced(ctx: AssembledContext, result: AgentResult, model: str) -> tuple[Message, ...]:
    """Return a result's messages with the name of their model, read in the context's message format."""
    author = _author(model, ctx.model)
    manifest = ctx.provenance.manifest
    message_format = find_format(manifest.message_format)  # a model may answer in the format that it reads
    produced: list[Message] = []
    for number, received in enumerate(result.messages):
        message = received
        if message.role == "assistant" and message.model in ("", model):
            message = replace(message, model=author)
        produced.append(_read_reply(message_format, message, ctx.allows, f"call_{manifest.id[:8]}_{number}"))
    return tuple(produced)


def _followed_entry(manifest: Manifest, event: StoredEvent | None) -> tuple[int, bytes] | None:
    """Return seq and hash of the entry that a reply follows; None in an empty session."""
    if event is not None and event.hash and event.seqs[-1] > manifest.head:
        return event.seqs[-1], event.hash  # a rewind may have taken away the event alone
    if manifest.head:
        return manifest.head, bytes.fromhex(manifest.head_hash)
    return None


def build_commit(ctx: AssembledContext, result: AgentResult, counter: TokenCounter, now_ms: int) -> Commit:
    """Return the commit for a context that was sent and its result. Recording the same pair twice adds nothing.

    The turn stays open while tool calls wait for results. Otherwise it is closed as completed, or as failed with the error.
    """
    model = result.model or ctx.model
    manifest = ctx.provenance.manifest
    produced = _produced(ctx, result, model)
    key = f"context:{manifest.id}"
    stored_event = ctx.provenance.stored_event
    if stored_event is None:
        new_messages = ctx.event
    else:
        new_messages = ctx.event[len(stored_event.messages) :]
    # Agents that fill in an AgentResult themselves may have a provider's word.
    reason = stop_reason(result.stop_reason)
    provider_reason = result.provider_stop_reason or result.stop_reason
    turn = NewEntry(
        messages=with_sizes((*new_messages, *produced), counter),
        body={
            "model": model,
            **_call_fields(ctx),
            "usage": result.usage.stored(),
            "stop_reason": reason,
            **({"cache_miss_reason": result.cache_miss_reason} if result.cache_miss_reason else {}),
            **({"context_edits": list(result.context_edits)} if result.context_edits else {}),
            **({"provider_stop_reason": provider_reason} if provider_reason != reason else {}),
            **offered_tools(ctx),
            **({"permissions_used": list(result.permissions_used)} if result.permissions_used else {}),
        },
        at_ms=now_ms,
        starts_turn=ctx.provenance.starts_turn and stored_event is None,
        keys=(key,),
    )
    entries = [turn]
    if result.error is not None:
        entries.append(NewEntry("failed", body={"error": result.error}, at_ms=now_ms, keys=(f"{key}:end",)))
    elif not unanswered_calls(produced):
        entries.append(NewEntry("completed", at_ms=now_ms, keys=(f"{key}:end",)))
    answered = any(message.role == "assistant" for message in produced)
    if manifest.synthetic_results and ctx.event[0].role == "tool":
        # If no result was of a waiting call, those calls go on waiting in the history, and later results change it.
        answered &= any(message.role == "tool" and not is_synthetic_result(message) for message in ctx.current)
    stored, blobs = stored_manifest(ctx, answered=answered, reported=reported_tokens(ctx, result))
    return Commit(
        tuple(entries),
        ctx.cut,
        AssemblyRow(manifest.view, stored, now_ms),
        follows=_followed_entry(manifest, stored_event),
        blobs=tuple(blobs),
        turn=continued_turn(ctx),
        fence=stored_event.fence if stored_event is not None else None,
    )


def continued_turn(ctx: AssembledContext) -> TurnPosition | None:
    """Return the turn that a context's reply must still find; None if it begins one."""
    stored = ctx.provenance.stored_event
    state = engine_state(ctx)
    if stored is not None:
        return stored.position
    is_result = not ctx.provenance.starts_turn and ctx.mirrored is None
    if state is not None and is_result:
        return state.position
    return None


def new_session_metadata(ctx: AssembledContext, store: LedgerStore) -> SessionMetadata | None:
    """Return the metadata of a worker's new session: who spawned it in which turn, and its task; None for others."""
    settings = ctx.provenance.settings
    manager = None
    if settings.manager:
        manager = store.resolve(settings.manager)
    thread = None
    if manager is not None:
        thread = store.thread_of(manager)
    if manager is None or thread is None:
        return None
    return SessionMetadata(
        parent_session=manager,
        parent_turn=store.thread(thread).turn,
        parent_call_id=settings.manager_call,
        task=settings.task,
    )


def build_event_commit(
    ctx: AssembledContext, counter: TokenCounter, now_ms: int, keys: tuple[str, ...], fields: Mapping[str, Any]
) -> Commit:
    """Return the commit of a context's event alone, before its call, with further fields. The turn stays open."""
    manifest = ctx.provenance.manifest
    entry = NewEntry(
        messages=with_sizes(ctx.event, counter),
        body={"model": ctx.model, **_call_fields(ctx), **fields},
        at_ms=now_ms,
        starts_turn=ctx.provenance.starts_turn,
        keys=keys,
    )
    return Commit((entry,), follows=(manifest.head, bytes.fromhex(manifest.head_hash)) if manifest.head else None)


def _call_fields(ctx: AssembledContext) -> dict[str, Any]:
    """Return the fields of a call that a turn's entries store."""
    principal = ctx.provenance.settings.principal
    return {
        "provider": ctx.provider,
        "role": ctx.role,
        **({"principal": principal} if principal else {}),
        "toolset": ctx.toolset_name,
        "permissions": list(ctx.permissions_granted),
        "source_event": ctx.source_event_id,
        "workspace": ctx.workspace_path,
    }


def offered_tools(ctx: AssembledContext) -> dict[str, list[str]]:
    """Return the field of a call's entry with the names of its tools; none where a turn starts without tools."""
    if ctx.tools or not ctx.provenance.starts_turn:
        return {"tools": [tool.name for tool in ctx.tools]}
    return {}


def _author(model: str, requested: str) -> str:
    """Return the name under which thinking returns to its author: the model's, or a gateway's own name for it.

    A gateway's name says nothing about the model behind it, so only the name itself shows that the next call goes there
    too. A provider rejects a tool loop without its signed thinking.
    """
    is_own_name = bool(resolve(requested).warning) and not same_model(model, requested)
    if is_own_name:
        return requested
    return model


def unanswered_calls(messages: Iterable[Message]) -> bool:
    """Return True if a tool call among the messages has no result."""
    open_calls: set[str] = set()
    for message in messages:
        open_calls.update(call.id for call in message.calls())
        open_calls.difference_update(result.call_id for result in message.results())
    return bool(open_calls)
