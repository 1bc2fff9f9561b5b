"""Real session files: everything that they say is in the transcripts, exactly once, by an account of its own.

The files lie beside the project (`../shared/data`, or where NEXUS_DATA says). `account` reads the raw JSON with nothing
but the standard library and knows nothing of the readers under test.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nexus
from interop.claude_events import data_of, is_notice, queued, spoken_events
from nexus.cli._usage import reported_usage
from nexus.engine.analysis.cache_use import cached_calls, sum_calls
from nexus.errors import UnreadableFile
from nexus.interop import detect
from nexus.interop.importing import import_transcript
from nexus.interop.transcript import Step, Transcript
from nexus.types.message import Image, Text, Thinking, ToolCall, ToolResult, Unknown

DATA = Path(os.environ.get("NEXUS_DATA", Path(__file__).parents[3] / "shared" / "data"))
SESSIONS = [DATA / "claude_code" / f"session_{number:02d}.jsonl" for number in range(1, 11)]
CHATS = DATA / "tau_airline.jsonl"

Account = Counter[tuple[Any, ...]]


def lines_of(path: Path) -> list[bytes]:
    assert path.exists(), f"{path} is missing: get the data files, or set NEXUS_DATA to their folder"
    return path.read_bytes().splitlines(keepends=True)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def account(messages: Iterable[dict[str, Any]]) -> Account:
    """What raw messages of either provider's form say: texts, thoughts, calls with parsed arguments, results."""
    found: Account = Counter()
    for message in messages:
        content: Any = message.get("content")
        if message.get("role") == "tool":
            found["result", message["tool_call_id"], digest(content)] += 1
            continue
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            match block["type"]:
                case "text" if block["text"]:
                    found["text", digest(block["text"])] += 1
                case "thinking":
                    found["thought", digest(block["thinking"]), block.get("signature", "")] += 1
                case "tool_use":
                    found["call", block["id"], block["name"], json.dumps(block["input"], sort_keys=True)] += 1
                case "tool_result":
                    inner = block["content"]
                    text = inner if isinstance(inner, str) else "".join(part["text"] for part in inner)
                    found["result", block["tool_use_id"], digest(text)] += 1
                case other:
                    assert other == "text", f"an unforeseen block: {other}"
        calls: list[Any] = message.get("tool_calls") or []
        for call in calls:
            arguments = json.dumps(json.loads(call["function"]["arguments"]), sort_keys=True)
            found["call", call["id"], call["function"]["name"], arguments] += 1
    return found


def imported(steps: Iterable[Step]) -> Account:
    """The same account of what the transcript has."""
    found: Account = Counter()
    for step in steps:
        if step.kind == "compaction":
            found["text", digest(step.summary)] += 1
        for part in (part for message in step.messages for part in message.parts):
            match part:
                case Text(text):
                    found["text", digest(text)] += 1
                case Thinking(text, signature):
                    found["thought", digest(text), signature] += 1
                case ToolCall(call_id, name, arguments):
                    found["call", call_id, name, json.dumps(json.loads(arguments), sort_keys=True)] += 1
                case ToolResult(call_id, content):
                    text = "".join(one.text for one in content if isinstance(one, Text))
                    found["result", call_id, digest(text)] += 1
                case Image() | Unknown():
                    found["other", str(part)] += 1
                case _:
                    raise AssertionError(part)
    return found


def events(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, lines_of(path))


def one(path: Path) -> Transcript:
    (transcript,) = detect.read(path)
    return transcript


def message_keys(transcript: Transcript) -> list[str]:
    return [key for step in transcript.all_steps() if step.kind != "clear" for key in step.keys]


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_session_contains_each_text_of_its_file_once(path: Path) -> None:
    raw = [event["message"] for event in spoken_events(events(path))]
    transcript = one(path)
    assert imported(transcript.all_steps()) == account(raw)
    assert transcript.forks == ()


PRICES = {
    "claude-opus-4-5-20251101": (5, 0.5, 6.25, 10, 25),
    "claude-opus-4-6": (5, 0.5, 6.25, 10, 25),
    "claude-sonnet-4-5-20250929": (3, 0.3, 3.75, 6, 15),
}
"""USD per million tokens: input, cache reads, cache writes for five minutes and for an hour, output (Anthropic's list)."""


