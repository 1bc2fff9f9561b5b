"""Every real session: into the ledger, again without change, out in OpenAI form with every message, call and result."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import nexus
from interop.claude_events import data_of, is_notice, queued, spoken_events
from nexus.engine import Engine
from nexus.interop.detect import read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.render.export import as_openai

Account = Counter[tuple[str, ...]]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def lines_of(path: Path) -> tuple[Account, Counter[str]]:
    """What a Claude Code file says, by the standard library alone: texts, calls, results; and its lines by kind."""
    said: Account = Counter()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = Counter("/".join(filter(None, (event["type"], event.get("subtype")))) for event in events)
    kinds["progress"] -= sum(data_of(event).get("type") == "agent_progress" for event in events)
    kinds["queue-operation"] -= len(list(queued(events)))
    del kinds["user"], kinds["assistant"]
    kinds["assistant/synthetic"] = sum(map(is_notice, events))
    for event in spoken_events(events):
        kinds["message"] += "unlined" not in event
        content = event["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if event.get("isCompactSummary"):
            said["summary", digest(blocks[0]["text"])] += 1
            continue
        for block in blocks:
            match block["type"]:
                case "text":
                    said["text", digest(block["text"])] += bool(block["text"])
                case "tool_use":
                    said["call", block["id"], block["name"], json.dumps(block["input"], sort_keys=True)] += 1
                case "tool_result":
                    inner = block["content"]
                    text = inner if isinstance(inner, str) else "\n".join(part["text"] for part in inner)
                    said["result", block["tool_use_id"], digest(text)] += 1
                case other:
                    assert other == "thinking"
    return +said, +kinds


def chat_of(messages: Iterable[dict[str, Any]]) -> Account:
    """What messages in OpenAI form say."""
    said: Account = Counter()
    for message in messages:
        content = message["content"]
        if message["role"] == "tool":
            said["result", message["tool_call_id"], digest(content)] += 1
        else:
            for text in [content] if isinstance(content, str) else [part["text"] for part in content or []]:
                said["text", digest(text)] += bool(text)
        for call in message.get("tool_calls") or []:
            arguments = json.dumps(json.loads(call["function"]["arguments"]), sort_keys=True)
            said["call", call["id"], call["function"]["name"], arguments] += 1
    return +said


def imported(nx: Engine, path: Path) -> list[ImportReport]:
    return [one for transcript in read(path) for one in import_transcript(nx, transcript)]


def exported(nx: Engine) -> Account:
    said: Account = Counter()
    for session in nx.sessions():
        entries = nx.ledger.entries(session.label)
        said += chat_of(as_openai(entries)["messages"])
        said.update(("summary", digest(e.body["summary"])) for e in entries if e.kind == "compaction")
    return said


@pytest.mark.parametrize("number", range(1, 11))
def test_claude_code_file_exports_to_openai_without_loss(
    number: int, data: Path, record_property: Callable[[str, object], None]
) -> None:
    path = data / "claude_code" / f"session_{number:02d}.jsonl"
    said, kinds = lines_of(path)
    with nexus.open(ledger=":memory:") as nx:
        first, *agents = imported(nx, path)
        assert exported(nx) == said
        taken = kinds.pop("message") + kinds.pop("system/compact_boundary", 0)
        assert first.message_lines == taken, "messages and the boundaries of compactions are taken over"
        assert first.counted == kinds, "every other line is counted by its kind"
        assert first.lines == sum(kinds.values()) + first.message_lines
        head = nx.ledger.store.head(1)
        again = imported(nx, path)
        added = [report.added_entries for report in again]
        assert (added, nx.ledger.store.head(1)) == ([0] * (1 + len(agents)), head), (
            "importing the same file twice adds nothing"
        )
    record_property("figures", {"real lines imported": first.lines})


def test_two_hundred_conversations_round_trip(data: Path, record_property: Callable[[str, object], None]) -> None:
    path = data / "tau_airline.jsonl"
    raw = {one["id"]: one["messages"] for one in map(json.loads, path.read_text().splitlines())}
    with nexus.open(ledger=":memory:") as nx:
        assert len(imported(nx, path)) == len(raw) == 200
        for name, messages in raw.items():
            out = as_openai(nx.ledger.entries(name))["messages"]
            assert chat_of(out) == chat_of(messages)
            assert [message["role"] for message in out] == [message["role"] for message in messages]
        assert sum(one.added_entries for one in imported(nx, path)) == 0
    record_property("figures", {"real conversations imported": len(raw)})


@pytest.mark.parametrize("number", range(1, 11))
def test_import_of_grown_file_adds_only_the_rest(number: int, data: Path, tmp_path: Path) -> None:
    path = data / "claude_code" / f"session_{number:02d}.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    said, _ = lines_of(path)
    for cut in (len(lines) // 4, len(lines) // 2, len(lines) - 3):
        grown = tmp_path / path.name
        with nexus.open(ledger=":memory:") as nx:
            grown.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
            before = imported(nx, grown)
            grown.write_bytes(whole)
            after = imported(nx, grown)
            assert exported(nx) == said
            assert len([session for session in nx.sessions() if not session.parent_session]) == 1
            assert sum(one.messages for one in (*before, *after)) >= after[0].known_entries
            assert any("line" in problem.text or problem.line == cut + 1 for problem in before[0].problems)
