"""Assembled contexts as turn logs: valid, the same entries as the lines that a model reads, and imported without loss."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.assembly.profiles.builtin import PROFILES
from nexus.interop.importing import import_transcript
from nexus.ledger.sqlite import SqliteLedger
from nexus.turnlog.context_log import context_entries
from nexus.turnlog.reader import log_text, read, violations
from nexus.turnlog.write import log_texts
from nexus.types.message import Message, Note, Text, Thinking, ToolCall, assistant, tool
from support.hostile import PIXEL

LOOK: dict[str, Any] = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
START_MS = 1_765_353_600_000  # 2025-12-10 08:00 UTC


def opened() -> nexus.Engine:
    ticks = count(START_MS, 60_000)
    return nexus.open(ledger=SqliteLedger(), clock_ms=lambda: next(ticks))


def session(nx: nexus.Engine, profile: str, **options: Any) -> nexus.AssembledContext:
    """A session with calls, an image, a block, a system message and signed thinking; the context of its next call."""

    def say(event: Any, *parts: Any, **more: Any) -> None:
        ctx = nx.assemble(event, profile=profile, tools=[LOOK], **more)
        nx.record(ctx, nexus.AgentResult((Message("assistant", parts),)))

    calls = (ToolCall("c1", "look", '{"at": 1, "reasoning": "It may help."}'), ToolCall("c2", "look", "{}"))
    say("Look.", Thinking("Hm.", "c2ln"), Text("I look."), *calls, blocks={"mood": "calm"})
    say([tool("c1", "seen", "look"), tool("c2", "seen too", "look")], Text("Done."))
    nx.add_system_message("Be brief.")
    picture = nexus.Event((Text("And\n{this}?"), nexus.Image("image/png", PIXEL, width=1, height=1)))
    say(picture, Text('{"index":1}'))
    return nx.assemble("Last.", profile=profile, tools=[LOOK], **options)


@pytest.mark.parametrize("profile", PROFILES)
def test_context_of_every_profile_is_a_valid_log_and_loses_nothing(tmp_path: Path, profile: str) -> None:
    with opened() as nx:
        ctx = session(nx, profile)
        text = "".join(log_texts(context_entries(ctx)))
        assert [one for one in violations(text) if one.level == "error" or one.requirement == 4] == []
        (tmp_path / "log.json").write_text(text, "utf-8")
        for transcript in read(tmp_path / "log.json"):
            import_transcript(nx, transcript, "again")
        assert json.loads(log_text(nx.ledger.entries("again"))) == json.loads(text)
        again = nx.history("again")
        assert [call for m in again for call in m.calls()] == [call for m in ctx.messages for call in m.calls()]
        assert [one for m in again for one in m.results()] == [one for m in ctx.messages for one in m.results()]


def test_entries_are_those_that_the_model_reads_as_lines() -> None:
    with opened() as nx:
        ctx = session(nx, "turnlog")
        system, *log = json.loads("".join(log_texts(context_entries(ctx))))
        assert (system["index"], system["role"], system["content"]) == (0, "system", ctx.system_prompt)
        texts = [part.text for m in ctx.messages for part in m.parts if isinstance(part, (Text, Note))]
        lines = [line for text in texts for line in text.split("\n") if line.startswith('{"index"')]
        assert len(log) == len(lines)
        for entry, line in zip(log, map(json.loads, lines), strict=True):
            names = ("index", "turn", "timestamp", "role")
            assert [entry[name] for name in names] == [line[name] for name in names]
            assert entry["content"].keys() >= line["content"].keys() if entry["role"] != "system" else True
        assert log[1]["content"] == {"toolCall": "look", "at": 1, "reasoning": "Hm.\nI look.\nIt may help."}
        assert [part["type"] for part in log[0]["nexus"]["parts"]] == ["note", "note", "text"]


def test_entries_after_a_cut_keep_their_numbers() -> None:
    with opened() as nx:
        for number in range(12):
            ctx = nx.assemble(f"question {number} " * 20, profile="turnlog", budget=2_500)
            nx.record(ctx, nexus.AgentResult((assistant("answer " * 30),)))
        ctx = nx.assemble("next", profile="turnlog", budget=2_500)
        log = json.loads("".join(log_texts(context_entries(ctx))))
        (cut,) = (entry for entry in log if entry.get("nexus", {}).get("mark") == "cut")
        assert cut["content"].startswith("[Earlier messages left out")
        assert [entry["index"] for entry in log][:2] == [0, 1]
        assert (log[-1]["index"], log[-1]["turn"], log[-1]["content"]["text"]) == (25, 12, "next")
        assert len(log) < 25
