"""Session files of other tools: what is in them, who reported it, and what the import has.

A row is one situation: its name, where it comes from, the bytes of the file, and what must be read: the texts of the
messages (calls as `?id`, results as `!id`) and the kinds of the reported problems.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import nexus
from interop.claude_events import Event, call, lines, result, said, shown, text, user
from nexus.cli._usage import reported_usage
from nexus.engine import Engine
from nexus.engine.analysis.past_window import context_of_call, find_call
from nexus.errors import UnreadableFile
from nexus.interop.detect import read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.types.message import ToolCall
from support.errors import has_code

USER, ANSWER = {"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}
OWN = "own"
PARALLEL = "https://github.com/anthropics/claude-code/issues/37779"
FORKS = "https://github.com/anthropics/claude-code/issues/35024"
SUBAGENTS = "https://github.com/anthropics/claude-code/issues/33651"
CUT = "https://github.com/openai/codex/issues/24425"
CONCATENATED = "https://github.com/github/copilot-cli/issues/4098"
BREAKS = "https://github.com/github/copilot-cli/issues/2649"


def by_line(*items: Any) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def hook(uuid: str, parent: str, **more: Any) -> Event:
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "data": {"type": "hook_progress"}, **more}


def read_all(folder: Path, data: bytes | str, name: str = "log.jsonl") -> list[Any]:
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return list(read(folder / name))


def imported(nx: Engine, folder: Path, data: bytes | str, name: str = "log.jsonl") -> list[ImportReport]:
    return [report for one in read_all(folder, data, name) for report in import_transcript(nx, one)]


def texts(nx: Engine, session: str) -> list[str]:
    return [row.message.text() for entry in nx.ledger.entries(session) for row in entry.rows]


@pytest.fixture
def nx() -> Engine:
    return nexus.open(ledger=":memory:")


# formats -------------------------------------------------------------------------------------------------------------

CONTENTS: list[Any] = [
    {"role": "user", "parts": [{"text": "go"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2ln"}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "one"}}}]},
    {"role": "model", "parts": [{"text": "done"}]},
]
IN_SNAKE_CASE = json.loads(json.dumps(CONTENTS).replace("functionC", "function_c").replace("functionR", "function_r"))
OF_CONTENTS = ["go", "?call_1", "!call_1", "done"]

ITEMS: list[Any] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "fc_1"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "two"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]
OF_ITEMS = ["go", "?c1+?c2", "!c1", "!c2", "done"]
ASKED_BY_AGENT = [{"role": "user", "content": "go"}, ITEMS[2], ITEMS[4], ITEMS[6]]
SYSTEM_ITEM = {"parts": [{"text": "Be brief."}]}


@pytest.mark.parametrize(
    ("file_format", "data", "words"),
    [
        pytest.param("gemini", json.dumps(CONTENTS), OF_CONTENTS, id="Gemini: a list of contents"),
        pytest.param("gemini", json.dumps(IN_SNAKE_CASE, indent=1), OF_CONTENTS, id="Gemini: in snake case"),
        pytest.param("gemini", by_line(*CONTENTS), OF_CONTENTS, id="Gemini: a content each line"),
        pytest.param("gemini", json.dumps([{"parts": [{"text": "go"}]}, *CONTENTS[1:]]), OF_CONTENTS, id="Gemini: no role"),
        pytest.param(
            "gemini",
            json.dumps({"contents": CONTENTS, "systemInstruction": SYSTEM_ITEM}),
            ["Be brief.", *OF_CONTENTS],
            id="Gemini: a request",
        ),
        pytest.param(
            "gemini",
            by_line({"contents": CONTENTS, "system_instruction": "Be brief."}),
            ["Be brief.", *OF_CONTENTS],
            id="Gemini: a request each line",
        ),
        pytest.param("gemini", json.dumps({"history": CONTENTS, "authType": "x"}), OF_CONTENTS, id="Gemini CLI: /chat save"),
        pytest.param("responses", json.dumps(ITEMS), OF_ITEMS, id="Responses: a list of items"),
        pytest.param("responses", by_line(*ITEMS), OF_ITEMS, id="Responses: an item each line"),
        pytest.param(
            "responses",
            json.dumps({"model": "m", "instructions": "Be brief.", "input": ITEMS}),
            ["Be brief.", *OF_ITEMS],
            id="Responses: a request",
        ),
        pytest.param(
            "responses",
            by_line({"object": "response", "input": "go", "output": ITEMS[1:4]}),
            ["go", "?c1+?c2"],
            id="Responses: a response with its input",
        ),
        pytest.param("responses", json.dumps(ASKED_BY_AGENT), ["go", "?c1", "!c1", "done"], id="OpenAI Agents: a session's items"),
        pytest.param(
            "responses", by_line(*ITEMS[1:3]), ["?c1"], id="Responses: a reply alone"
        ),
    ],
)  # fmt: skip
def test_providers_formats_are_recognized(tmp_path: Path, file_format: str, data: str, words: list[str]) -> None:
    (found,) = read_all(tmp_path, data)
    assert (found.format, shown(found.steps), found.report.problems) == (file_format, words, ())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            json.dumps([{"role": "user", "parts": [{"type": "text", "text": "go"}]}]), id="AI SDK: typed parts"
        ),
        pytest.param(
            json.dumps(
                {"info": {}, "messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]}]}
            ),
            id="opencode export",
        ),
        pytest.param(by_line({"timestamp": "t", "type": "response_item", "payload": ITEMS[0]}), id="Codex rollout"),
        pytest.param(by_line({"type": "tool_call", "id": "1", "name": "look"}), id="another tool's call"),
    ],
)
def test_similar_formats_are_not_taken_for_a_providers(tmp_path: Path, data: str) -> None:
    with pytest.raises(UnreadableFile, check=has_code("unknown_format")):
        read_all(tmp_path, data)


def test_imported_items_and_contents_go_out_as_received(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, json.dumps({"model": "gpt-5", "input": ITEMS}), "items.json")
    nx.record(nx.assemble("next", session="items", model="gpt-5"), nexus.AgentResult((nexus.assistant("ok"),)))
    sent = nx.assemble("more", session="items", model="gpt-5").to_responses()["input"]
    assert sent[: len(ITEMS)] == ITEMS
    imported(nx, tmp_path, json.dumps(CONTENTS), "contents.json")
    sent = nx.assemble("more", session="contents", model="gemini-3-pro").to_gemini()["contents"]
    assert sent[1]["parts"][0]["thought_signature"] == "c2ln"


# damage --------------------------------------------------------------------------------------------------------------

RECORD = {"role": "assistant", "content": [{"type": "text", "text": "one [1] {x"}, {"type": "text", "text": "two"}]}
LINE = json.dumps(RECORD)
START = by_line(USER)
BROKEN_TEXT = ["go", "one [1] {x+two"]


@pytest.mark.parametrize(
    ("source", "data", "words", "kinds"),
    [
        pytest.param(CUT, START + LINE[:70] + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="cut within a text"),
        pytest.param(CUT, START + LINE[:24] + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="cut within a key"),
        pytest.param(CUT, START + '{"ro' + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="cut within the first key"),
        pytest.param(CUT, START + LINE[:84] + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="cut behind an object"),
        pytest.param(CUT, START + LINE[:40] + LINE[:66] + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="cut twice"),
        pytest.param(
            CUT, START + LINE[50:] + LINE + "\n", BROKEN_TEXT, ["broken copy"], id="end of a record before it"
        ),
        pytest.param(
            CONCATENATED,
            START + LINE[:70] + LINE + json.dumps(ANSWER) + "\n",
            [*BROKEN_TEXT, "done"],
            ["broken copy", "several values"],
            id="cut, whole, and the next on one line",
        ),
        pytest.param(
            OWN,
            START + '{"role": "assistant", "content": [{"type": "text", "text": "x"}\n' + by_line(ANSWER),
            ["go", "done"],
            ["not JSON"],
            id="an object inside a broken record is none",
        ),
        pytest.param(
            BREAKS,
            START + LINE.replace("one", "o\nn\n\ne") + "\n" + by_line(ANSWER),
            ["go", "o\nn\n\ne [1] {x+two", "done"],
            ["several lines"],
            id="raw line breaks in a text",
        ),
        pytest.param(
            BREAKS,
            (START + LINE.replace("one", "o\nne") + "\n").replace("\n", "\r\n"),
            ["go", "o\r\nne [1] {x+two"],
            ["several lines"],
            id="raw line breaks in a file of Windows",
        ),
        pytest.param(
            BREAKS,
            START + LINE.replace("one", "o\nn}\ne"),
            ["go", "o\nn}\ne [1] {x+two"],
            ["several lines"],
            id="raw line breaks in the last record, without an end",
        ),
        pytest.param(
            BREAKS,
            LINE.replace("one", "o\nne") + "\n" + by_line(ANSWER),
            ["o\nne [1] {x+two", "done"],
            ["several lines"],
            id="raw line breaks in the first record",
        ),
        pytest.param(
            OWN,
            START + LINE.replace("one", "o\tne") + "\n",
            ["go", "o\tne [1] {x+two"],
            ["raw characters"],
            id="raw tab",
        ),
        pytest.param(
            OWN,
            START + json.dumps(RECORD, indent=1) + "\n" + by_line(ANSWER),
            [*BROKEN_TEXT, "done"],
            ["several lines"],
            id="an indented record between others",
        ),
        pytest.param(
            OWN, START + LINE[:70] + "\n" + LINE + "\n", BROKEN_TEXT, ["not JSON"], id="cut record on a line of its own"
        ),
    ],
)
def test_damaged_records_are_read_and_reported(
    tmp_path: Path, source: str, data: str, words: list[str], kinds: list[str]
) -> None:
    assert source == OWN or source.startswith("https://")
    (found,) = read_all(tmp_path, data)
    assert shown(found.steps) == words
    assert [problem.kind for problem in found.report.problems] == kinds


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("indent", [None, 1])
def test_encodings_of_unicode_are_read(tmp_path: Path, encoding: str, indent: int | None) -> None:
    """PowerShell's `>` writes UTF-16. A line ends at a line feed only."""
    talk = [{"role": "user", "content": "Grüße\u2028 😀"}, ANSWER]
    data = json.dumps(talk, ensure_ascii=False, indent=indent) if indent else by_line(*talk)
    (found,) = read_all(tmp_path, data.replace("\n", "\r\n").encode(encoding))
    assert (shown(found.steps), found.report.problems) == (["Grüße\u2028 😀", "done"], ())


