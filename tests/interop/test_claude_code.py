"""Claude Code's session files: lines become messages, in the order of the conversation and not of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interop.claude_events import Event, call, lines, read, result, said, shown, text, user
from nexus.errors import UnreadableFile
from nexus.interop import claude_code
from nexus.types.message import Image, Text, Thinking, ToolCall, ToolResult
from nexus.types.request import TokenUsage


def test_pieces_of_one_message_are_joined_before_results(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        said("a2", "a1", "m1", call("c1", path="x")),
        user("r1", "a2", [result("c1", "one")]),
        said("a3", "a2", "m1", call("c2", path="y"), usage={"input_tokens": 3, "cache_read_input_tokens": 10}),
        user("r2", "a3", [result("c2", "two")]),
        said("a4", "r2", "m2", text("done")),
    )
    assert shown(found.steps) == ["go", "?c1+?c2", "!c1", "!c2", "done"]
    assert found.forks == ()
    (message,) = found.steps[1].messages
    assert message.parts[0] == Thinking("hm", "sig")
    assert message.parts[1] == ToolCall("c1", "look", '{"path":"x"}')
    assert found.steps[1].keys == ("a1", "a2", "a3")
    assert found.steps[1].usage == TokenUsage(input_tokens=13, cache_read_tokens=10)
    assert found.steps[2].messages[0].parts == (ToolResult("c1", (Text("one"),), "look"),)


def test_later_piece_is_a_separate_step_with_same_id(tmp_path: Path) -> None:
    events = [user("u1", None, "go"), said("a1", "u1", "m1", call("c1")), said("a2", "a1", "m1", call("c2"))]
    before = read(tmp_path, *events[:2])
    (late,) = [new for step in read(tmp_path, *events).steps if (new := step.without(before.all_keys()))]
    assert [(m.id, m.parts) for m in late.messages] == [("m1", (ToolCall("c2", "look", "{}"),))]
    assert late.keys == ("a2",)


def test_edited_message_makes_a_fork_after_its_predecessor(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "first"),
        said("a1", "u1", "m1", text("answer")),
        user("u2", "a1", "old way"),
        said("a2", "u2", "m2", text("old answer")),
        user("u3", "a2", "old end"),
        user("u4", "a2", "other old end"),
        user("u5", "a1", "given up"),
        user("u6", "a1", "new way"),
    )
    assert shown(found.steps) == ["first", "answer", "new way"]
    assert [(fork.after, fork.branch, shown(fork.steps)) for fork in found.forks] == [
        ("a1", -1, ["old way", "old answer", "other old end"]),
        ("a2", 0, ["old end"]),
        ("a1", -1, ["given up"]),
    ]


def test_hook_progress_between_messages_makes_no_fork(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"type": "progress", "uuid": "p0", "parentUuid": None},
        user("u1", "p0", "go"),
        said("a1", "u1", "m1", call("c1")),
        {"type": "progress", "uuid": "p1", "parentUuid": "a1"},
        user("r1", "a1", [result("c1", "one")]),
        {"type": "system", "subtype": "stop_hook_summary", "uuid": "p2", "parentUuid": "p1"},
        said("a2", "p2", "m2", text("done")),
    )
    assert shown(found.steps) == ["go", "?c1", "!c1", "done"]
    assert found.forks == ()
    assert found.report.counted == {"progress": 2, "system/stop_hook_summary": 1}


def test_message_inserted_by_hook_stays_on_the_path(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", call("c1")),
        user("r1", "a1", [result("c1", "one")]),
        user("h1", "r1", "reminder", isMeta=True),
        said("a2", "r1", "m2", text("done")),
    )
    assert shown(found.steps) == ["go", "?c1", "!c1", "reminder", "done"]
    assert found.forks == ()
    (inserted,) = found.steps[3].messages
    assert inserted.source == "hook"
    assert json.loads(inserted.meta) == {"isMeta": True}


def test_second_root_is_a_cleared_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, user("u1", None, "one"), said("a1", "u1", "m1", text("yes")), user("u2", None, "two"))
    assert shown(found.steps) == ["one", "yes", "clear", "two"]
    assert found.steps[2].keys == ("u2:clear",)


def test_missing_parent_joins_previous_message_and_is_reported(tmp_path: Path) -> None:
    found = read(tmp_path, user("u1", None, "one"), said("a1", "gone", "m1", text("yes")), user("u2", "a1", "two"))
    assert shown(found.steps) == ["one", "yes", "two"]
    assert [(problem.line, problem.kind) for problem in found.report.problems] == [(2, "broken link")]


def boundary(uuid: str, logical: str, trigger: str = "auto") -> Event:
    about = {"trigger": trigger, "preTokens": 167000}
    head = {"type": "system", "subtype": "compact_boundary", "uuid": uuid, "parentUuid": None}
    return {**head, "logicalParentUuid": logical, "compactMetadata": about}


def test_boundary_and_summary_become_one_compaction(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", text("working")),
        boundary("b1", "a1"),
        user("s1", "b1", "What happened so far", isCompactSummary=True),
        said("a2", "s1", "m2", text("on")),
    )
    assert shown(found.steps) == ["go", "working", "compaction", "on"]
    step = found.steps[2]
    assert (step.summary, step.trigger, step.tokens_before) == ("What happened so far", "context_limit", 167000)
    assert step.keys == ("b1", "s1")
    assert found.report.counted == {}


def test_compaction_boundary_without_summary_is_counted(tmp_path: Path) -> None:
    events = [user("u1", None, "go"), boundary("b1", "u1", "manual"), user("s1", "b1", "sum", isCompactSummary=True)]
    before, after = read(tmp_path, *events[:2]), read(tmp_path, *events)
    assert (shown(before.steps), before.report.counted) == (["go"], {"system/compact_boundary": 1})
    assert shown(after.steps) == ["go", "compaction"]
    assert after.steps[1].trigger == "manual"


def test_boundary_without_summary_starts_new_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, user("u1", None, "go"), boundary("b1", "u1"), user("u2", "b1", "on"))
    assert shown(found.steps) == ["go", "clear", "on"]
    assert [problem.kind for problem in found.report.problems] == ["compaction without summary"]


def test_side_chains_are_separate_conversations(tmp_path: Path) -> None:
    side: Event = {"isSidechain": True}
    found = read(
        tmp_path,
        user("u1", None, "go", sessionId="session"),
        said("a1", "u1", "m1", call("c1")),
        user("x1", None, "search", **side, agentId="scout"),
        {**said("x2", "x1", "n1", text("found")), **side, "agentId": "scout"},
        user("y1", None, "older form", **side),
        {**said("y2", "y1", "n2", text("answer")), **side},
        user("r1", "a1", [result("c1", "one")]),
    )
    assert shown(found.steps) == ["go", "?c1", "!c1"]
    assert [(s.source_id, shown(s.steps)) for s in found.sidechains] == [
        ("scout", ["search", "found"]),
        ("y1", ["older form", "answer"]),
    ]
    assert found.sidechains[0].steps[0].messages[0].source == "agent"


def agent_line(uuid: str, parent: str, event: Event, *earlier: Event) -> Event:
    """A line that shows a message of agent `scout`, which call `c1` started."""
    data = {"type": "agent_progress", "agentId": "scout", "message": event, "normalizedMessages": list(earlier)}
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "data": data, "parentToolUseID": "c1"}


def test_progress_lines_of_agent_become_its_conversation(tmp_path: Path) -> None:
    opening = said("n0", None, "n", text("I search."))
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", call("c1")),
        agent_line("p1", "a1", user("x1", None, "search")),
        agent_line("p2", "p1", said("x2", None, "n", call("d1")), opening),
        agent_line("p3", "p2", user("x3", None, [result("d1", "found")]), opening, said("x2", None, "n", call("d1"))),
        user("r1", "p3", [result("c1", "one")]),
        said("a2", "r1", "m2", text("done")),
    )
    assert shown(found.steps) == ["go", "?c1", "!c1", "done"]
    assert found.report.problems == ()
    (agent,) = found.sidechains
    assert (agent.source_id, agent.call_id) == ("scout", "c1")
    assert shown(agent.steps) == ["search", "I search.+?d1", "!d1"]
    assert [step.closes_turn for step in agent.steps] == [False, False, True]


def test_agent_of_side_chain_lines_names_the_call_that_started_it(tmp_path: Path) -> None:
    side: Event = {"isSidechain": True, "agentId": "scout"}
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", call("c1")),
        user("x1", None, "search", **side),
        user("r1", "a1", [result("c1", "one")], toolUseResult={"agentId": "scout", "status": "completed"}),
    )
    assert found.sidechains[0].call_id == "c1"


def test_two_objects_on_one_line_are_both_read(tmp_path: Path) -> None:
    first, second = user("u1", None, "go"), said("a1", "u1", "m1", text("yes"))
    data = lines(first).rstrip() + b"\x00 " + lines(second).rstrip() + b"{oops\n" + lines(user("u2", "a1", "on"))
    found = read(tmp_path, data=data)
    assert shown(found.steps) == ["go", "yes", "on"]
    assert [(problem.line, problem.kind) for problem in found.report.problems] == [
        (1, "several values"),
        (1, "not JSON"),
    ]


def test_file_of_one_side_chain_is_that_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, user("x1", None, "search", isSidechain=True, agentId="scout", sessionId="s"))
    assert (found.source_id, shown(found.steps), found.sidechains) == ("s+scout", ["search"], ())


def test_result_with_text_becomes_two_messages_of_one_piece(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "go"),
        said("a1", "u1", "m1", call("c1")),
        user("r1", "a1", [result("c1", "one"), text("and another thing")]),
    )
    step = found.steps[2]
    assert [(m.role, m.id) for m in step.messages] == [("tool", "r1"), ("user", "r1:rest")]
    assert step.keys == ("r1",)
    assert step.starts_turn is False


def test_images_and_empty_results_are_kept(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    found = read(
        tmp_path,
        user("u1", None, [text("see"), picture]),
        said("a1", "u1", "m1", call("c1"), call("c2")),
        user("r1", "a1", [{**result("c1", [text("seen"), picture]), "is_error": True}]),
        user("r2", "a1", [result("c2", "")]),
    )
    assert found.steps[0].messages[0].parts == (Text("see"), Image("image/png", "AAAA"))
    seen = (Text("seen"), Image("image/png", "AAAA"))
    assert found.steps[2].messages[0].parts == (ToolResult("c1", seen, "look", is_error=True),)
    assert found.steps[3].messages[0].parts == (ToolResult("c2", (), "look"),)


def test_times_models_and_usage_are_kept(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "go", timestamp="2026-02-08T05:43:20.294Z", toolUseResult={"stdout": "x"}),
        said("a2", "u1", "m2", text("fine"), usage={"input_tokens": 1, "output_tokens": 2}),
    )
    assert found.steps[0].at_ms == found.steps[0].messages[0].at_ms == 1770529400294
    assert found.steps[1].usage == TokenUsage(1, 2)
    assert (found.model, found.report.omitted) == ("model-1", {"toolUseResult": 1})


def test_title_is_used_when_its_leaf_is_in_the_file(tmp_path: Path) -> None:
    summaries: list[Event] = [
        {"type": "summary", "summary": "Elsewhere", "leafUuid": "unknown"},
        {"type": "summary", "summary": "Here", "leafUuid": "u1"},
    ]
    found = read(tmp_path, *summaries, user("u1", None, "go"))
    assert (found.title, found.report.counted) == ("Here", {"summary": 2})
    assert read(tmp_path, summaries[0], user("u1", None, "go")).title == ""


def test_turns_open_at_typed_messages_and_close_at_the_next(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "/skill"),
        user("u2", "u1", "skill text", isMeta=True),
        said("a1", "u2", "m1", text("one")),
        user("u3", "a1", [text("[Request interrupted by user]")]),
        user("u4", "u3", "next"),
        said("a2", "u4", "m2", text("two")),
    )
    assert [step.starts_turn for step in found.steps] == [True, False, False, False, True, False]
    assert [step.closes_turn for step in found.steps] == [False, False, False, True, False, False]
    events = (user("u1", None, "go"), said("a1", "u1", "m1", text("one"), stop_reason="end_turn"))
    assert [step.closes_turn for step in read(tmp_path, *events).steps] == [False, True]


def test_torn_last_line_is_reported_and_rest_is_read(tmp_path: Path) -> None:
    whole = lines(user("u1", None, "go"), said("a1", "u1", "m1", text("yes")))
    found = read(tmp_path, data=whole[:-20])
    assert shown(found.steps) == ["go"]
    assert found.report.counted == {"(torn last line)": 1}
    assert [(problem.line, problem.kind) for problem in found.report.problems] == [(2, "torn last line")]


def test_damaged_lines_are_counted_and_children_keep_position(tmp_path: Path) -> None:
    broken = {"type": "assistant", "uuid": "a1", "parentUuid": "u1", "message": {"content": 7}}
    data = lines(user("u1", None, "go"), broken) + b"\x00\x00\x00\n{oops\n[1]\n\n" + lines(user("u2", "a1", "on"))
    found = read(tmp_path, data=data)
    assert shown(found.steps) == ["go", "on"]
    assert found.report.counted == {
        "(damaged message)": 1,
        "(NUL bytes)": 1,
        "(not JSON)": 1,
        "(no event)": 1,
        "(blank)": 1,
    }
    assert [problem.line for problem in found.report.problems] == [2, 3, 4, 5]


def test_repeated_line_is_read_once_and_shared_id_keeps_both(tmp_path: Path) -> None:
    found = read(tmp_path, user("u1", None, "go"), user("u1", None, "go"), user("u1", None, "other"))
    assert found.report.counted == {"(duplicate)": 1}
    assert len(set(found.all_keys())) == len(found.all_keys())
    assert [problem.kind for problem in found.report.problems] == ["duplicate", "duplicate"]
    assert "other" in shown(found.steps)


def test_file_without_events_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"{}\n[1]\n")
    with pytest.raises(UnreadableFile, match="no event of Claude Code"):
        next(claude_code.read(file))


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, "", "x", [], {}, [None], [{"type": "text"}], {"content": []}, True]
)
BLOCKS: st.SearchStrategy[Any] = st.lists(
    st.one_of(
        st.just(text("hi")),
        st.builds(call, NAMES),
        st.builds(result, NAMES, st.sampled_from(["", "ok", None, [text("ok")], 5])),
        JUNK,
    ),
    max_size=3,
)
EVENTS: st.SearchStrategy[Event] = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "progress", "summary", "queue-operation", "attachment"])},
    optional={
        "uuid": st.one_of(NAMES, st.uuids().map(str), JUNK),
        "parentUuid": st.one_of(st.none(), NAMES, JUNK),
        "logicalParentUuid": NAMES,
        "subtype": st.just("compact_boundary"),
        "isCompactSummary": st.booleans(),
        "isSidechain": st.booleans(),
        "isMeta": st.booleans(),
        "agentId": st.sampled_from(["one", "two"]),
        "timestamp": st.one_of(st.just("2026-02-08T05:43:20.294Z"), JUNK),
        "sessionId": st.one_of(NAMES, JUNK),
        "operation": st.sampled_from(["enqueue", "dequeue", "remove", "popAll"]),
        "reason": st.sampled_from(["absorbed_mid_turn", "cancelled"]),
        "content": st.one_of(st.sampled_from(["hi", "/go", "<task-notification>"]), BLOCKS, JUNK),
        "attachment": st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": st.one_of(BLOCKS, JUNK)}),
        "data": st.fixed_dictionaries(
            {"type": st.just("agent_progress"), "agentId": NAMES},
            optional={
                "message": st.fixed_dictionaries(
                    {"type": st.sampled_from(["user", "assistant"])},
                    optional={"uuid": NAMES, "message": st.fixed_dictionaries({"content": BLOCKS})},
                ),
                "normalizedMessages": st.lists(st.fixed_dictionaries({"type": st.just("attachment")}), max_size=2),
            },
        ),
        "message": st.one_of(
            st.fixed_dictionaries({"content": st.one_of(st.text(max_size=5), BLOCKS)}, optional={"id": NAMES}),
            JUNK,
        ),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=14), st.integers(0, 14))
def test_any_events_count_each_line_once_and_keep_keys_on_growth(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], cut: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = read(folder, *events)
    keys = [key for step in whole.all_steps() if step.kind != "clear" for key in step.keys]
    assert len(keys) == len(set(keys)) == whole.report.message_lines
    for number, fork in enumerate(whole.forks):
        before = whole.steps if fork.branch == -1 else whole.forks[fork.branch].steps
        assert fork.branch < number
        assert not fork.after or any(fork.after in step.keys for step in before)
    if 0 < cut < len(events):
        messages = [k for s in read(folder, *events[:cut]).all_steps() if s.kind != "clear" for k in s.keys]
        assert set(messages) <= set(keys)
