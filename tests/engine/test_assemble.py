"""The engine as a library user meets it: assemble, send, record, and what the report says."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import BadEvent, BadSetting, NotFound
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from nexus.render.context_json import from_json
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, Unknown, assistant, tool, user
from nexus.workspace.prompts import templates
from support.errors import has_code
from support.replay import Mark, append, mark
from support.skills import SHELL
from support.validity import CHECKS

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOON = 1_770_379_200_000


class Clock:
    """A clock that a test winds by hand."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


def workspace(root: Path, **files: str) -> Engine:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path = path.with_name(f"{path.name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return nexus.open(root, clock_ms=Clock(), timezone="Asia/Shanghai")


def say(nx: Engine, text: str, reply: str = "ok", **options: Any) -> nexus.AssembledContext:
    ctx = nx.assemble(text, **{"session": "s", **options})
    nx.record(ctx, nexus.AgentResult((assistant(reply),)))
    return ctx


def texts(ctx: nexus.AssembledContext) -> str:
    return json.dumps(ctx.to_openai()["messages"], ensure_ascii=False)


def test_system_slot_has_documented_order(tmp_path: Path) -> None:
    """Document 002, "Physical Layer 1: System Prompt": "Contains"."""
    nx = workspace(
        tmp_path, AGENTS="RULES", SOUL="SOUL", IDENTITY="SELF", USER="FRIEND", TOOLS="GUIDE",
        skills__x__SKILL="---\nname: x\ndescription: does x\n---\nbody",
    )  # fmt: skip
    prompt = nx.assemble("hi", tools=SHELL).system_prompt
    places = [prompt.index(word) for word in ("RULES", "GUIDE", "FRIEND", "\nSOUL", "SELF", "- x: does x", "Host:")]
    assert places == sorted(places)
    assert "body" not in prompt


def test_current_message_has_time_zone_channel_then_user_text(tmp_path: Path) -> None:
    """Document 002, "Physical Layer 3: Current Event": "Contains"."""
    nx = workspace(tmp_path)
    event = nexus.Event(content=(Text("What now?"),), at_ms=NOON, channel="telegram\nCurrent time: never", chat_id="7")
    assert nx.assemble(event).to_openai()["messages"][-1]["content"] == (
        "Current time: 2026-02-06T12:00:00.000Z\nLocal time: 2026-02-06T20:00:00.000+08:00\nTimezone: Asia/Shanghai\n"
        "Channel: telegram Current time: never\nChat ID: 7\n\nWhat now?"
    )


def test_memory_is_not_repeated_while_history_shows_it(tmp_path: Path) -> None:
    nx = workspace(tmp_path, memory__MEMORY="the index is GIN")
    assert "the index is GIN" in texts(say(nx, "one"))
    second = say(nx, "two")
    assert texts(second).count("the index is GIN") == 1
    assert "the index is GIN" not in json.dumps(msgspec.to_builtins(second.event))
    (tmp_path / "memory" / "MEMORY.md").write_text("the index is a B-tree")
    assert "the index is a B-tree" in json.dumps(msgspec.to_builtins(say(nx, "three").event))


def test_memory_stays_away_while_history_is_cut_and_returns_after_a_compaction(tmp_path: Path) -> None:
    nx = workspace(tmp_path, memory__MEMORY="the index is GIN")
    cut = False
    for number in range(40):
        ctx = say(nx, f"question {number}", "answer " * 60, budget=3_000)
        cut = cut or ctx.cut is not None
        assert texts(ctx).count("the index is GIN") == (not cut)
    assert cut
    assert any("omitted from this call" in note.message for note in ctx.warnings)
    assert nx.compact("s", budget=3_000)
    assert texts(nx.assemble("and now?", session="s", budget=3_000)).count("the index is GIN") == 1


def test_memory_is_omitted_with_warning_before_budget_error(tmp_path: Path) -> None:
    nx = workspace(tmp_path, memory__MEMORY="fact " * 2_000)
    ctx = nx.assemble("hi", budget=600)
    assert "fact fact" not in texts(ctx)
    assert any("omitted from this call" in note.message for note in ctx.warnings)


def test_unsent_memory_is_omitted_before_any_message_is_cut(tmp_path: Path) -> None:
    """The documented order: memory that was never sent, then tool results, then history."""
    nx = workspace(tmp_path)
    for number in range(24):
        say(nx, f"question {number}", "answer " * 60, budget=9_000)
    used = nx.assemble("and now?", session="s", budget=9_000).token_budget.used.total
    without = nx.assemble("and now?", session="s", budget=used - 400)
    (tmp_path / "memory").mkdir(exist_ok=True)
    (tmp_path / "memory" / "MEMORY.md").write_text("fact " * 800)
    ctx = nx.assemble("and now?", session="s", budget=used + 400)
    assert ctx.cut is None
    assert "fact fact" not in texts(ctx)
    assert any("omitted from this call" in note.message for note in ctx.warnings)
    roomy = nx.assemble("and now?", session="s", budget=used + 2_000)
    assert roomy.cut is None
    assert "fact fact" in texts(roomy)
    cut = nx.assemble("and now?", session="s", budget=used - 400)
    assert cut.cut is not None
    assert "fact fact" not in texts(cut)
    assert [*cut.history] == [*without.history]
    nx.record(ctx, nexus.AgentResult((assistant("ok"),)))
    assert nx.replay("s", 25).body_hash == ctx.body_hash


@pytest.mark.parametrize("profile", ["layered", "workspace", "repl", "tagged", "tagged_stable", "turnlog", "bare"])
def test_part_of_an_unknown_kind_is_shown_as_a_note_with_a_warning(profile: str) -> None:
    event = nexus.Event((Text("Read this."), Unknown("document", '{"type":"document"}')))
    with nexus.open(ledger=":memory:", clock_ms=Clock()) as nx:
        ctx = nx.assemble(event, session="s", profile=profile)
        nx.record(ctx, nexus.AgentResult((assistant("ok"),)))
        for wire, body in (("openai", ctx.to_openai()), ("anthropic", ctx.to_anthropic()), ("gemini", ctx.to_gemini())):
            assert CHECKS[wire](body) == []
            assert "[document: cannot be shown here]" in json.dumps(body)
        assert any("document shown as a note" in note.message for note in ctx.warnings)
        assert nx.replay("s", 1).body_hash == ctx.body_hash


def test_image_at_a_local_address_reaches_no_provider() -> None:
    event = nexus.Event((Text("Look."), Image("image/png", url="file:///etc/passwd")))
    with nexus.open(ledger=":memory:", clock_ms=Clock()) as nx:
        ctx = nx.assemble(event, session="s")
        call = ToolCall("c1", "look", "{}")
        nx.record(ctx, nexus.AgentResult((assistant("", call),)))
        shot = Message("tool", (ToolResult("c1", (Image("image/png", url="C:\\shot.png"),), "look"),))
        later = nx.assemble([shot], session="s")
        for body in (
            ctx.to_openai(),
            ctx.to_anthropic(),
            later.to_responses(),
            later.to_anthropic(),
            later.to_gemini(),
        ):
            assert "/etc/passwd" not in json.dumps(body) and "shot.png" not in json.dumps(body)
            assert "[image at a local address: cannot be shown here]" in json.dumps(body)
        assert any("local address shown as a note" in note.message for note in ctx.warnings)
        assert nx.assemble(nexus.Event((Text("x"), Image("image/png", url="https://x.org/a.png")))).warnings == ()


def test_tool_loop_repeats_first_message_of_turn_byte_for_byte(tmp_path: Path) -> None:
    """Decided on all documents: moment and memory blocks stay, "byte for byte", through the turn's tool loop."""
    nx = workspace(tmp_path, memory__MEMORY="fact")
    call = ToolCall("c1", "look", '{"path": "a"}')
    first = nx.assemble("look at a", session="s")
    nx.record(first, nexus.AgentResult((assistant("", call),)))
    second = nx.assemble([tool("c1", "seen", "look")], session="s")
    before, after = first.to_openai()["messages"], second.to_openai()["messages"]
    assert after[: len(before)] == before
    assert [message["role"] for message in after[len(before) :]] == ["assistant", "tool"]
    assert second.accounting.prefix.state == "extends"
    nx.record(second, nexus.AgentResult((assistant("done"),)))
    assert [entry.kind for entry in nx.ledger.entries("s")] == ["messages", "messages", "completed"]
    assert {entry.turn for entry in nx.ledger.entries("s")} == {1}


def test_changed_memory_in_tool_loop_waits_for_next_message(tmp_path: Path) -> None:
    """Decided: the memory block that a turn starts with stays, byte for byte, through all calls of its tool loop."""
    nx = workspace(tmp_path, memory__MEMORY="the index is GIN")
    first = nx.assemble("look at a", session="s")
    nx.record(first, nexus.AgentResult((assistant("", ToolCall("c1", "look", "{}")),)))
    (tmp_path / "memory" / "MEMORY.md").write_text("the index is a B-tree")
    second = nx.assemble([tool("c1", "seen", "look")], session="s")
    assert second.to_openai()["messages"][: len(first.to_openai()["messages"])] == first.to_openai()["messages"]
    assert "B-tree" not in texts(second)
    nx.record(second, nexus.AgentResult((assistant("done"),)))
    assert "the index is a B-tree" in texts(nx.assemble("and now?", session="s"))


def test_changed_file_breaks_prefix_and_is_reported(tmp_path: Path) -> None:
    """Decided on all documents: "Sources are read again for each call; a change is a declared prefix break"."""
    nx = workspace(tmp_path, AGENTS="one")
    say(nx, "hi")
    assert nx.assemble("again", session="s").accounting.prefix.state == "extends"
    (tmp_path / "AGENTS.md").write_text("two")
    ctx = nx.assemble("again", session="s")
    assert ctx.accounting.prefix.causes == ("AGENTS.md (rules) changed",)
    assert "AGENTS.md (rules) changed" in ctx.report


def test_assemble_writes_nothing_and_is_deterministic(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="one")
    say(nx, "hi")
    head = nx.ledger.store.head(1)
    event = nexus.Event(content=(Text("again"),), at_ms=NOON)
    one, two = (json.dumps(nx.assemble(event, session="s").to_anthropic()) for _ in range(2))
    assert one == two
    assert nx.ledger.store.head(1) == head
    assert nx.assemble("x", session="never heard of").history.end == 0
    assert [info.label for info in nx.sessions()] == ["s"]


def test_record_stores_turn_cut_and_manifest_atomically_once(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    ctx = nx.assemble("x", session="s")
    for number in range(40):
        ctx = nx.assemble(f"question {number}", session="s", budget=2_000)
        if ctx.cut:
            break
        nx.record(ctx, nexus.AgentResult((assistant("answer " * 60),)))
    assert ctx.cut
    done = nx.record(ctx, nexus.AgentResult((assistant("last"),)))
    thread = nx.ledger.store.thread_of("s")
    assert thread is not None
    assert nx.ledger.store.last_cut(thread, ctx.provenance.manifest.view) == ctx.cut
    stored = nx.ledger.store.last_assembly(thread, ctx.provenance.manifest.view)
    assert stored is not None
    assert stored.manifest["id"] == ctx.provenance.manifest.id
    assert nx.record(ctx, nexus.AgentResult((assistant("last"),))).added == 0
    assert nx.ledger.store.head(thread)[0] == done.head


def test_cut_of_small_window_does_not_affect_large_window(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    for number in range(30):
        say(nx, f"question {number}", "answer " * 60, budget=2_000)
    assert len(nx.assemble("x", session="s", budget=2_000).history) < 30
    assert len(nx.assemble("x", session="s", budget=100_000).history) == 60


def test_budget_too_small_error_names_parts(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="rule " * 1_000)
    with pytest.raises(nexus.BudgetTooSmall, match=r"system 1,[0-9]+, current event") as caught:
        nx.assemble("hi", budget=500)
    assert caught.value.available_tokens == 500
    assert caught.value.needed_tokens == sum(caught.value.parts.values())


def test_file_over_cap_is_truncated_at_a_line_and_reported(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="a line of rules\n" * 2_000)
    ctx = nx.assemble("hi")
    assert "more characters of AGENTS.md left out (cap 20,000)" in ctx.system_prompt
    assert any(note.source == "AGENTS.md" and "cap per file: 20,000" in note.message for note in ctx.warnings)
    assert "AGENTS.md" in ctx.report.split("Omitted:")[1]


def test_outside_files_pipes_and_folders_are_rejected_with_reason(tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("SECRET")
    root = tmp_path / "ws"
    root.mkdir()
    (root / "AGENTS.md").symlink_to(outside)
    os.mkfifo(root / "SOUL.md")
    (root / "TOOLS.md").mkdir()
    ctx = nexus.open(root, ledger=":memory:").assemble("hi")
    assert "SECRET" not in ctx.system_prompt
    assert {note.source for note in ctx.warnings} == {"AGENTS.md", "SOUL.md", "TOOLS.md"}


def test_unchanged_template_is_omitted(tmp_path: Path) -> None:
    for name, text in templates().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    event = nexus.Event((Text("hi"),), channel="telegram")
    ctx = nexus.open(tmp_path, ledger=":memory:").assemble(event, tools=SHELL)
    assert [block.name for block in ctx.provenance.blocks] == ["environment", "skills", "host", "messaging", "moment"]
    assert "note-taking" not in ctx.system_prompt


@pytest.mark.parametrize(
    ("text", "warned"),
    [("no front matter", "front matter"), ("---\nname: [\n---\n", "not YAML"), ("---\nname: 1\n---\n", "`description` is missing"),
     ("---\na: &a [x]\nb: *a\nname: n\ndescription: d\n---\n", "alias"),
     ("---\nname: bad\ndescription: " + "d" * 2_000 + "\n---\n", "the rest is cut")],
)  # fmt: skip
def test_skill_with_invalid_front_matter_is_reported(tmp_path: Path, text: str, warned: str) -> None:
    ctx = workspace(tmp_path, skills__bad__SKILL=text).assemble("hi")
    assert any(note.source == "skills/bad/SKILL.md" and warned in note.message for note in ctx.warnings)


def test_leading_system_messages_stay_in_the_system_slot(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    append(nx, "s", Message("system", (Text("You sell flights."),)), user("hi"), assistant("hello"))
    for number in range(30):
        ctx = say(nx, f"question {number}", "answer " * 60, budget=2_000)
        assert "You sell flights." in ctx.system_prompt
        assert not any("You sell flights." in message.text() for message in ctx.history)
    assert nx.assemble("x", session="s", budget=2_000).history.opening


def test_summary_opens_history_and_survives_a_cut_while_it_fits(tmp_path: Path) -> None:
    """Document 002, "Physical Layer 2": summaries "injected as first history message"."""
    nx = workspace(tmp_path)
    append(nx, "s", user("old"), assistant("old answer"))
    mark(nx, "s", Mark("They chose GIN."))
    ctx = nx.assemble("x", session="s")
    assert [message.text() for message in ctx.history] == ["[Previous conversation summary]\nThey chose GIN.", "old"]
    for number in range(30):
        ctx = say(nx, f"question {number}", "answer " * 60, budget=2_000)
        assert "They chose GIN." in texts(ctx)
    assert any(message.text().startswith("[Earlier messages left out") for message in ctx.history.opening)


def test_thinking_is_sent_only_to_the_model_that_wrote_it(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    thought = Message("assistant", (Thinking("hm", "c2ln"), Text("yes")), model="claude-opus-4-6")
    append(nx, "s", user("hi"), thought)
    own = nx.assemble("x", session="s", model="claude-opus-4-6").to_anthropic()["messages"][1]["content"]
    other = nx.assemble("x", session="s", model="claude-sonnet-4-5").to_anthropic()["messages"][1]["content"]
    assert [block["type"] for block in own] == ["thinking", "text"]
    assert [block["type"] for block in other] == ["text"]


def test_cache_breakpoints_are_at_most_four_and_twenty_blocks_apart(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="rules")
    for number in range(60):
        append(nx, "s", user(f"q{number}"), assistant(f"a{number}"))
    body = nx.assemble("x", session="s", tools=[{"name": "look", "parameters": {"type": "object"}}]).to_anthropic()
    assert CHECKS["anthropic"](body) == []
    blocks = [block for message in body["messages"] for block in message["content"]]
    marked = [place for place, block in enumerate(blocks) if "cache_control" in block]
    assert marked[-1] == len(blocks) - 1
    assert len(marked) == 3
    assert all(after - before <= 20 for before, after in pairwise(marked))
    assert "cache_control" in body["system"][-1]


def test_tools_in_any_format_and_order_give_the_same_bytes(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}
    turned = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "type": "object"}
    one = [{"type": "function", "function": {"name": "x", "description": "d", "parameters": schema}}, {"name": "y"}]
    two = [{"name": "y", "input_schema": {}}, {"name": "x", "description": "d", "input_schema": turned}]
    event = nexus.Event(content=(Text("hi"),), at_ms=NOON)
    bodies = [nx.assemble(event, tools=tools) for tools in (one, two)]
    for wire in ("to_openai", "to_anthropic", "to_gemini"):
        first, second = (json.dumps(getattr(ctx, wire)()) for ctx in bodies)
        assert first == second
    assert CHECKS["gemini"](bodies[0].to_gemini()) == []


def test_images_are_between_notes_and_text_in_each_format(tmp_path: Path) -> None:
    nx = workspace(tmp_path)
    ctx = nx.assemble("What is this?", images=[Image("image/png", PIXEL, width=1, height=1)])
    kinds = [part["type"] for part in ctx.to_openai()["messages"][-1]["content"]]
    assert kinds == ["text", "image_url", "text"]
    for wire, check in CHECKS.items():
        assert check(getattr(ctx, f"to_{wire}")()) == []


def test_saved_context_is_restored_with_the_same_bytes(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="rules", memory__MEMORY="fact")
    append(nx, "s", user("hi"), assistant("", ToolCall("c", "look", "{}")))
    ctx = nx.assemble("stop", session="s", tools=[{"name": "look"}])
    again = from_json(json.loads(json.dumps(ctx.to_json())))
    for wire in ("to_openai", "to_anthropic", "to_gemini", "to_json"):
        assert getattr(again, wire)() == getattr(ctx, wire)()
    assert nx.record(again, nexus.AgentResult((assistant("ok"),))).added == 2
    assert nx.record(ctx, nexus.AgentResult((assistant("ok"),))).added == 0


def test_budget_json_has_the_documented_names(tmp_path: Path) -> None:
    """Document 002, "Budget Calculation": `TokenBudget`; decided: one more field, `used.tools`."""
    budget = workspace(tmp_path).assemble("hi", model="claude-sonnet-4").token_budget.to_json()
    assert set(budget) == {"modelLimit", "reserveResponse", "reserveTools", "available", "used", "remaining"}
    assert set(budget["used"]) == {"systemPrompt", "tools", "history", "event", "total"}  # type: ignore[arg-type]
    assert (budget["modelLimit"], budget["available"]) == (200_000, 176_000)


def test_token_breakdown_adds_up_to_the_used_budget(tmp_path: Path) -> None:
    nx = workspace(tmp_path, AGENTS="rules", memory__MEMORY="fact")
    for model in ("gpt-4o", "claude-sonnet-4-5"):
        for _ in range(2):
            ctx = say(nx, "hi", model=model, tools=[{"name": "look"}])
            assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total


@pytest.mark.parametrize("event", ["", "  \n", []])
def test_empty_event_is_rejected(tmp_path: Path, event: Any) -> None:
    with pytest.raises(BadEvent, check=has_code("empty_event")):
        workspace(tmp_path).assemble(event)


def test_unknown_profile_is_rejected_with_a_list(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="bare, layered", check=has_code("unknown_profile")):
        workspace(tmp_path).assemble("hi", profile="nope")


def test_two_engines_on_one_ledger_share_turns_and_cuts(tmp_path: Path) -> None:
    one, two = workspace(tmp_path), workspace(tmp_path)
    for number in range(40):
        say((one, two)[number % 2], f"question {number}", "answer " * 60, budget=2_000)
    first, second = (
        nx.assemble(nexus.Event(content=(Text("x"),), at_ms=NOON), session="s", budget=2_000) for nx in (one, two)
    )
    assert first.to_openai() == second.to_openai()
    assert len(one.history("s")) == 80


def test_file_growth_becomes_fork_after_session_continued(tmp_path: Path) -> None:

    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"id": "chat", "messages": said}))
    nx = workspace(tmp_path)
    import_transcript(nx, next(read(path)))
    say(nx, "here", session="chat")
    path.write_text(json.dumps({"id": "chat", "messages": [*said, {"role": "user", "content": "there"}]}))
    (done,) = import_transcript(nx, next(read(path)))
    assert done.session == "chat~continued"
    assert [m.text() for m in nx.history("chat")] == ["hi", "hello", "here", "ok"]
    assert [m.text() for m in nx.history("chat~continued")] == ["hi", "hello", "there"]
    assert import_transcript(nx, next(read(path)))[0].added_entries == 0


def test_imported_image_gets_its_size_from_its_data(tmp_path: Path) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    broken = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "image", "source": source}, {"type": "image", "source": broken}]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [{"role": "user", "content": content}]}))
    nx = workspace(tmp_path)
    import_transcript(nx, next(read(tmp_path / "chat.json")))
    images = [part for part in nx.history("chat")[0].parts if isinstance(part, Image)]
    assert [(image.width, image.height) for image in images] == [(1, 1), (0, 0)]
    assert [image.data for image in images] == [PIXEL, "AAAA"]


def test_unknown_provider_format_is_rejected() -> None:
    with nexus.open() as nx, pytest.raises(BadSetting, match="provider format 'cohere' unknown"):
        nx.assemble("hi").to_provider("cohere")  # pyright: ignore[reportArgumentType]
