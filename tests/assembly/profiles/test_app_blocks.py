"""Blocks that an application feeds, and how often the text of each source changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import nexus
from nexus.assembly.profiles.builtin import PROFILES
from nexus.types.block import Block
from nexus.types.history import PreviousTurns
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Note, Text, TokenSize, user
from nexus.types.profile import Profile
from nexus.types.request import Attachment, Event, Request
from nexus.types.settings import Settings
from nexus.workspace.files.reader import FILE_CHARS
from nexus.workspace.source_context import SourceContext, workspace_context
from nexus.workspace.sources.registry import SOURCES
from workspace.sources.gathering import told, write

MINE = Profile("mine", "for tests", ("rules", "fed:house-rules"), ("moment", "fed:ticket", "attachments"))


def opened(root: Path | None = None, **options: Any) -> nexus.Engine:
    return nexus.open(root, ledger=":memory:", profiles={"mine": MINE}, clock_ms=lambda: 1_772_807_400_123, **options)


def notes(ctx: nexus.AssembledContext) -> dict[str, str]:
    parts = ctx.current_message.parts
    return {part.origin: part.text for part in parts if isinstance(part, Note)}


def test_mood_and_constraints_are_in_current_message() -> None:
    """Document 000, "Future Enhancements": the [MOOD] and the [CONSTRAINTS] block."""
    with opened() as nx:
        ctx = nx.assemble("hi", blocks={"constraints": "At most two lines.\n", "mood": "calm"})
    found = notes(ctx)
    assert list(found) == ["nexus:moment", "fed:mood", "fed:constraints"]
    assert found["fed:mood"] == "[Mood — from the application]\ncalm"
    assert found["fed:constraints"] == "[Constraints — from the application]\nAt most two lines."
    assert ctx.warnings == ()
    assert [(one.layer, one.trust) for one in ctx.provenance.blocks if one.source == "fed:mood"] == [("Event", "tool")]


@pytest.mark.parametrize("name", ["layered", "repl", "workspace"])
def test_missing_app_block_adds_no_text(name: str) -> None:
    with opened() as nx:
        plain, fed = nx.assemble("hi", profile=name), nx.assemble("hi", profile=name, blocks={"mood": " \n"})
    assert plain.to_openai() == fed.to_openai()


def test_profile_places_app_block_in_either_slot(tmp_path: Path) -> None:
    with opened(write(tmp_path, AGENTS="Be exact.")) as nx:
        ctx = nx.assemble("hi", profile="mine", blocks={"ticket": "12", "house-rules": "No shouting."})
    assert ctx.system_prompt.endswith("[House-rules — from the application]\nNo shouting.")
    assert notes(ctx)["fed:ticket"] == "[Ticket — from the application]\n12"


def test_unplaced_app_block_is_a_warning() -> None:
    with opened() as nx:
        ctx = nx.assemble("hi", profile="mine", blocks={"mood": "calm", "a\nb": "x"})
    assert told(ctx.warnings) == {
        "fed:mood": "omitted: profile 'mine' has no source for it",
        "fed:a b": "omitted: profile 'mine' has no source for it",
    }


def test_non_text_app_block_is_omitted_and_long_one_truncated() -> None:
    with opened() as nx:
        ctx = nx.assemble("hi", blocks={"mood": 3, "constraints": "x" * (FILE_CHARS + 1_234)})  # pyright: ignore[reportArgumentType] - on purpose
    assert told(ctx.warnings) == {
        "fed:mood": "omitted: int is not text",
        "fed:constraints": "1,234 characters omitted (cap: 20,000)",
    }
    assert notes(ctx)["fed:constraints"].endswith("[1,234 more characters of constraints left out (cap 20,000)]")


def test_app_block_is_replayed() -> None:
    with opened() as nx:
        first = nx.assemble("hi", session="main", blocks={"mood": "calm"})
        nx.record(first, nexus.AgentResult((nexus.assistant("ok"),)))
        later = nx.assemble("more", session="main", blocks={"mood": "angry"})
        assert later.accounting.prefix.state == "extends"
        assert next(iter(later.history)).parts == first.current_message.parts
        assert nx.replay("main", 1).to_anthropic() == first.to_anthropic()


def test_changed_app_block_in_system_slot_is_named_prefix_break() -> None:
    with opened() as nx:
        for text, state in (("No shouting.", "first"), ("No shouting.", "extends"), ("Shout.", "broken")):
            ctx = nx.assemble("hi", session="main", profile="mine", blocks={"house-rules": text})
            assert ctx.accounting.prefix.state == state
            nx.record(ctx, nexus.AgentResult((nexus.assistant("ok"),)))
        assert ctx.accounting.prefix.causes == ("fed:house-rules (house-rules) changed",)
        assert ctx.accounting.prefix.at == "fed:house-rules (house-rules) in the system slot"


def test_app_blocks_are_not_repeated_within_turn() -> None:
    with opened() as nx:
        ctx = nx.assemble("hi", session="main", blocks={"mood": "calm"})
        call = nexus.assistant("", nexus.ToolCall("c1", "look", "{}"))
        nx.record(ctx, nexus.AgentResult((call,)))
        within = nx.assemble([nexus.tool("c1", "found")], session="main", blocks={"mood": "calm"})
    assert [message.role for message in within.current] == ["tool"]


def test_overflow_retry_keeps_app_blocks() -> None:
    with opened() as nx:
        sent: list[nexus.AssembledContext] = []

        def send(ctx: nexus.AssembledContext) -> dict[str, Any]:
            sent.append(ctx)
            if len(sent) == 1:
                raise RuntimeError("prompt is too long: 210000 tokens > 200000 maximum")
            return {"role": "assistant", "type": "message", "content": [{"type": "text", "text": "ok"}]}

        for number in range(30):
            said = nx.assemble(f"{number} " + "word " * 2_000, session="main")
            nx.record(said, nexus.AgentResult((nexus.assistant("yes " * 500),)))
        nexus.call(nx, "hi", send, session="main", blocks={"mood": "calm"})
    assert len(sent) == 2
    assert notes(sent[1])["fed:mood"] == notes(sent[0])["fed:mood"]


# how often texts change ----------------------------------------------------------------------------------------------


def test_every_profile_names_registered_sources() -> None:
    for profile in PROFILES.values():
        assert {*profile.system, *profile.current} <= SOURCES.keys()


def texts(name: str, desk: SourceContext) -> list[Block]:
    return SOURCES[name].function(dataclasses.replace(desk, skills_cache=[]))[0]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_stable_sources_are_equal_for_every_message_of_session(name: str, tmp_path: Path) -> None:
    root = write(
        tmp_path / "agent",
        AGENTS="Be exact.",
        SOUL="Calm.",
        IDENTITY="Aya.",
        USER="Ann.",
        TOOLS="Careful.",
        MEMORY="Tea.",
        skills__log__SKILL="---\nname: log\ndescription: Reads logs.\n---\nRead.",
    )
    around = workspace_context(root, tmp_path / "home", None)
    tools = ({"name": "look", "description": "Looks.", "input_schema": {"type": "object"}},)
    settings = Settings(user_profile={"friends_profile": "Likes tea."}, run_mode="repl")
    request = Request(Event((Text("hi"),), channel="desk"), settings=settings, tools=tools)
    event = Event(
        (Text("more"),),
        id="2",
        at_ms=1_800_000_000_000,
        timezone="Asia/Shanghai",
        channel="room",
        chat_id="7",
        platform="Matrix",
        platform_actions=("react",),
        hook_data={"weather": 3},
        metadata={"sender": "Ann"},
        attachments=(Attachment("a.txt", "text"),),
    )
    before = SourceContext(request, around, 1_772_807_400_123, "")
    changed = replace(settings, blocks={"mood": "calm", "constraints": "short"})
    later = replace(request, event=event, settings=changed)
    said = StoredMessage(MessageRef(1, 0), user("hi"), TokenSize(1, 1, 1))
    # The memory in parts grows with each turn too, at its end: what stood there stays.
    earlier = PreviousTurns([(1, said)]) if name != "shared_memory_parts" else PreviousTurns()
    after = SourceContext(later, around, event.at_ms, "Asia/Shanghai", previous_turns=earlier)
    same = texts(name, before) == texts(name, after)
    assert same == (SOURCES[name].changes != "turn")