def test_turn_log_in_utf_16_is_read(tmp_path: Path) -> None:
    entry = {"index": 0, "turn": 0, "timestamp": "2026-01-05T12:00:00Z", "role": "user", "content": "Grüße"}
    (found,) = read_all(tmp_path, json.dumps([entry], ensure_ascii=False).encode("utf-16"))
    assert (found.format, shown(found.steps)) == ("turnlog", ["Grüße"])


# times ---------------------------------------------------------------------------------------------------------------

NOON = 1767614400000


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-05T12:00:00Z", "2026-01-05T13:00:00+01:00", "2026-01-05 12:00:00", "2026-01-05 12:00:00 UTC",
        "2026/01/05 12:00", "20260105T120000Z", "Mon, 05 Jan 2026 12:00:00 GMT", "Mon Jan  5 12:00:00 2026",
        "2026-01-05T12:00:00.000000000Z", 1767614400, 1767614400.0, 1767614400000, 1767614400000000, "1767614400",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["timestamp", "created_at", "createTime"])
def test_times_are_understood(nx: Engine, tmp_path: Path, time: object, name: str) -> None:
    (report,) = imported(nx, tmp_path, by_line({**USER, name: time}))
    assert ([entry.at_ms for entry in nx.ledger.entries("log")], report.problems) == ([NOON], ())