def dollars_of(path: Path) -> Decimal:
    """The price of the main conversation's calls. Lines of one call repeat its usage; the last one is complete."""
    usage: dict[str, tuple[str, dict[str, Any]]] = {}
    for event in events(path):
        message = event.get("message", {})
        if event["type"] == "assistant" and not event.get("isSidechain") and message["model"] in PRICES:
            usage[message["id"]] = message["model"], message["usage"]
    total = Decimal()
    for model, counts in usage.values():
        written = counts["cache_creation"]
        kinds = [counts["input_tokens"], counts["cache_read_input_tokens"]]
        kinds += [written["ephemeral_5m_input_tokens"], written["ephemeral_1h_input_tokens"], counts["output_tokens"]]
        total += sum(count * Decimal(str(price)) for count, price in zip(kinds, PRICES[model], strict=True))
    return total / 1_000_000


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_cost_of_session_is_the_sum_of_its_calls(path: Path) -> None:
    with nexus.open(ledger=":memory:") as nx:
        (result,) = import_transcript(nx, one(path))[:1]
        models = reported_usage(nx, result.session).models
        shown = sum_calls([*cached_calls(nx.ledger.store, nx.ledger.thread(result.session), nx.resolve)])
    expected = dollars_of(path)
    assert sum(usage.dollars or 0 for usage in models) == pytest.approx(float(expected), abs=1e-6)
    assert shown.dollars == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_each_line_is_a_message_or_counted_by_kind(path: Path) -> None:
    spoken = sum(event["type"] in ("user", "assistant") for event in spoken_events(events(path)))
    unlined = sum(event.get("unlined", False) for event in spoken_events(events(path)))
    kinds = Counter("/".join(filter(None, (event["type"], event.get("subtype")))) for event in events(path))
    kinds["assistant/synthetic"] = sum(map(is_notice, events(path)))
    kinds["progress"] -= sum(data_of(event).get("type") == "agent_progress" for event in events(path))
    kinds["queue-operation"] -= len(list(queued(events(path))))
    kinds = +kinds
    transcript = one(path)
    boundaries = sum(step.kind == "compaction" for step in transcript.all_steps())
    del kinds["user"], kinds["assistant"]
    assert boundaries == kinds.pop("system/compact_boundary", 0)
    assert transcript.report.counted == dict(kinds)
    assert len(message_keys(transcript)) == len(set(message_keys(transcript))) == spoken + boundaries
    assert transcript.report.lines == spoken - unlined + boundaries + kinds.total()


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_results_follow_their_calls_and_message_ids_are_unique(path: Path) -> None:
    open_calls: set[str] = set()
    ids = Counter[tuple[str, str]]()
    for step in one(path).steps:
        for message in step.messages:
            ids[message.role, message.id] += 1
            if message.role == "assistant":
                assert not open_calls, "a call without its result"
                open_calls = {call.id for call in message.calls()}
            open_calls -= {result.call_id for result in message.results()}
    assert max(ids.values()) == 1


@pytest.mark.parametrize("path", [SESSIONS[1], SESSIONS[4], SESSIONS[8], SESSIONS[9]], ids=lambda path: path.stem)
def test_imports_of_growing_file_add_up_to_the_complete_session(path: Path, tmp_path: Path) -> None:
    raw = lines_of(path)
    whole = one(path)
    cuts = sorted({len(raw) * part // 23 for part in range(1, 23)} - {0})
    known: set[str] = set()
    collected: Account = Counter()
    for cut in [*cuts, len(raw)]:
        piece = tmp_path / path.name
        piece.write_bytes(b"".join(raw[:cut]) + (raw[cut][:40] if cut < len(raw) else b""))
        try:
            part = one(piece)
        except UnreadableFile:
            continue
        keys = set(message_keys(part))
        assert keys <= set(message_keys(whole)), cut
        collected += imported(new for step in part.all_steps() if (new := step.without(known)))
        known |= keys
    assert known == set(message_keys(whole))
    assert collected == imported(whole.all_steps())


def test_conversations_contain_the_texts_of_their_lines() -> None:
    raw = list(events(CHATS))
    transcripts = list(detect.read(CHATS))
    assert [transcript.source_id for transcript in transcripts] == [row["id"] for row in raw]
    for row, transcript in zip(raw, transcripts, strict=True):
        assert imported(transcript.steps) == account(row["messages"])
        assert len(transcript.all_keys()) == len(row["messages"])
        assert (transcript.report.lines, transcript.report.counted, transcript.report.problems) == (
            1,
            {"conversation": 1},
            (),
        )


@pytest.mark.parametrize("cut", [1, 2, 7, 20])
def test_growing_conversation_keeps_its_keys(cut: int, tmp_path: Path) -> None:
    row = next(events(CHATS))
    (whole,) = read_row(tmp_path, row)
    (part,) = read_row(tmp_path, {**row, "messages": row["messages"][:cut]})
    assert whole.all_keys()[:cut] == part.all_keys()
    rest = [new for step in whole.steps if (new := step.without(part.all_keys()))]
    assert imported(part.steps) + imported(rest) == imported(whole.steps)


def read_row(folder: Path, row: dict[str, Any]) -> list[Transcript]:
    file = folder / "one.jsonl"
    file.write_text(json.dumps(row) + "\n")
    return list(detect.read(file))
