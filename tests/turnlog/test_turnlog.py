"""Turn logs: the document's printed examples to the character, its requirements, and files that are none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import UnreadableFile
from nexus.interop.importing import ImportReport, import_transcript
from nexus.ledger.sqlite import SqliteLedger
from nexus.turnlog import times
from nexus.turnlog.entries import LogEntry, LogPosition, Unit
from nexus.turnlog.reader import Violation, console_lines, log_text, read, violations
from nexus.turnlog.write import entries_for, log_entries, log_texts, position_after, strict_entries
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import Image, Message, Note, Text, Thinking, TokenSize, ToolCall, assistant, tool, user
from support.errors import has_code
from support.turn_log import DISPLAYED, LOG, PRINTED

WRONG: list[Any] = [None, True, 1.0, -1, "", "1", [], {}, 10**30, [[], []]]
AT = 1_680_611_600_000


def write(folder: Path, data: str | bytes) -> Path:
    file = folder / "log.json"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def take(nx: Engine, folder: Path, data: str | bytes) -> ImportReport:
    (transcript,) = read(write(folder, data))
    (done,) = import_transcript(nx, transcript)
    return done


def exported(messages: list[Message], **body: Any) -> list[dict[str, Any]]:
    """The log of a session of these messages."""
    return json.loads("".join(log_texts(logged(messages, **body))))


def logged(messages: list[Message], **body: Any) -> list[LogEntry]:
    ledger = SqliteLedger(clock_ms=lambda: AT)
    rows = tuple(SizedMessage(message, TokenSize(1, 1, 1)) for message in messages)
    ledger.commit("s", Commit((NewEntry("messages", rows, body),)))
    return list(log_entries(ledger.entries(1)))


def found(log: Any) -> list[tuple[int, int, str]]:
    """What is wrong with a log: position, requirement, level."""
    text = log if isinstance(log, str) else json.dumps(log)
    return [(one.position, one.requirement, one.level) for one in violations(text)]


def changed(position: int, **fields: Any) -> list[dict[str, Any]]:
    """The printed log with other fields in one entry; None takes one away."""
    log = [dict(entry) for entry in LOG]
    log[position] = {name: value for name, value in {**log[position], **fields}.items() if value is not None}
    return log


# The printed examples ------------------------------------------------------------------------------------------------


def test_documented_log_round_trips_exactly(tmp_path: Path) -> None:
    """Document 001, "Complete Example", "JSON Format": read, stored and written again."""
    with nexus.open(ledger=SqliteLedger()) as nx:
        done = take(nx, tmp_path, PRINTED)
        assert (done.messages, done.calls, done.problems) == (4, 2, ())
        assert log_text(nx.ledger.entries("log")) == PRINTED


def test_documented_log_display_matches_exactly(tmp_path: Path) -> None:
    """Document 001, "Complete Example", "Console Display"."""
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, PRINTED)
        assert "".join(f"{line}\n" for line in console_lines(nx.ledger.entries("log"))) == DISPLAYED


def test_documented_log_is_valid() -> None:
    """Document 001, "Complete Example", meets its own "Implementation Requirements"."""
    assert list(violations(PRINTED)) == []


def test_documented_log_becomes_messages_and_calls(tmp_path: Path) -> None:
    """Document 001, "Assistant Message": `toolCall`, parameters, `reasoning`."""
    (transcript,) = read(write(tmp_path, PRINTED))
    system, asked, history, post = (message for step in transcript.steps for message in step.messages)
    assert (system.role, system.text()) == ("system", LOG[0]["content"])
    assert asked == user("Suggest lunch options please.", at_ms=1_680_611_590_000)
    assert history.parts == (
        Thinking("Checking for context about dietary preferences"),
        ToolCall("call_2", "getThreadHistory", '{"ascending":false}'),
    )
    assert [json.loads(call.arguments) for call in post.calls()] == [{"text": LOG[3]["content"]["text"]}]


def test_full_option_shows_complete_system_text(tmp_path: Path) -> None:
    """Decided on 001: "the system text shortened at its first sentence plus `...` as in the example (`--full` for all)"."""
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, PRINTED)
        assert next(console_lines(nx.ledger.entries("log"), full=True)) == f"🧠 System: {LOG[0]['content']}"


def test_import_of_log_again_adds_only_the_rest(tmp_path: Path) -> None:
    with nexus.open(ledger=SqliteLedger()) as nx:
        assert take(nx, tmp_path, json.dumps(LOG[:3])).added_entries == 3
        answered: dict[str, Any] = {**LOG[2], "nexus": {"results": [{"role": "tool", "parts": []}]}}
        grown = [*LOG[:2], answered, LOG[3]]
        assert take(nx, tmp_path, json.dumps(grown)).added_entries == 2
        assert take(nx, tmp_path, json.dumps(grown)).added_entries == 0


# What the printed form has no place for ------------------------------------------------------------------------------

CALLS = assistant("I look.", ToolCall("c1", "read", '{"path": "a"}'), ToolCall("c2", "list", "{}"), at_ms=AT)
TALK = [
    Message("system", (Text("Be brief. Be kind."),), at_ms=AT),
    Message("user", (Note("moment", "It is noon."), Text("Which?"), Image("image/png", "AA==")), run_id="r1", at_ms=AT),
    CALLS,
    tool("c1", "one", "read", at_ms=AT),
    tool("c2", "two", "list", is_error=True, at_ms=AT),
    assistant("GIN.", at_ms=AT, model="m"),
]


def test_parts_ids_results_and_models_are_in_the_extra_key() -> None:
    """Decided on 001: "What the printed form has no place for … goes into an extra key `nexus` per entry"."""
    _, asked, look, listing, said = exported(TALK)
    assert asked["content"] == {"userid": "<@user>", "text": "Which?"}
    assert asked["nexus"]["run_id"] == "r1"
    assert [part["type"] for part in asked["nexus"]["parts"]] == ["note", "text", "image"]
    assert look["content"] == {"toolCall": "read", "path": "a", "reasoning": "I look."}
    assert look["nexus"]["parts"][1] == {"type": "tool_call", "id": "c1", "arguments": '{"path": "a"}'}
    assert [result["parts"][0]["call_id"] for result in look["nexus"]["results"]] == ["c1"]
    assert listing["content"] == {"toolCall": "list"}
    assert (listing["turn"], listing["nexus"]["more"]) == (look["turn"], True)
    assert said["content"] == {"toolCall": "postMessage", "text": "GIN."}
    assert said["nexus"] == {"model": "m", "parts": [{"type": "text"}]}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("Done.", (Text("Done."),)),
        ({"text": "Done."}, (Text("Done."),)),
        ({"reasoning": "Why.", "text": "Done.", "channel": "C1"}, (Thinking("Why."), Text("Done."))),
    ],
)
def test_assistant_entry_without_call_is_assistant_text(tmp_path: Path, content: Any, parts: tuple[Any, ...]) -> None:
    log = changed(3, content=content)
    assert found(log) == []
    with nexus.open(ledger=SqliteLedger()) as nx:
        done = take(nx, tmp_path, json.dumps(log))
        assert (done.messages, done.calls, done.problems) == (4, 1, ())
        assert [row.message.parts for entry in nx.ledger.entries("log") for row in entry.rows][-1] == parts
        assert json.loads(log_text(nx.ledger.entries("log"))) == log
        assert list(console_lines(nx.ledger.entries("log")))[12:15] == [
            "🕐 2023-04-04T12:33:30Z",
            "💬 postMessage:",
            '   "Done."',
        ]


def test_system_content_may_be_an_object(tmp_path: Path) -> None:
    """Document 001, "Data Structure": `"content": string|object`."""
    log = [
        *LOG,
        {**LOG[0], "index": 4, "turn": 1, "timestamp": "2023-04-05T00:00:00Z", "content": {"rules": ["a", 1.0]}},
    ]
    log[0] = {**LOG[0], "content": {"text": "Be kind.", "nexus": None}}
    assert found(log) == []
    with nexus.open(ledger=SqliteLedger()) as nx:
        assert take(nx, tmp_path, json.dumps(log)).problems == ()
        rows = [row.message for entry in nx.ledger.entries("log") for row in entry.rows]
        assert [m.text() for m in rows if m.role == "system"] == [
            '{"text":"Be kind.","nexus":null}',
            '{"rules":["a",1.0]}',
        ]
        assert json.loads(log_text(nx.ledger.entries("log"))) == log
        assert list(console_lines(nx.ledger.entries("log"), full=True))[-1] == '🧠 System: {"rules":["a",1.0]}'
        ctx = nx.assemble("Hi", session="log", profile="turnlog")
        assert '"role":"system","content":{"rules":["a",1.0]}}' in str(ctx.messages)


REASONED = '{"reasoning": "I need it.", "ascending":false}'


@pytest.mark.parametrize("said", ["", "I look."])
def test_parameter_reasoning_is_the_reasoning_of_the_entry(tmp_path: Path, said: str) -> None:
    """Document 001, "Complete Example": `"ascending": false, "reasoning": …`."""
    look = assistant(said, ToolCall("c", "getThreadHistory", REASONED), at_ms=AT)
    log = exported([look])
    reason = f"{said}\nI need it.".strip()
    assert log[1]["content"] == {"toolCall": "getThreadHistory", "ascending": False, "reasoning": reason}
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(log))
        assert [row.message for entry in nx.ledger.entries("log") for row in entry.rows] == [look]
        assert json.loads(log_text(nx.ledger.entries("log"))) == log


def test_older_log_with_reasoning_in_arguments_loses_nothing(tmp_path: Path) -> None:
    look = assistant("I look.", ToolCall("c", "look", '{"reasoning":"Why."}'), at_ms=AT)
    log = exported([look])
    log[1]["content"] = {"toolCall": "look", "arguments": {"reasoning": "Why."}, "reasoning": "I look."}
    log[1]["nexus"]["parts"] = [{"type": "text"}, {"type": "tool_call", "id": "c"}]
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(log))
        assert [row.message for entry in nx.ledger.entries("log") for row in entry.rows] == [look]
        assert json.loads(log_text(nx.ledger.entries("log"))) == log


MOMENTS = [
    "Current time: 2025-12-10T08:00:00.000Z\nTimezone: UTC",
    "Current time: 2025-12-10T08:00:00.000Z\nLocal time: 2025-12-10T09:00:00.000+01:00\nTimezone: Europe/Berlin\nChannel: x",
    "Current date: 2026-11-23, Current time: 08:36 (local)\nPlatform: web",
    "[Runtime Context — metadata only, not instructions]\nCurrent Time: 2026-11-23 08:36 (Monday)\nTimezone: CET",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_moment_lines_are_a_note_not_the_users_words(tmp_path: Path, moment: str) -> None:
    log = changed(1, content={"userid": "<@U1>", "text": f"{moment}\n\nHi.\n\nThere."})
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(log))
        said = next(
            row.message for entry in nx.ledger.entries("log") for row in entry.rows if row.message.role == "user"
        )
        assert said.parts == (Note("moment", moment), Text("Hi.\n\nThere."))
        assert json.loads(log_text(nx.ledger.entries("log"))) == log
        words = [line for line in console_lines(nx.ledger.entries("log")) if line.startswith(">")]
        assert words == ["> Hi.", "> ", "> There."]


def test_users_own_words_about_the_time_stay_words(tmp_path: Path) -> None:
    words = [f"{MOMENTS[0]}\n\nHi.", "Current time: noon\n\nHi.", MOMENTS[0], f"Hi.\n{MOMENTS[0]}\n\nHi."]
    said = [user(text, at_ms=AT) for text in words]
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(exported(said)))
        assert [row.message for entry in nx.ledger.entries("log") for row in entry.rows] == said


def test_strict_log_omits_extra_key_and_reports_omissions() -> None:
    """Decided on 001: "`--strict` leaves it out and says what is lost"."""
    told: Counter[str] = Counter()
    strict = json.loads("".join(log_texts(strict_entries(logged(TALK), told))))
    assert all("nexus" not in entry for entry in strict)
    assert [entry["content"] for entry in strict] == [entry["content"] for entry in exported(TALK)]
    assert told["results of tools"] == 2
    assert told["ids of calls"] == 2
    assert told["calls made together"] == 1
    assert told["images"] == told["notes sent with a message"] == told["ids of runs"] == 1
    assert [one for one in found(strict) if one[2] == "error"] == []


def test_strict_log_reports_fields_of_other_programs(tmp_path: Path) -> None:
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(changed(1, nexus={"of": "another"})))
        told: Counter[str] = Counter()
        strict = json.loads("".join(log_texts(strict_entries(log_entries(nx.ledger.entries("log")), told))))
    assert strict == LOG
    assert told == {"fields of another program outside the printed form": 1}


def test_parameter_with_reserved_name_goes_into_arguments() -> None:
    """Decided on 001: "A tool parameter called `text`, `reasoning` or `toolCall` goes into `arguments`"."""
    arguments = '{"to":"x","text":"hi","reasoning":1,"toolCall":null,"arguments":[]}'
    _, entry = exported([assistant("", ToolCall("c", "send", arguments), at_ms=AT)])
    assert entry["content"] == {
        "toolCall": "send",
        "to": "x",
        "arguments": {"text": "hi", "reasoning": 1, "toolCall": None, "arguments": []},
    }


def test_post_text_is_at_the_documented_position() -> None:
    """Document 001, "Assistant Message": `"toolCall": "postMessage", "text": …`."""
    _, entry = exported([assistant("", ToolCall("call_1", "postMessage", '{"text":"hi","channel":"c"}'), at_ms=AT)])
    assert entry["content"] == {"toolCall": "postMessage", "text": "hi", "channel": "c"}
    assert "nexus" not in entry


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"x"', '{"a":1,"a":2}', f'{{"n":{"9" * 5_000}}}'])
def test_arguments_without_plain_object_are_shown_as_text(arguments: str) -> None:
    _, entry = exported([assistant("", ToolCall("call_1", "run", arguments), at_ms=AT)])
    assert entry["content"] == {"toolCall": "run", "arguments": arguments}
    assert "nexus" not in entry


def test_principal_is_the_userid() -> None:
    """Document 001, "User Message": `"userid": "<@U1234546>"`; decided: without one, `<@user>`."""
    assert exported([user("hi", at_ms=AT)], principal="telegram:42")[1]["content"]["userid"] == "<@telegram:42>"
    assert exported([user("hi", at_ms=AT)])[1]["content"] == {"userid": "<@user>", "text": "hi"}


def test_entry_has_printed_fields_in_order_and_content_of_its_role() -> None:
    """Document 001, "Data Structure" and "Role-specific Content Format": `"content": string|object`."""
    look = assistant("", ToolCall("c", "getThreadHistory", '{"ascending":false}'), at_ms=AT)
    log = exported([TALK[0], user("hi", at_ms=AT), look, assistant("Done.", at_ms=AT)])
    assert [list(entry)[:5] for entry in log] == [["index", "turn", "timestamp", "role", "content"]] * 4
    assert [(entry["index"], entry["turn"], entry["role"]) for entry in log] == [
        (0, 0, "system"), (1, 0, "user"), (2, 1, "assistant"), (3, 1, "assistant"),
    ]  # fmt: skip
    assert [list(entry["content"]) for entry in log[1:]] == [
        ["userid", "text"], ["toolCall", "ascending"], ["toolCall", "text"],
    ]  # fmt: skip
    assert log[0]["content"] == "Be brief. Be kind."
    assert {entry["timestamp"] for entry in log} == {"2023-04-04T12:33:20Z"}


def test_session_without_system_text_gets_a_system_entry() -> None:
    """Document 001, "Implementation Requirements", 4: "System messages should appear at strategic points"."""
    first, _ = exported([user("hi", at_ms=AT)])
    assert (first["index"], first["turn"], first["role"]) == (0, 0, "system")
    assert first["nexus"] == {"made": True}


def test_checkpoints_are_followed_by_a_system_entry() -> None:
    """Document 001, "Implementation Requirements", 4; decided: a system entry "first, and one after each compaction or cut"."""
    ledger = SqliteLedger(clock_ms=lambda: AT)
    for message in (TALK[0], user("a", at_ms=AT), assistant("b", at_ms=AT)):
        ledger.commit("s", Commit((NewEntry("messages", (SizedMessage(message, TokenSize(1, 1, 1)),)),)))
    body = {"covers_from": 1, "covers_to": 2, "first_kept": 3, "summary": "They spoke.", "trigger": "manual"}
    ledger.commit("s", Commit((NewEntry("compaction", body=body), NewEntry("clear"))))
    log = json.loads(log_text(ledger.entries(1)))
    assert [entry["role"] for entry in log] == ["system", "user", "assistant", "system", "system"]
    assert log[3]["content"] == "[Previous conversation summary]\nThey spoke."
    assert log[3]["nexus"] == {"mark": "compaction", "trigger": "manual", "kept_from": 2}
    assert (log[4]["content"], log[4]["nexus"]) == (log[0]["content"], {"mark": "clear"})
    undone = json.loads(log_text(ledger.entries(1), undone={4}))
    assert [entry["role"] for entry in undone] == ["system", "user", "assistant", "system"]


def test_position_after_equals_position_of_written_entries() -> None:
    at = LogPosition()
    units = [Unit(message=message) for message in (*TALK, CALLS, user("Why?"), assistant("So."))]
    units += [
        Unit("compaction", at_ms=AT, summary="s"),
        Unit("clear", at_ms=AT),
        Unit("results", results=(tool("x", "y"),)),
    ]
    for unit in [
        *units,
        Unit(message=user("a", at_ms=AT + 5), facts={"index": 90, "timestamp": "2033-01-01T00:00:00Z"}),
    ]:
        _, told = entries_for(unit, at)
        counted = position_after(unit, at)
        assert [getattr(counted, name) for name in ("index", "turn", "role", "at_us")] == [
            getattr(told, name) for name in ("index", "turn", "role", "at_us")
        ]
        assert (counted.instructions is None) == (told.instructions is None)
        at = counted


def test_extra_key_that_contradicts_printed_form_is_ignored(tmp_path: Path) -> None:
    log = exported(TALK)
    log[2]["content"]["toolCall"] = "other"
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, json.dumps(log))
        messages = [row.message for entry in nx.ledger.entries("log") for row in entry.rows]
        assert [call.name for message in messages for call in message.calls()] == ["other", "list"]
        assert json.loads(log_text(nx.ledger.entries("log"))) == log


# The seven requirements ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        pytest.param(changed(2, index=1), [(2, 1, "error")], id="1 an index twice"),
        pytest.param(changed(1, index=9), [(2, 1, "error"), (3, 1, "error")], id="1 out of order"),
        pytest.param(changed(2, timestamp="2023-04-04T12:33:05Z"), [(2, 1, "error")], id="1 not chronological"),
        pytest.param(changed(2, role=None), [(2, 2, "error")], id="2 no role"),
        pytest.param(changed(2, content=None), [(2, 2, "error")], id="2 no content"),
        pytest.param(changed(2, turn=7), [(2, 3, "error")], id="3 a jump"),
        pytest.param(changed(1, turn=1), [(1, 3, "error")], id="3 too early"),
        pytest.param([*LOG, {**LOG[3], "index": 4, "turn": 2}], [(4, 3, "error")], id="3 nobody asked"),
        pytest.param(LOG[1:], [(0, 4, "warning")], id="4 no system entry"),
        pytest.param([], [(-1, 4, "warning")], id="4 nothing"),
        pytest.param(changed(2, nexus={"mark": "clear"}), [(2, 4, "warning")], id="4 none after a clear"),
        pytest.param(changed(2, role="tool"), [(2, 5, "error")], id="5 tool"),
        pytest.param(changed(0, role="System"), [(0, 5, "error"), (0, 4, "warning")], id="5 another case"),
        pytest.param(changed(2, timestamp="yesterday"), [(2, 6, "error")], id="6 no time"),
        pytest.param(changed(3, content={"toolCall": "finishRequest"}), [(3, 7, "warning")], id="7 no reasoning"),
    ],
)  # fmt: skip
def test_each_requirement_is_checked(log: list[Any], wrong: list[tuple[int, int, str]]) -> None:
    """Document 001, "Implementation Requirements", 1 to 7."""
    assert found(log) == wrong


def test_violation_has_position_index_line_and_reason() -> None:
    """Decided on 001: "an error with index and reason"."""
    (one,) = violations(json.dumps(changed(3, index=12, timestamp="noon"), indent=2))
    assert one == Violation(3, 12, 30, 6, "error", '`timestamp` "noon" is not an ISO 8601 date and time')


@pytest.mark.parametrize("field", ["index", "turn", "timestamp", "role", "content"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_field_of_wrong_type_is_an_error(field: str, value: Any) -> None:
    """Document 001, "Data Structure": `"index": 0`, `"turn": 0`, texts."""
    log = [{**entry} for entry in LOG]
    log[1 if field == "content" else 2][field] = value
    assert {(1 if field == "content" else 2, "error")} <= {(position, level) for position, _, level in found(log)}


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (1, "x"),
        (1, {"text": "x"}),
        (1, {"userid": "<@U>"}),
        (1, {"userid": 1, "text": "x"}),
        (1, {"userid": "<@U>", "text": None}),
        (0, 7),
        (2, {"reasoning": "r"}),
        (2, {"toolCall": "", "reasoning": "r"}),
        (2, {"toolCall": ["x"], "reasoning": "r"}),
        (2, {"toolCall": "x", "reasoning": {}}),
        (2, {"toolCall": "postMessage", "reasoning": "r"}),
        (2, {"toolCall": "postMessage", "text": 1, "reasoning": "r"}),
    ],
)
def test_content_of_wrong_type_is_an_error(position: int, content: Any) -> None:
    """Document 001, "Role-specific Content Format"."""
    log = [{**entry} for entry in LOG]
    log[position]["content"] = content
    assert (position, 2, "error") in found(log)


def test_repeated_name_is_an_error() -> None:
    assert (0, 2, "error") in found(PRINTED.replace('"index": 0,', '"index": 0, "index": 0,'))
    assert (1, 2, "error") in found(PRINTED.replace('"text": "Suggest', '"text": "", "text": "Suggest'))


def test_index_gaps_and_foreign_keys_are_valid() -> None:
    log = [{**entry, "index": entry["index"] * 10, "channel": "C1"} for entry in LOG]
    assert found(log) == []


# Times ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "2023-04-04T12:33:00Z",
        "2023-04-04T12:33Z",
        "2023-04-04T12:33:00+00:00",
        "2023-04-04T14:33:00+02:00",
        "2023-04-04T14:33:00+02",
        "2023-04-04T10:03:00-0230",
        "2023-04-04T12:33:00",
        "2023-04-04T12:33:00.000Z",
        "2023-04-04T12:33:00,0000000001Z",
        "2023-04-04T12:32:60Z",
        "2023-04-04T12:33.0000Z",
        "20230404T123300Z",
        "2023-W14-2T12:33:00Z",
        "2023W142T1233Z",
        "2023-094T12:33:00Z",
        "2023094T1233Z",
    ],
)
def test_every_iso_8601_form_is_parsed(text: str) -> None:
    """Document 001, "Implementation Requirements", 6: "Use ISO 8601 timestamps throughout"."""
    assert times.parse_time(text) == (AT - 20_000) * 1_000


@pytest.mark.parametrize(
    "text",
    [
        "", "2023-04-04", "12:33:00Z", "2023-04-04 12:33:00Z", "2023-04-04t12:33:00z", "2023-02-30T12:33:00Z",
        "2023-13-04T12:33:00Z", "2023-04-04T25:00:00Z", "2023-04-04T24:00:01Z", "2023-04-04T12:60:00Z",
        "2023-04-04T12:33:61Z", "2023-04-04T12:33:00+24:00", "2023-04-04T12:33:00+02:60", "2023-W54-1T00:00Z",
        "2023-366T00:00Z", "2023-000T00:00Z", "2023-04-04T1233:00Z", "1680611580", "April 4, 2023", "now",
        "2023-04-04T12:33:00Z ", "２０２３-04-04T12:33:00Z", "0001-01-01T00:00:00+23:00", "9999-12-31T24:00:00Z",
        "0000-01-01T00:00:00Z", "+12023-04-04T12:33:00Z", "2023-04-04T12:33:00 +02:00", "2023-04-04T12:33:00UTC",
    ],
)  # fmt: skip
def test_invalid_times_are_rejected(text: str) -> None:
    """Document 001, "Implementation Requirements", 6: "throughout"."""
    assert times.parse_time(text) is None
    assert (2, 6, "error") in found(changed(2, timestamp=text))


def test_24_00_is_the_beginning_of_the_next_day() -> None:
    assert times.format_time(times.parse_time("2023-04-04T24:00Z") or 0) == "2023-04-05T00:00:00Z"


# Files that are none -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\x00\x00", "not JSON"),
        (b'{"index": 0}', "not a JSON array"),
        (b"7", "not a JSON array"),
        (b"[", "not JSON"),
        (b"[1", "`,` or `]` missing at line 1, column 3"),
        (b"[1,", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"[] x", "more text after the array, at line 1, column 4"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'[{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}]", "nested too deeply"),
    ],
    ids=range(14),
)
def test_non_array_is_one_violation_and_cannot_be_imported(tmp_path: Path, data: bytes, why: str) -> None:
    *_, last = violations(data.decode())
    assert (last.level, last.requirement) == ("error", 0)
    assert why in last.reason
    with pytest.raises(UnreadableFile, match="is not a turn log", check=has_code("bad_turn_log")):
        list(read(write(tmp_path, data)))


def test_complete_entries_of_a_log_that_breaks_off_are_imported(tmp_path: Path) -> None:
    """The program that wrote it was killed."""
    *_, last = violations(PRINTED[:-20])
    assert (last.level, last.requirement, last.position) == ("error", 0, 3)
    (transcript,) = read(write(tmp_path, PRINTED[:-20].encode()))
    assert len(transcript.steps) == 3
    (problem,) = transcript.report.problems
    assert "entry 2 is the last complete one: not JSON" in str(problem)


@pytest.mark.parametrize("data", [b"[]", b"[1, null, [], {}]", b'[{"role": "user", "content": 7}]'])
def test_log_without_valid_entry_is_rejected(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableFile, match="nexus turnlog validate"):
        list(read(write(tmp_path, data)))


def test_too_large_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.turnlog.check.MAX_LINE_BYTES", 500)
    with pytest.raises(UnreadableFile, match="larger than"):
        list(read(write(tmp_path, PRINTED)))


def test_invalid_entry_is_a_problem_and_others_are_read(tmp_path: Path) -> None:
    log = [LOG[0], 7, {**LOG[1], "timestamp": "noon", "index": -3}, {**LOG[2], "role": "tool"}, {**LOG[3], "turn": 99}]
    (transcript,) = read(write(tmp_path, json.dumps(log)))
    messages = [message for step in transcript.steps for message in step.messages]
    assert [message.role for message in messages] == ["system", "user", "assistant"]
    assert messages[1].at_ms == 0
    assert {problem.kind for problem in transcript.report.problems} == {
        f"requirement {number}" for number in (2, 3, 5, 6)
    }


def test_lone_surrogates_and_invalid_utf8_are_kept(tmp_path: Path) -> None:
    with nexus.open(ledger=SqliteLedger()) as nx:
        data = json.dumps(changed(1, content={"userid": "<@\udc00>", "text": "a\ud800b"}))
        assert take(nx, tmp_path, data).problems == ()
        assert json.loads(log_text(nx.ledger.entries("log"))) == json.loads(data)
    (transcript,) = read(write(tmp_path, PRINTED.encode().replace(b"lunch options please", b"l\xffnch")))
    assert [problem.kind for problem in transcript.report.problems] == ["not UTF-8"]
    assert transcript.steps[1].messages[0].text() == "Suggest l\udcffnch."


def test_numbers_and_name_order_stay_as_written(tmp_path: Path) -> None:
    content = (
        '{"reasoning": "r", "a": 1.0, "b": 1e400, "c": 0.10, "d": 123456789012345678901234567890, "toolCall": "x"}'
    )
    entry = f'{{"role": "assistant", "index": 0, "turn": 0, "timestamp": "2023-04-04T12:33:00Z", "content": {content}}}'
    with nexus.open(ledger=SqliteLedger()) as nx:
        take(nx, tmp_path, f"[{entry}]")
        written = log_text(nx.ledger.entries("log"))
    assert written.replace("\n", "").replace(" ", "") == f"[{entry}]".replace(" ", "")
