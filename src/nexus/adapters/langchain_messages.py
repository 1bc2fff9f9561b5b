"""Messages of LangChain as neutral ones, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from langchain_core import messages as lc
from msgspec.structs import replace

import nexus
from nexus.adapters.own_messages import fields_of, other_fields, with_fields
from nexus.types import with_parts

_CALLS = ("tool_use", "tool_call", "function_call", "invalid_tool_call")
"""Types of blocks that repeat a message's tool calls."""

_STOP = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""Names of the stop reason in a reply's metadata."""


def neutral_message(message: Any) -> nexus.Message:
    """Return a message as a neutral one, with its other fields in `meta`."""
    is_reply, is_result = isinstance(message, lc.AIMessage), isinstance(message, lc.ToolMessage)
    role = "assistant" if is_reply else "tool" if is_result else "system" if message.type == "system" else "user"
    item: dict[str, Any] = {"role": role, "content": message.content}
    if isinstance(message.content, list):
        blocks = cast("list[Any]", message.content)
        item["content"] = [_block(b) for b in blocks if isinstance(b, str) or b.get("type") not in _CALLS]
    if message.name:
        item["name"] = message.name
    if is_reply:
        calls = [
            (c["id"], c["name"], json.dumps(c["args"], default=str, ensure_ascii=False)) for c in message.tool_calls
        ]
        calls += ((c["id"], c["name"], c["args"]) for c in message.invalid_tool_calls)
        item["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n or "", "arguments": a or ""}} for i, n, a in calls
        ]
    if is_result:
        item["tool_call_id"] = message.tool_call_id
    (neutral,) = nexus.read_messages([item], "openai")
    if is_result and message.status == "error":
        neutral = with_parts(neutral, (replace(part, is_error=True) for part in neutral.results()))
    base = new_messages(neutral)[0]
    base_fields: dict[str, Any] = base.model_dump() if base.type == message.type else {}
    more = other_fields(message.model_dump(), base_fields)
    return with_fields(neutral, {**more, "type": message.type})


def restored_messages(message: nexus.Message) -> list[lc.BaseMessage]:
    """Return a message as it was; several if another program stored several results in one."""
    new, more = new_messages(message), fields_of(message)
    if not more:
        return new
    base_fields: dict[str, Any] = new[0].model_dump() if more["type"] == new[0].type else {}
    return lc.messages_from_dict([{"type": more["type"], "data": {**base_fields, **more}}])


def new_messages(message: nexus.Message) -> list[Any]:
    """Return new messages for a neutral one."""
    match message.role:
        case "tool":
            return [
                lc.ToolMessage(
                    _blocks(r.content),
                    tool_call_id=r.call_id,
                    name=r.name or None,
                    status="error" if r.is_error else "success",
                )
                for r in message.results()
            ]
        case "assistant":
            calls = [{"name": c.name, "args": _arguments(c), "id": c.id, "type": "tool_call"} for c in message.calls()]
            return [lc.AIMessage(_blocks(message.parts), tool_calls=calls)]
        case "system":
            return [lc.SystemMessage(message.text())]
        case _:
            return [lc.HumanMessage(_blocks(message.parts))]


def _block(block: str | dict[str, Any]) -> Any:
    """Return a content block in the form of chat completions if it is an image or thinking; any other one as it is."""
    if isinstance(block, str):
        return block
    if block.get("type") == "reasoning":
        summary: list[Any] = block.get("summary") or []
        texts = [str(part["text"]) for part in summary if "text" in part]
        return {"type": "thinking", "thinking": block.get("reasoning") or "\n".join(texts)}
    if block.get("type") not in ("image", "image_url", "input_image"):
        return block
    source: Any = block.get("source") or block.get("image_url") or block
    source = {"url": source} if isinstance(source, str) else source
    url: Any = source.get("url")
    if not url and (data := source.get("base64") or source.get("data")):
        url = f"data:{source.get('mime_type') or source.get('media_type') or 'image/png'};base64,{data}"
    if isinstance(url, str) and ":" in url and not url.lower().startswith(("http:", "https:", "data:")):
        return {**block, "type": "image"}  # the provider's own address, such as one of its store
    return {"type": "image_url", "image_url": {"url": url}} if url and block["type"] != "image_url" else block


def _blocks(parts: Iterable[Any]) -> Any:
    """Return texts and images as a message's content: a plain text if there is no more."""
    blocks: list[Any] = []
    for part in parts:
        if isinstance(part, nexus.Image):
            url = part.url or f"data:{part.media_type};base64,{part.data}"
            blocks.append({"type": "image_url", "image_url": {"url": url}})
        elif isinstance(getattr(part, "text", None), str) and not isinstance(part, nexus.Thinking):
            blocks.append({"type": "text", "text": part.text})
    if not blocks or (len(blocks) == 1 and blocks[0]["type"] == "text"):
        return blocks[0]["text"] if blocks else ""
    return blocks


def _arguments(call: nexus.ToolCall) -> dict[str, Any]:
    arguments: Any = None
    with suppress(ValueError):
        arguments = json.loads(call.arguments or "{}")
    if not isinstance(arguments, dict):
        return {"_unparsed": call.arguments}
    return cast("dict[str, Any]", arguments)


def result_of(before: Sequence[nexus.Message], replies: Sequence[Any]) -> nexus.AgentResult:
    """Return the replies of a call as they are recorded, behind the replies that its list ended with."""
    messages = [*map(neutral_message, replies)]
    reply = replies[0]
    metadata: dict[str, Any] = reply.response_metadata
    used: dict[str, Any] = reply.usage_metadata or {}
    read: dict[str, Any] = used.get("input_token_details") or {}
    written_by_model: dict[str, Any] = used.get("output_token_details") or {}
    hour = read.get("ephemeral_1h_input_tokens") or 0
    written = (read.get("cache_creation") or 0) + (read.get("ephemeral_5m_input_tokens") or 0) + hour
    usage = nexus.TokenUsage(
        used.get("input_tokens", 0),
        used.get("output_tokens", 0),
        read.get("cache_read") or 0,
        written,
        written_by_model.get("reasoning") or 0,
        hour,
    )
    reason = str(next(filter(None, map(metadata.get, _STOP)), ""))
    completion = {"message": nexus.write_messages(messages[:1], "openai")[0], "finish_reason": reason}
    read_reply = nexus.read_reply({"choices": [completion]})
    model = str(metadata.get("model_name") or metadata.get("model") or "")
    return replace(read_reply, messages=(*before, *messages), usage=usage, model=model)
