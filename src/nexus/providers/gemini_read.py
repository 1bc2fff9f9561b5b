"""Reads Gemini's contents and replies (generateContent) into ours, in snake case or camel case.

Gemini may leave call ids out: such a call gets `call_<n>`, said in `meta` under `made_ids`, and its response is matched
by name. A thought signature on a part that is no thought stands as an empty `Thinking` right before that part, because
the API wants it back there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from nexus.errors import BadReply
from nexus.providers.received import (
    Calls,
    arguments_text,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    read_all,
    rest_of,
    standard_base64,
    text_of,
    text_part,
)
from nexus.types.message import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage

_ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "tool": "user",
    "system": "system",
}
_CONTENT = frozenset({"role", "parts"})
_CALL = frozenset({"id", "name", "args", "response", "parts"})
_KNOWN = frozenset({"text", "thought", "thought_signature", "function_call", "function_response", "inline_data"})


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The messages of a list of contents. Raises BadReply for an item that is no content, naming its place."""
    return read_all(items, message)


def message(item: Any, calls: Calls) -> tuple[Message, ...]:
    """One content as messages: function responses as a `tool` message, anything beside them as one more."""
    fields = _snake(item)
    role = _ROLES.get(text_of(fields.get("role") or "user") or "?")
    listed = fields.get("parts")
    if role is None or not fields or not isinstance(listed, (list, type(None))):
        raise BadReply("no content: `role` is not a known one, or `parts` is not a list")
    made: list[str] = []
    blocks: dict[str, Any] = {}
    parts: list[Part] = []
    answered: list[str] = []
    for index, part in enumerate(items_of(listed)):
        known = _snake(part)
        parts += _part(known, calls, made, answered)
        if more := _rest_of_part(known):
            blocks[str(index)] = more
    notes = {name: value for name, value in (("made_ids", made), ("blocks", blocks)) if value}
    meta = meta_text(rest_of(fields, _CONTENT), notes)
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    if not results or role != "user":
        return (Message(role, tuple(parts), meta=meta),)
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    answer = Message("tool", results, meta=meta)
    return (answer, Message("user", others)) if others else (answer,)


def is_reply(body: Any) -> bool:
    """Whether the body is a GenerateContentResponse, blocked ones included."""
    fields = _snake(body)
    return isinstance(fields.get("candidates"), list) or isinstance(fields.get("prompt_feedback"), dict)


def reply(body: dict[str, Any]) -> AgentResult:
    """The first candidate's message, usage and finish reason; a blocked prompt gives no message and an `error`.

    Further candidates are kept in the message's `meta`. Ids made for calls carry the response's id (or, without one, a
    hash of the parts), so that they differ from reply to reply. Raises BadReply when the body is no response.
    """
    if not is_reply(body):
        raise BadReply("not a GenerateContentResponse: no `candidates` and no `prompt_feedback`")
    fields = _snake(body)
    model = text_of(fields.get("model_version"))
    candidates = [_snake(candidate) for candidate in items_of(fields.get("candidates"))]
    if not candidates:
        reason = text_of(_snake(fields.get("prompt_feedback")).get("block_reason")) or "no candidate was returned"
        return AgentResult((), usage(fields.get("usage_metadata")), stop_reason=reason, error=reason, model=model)
    first, *others = candidates
    content: dict[str, Any] = {"parts": [], **_snake(first.get("content")), "role": "model"}
    if others:
        content["other_candidates"] = others
    unique = (
        text_of(fields.get("response_id")) or hashlib.sha256(compact_json(content).encode(errors="replace")).hexdigest()
    )
    found = message(content, _Numbered(unique[:16]))
    return AgentResult(
        messages=tuple(
            Message(m.role, m.parts, id=text_of(fields.get("response_id")), model=model, meta=m.meta) for m in found
        ),
        usage=usage(fields.get("usage_metadata")),
        stop_reason=text_of(first.get("finish_reason")),
        error=text_of(first.get("finish_message")) or None,
        model=model,
    )