@pytest.mark.parametrize(
    "time", ["05.01.2026 12:00", "soon", "12:00", "2026-01-05T12:00:00 XYZ", -5, 1e30, True, {"a": 1}]
)
def test_unknown_times_are_reported_and_never_the_imports(nx: Engine, tmp_path: Path, time: object) -> None:
    talk = [{**USER, "timestamp": time}, {**ANSWER, "timestamp": NOON}, {**USER, "timestamp": time}]
    (report,) = imported(nx, tmp_path, by_line(*talk))
    assert [entry.at_ms for entry in nx.ledger.entries("log") if entry.rows] == [NOON] * 3
    assert [(problem.line, problem.kind) for problem in report.problems] == [(1, "unknown time"), (3, "unknown time")]
    (tmp_path / "only.jsonl").write_text(by_line(talk[0]), "utf-8")
    os.utime(tmp_path / "only.jsonl", (1e9, 1e9))
    for found in read(tmp_path / "only.jsonl"):
        import_transcript(nx, found)
    assert [entry.at_ms for entry in nx.ledger.entries("only")] == [10**12]


def test_unknown_time_of_claude_code_is_reported(nx: Engine, tmp_path: Path) -> None:
    events = [user("u1", None, "go", timestamp="2026-01-05T12:00:00Z"), user("u2", "u1", "on", timestamp="later")]
    (report,) = imported(nx, tmp_path, lines(*events))
    assert [entry.at_ms for entry in nx.ledger.entries(report.session)] == [NOON, NOON]
    assert [problem.kind for problem in report.problems] == ["unknown time"]


