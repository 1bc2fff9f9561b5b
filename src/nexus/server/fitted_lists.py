"""Lists of programs with message types of their own: read as neutral messages, and answered with what to send of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, cast

import msgspec
from msgspec import UNSET

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.mirror.shown_items import shown_items
from nexus.errors import BadSetting
from nexus.providers.replies import read_reply
from nexus.server import forms
from nexus.server.contexts import WaitingContext, waiting_context
from nexus.text.as_received import with_received
from nexus.types.message import Message, ProviderFormat, Text, Unknown, assistant
from nexus.types.request import AgentResult
from nexus.types.settings import CallArguments
from nexus.types.stop_reasons import stop_reason


def fit_list(
    nx: Engine, params: forms.Fit, scope: str, options: CallArguments
) -> tuple[WaitingContext, forms.FittedList]:
    """Assemble the context of a list, and return it with its answer, which lacks the context's id."""
    model_format = nx.resolve(options.get("model") or nx.model).provider_format
    messages = [_neutral(message, model_format) for message in params.messages]
    place: Any = {"scope": scope, "conversation": params.conversation, "window": False, "reserve": params.reserve}
    ctx = nx.mirror(messages, **place, **options)
    assert ctx.mirrored is not None
    answer = forms.FittedList(
        context_id="",
        session=ctx.mirrored.session,
        model=ctx.model,
        shown=tuple(_shown_messages(nx, ctx, params)),
        tokens=ctx.token_budget.used.total,
        available=ctx.token_budget.available,
        action=ctx.mirrored.action,
        warnings=ctx.warnings,
    )
    return waiting_context(ctx), answer


def reply_of(params: forms.RecordReply) -> AgentResult:
    """Return the reply that a program passes: neutral parts, a text, or a provider's response."""
    result = params.result
    if (result is None) == (params.reply is None):
        raise BadSetting("reply missing, or there are two (pass either `reply` or `result`)")
    if result is not None:
        message = Message("assistant", result.parts, model=result.model)
        reason = stop_reason(result.stop_reason, has_calls=any(message.calls()))
        return read_reply(AgentResult((message,), result.usage, reason, model=result.model))
    if isinstance(params.reply, str):
        return AgentResult((assistant(params.reply),))
    return read_reply(params.reply)


def _neutral(message: forms.ListMessage, model_format: ProviderFormat) -> Message:
    """Return a neutral message. With parts that only its program can send, it counts as received for the model."""
    neutral = Message(message.role, message.parts)
    if not any(isinstance(part, Unknown) for part in message.parts):
        return neutral
    parts = cast("list[Any]", msgspec.to_builtins(message.parts))
    field = "parts" if model_format == "gemini" else "content"
    return with_received(neutral, model_format, [{"role": message.role, field: parts}])


def _shown_messages(nx: Engine, ctx: AssembledContext, params: forms.Fit) -> Iterator[forms.ShownMessage]:
    """Yield what to send of a list: the system messages that open it, unless the system prompt has more, and the rest."""
    head = [*takewhile(lambda message: message.role == "system", params.messages)]
    texts = ("\n".join(part.text for part in message.parts if isinstance(part, Text)) for message in head)
    if ctx.system_prompt == "\n\n".join(filter(None, texts)):
        yield from map(forms.ShownMessage, range(len(head)))
    else:
        yield forms.ShownMessage(message=forms.ListMessage("system", (Text(ctx.system_prompt),)))
    for row in shown_items(ctx, nx.ledger.store):
        item = UNSET if row.item is None else row.item
        message = UNSET if row.message is None else forms.ListMessage(row.message.role, row.message.parts)
        yield forms.ShownMessage(item, message)