class _Numbered(Calls):
    """Calls of one reply, whose made ids carry what sets the reply apart."""

    def __init__(self, unique: str) -> None:
        super().__init__()
        self._unique = unique

    def made_id(self, ahead: int = 0) -> str:
        return f"call_{self._unique}_{ahead + 1}"


def usage(value: Any) -> TokenUsage:
    """Usage with thoughts in the output, beside which Gemini counts them; the prompt includes cached tokens already."""
    counts = _snake(value)
    thoughts = number_of(counts.get("thoughts_token_count"))
    prompt = number_of(counts.get("prompt_token_count")) + number_of(counts.get("tool_use_prompt_token_count"))
    return TokenUsage(
        input_tokens=prompt,
        output_tokens=number_of(counts.get("candidates_token_count")) + thoughts,
        cache_read_tokens=number_of(counts.get("cached_content_token_count")),
        reasoning_tokens=thoughts,
    )


def _snake(value: Any) -> dict[str, Any]:
    """The object with its own field names in snake case; values stay as they are."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): item
        for name, item in mapping(value).items()
    }


def _part(part: dict[str, Any], calls: Calls, made: list[str], answered: list[str]) -> Iterator[Part]:
    signature = _signature(part.get("thought_signature"))
    if part.get("thought") and isinstance(part.get("text"), str):
        yield Thinking(part["text"], signature=signature)
        return
    if signature:
        yield Thinking("", signature=signature)
    called, response = _snake(part.get("function_call")), _snake(part.get("function_response"))
    if isinstance(part.get("text"), str):
        yield from text_part(part["text"])
    elif isinstance(called.get("name"), str):
        call_id = text_of(called.get("id"))
        if not call_id:
            call_id = calls.made_id(len(made))
            made.append(call_id)
        yield ToolCall(call_id, called["name"], arguments_text(called.get("args")))
    elif isinstance(response.get("name"), str):
        result = _result(response, calls, answered)
        answered.append(result.call_id)
        yield result
    elif image := _image(part):
        yield image
    elif said := {name: value for name, value in part.items() if value is not None and name != "thought_signature"}:
        yield Unknown(next(iter(said)), compact_json(said))


def _signature(value: Any) -> str:
    return standard_base64(value) if isinstance(value, (bytes, bytearray)) else text_of(value)


def _image(part: dict[str, Any]) -> Image | None:
    blob, file = _snake(part.get("inline_data")), _snake(part.get("file_data"))
    media_type = text_of(blob.get("mime_type")) or text_of(file.get("mime_type"))
    if not media_type.startswith("image/"):
        return None
    if blob:
        return Image(media_type, data=standard_base64(blob.get("data")))
    return Image(media_type, url=text_of(file.get("file_uri")))


def _result(response: dict[str, Any], calls: Calls, answered: Sequence[str]) -> ToolResult:
    """A response's `output` (or `result`) and `error` fields are its text; any other object is kept as its JSON."""
    name = text_of(response.get("name"))
    value = mapping(response.get("response"))
    only = next(iter(value)) if len(value) == 1 else ""
    shown: list[Text | Image] = []
    if only in ("output", "result", "error") and isinstance(value[only], str):
        shown += (part for part in text_part(value[only]) if isinstance(part, Text))
    elif value:
        shown.append(Text(compact_json(value)))
    for part in items_of(response.get("parts")):
        shown.append(_image(_snake(part)) or Text(compact_json(part)))
    call_id = text_of(response.get("id")) or calls.oldest_open(name, answered)
    return ToolResult(call_id, tuple(shown), name, is_error="error" in value)


def _rest_of_part(part: dict[str, Any]) -> dict[str, Any]:
    """What a part says beside its main field and inside a call or response; unknown kinds are kept whole already."""
    if not any(part.get(name) is not None for name in ("text", "function_call", "function_response", "inline_data")):
        return {}
    inside = {**_snake(part.get("function_call")), **_snake(part.get("function_response"))}
    return rest_of(part, _KNOWN) | rest_of(inside, _CALL)