# Claude Code ---------------------------------------------------------------------------------------------------------

CALLED = [user("u1", None, "go"), said("a1", "u1", "m1", call("c1"))]
ANSWERED = [user("r1", "a1", [result("c1", "one")]), said("a2", "r1", "m2", text("answer"))]
WHOLE = ["go", "?c1", "!c1", "answer", "next"]


@pytest.mark.parametrize(
    ("source", "events", "words", "forks"),
    [
        pytest.param(FORKS, [*CALLED, hook("p1", "a1"), *ANSWERED, user("u2", "p1", "next")], WHOLE, [], id="after a tool"),
        pytest.param(
            FORKS,
            [*CALLED, hook("p1", "a1"), hook("p2", "p1"), *ANSWERED,
             {"type": "system", "subtype": "turn_duration", "uuid": "s", "parentUuid": "p2"}, user("u2", "s", "next")],
            WHOLE, [], id="through a system line",
        ),
        pytest.param(
            FORKS,
            [user("u1", None, "go"), hook("p1", "u1"), said("a1", "u1", "m1", text("answer")), user("u2", "p1", "next")],
            ["go", "answer", "next"], [], id="after a prompt",
        ),
        pytest.param(
            FORKS, [*CALLED, *ANSWERED, hook("p1", "a1"), said("a3", "p1", "m3", text("more")), user("u2", "a2", "next")],
            ["go", "?c1", "!c1", "answer", "more", "next"], [], id="an answer after a hook",
        ),
        pytest.param(
            SUBAGENTS,
            [*CALLED, *ANSWERED, hook("p1", "a1", data={"type": "agent_progress", "agentId": "x", "message": user("x1", None, "find")}),
             user("u2", "p1", "next")],
            WHOLE, [], id="after a sub-agent",
        ),
        pytest.param(FORKS, [*CALLED, *ANSWERED, user("u2", "a1", "next")], WHOLE, [], id="after a call with its result"),
        pytest.param(
            PARALLEL,
            [*CALLED, said("b1", "a1", "m1", call("c2")), ANSWERED[0], user("r2", "b1", [result("c2", "two")]),
             said("a2", "r2", "m2", text("answer")), user("u2", "r1", "next")],
            ["go", "?c1+?c2", "!c1", "!c2", "answer", "next"], [], id="after another parallel result",
        ),
        pytest.param(
            OWN,
            [user("u1", None, "go"), said("a1", "u1", "m1", text("answer")), hook("p1", "a1"), user("u2", "p1", "old"),
             said("a2", "u2", "m2", text("old answer")), user("u3", "p1", "new")],
            ["go", "answer", "new"], [["old", "old answer"]], id="going back to a hook's line is a branch",
        ),
        pytest.param(
            OWN, [*CALLED, ANSWERED[0], user("u2", "r1", "old"), said("a2", "u2", "m2", text("x")), user("u3", "r1", "new")],
            ["go", "?c1", "!c1", "new"], [["old", "x"]], id="going back to a result is a branch",
        ),
    ],
)  # fmt: skip
def test_lines_of_hooks_cut_no_answer_off(
    tmp_path: Path, source: str, events: list[Event], words: list[str], forks: list[list[str]]
) -> None:
    assert source == OWN or source.startswith("https://")
    (found,) = read_all(tmp_path, lines(*events))
    assert (shown(found.steps), [shown(fork.steps) for fork in found.forks]) == (words, forks)


