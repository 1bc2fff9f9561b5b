"""The base count on real sessions: it covers what was sent, and with the factor what the provider reported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model import resolve
from nexus.types.message import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Unknown
from support.recount import count_text
from tokens.wire_forms import compact

COUNTER = get_counter("o200k_base")
Json = dict[str, Any]


def data_folder() -> Path:
    folder = Path(os.environ.get("NEXUS_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not folder.is_dir():
        pytest.fail(f"the data folder {folder} is missing: set NEXUS_DATA to the folder with the real sessions")
    return folder


def rows(path: Path, limit: int = 1_000_000) -> Iterator[Json]:
    with path.open(encoding="utf-8") as lines:
        for _, line in zip(range(limit), lines, strict=False):
            yield json.loads(line)


def from_openai(row: Json) -> Message:
    if row["role"] == "tool":
        return Message("tool", (ToolResult(row["tool_call_id"], (Text(row["content"] or ""),), row.get("name", "")),))
    asked: list[Json] = row.get("tool_calls") or []
    calls = [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in asked]
    said = [Text(row["content"])] if row["content"] else []
    return Message(row["role"], (*said, *calls))


def from_anthropic(body: Json) -> Message:
    content = body["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(body["role"], tuple(from_block(block) for block in blocks))


def from_block(block: Json) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "thinking":
            return Thinking(block["thinking"], block.get("signature", ""))
        case "image":
            return Image("image/png")
        case "tool_use":
            return ToolCall(block["id"], block["name"], compact(block["input"]))
        case "tool_result":
            inner = block["content"]
            inner = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
            content = tuple(Text(part["text"]) if part["type"] == "text" else Image("image/png") for part in inner)
            return ToolResult(block["tool_use_id"], content, "", bool(block.get("is_error")))
        case kind:
            return Unknown(kind, compact(block))


def test_base_count_covers_real_messages_within_a_third() -> None:
    counted = sent = 0
    for conversation in rows(data_folder() / "tau_airline.jsonl", 50):
        for row in conversation["messages"]:
            body = {key: value for key, value in row.items() if not key.startswith("_")}
            tokens, least = message_tokens(from_openai(body), COUNTER).tokens, count_text(compact(body))
            assert tokens >= least, body
            counted, sent = counted + tokens, sent + least
    assert sent > 200_000
    assert counted < 1.33 * sent


@pytest.mark.parametrize("number", range(1, 11))
def test_base_count_times_factor_matches_reported_usage_of_session(number: int) -> None:
    reported = counted = since = 0
    before, last_id, model = None, None, ""
    for row in rows(data_folder() / "claude_code" / f"session_{number:02d}.jsonl"):
        if row["type"] not in ("user", "assistant"):
            continue
        body = row["message"]
        if row["type"] == "assistant" and body["id"] != last_id and body["model"] != "<synthetic>":
            usage, last_id, model = body["usage"], body["id"], body["model"]
            now = usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]
            # A smaller prompt than the last one was compacted or belongs to a helper's own talk: nothing to compare.
            if before is not None and now > before:
                reported, counted = reported + now - before, counted + since
            before, since = now, 0
        since += message_tokens(from_anthropic(body), COUNTER).tokens
    ratio = reported / (counted * resolve(model).token_factor)
    assert 0.85 <= ratio <= 1.05
