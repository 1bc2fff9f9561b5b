"""Reads OpenAI's responses (Responses API) into ours.

Everything that the model made in one go is one assistant's message, in its order: reasoning items as `Thinking` (the
whole item in `signature`), texts, calls; items of other kinds (searches, programs, compactions) are kept as `Unknown`.
What no part holds, such as item ids and annotations, is kept in `meta` under `items`, by the item's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nexus.errors import BadReply
from nexus.providers.received import (
    arguments_text,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    rest_of,
    text_of,
    text_part,
)
from nexus.types.message import Message, Part, Text, Thinking, ToolCall, Unknown
from nexus.types.openai_reasoning import PHASES, summary_texts
from nexus.types.request import AgentResult, TokenUsage

_UNFINISHED = ("queued", "in_progress")
_ITEM: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "status", "phase"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "status"}),
    "custom_tool_call": frozenset({"type", "call_id", "name", "input", "status"}),
}
_CONTENT = frozenset({"type", "text", "refusal"})
_SAID = ("output_text", "refusal")


def is_reply(body: Any) -> bool:
    """Whether the body is a response of the Responses API, whatever its status."""
    body = mapping(body)
    return body.get("object") == "response" and isinstance(body.get("output"), list)


def reply(body: dict[str, Any]) -> AgentResult:
    """The response's message, usage, and why it ended: its status, or the reason for which it is incomplete.

    A failed response without output gives no message and an `error`. Raises BadReply when the body is no response, or
    one that is not finished.
    """
    if not is_reply(body):
        raise BadReply("not a response: `object` is not `response`, or `output` is missing")
    status = text_of(body.get("status"))
    if status in _UNFINISHED:
        raise BadReply(f"the response is not finished: its status is {status}. Nothing was stored")
    model = text_of(body.get("model"))
    found = _message(items_of(body["output"]), text_of(body.get("id")), model)
    reason = text_of(mapping(body.get("incomplete_details")).get("reason"))
    failure = mapping(body.get("error"))
    failed = status in ("failed", "cancelled")
    return AgentResult(
        messages=found,
        usage=usage(body.get("usage")),
        stop_reason=reason if status == "incomplete" and reason else status,
        error=text_of(failure.get("message")) or text_of(failure.get("code")) or (status if failed else None),
        model=model,
    )


def usage(value: Any) -> TokenUsage:
    """Usage as reported: `input_tokens` counts cached tokens already, `output_tokens` reasoning."""
    counts = mapping(value)
    before, after = (mapping(counts.get(f"{side}_tokens_details")) for side in ("input", "output"))
    return TokenUsage(
        input_tokens=number_of(counts.get("input_tokens")),
        output_tokens=number_of(counts.get("output_tokens")),
        cache_read_tokens=number_of(before.get("cached_tokens")),
        cache_write_tokens=number_of(before.get("cache_write_tokens")),
        reasoning_tokens=number_of(after.get("reasoning_tokens")),
    )


def _message(output: list[Any], response_id: str, model: str) -> tuple[Message, ...]:
    """All items as one message; none if there are no items."""
    notes: dict[str, Any] = {}
    phases: list[str | None] = []
    parts: list[Part] = []
    for index, item in enumerate(output):
        fields = mapping(item)
        new = list(_parts(item, fields, notes))
        parts += new
        phases += [text_of(fields.get("phase")) or None for part in new if isinstance(part, Text)]
        if more := _rest(fields):
            notes.setdefault("items", {})[str(index)] = more
    if any(phases):
        notes[PHASES] = phases
    return (Message("assistant", tuple(parts), id=response_id, model=model, meta=meta_text(notes)),) if output else ()


def _parts(item: Any, fields: dict[str, Any], notes: dict[str, Any]) -> Iterator[Part]:
    match text_of(fields.get("type")):
        case "message" if isinstance(fields.get("content"), list):
            for content in fields["content"]:
                yield from _said(content, notes)
        case "reasoning":
            yield _reasoning(fields)
        case "function_call" if _is_call(fields):
            yield ToolCall(fields["call_id"], fields["name"], arguments_text(fields.get("arguments")))
        case "custom_tool_call" if _is_call(fields):
            notes.setdefault("custom_calls", []).append(fields["call_id"])
            yield ToolCall(fields["call_id"], fields["name"], arguments_text(fields.get("input")))
        case kind:
            yield Unknown(kind or "no type", compact_json(item))


def _is_call(fields: dict[str, Any]) -> bool:
    return bool(text_of(fields.get("call_id"))) and isinstance(fields.get("name"), str)


def _said(content: Any, notes: dict[str, Any]) -> Iterator[Part]:
    fields = mapping(content)
    match text_of(fields.get("type")):
        case "output_text" if isinstance(fields.get("text"), str):
            yield from text_part(fields["text"])
        case "refusal" if isinstance(fields.get("refusal"), str):
            notes["refusal"] = True
            yield from text_part(fields["refusal"])
        case kind:
            yield Unknown(kind or "no type", compact_json(content))


def _reasoning(fields: dict[str, Any]) -> Thinking:
    """The reasoning itself where the model shows it, else its summary; the whole item, keys sorted, in `signature`."""
    texts = summary_texts(fields.get("content")) or summary_texts(fields.get("summary"))
    item = {"type": "reasoning", **{name: fields[name] for name in sorted(fields) if fields[name] is not None}}
    return Thinking("\n\n".join(texts), signature=compact_json({name: _sorted(value) for name, value in item.items()}))


def _sorted(value: Any) -> Any:
    """An object and a response read from JSON have their keys in different orders; what is stored has one."""
    if isinstance(value, dict):
        fields = mapping(value)
        return {name: _sorted(fields[name]) for name in sorted(fields)}
    return [_sorted(item) for item in items_of(value)] if isinstance(value, list) else value


def _rest(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of an item of a known kind, and of its contents, that no part of ours holds."""
    kind = text_of(fields.get("type"))
    if kind not in _ITEM:
        return {}
    rest = rest_of(fields, _ITEM[kind])
    known = (mapping(content) for content in items_of(fields.get("content")))
    inside = [rest_of(content, _CONTENT) for content in known if text_of(content.get("type")) in _SAID]
    return {**rest, "content": inside} if any(inside) else rest