SHAPE = {
    "type": "api-request-shape",
    "shapeHash": "h1",
    "shape": {"system": [{"type": "text", "text": "Be brief."}], "tools": [{"name": "look"}, {"name": "patch"}]},
}


def test_request_records_give_system_prompt_tools_and_cost(nx: Engine, tmp_path: Path) -> None:
    usage = {"input_tokens": 9, "output_tokens": 1}
    events = [
        {**user("u1", None, "go"), "sessionId": "s"},
        SHAPE,
        {"type": "api-request-blob", "hash": "b", "message": USER},
        {"type": "api-request", "id": "q1", "shapeHash": "h1", "params": {"model": "m"}},
        {**said("a1", "u1", "m1", text("one"), usage=usage), "requestRef": "q1"},
        {"type": "tools-used", "tools": ["look"]},
        {"type": "cost-state", "totalCostUSD": 0.25},
        {"type": "api-request", "id": "q2", "shapeHash": "h1"},
        {**said("a2", "a1", "m2", text("two"), usage=usage), "requestRef": "q2"},
        {"type": "cost-state", "totalCostUSD": 0.5},
    ]
    (report,) = imported(nx, tmp_path, lines(*events))
    names = ("api-request", "api-request-blob", "api-request-shape", "cost-state", "tools-used")
    assert [report.counted[name] for name in names] == [2, 1, 1, 2, 1]
    assert (report.cost_usd, "requestRef" in report.omitted, report.messages) == (0.5, False, 3)
    requests = [entry.body.get("imported_request") for entry in nx.ledger.entries("s") if entry.rows]
    assert requests == [None, {"system": "Be brief.", "tools": SHAPE["shape"]["tools"]}, None]
    assert "with the system prompt and 2 tools" in reported_usage(nx, "s").lines()[0]
    ctx = context_of_call(nx, "s", find_call(nx, "s", 1, 1))
    assert (ctx.system_prompt, [tool.name for tool in ctx.tools]) == ("Be brief.", ["look", "patch"])


# the second import ---------------------------------------------------------------------------------------------------


def half_of_chat(answer: str) -> bytes:
    return json.dumps([USER, {**ANSWER, "content": answer}]).encode()


def half_of_items(*items: Any) -> bytes:
    return by_line(ITEMS[0], *items).encode()


def half_of_claude(*more: Event) -> bytes:
    return lines({**user("u1", None, "go"), "sessionId": "log"}, *more)


PATCH: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
WITH_CALL = {**ANSWER, "content": "done, in full", "tool_calls": [PATCH]}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        pytest.param(half_of_chat("do"), half_of_chat("done, in full"), ["done, in full"], id="chat: more text"),
        pytest.param(half_of_chat(""), half_of_chat("done, in full"), ["done, in full"], id="chat: empty at first"),
        pytest.param(
            half_of_chat("done"), json.dumps([USER, WITH_CALL]).encode(), ["done, in full+?c1"], id="chat: a call added"
        ),
        pytest.param(
            json.dumps({"contents": [CONTENTS[0], {"role": "model", "parts": [{"text": "do"}]}]}).encode(),
            json.dumps({"contents": [CONTENTS[0], CONTENTS[3]]}).encode(),
            ["done"],
            id="Gemini: more text",
        ),
        pytest.param(half_of_items(ITEMS[1]), half_of_items(*ITEMS[1:4]), ["?c1+?c2"], id="Responses: calls added"),
        pytest.param(
            half_of_items({**ITEMS[2], "arguments": ""}), half_of_items(ITEMS[2]), ["?c1"], id="Responses: arguments added"
        ),
        pytest.param(
            half_of_claude(said("a1", "u1", "m1", text("do"))),
            half_of_claude(said("a1", "u1", "m1", text("done, in full"))),
            ["done, in full"],
            id="Claude Code: the line written anew",
        ),
        pytest.param(
            half_of_claude(said("a1", "u1", "m1", text("do"))),
            half_of_claude(said("a1", "u1", "m1", text("do")), said("a2", "a1", "m1", text("done"), call("c1"))),
            ["done+?c1"],
            id="Claude Code: a longer line of the same message",
        ),
        pytest.param(
            half_of_claude(said("a1", "u1", "m1", text("do"))),
            half_of_claude(said("a1", "u1", "m1", text("do")), said("a1", "u1", "m1", text("done, in full"))),
            ["done, in full"],
            id="Claude Code: a longer line with the same id",
        ),
    ],
)  # fmt: skip
def test_incomplete_reply_is_completed_and_not_doubled(
    nx: Engine, tmp_path: Path, first: bytes, second: bytes, words: list[str]
) -> None:
    for data in (first, second, second):
        imported(nx, tmp_path, data)
    messages = [
        row.message for entry in nx.ledger.entries("log") for row in entry.rows if row.message.role == "assistant"
    ]
    assert ["+".join(filter(None, [m.text(), *(f"?{one.id}" for one in m.calls())])) for m in messages] == words
    assert [session.label for session in nx.sessions()] == ["log"]
    assert len(nx.ledger.search("done")) == ("done" in words[0])


def test_incomplete_reply_stays_when_session_was_continued_here(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, half_of_chat("do"))
    nx.record(nx.assemble("here", session="log"), nexus.AgentResult((nexus.assistant("yes"),)))
    imported(nx, tmp_path, half_of_chat("done, in full"))
    assert texts(nx, "log") == ["go", "do", "here", "yes"]


def test_usage_of_a_reply_that_was_imported_in_parts_counts_once(nx: Engine, tmp_path: Path) -> None:
    parts = [
        said("a1", "u1", "m1", text("I look."), usage={"input_tokens": 9, "output_tokens": 1}),
        said("a2", "a1", "m1", call("c1"), usage={"input_tokens": 9, "output_tokens": 5}),
    ]
    imported(nx, tmp_path, half_of_claude(parts[0]))
    imported(nx, tmp_path, half_of_claude(*parts))
    (usage,) = reported_usage(nx, "log").models
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (1, 9, 5)


@pytest.mark.parametrize(
    ("data", "sessions"),
    [
        pytest.param(
            by_line({"id": "a", "messages": [USER]}, {"id": "a", "messages": [USER, ANSWER]}),
            {"a": ["go"], "a#2": ["go", "done"]},
            id="two lines",
        ),
        pytest.param(
            json.dumps([{"id": 1, "messages": [USER]}, {"id": "1", "messages": [ANSWER]}]),
            {"1": ["go"], "1#2": ["done"]},
            id="a number and its text",
        ),
        pytest.param(
            by_line(*({"id": name, "messages": [USER]} for name in ("a", "a", "a#2"))),
            {"a": ["go"], "a#2": ["go"], "a#2#2": ["go"]},
            id="an id that looks like the second",
        ),
        pytest.param(
            by_line({"id": "a", "contents": CONTENTS[:1]}, {"id": "a", "contents": CONTENTS[3:]}),
            {"a": ["go"], "a#2": ["done"]},
            id="Gemini",
        ),
        pytest.param(
            by_line({**USER, "session_id": "a"}, {**USER, "session_id": "b"}, {**ANSWER, "session_id": "a"}),
            {"a": ["go", "done"], "b": ["go"]},
            id="lines of two conversations in turn",
        ),
    ],
)
def test_conversations_of_a_file_stay_apart(
    nx: Engine, tmp_path: Path, data: str, sessions: dict[str, list[str]]
) -> None:
    for _ in range(2):
        imported(nx, tmp_path, data)
        assert {session.label: texts(nx, session.label) for session in nx.sessions()} == sessions


def test_calls_of_gemini_without_ids_keep_their_results(nx: Engine, tmp_path: Path) -> None:
    twice = [*CONTENTS[:3], *CONTENTS[1:]]
    imported(nx, tmp_path, json.dumps(twice))
    parts = [part for entry in nx.ledger.entries("log") for row in entry.rows for part in row.message.parts]
    assert [part.id for part in parts if isinstance(part, ToolCall)] == ["call_1", "call_2"]
    sent = nx.assemble("next", session="log", model="gpt-4o").to_openai()["messages"]
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ["call_1", "call_2"]
