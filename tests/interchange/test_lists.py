"""Lists of real clients: results without ids, system messages anywhere, tools and instructions in the list, one session."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

import nexus
from interchange.client_lists import BODIES, MODELS, PNG, SENT, calls, reply, results, searched
from support.validity import CHECKS

GEMINI_CLI = "https://github.com/google-gemini/gemini-cli"
ADK = "https://github.com/google/adk-python"
CLAUDE_CODE = "https://github.com/anthropics/claude-code"
CODEX = "https://github.com/openai/codex"
AIDER = "https://github.com/Aider-AI/aider"
SYSTEM_PAGE = "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages"
FIRST = "https://github.com/LeenHawk/gproxy/issues/209"
OLDER = "https://github.com/deepseek-ai/awesome-deepseek-integration/issues/639"
PLACES = "https://github.com/maximhq/bifrost/pull/3945"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [*parts]}


def start(form: str) -> list[dict[str, Any]]:
    """A list with a user's message."""
    return [content("user", {"text": "Look."}) if form == "gemini" else user("Look.")]


def engine() -> nexus.Engine:
    return nexus.open(ledger=":memory:")


def options(form: str, model: int = 0) -> dict[str, Any]:
    return {"provider": form, "model": MODELS[form][model]}


class Pairing(NamedTuple):
    """A client's ids of two calls and of their results, in the order of the results; the sent ids."""

    name: str
    form: str
    source: str
    call_ids: tuple[str, str]
    result_ids: tuple[str, str]
    sent_ids: tuple[str, str] | None
    """The ids of the sent results; None for those of the stored calls."""


PAIRINGS = [
    Pairing("Gemini CLI: result with an id, call without", "gemini", GEMINI_CLI, ("", ""), ("ls_0", "ls_1"), ("ls_0", "ls_1")),
    Pairing("ADK: no ids at all", "gemini", ADK, ("", ""), ("", ""), None),
    Pairing("own ids of both", "gemini", "own", ("a", "b"), ("a", "b"), ("a", "b")),
    Pairing("ids differ in the list", "gemini", "own", ("a", "b"), ("x", "y"), ("a", "b")),
    Pairing("one id fits, the other not", "gemini", "own", ("a", "b"), ("y", "a"), ("a", "b")),
    Pairing("list and reply differ", "openai", "own", ("x", "y"), ("x", "y"), ("x", "y")),
    Pairing("list and reply differ, results in another order", "openai", "own", ("x", "y"), ("y", "x"), ("y", "x")),
    Pairing("result ids are missing", "openai", "own", ("x", "y"), ("", ""), ("x", "y")),
    Pairing("result ids are foreign", "openai", "own", ("x", "y"), ("p", "q"), ("x", "y")),
    Pairing("call ids are missing", "openai", "own", ("", ""), ("p", "q"), ("p", "q")),
    Pairing("all ids are missing", "openai", "own", ("", ""), ("", ""), None),
    Pairing("list and reply differ", "responses", "own", ("x", "y"), ("x", "y"), ("x", "y")),
    Pairing("result ids are missing", "responses", "own", ("x", "y"), ("", ""), ("x", "y")),
    Pairing("result ids are foreign", "responses", "own", ("x", "y"), ("p", "y"), ("x", "y")),
    Pairing("all ids are missing", "responses", "own", ("", ""), ("", ""), None),
    Pairing("list and reply differ", "anthropic", "own", ("x", "y"), ("x", "y"), ("x", "y")),
    Pairing("result ids are foreign", "anthropic", "own", ("x", "y"), ("p", "q"), ("x", "y")),
    Pairing("all ids are missing", "anthropic", "own", ("", ""), ("", ""), None),
]  # fmt: skip


def named(form: str, ids: Sequence[str], made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls with ids, without the empty ones."""
    text = json.dumps(made)
    for index, call in enumerate(ids):
        if not call:
            key = {"openai": "id", "responses": "call_id"}.get(form, "id")
            text = text.replace(f'"{key}": "empty_{index}", ', "")
    return json.loads(text)


@pytest.mark.parametrize("row", PAIRINGS, ids=[f"{row.form}: {row.name}" for row in PAIRINGS])
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "received"])
def test_results_are_paired_where_ids_do_not_decide(row: Pairing, is_recorded: bool) -> None:
    items = start(row.form)
    with engine() as nx:
        if is_recorded:
            ctx = nx.mirror(items, **options(row.form))
            nx.record(ctx, reply(row.form, ["stored_0", "stored_1"]))
        ids = [call or f"empty_{index}" for index, call in enumerate(row.call_ids)]
        items += named(row.form, row.call_ids, calls(row.form, ids, is_named=True))
        items += results(row.form, [*zip(row.result_ids, ("first", "second"), strict=True)])
        ctx = nx.mirror(copy.deepcopy(items), **options(row.form))
        assert ctx.mirrored is not None
        assert ctx.mirrored.action == ("append" if is_recorded else "new")
        body = BODIES[row.form](ctx)
        assert CHECKS[row.form](body) == []
        assert BODIES[row.form](nx.mirror(copy.deepcopy(items), **options(row.form))) == body
        sent = json.dumps(body)
        assert "first" in sent and "second" in sent and "no result recorded" not in sent
        if row.sent_ids and (is_recorded or row.form != "gemini"):
            places = [sent.rindex(json.dumps(call)) for call in row.sent_ids]
            assert places == sorted(places)
        assert not is_recorded or not row.sent_ids or "stored_" not in sent
        nx.record(ctx, reply(row.form, ["more_0", "more_1"]))
        (session,) = nx.sessions()
        newest = nx.ledger.store.thread(session.thread).turn
        assert BODIES[row.form](nx.replay(session.label, newest)) == body


SERVER_CALL: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
SERVER_RESULT: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
BEGUN: dict[str, Any] = {"type": "text", "text": "Let me see."}


class Pause(NamedTuple):
    """Contents of the model's messages that a list ends with, because Anthropic goes on with them."""

    name: str
    contents: list[list[dict[str, Any]]]


PAUSES = [
    Pause("call without its result", [[BEGUN, SERVER_CALL]]),
    Pause("call with its result", [[BEGUN, SERVER_CALL, SERVER_RESULT]]),
    Pause("text behind the result", [[SERVER_CALL, SERVER_RESULT, BEGUN]]),
    Pause("call alone", [[SERVER_CALL]]),
    Pause("paused twice", [[BEGUN, SERVER_CALL], [SERVER_RESULT, {**SERVER_CALL, "id": "srvtoolu_2"}]]),
]  # fmt: skip


@pytest.mark.parametrize("target", SENT)
@pytest.mark.parametrize("row", PAUSES, ids=[row.name for row in PAUSES])
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "received"])
def test_paused_reply_at_the_end_goes_to_the_provider_that_continues_it(
    row: Pause, target: str, is_recorded: bool
) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
    fields: dict[str, Any] = {"provider": "anthropic", "model": MODELS[target][0]}
    items = [user("Search.")]
    with engine() as nx:
        if is_recorded:
            ctx = nx.mirror(items, **fields)
            paused: dict[str, Any] = {"type": "message", "role": "assistant", "stop_reason": "pause_turn", "usage": {}}
            nx.record(ctx, {**paused, "content": row.contents[0]})
        items += [{"role": "assistant", "content": blocks} for blocks in row.contents]
        ctx = nx.mirror(copy.deepcopy(items), **fields)
        body = BODIES[target](ctx)
        assert CHECKS[target](body) == []
        assert ctx.mirrored is not None
        if target == "anthropic":
            assert ctx.mirrored.unchanged
            assert "Continue." not in json.dumps(body)
        else:
            assert body[SENT[target]][-1]["role"] == "user"
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Found it."),)))
        ctx = nx.mirror([*items, assistant("Found it."), user("And?")], **fields)
        assert ctx.mirrored is not None and ctx.mirrored.action == "append"
        assert CHECKS[target](BODIES[target](ctx)) == []
        (session,) = nx.sessions()
        newest = nx.ledger.store.thread(session.thread).turn
        assert BODIES[target](nx.replay(session.label, newest)) == body


@pytest.mark.parametrize("form", SENT)
def test_list_that_ends_with_an_answer_or_an_open_call_is_refused(form: str) -> None:
    answer = content("model", {"text": "Yes."}) if form == "gemini" else assistant("Yes.")
    for items in ([answer], calls(form, ["a"], is_named=True, server=True)):
        with engine() as nx, pytest.raises(nexus.errors.BadEvent, match="ends with a message of role 'assistant'"):
            nx.mirror([*start(form), *items], **options(form))


NOTHING = "[no result recorded]"
HALF = "\ud800"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}


def tool_of(form: str, name: str, description: str = "Looks.", parameters: Any = PARAMETERS) -> dict[str, Any]:
    """A tool in a provider's form."""
    head = {"name": name, "description": description}
    match form:
        case "openai":
            return {"type": "function", "function": {**head, "parameters": parameters}}
        case "responses":
            return {"type": "function", **head, "parameters": parameters, "strict": False}
        case "anthropic":
            return {**head, "input_schema": parameters}
        case _:
            return {"function_declarations": [{**head, "parameters_json_schema": parameters}]}


class Offer(NamedTuple):
    """Tools that a provider refuses as they are: name, description and parameters of each."""

    name: str
    tools: list[tuple[Any, ...]]
    warning: str
    sent: list[str]


OFFERS = [
    Offer("two of one name", [("look", "First."), ("look", "Second.")], "tool 'look' is defined again", ["Second."]),
    Offer("one twice", [("look",), ("look",)], "tool 'look' is defined again", ["Looks."]),
    Offer("half of a character in a description", [("look", HALF)], "text of tool 'look' changed", ["\ufffd"]),
    Offer("in a schema", [("look", "Looks.", {"type": "object", "properties": {"x": {"type": "string", "description": HALF}}})], "text of tool 'look' changed", ["Looks."]),
    Offer("in a value", [("look", "Looks.", {"type": "object", "properties": {"x": {"type": "string", "enum": ["a", HALF]}}})], "text of tool 'look' changed", ["Looks."]),
]  # fmt: skip


@pytest.mark.parametrize("form", SENT)
@pytest.mark.parametrize("row", OFFERS, ids=[row.name for row in OFFERS])
def test_tools_that_a_provider_refuses_are_changed_with_a_warning(row: Offer, form: str) -> None:
    with engine() as nx:
        ctx = nx.mirror(start(form), tools=[tool_of(form, *tool) for tool in row.tools], **options(form))
        body = BODIES[form](ctx)
    assert CHECKS[form](body) == []
    assert [row.warning in warning.message for warning in ctx.warnings] == [True]
    assert ctx.mirrored is not None and not ctx.mirrored.unchanged
    offered = body["config"]["tools"][0]["function_declarations"] if form == "gemini" else body["tools"]
    assert [(tool.get("function") or tool)["description"] for tool in offered] == row.sent


NAMES: list[tuple[Any, Any, bool]] = [
    ("Petra", "Petra", True),
    ("Käthe_1", "Käthe_1", True),
    ("Petra Pan", "Petra_Pan", False),
    ("<a|b>/c\\", "_a_b__c_", False),
    ("n" * 65, "n" * 64, False),
    ("", None, False),
    (5, None, False),
]


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize(("name", "expected", "is_valid"), NAMES)
def test_names_that_openai_refuses_are_changed(name: Any, expected: Any, is_valid: bool, role: str) -> None:
    items = [user("Hi"), {"role": role, "content": "Yes?", "name": name}, user("Look.")]
    with engine() as nx:
        ctx = nx.mirror(items, **options("openai"))
        body = ctx.to_openai()
        assert CHECKS["openai"](body) == []
        assert body["messages"][1].get("name") == expected
        assert ctx.mirrored is not None and ctx.mirrored.unchanged is is_valid
        assert ctx.repairs.changes == ({} if is_valid or name == "" else {"name of a message changed": 1})
        nx.record(ctx, reply("openai", []))
        (session,) = nx.sessions()
        assert nx.replay(session.label, nx.ledger.store.thread(session.thread).turn).to_openai() == body


@pytest.mark.parametrize("own", ["", "Be brief."])
@pytest.mark.parametrize("tail", [[], [system("Sums.")]])
def test_opening_system_messages_keep_their_names(own: str, tail: list[dict[str, Any]]) -> None:
    opening = [{**system("Rules."), "name": "rules"}, {**system("Tone."), "name": "the tone"}, *tail]
    with nexus.open(ledger=":memory:", system=own) as nx:
        ctx = nx.mirror([*opening, user("Look.")], **options("openai"))
        body = ctx.to_openai()
        assert CHECKS["openai"](body) == []
        expected = [
            *([system(own)] if own else []),
            opening[0],
            {**opening[1], "name": "the_tone"},
            *tail,
            user("Look."),
        ]
        assert body["messages"] == expected
        assert ctx.mirrored is not None and not ctx.mirrored.unchanged
        nx.record(ctx, reply("openai", []))
        (session,) = nx.sessions()
        assert nx.replay(session.label, 1).to_openai() == body


@pytest.mark.parametrize("form", SENT)
def test_list_with_half_of_a_character_is_not_unchanged(form: str) -> None:
    said = content("user", {"text": f"Look. {HALF}"}) if form == "gemini" else user(f"Look. {HALF}")
    with engine() as nx:
        ctx = nx.mirror([said], **options(form))
        assert CHECKS[form](BODIES[form](ctx)) == []
        assert ctx.mirrored is not None and not ctx.mirrored.unchanged


SERVER_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("openai", {"type": "web_search"}),
    ("openai", {"type": "mcp", "server_label": "s", "server_url": "https://example.com"}),
    ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
    ("anthropic", {"type": "mcp_toolset", "mcp_server_name": "s"}),
    ("gemini", {"google_search": {}}),
    ("gemini", {"google_search": {}, "code_execution": {}}),
]


@pytest.mark.parametrize("form", SENT)
@pytest.mark.parametrize(("provider", "tool"), SERVER_TOOLS, ids=[str(tool) for _, tool in SERVER_TOOLS])
def test_server_tool_is_sent_or_named(provider: str, tool: dict[str, Any], form: str) -> None:
    with engine() as nx:
        ctx = nx.mirror(start(form), tools=[tool], **options(form))
        body = BODIES[form](ctx)
    is_sent = (
        form in (provider, "responses" if provider == "openai" else provider) and (provider, form) != ("openai",) * 2
    )
    named = [warning for warning in ctx.warnings if "omitted" in warning.message or "not sent by" in warning.message]
    assert ctx.mirrored is not None
    if is_sent:
        assert len(body.get("tools") or body["config"]["tools"]) == (len(tool) if provider == "gemini" else 1)
    else:
        assert not body.get("tools") and not body.get("config", {}).get("tools")
        assert len(named) == (len(tool) if provider == "gemini" else 1)
        assert not ctx.mirrored.unchanged


class Late(NamedTuple):
    """Items behind the calls A and B, with the id of B's result, and the texts of what goes out for them."""

    name: str
    items: str
    result_id: str
    sent: list[str]


LATE = [
    Late("behind another call", "rA C rB", "B", ["found A", NOTHING, NOTHING, "late B"]),
    Late("behind another call and its result", "rA C rC rB", "B", ["found A", NOTHING, "found C", "late B"]),
    Late("before the other call's result", "rA C rB rC", "B", ["found A", NOTHING, "found C", "late B"]),
    Late("behind a text", "rA text rB", "B", ["found A", NOTHING, "said", "late B"]),
    Late("behind a text, before a question", "rA text rB q", "B", ["found A", NOTHING, "said", "late B", "And?"]),
    Late("no id, behind a text", "rA text rB q", "", ["found A", NOTHING, "said", "late B", "And?"]),
    Late("other id, behind a text", "rA text rB q", "other", ["found A", NOTHING, "said", "late B", "And?"]),
    Late("no id, before the other call's result", "rA C rB rC", "", ["found A", NOTHING, "found C", "late B"]),
    Late("other id, behind the other call's result", "rA C rC rB", "other", ["found A", NOTHING, "found C", "late B"]),
]  # fmt: skip


# Gemini pairs results without ids by their names.
LATE_LISTS = [(row, form) for row in LATE for form in SENT if form != "gemini" or row.result_id == "B"]


@pytest.mark.parametrize(("row", "form"), LATE_LISTS, ids=[f"{form}: {row.name}" for row, form in LATE_LISTS])
@pytest.mark.parametrize("is_separate", [False, True], ids=["one message", "two messages"])
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "received"])
def test_late_result_is_shown_as_one_of_its_call(row: Late, form: str, is_separate: bool, is_recorded: bool) -> None:
    made: dict[str, list[dict[str, Any]]] = {
        "rA": results(form, [("A", "found A")]),
        "rB": results(form, [(row.result_id, "late B")]),
        "rC": results(form, [("C", "found C")]),
        "C": calls(form, ["C"], is_named=True),
        "text": [content("model", {"text": "said"}) if form == "gemini" else assistant("said")],
        "q": [content("user", {"text": "And?"}) if form == "gemini" else user("And?")],
    }
    called = (
        [calls(form, [name], is_named=True) for name in "AB"] if is_separate else [calls(form, "AB", is_named=True)]
    )
    items = [*start(form), *(item for each in called for item in each), *made["rA"]]
    with engine() as nx:
        if is_recorded:
            said = nexus.AgentResult((nexus.assistant("said"),))
            nx.record(nx.mirror(items, **options(form)), reply(form, ["C"]) if " C " in row.items else said)
        items += [item for name in row.items.split()[1:] for item in made[name]]
        ctx = nx.mirror(copy.deepcopy(items), **options(form))
        body = BODIES[form](ctx)
        assert CHECKS[form](body) == []
        sent = json.dumps(body)
        places = [sent.find(text) for text in row.sent]
        assert -1 not in places
        assert [text for text in row.sent if text != NOTHING] == [
            text for _, text in sorted(zip(places, row.sent, strict=True)) if text != NOTHING
        ]
        assert sent.count(NOTHING) == row.sent.count(NOTHING)
        assert sent.count("Late result of look (B") == 1
        assert ctx.repairs.changes["late result shown as text"] == 1
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Fine."),)))
        (thread,) = (session.thread for session in nx.sessions() if session.label == ctx.session_label)
        assert BODIES[form](nx.replay(ctx.session_label, nx.ledger.store.thread(thread).turn)) == body


TOOLS_LATER: dict[str, Any] = {"type": "additional_tools", "role": "developer", "tools": []}


def response(**fields: Any) -> dict[str, Any]:
    return content("user", {"functionResponse": fields})


def flat(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


RESULT_FORMS: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("the user's between two results", "openai", [*calls("openai", ["a", "b"], is_named=True), *results("openai", [("a", "first")]), user("Hm."), *results("openai", [("b", "second")])]),
    ("the user's before the results", "responses", [*calls("responses", ["a", "b"], is_named=True), user("Hm."), *results("responses", [("b", "second"), ("a", "first")])]),
    ("tools between call and result", "responses", [*calls("responses", ["a", "b"], is_named=True), TOOLS_LATER, *results("responses", [("a", "first"), ("b", "second")])]),
    ("a text between two messages of results", "anthropic", [*calls("anthropic", ["a", "b"], is_named=True), {"role": "user", "content": [*results("anthropic", [("a", "first")])[0]["content"], {"type": "text", "text": "Hm."}]}, *results("anthropic", [("b", "second")])]),
    ("the user's before a response", "gemini", [*calls("gemini", ["", ""], is_named=False), content("user", {"text": "Hm."}), *results("gemini", [("", "first"), ("", "second")])]),
    ("one id for two calls", "openai", [*calls("openai", ["a", "a"], is_named=True), *results("openai", [("a", "first"), ("a", "second")])]),
    ("one id for two calls", "responses", [*calls("responses", ["a", "a"], is_named=True), *results("responses", [("a", "first"), ("a", "second")])]),
    ("one id for two calls", "anthropic", [*calls("anthropic", ["a", "a"], is_named=True), *results("anthropic", [("a", "first"), ("a", "second")])]),
    ("one id for two calls", "gemini", [*calls("gemini", ["a", "a"], is_named=True), *results("gemini", [("a", "first"), ("a", "second")])]),
    ("names in place of ids", "openai", [*calls("openai", ["", ""], is_named=False), {"role": "tool", "name": "look", "content": "first"}, {"role": "tool", "name": "look", "content": "second"}]),
    ("one id for two results, calls without", "openai", [*calls("openai", ["", ""], is_named=False), *results("openai", [("p", "first"), ("p", "second")])]),
    ("the older role", "openai", [{"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}, {"role": "function", "name": "look", "content": "first second"}]),
    ("a text for a response", "gemini", [*calls("gemini", [""], is_named=False), response(name="look", response="first second")]),
    ("a list for a response", "gemini", [*calls("gemini", [""], is_named=False), response(name="look", response=["first", "second"])]),
    ("a response without a name", "gemini", [*calls("gemini", [""], is_named=False), response(response={"output": "first second"})]),
    ("responses in another order", "gemini", [content("model", {"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}), content("user", {"functionResponse": {"name": "g", "response": {"output": "first"}}}, {"functionResponse": {"name": "f", "response": {"output": "second"}}})]),
    ("an image in a response", "gemini", [*calls("gemini", [""], is_named=False), response(name="look", response={"output": "first second"}, parts=[{"inlineData": {"mimeType": "image/png", "data": PNG}}])]),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "form", "items"), RESULT_FORMS, ids=[f"{row[1]}: {row[0]}" for row in RESULT_FORMS])
def test_result_is_under_its_call_wherever_the_list_has_it(_name: str, form: str, items: list[dict[str, Any]]) -> None:
    listed = [*start(form), *items]
    with engine() as nx:
        ctx = nx.mirror(copy.deepcopy(listed), **options(form))
        for name in SENT:
            assert CHECKS[name](BODIES[name](ctx)) == []
            sent = json.dumps(BODIES[name](ctx))
            assert "first" in sent and "second" in sent
            assert "no result recorded" not in sent and "Late result" not in sent
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Good."),)))
        answer = content("model", {"text": "Good."}) if form == "gemini" else assistant("Good.")
        listed += [answer, *start(form)]
        again = nx.mirror(listed, **options(form))
        assert again.mirrored is not None and again.mirrored.action == "append"
        before = BODIES[form](ctx)[SENT[form]]
        if form != "anthropic":  # breakpoints move
            assert BODIES[form](again)[SENT[form]][: len(before)] == before


@pytest.mark.parametrize("form", SENT)
def test_results_of_a_reply_whose_calls_have_one_id_are_kept(form: str) -> None:
    listed = start(form)
    with engine() as nx:
        nx.record(nx.mirror(listed, **options(form)), reply(form, ["a", "a"]))
        listed += [*calls(form, ["a", "a"], is_named=True), *results(form, [("a", "first"), ("a", "second")])]
        ctx = nx.mirror(listed, **options(form))
        assert ctx.mirrored is not None and ctx.mirrored.action == "append"
        assert CHECKS[form](BODIES[form](ctx)) == []
        sent = json.dumps(BODIES[form](ctx))
        assert "first" in sent and "second" in sent and "no result recorded" not in sent


NO_CONTENT: list[tuple[str, dict[str, Any]]] = [
    ("openai", {"role": "tool", "tool_call_id": "a", "content": None}),
    ("openai", {"role": "tool", "tool_call_id": "a", "content": []}),
    ("responses", flat("function_call_output", call_id="a", output=None)),
    ("responses", flat("function_call_output", call_id="a", output=[])),
    ("responses", flat("function_call_output", call_id="a")),
    ("anthropic", {"role": "user", "content": [flat("tool_result", tool_use_id="a", content="", is_error=True)]}),
    ("anthropic", {"role": "user", "content": [flat("tool_result", tool_use_id="a", content=5)]}),
    ("gemini", response(name="look", response=None)),
]


@pytest.mark.parametrize(("form", "result"), NO_CONTENT)
def test_result_without_content_goes_out_in_a_form_that_is_taken(form: str, result: dict[str, Any]) -> None:
    ids = [""] if form == "gemini" else ["a"]
    with engine() as nx:
        ctx = nx.mirror([*start(form), *calls(form, ids, is_named=bool(ids[0])), result], **options(form))
        assert CHECKS[form](BODIES[form](ctx)) == []
        assert ctx.mirrored is not None and not ctx.mirrored.unchanged


def test_output_of_a_local_shell_call_is_sent_as_received() -> None:
    """Codex answers it as a function's: https://github.com/openai/codex `codex-rs/protocol/src/models.rs`."""
    call = flat("local_shell_call", call_id="a", status="completed", action={"type": "exec", "command": ["ls"]})
    listed = [user("Look."), call, flat("function_call_output", call_id="a", output="found")]
    with engine() as nx:
        ctx = nx.mirror(listed, **options("responses"))
        assert ctx.to_responses()["input"] == listed


SEARCH = flat("server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "x"})
FOUND = flat("web_search_tool_result", tool_use_id="srvtoolu_1", content=[])
PAUSED = {"role": "assistant", "content": [flat("text", text="I search."), SEARCH]}
GOES_ON = {"role": "assistant", "content": [FOUND, flat("text", text="Found.")]}
SERVER_CALLS: list[tuple[str, list[dict[str, Any]], bool]] = [
    ("paused, with an instruction", [PAUSED, system("s")], True),
    ("an instruction before its result", [PAUSED, system("s"), GOES_ON, user("And?")], True),
    ("without its result", [PAUSED, user("And?")], False),
]


@pytest.mark.parametrize(("_name", "items", "is_kept"), SERVER_CALLS, ids=[row[0] for row in SERVER_CALLS])
def test_call_of_a_server_tool_stays_where_the_provider_goes_on_with_it(
    _name: str, items: list[dict[str, Any]], is_kept: bool
) -> None:
    with engine() as nx:
        ctx = nx.mirror([user("Look."), *items], provider="anthropic", model=OPUS)
    body = ctx.to_anthropic()
    assert CHECKS["anthropic"](body) == []
    assert ("srvtoolu_1" in json.dumps(body)) == is_kept
    assert ctx.mirrored is not None and ctx.mirrored.unchanged is is_kept


LONG = "run_shell_command__run_shell_command_1790000000001_"
"""Beginning of ids that Gemini CLI makes when it resumes; providers refuse ids of this length."""


@pytest.mark.parametrize(("first", "second"), [("same", "same"), (f"{LONG}0", f"{LONG}1"), ("a b", "a,b")])
def test_message_whose_ids_must_change_is_otherwise_sent_as_received(first: str, second: str) -> None:
    items = [content("user", {"text": "Look."})]
    for call in (first, second):
        parts: list[dict[str, Any]] = [
            {"function_call": {"id": call, "name": "look", "args": {}}, "thought_signature": "c2ln"}
        ]
        answer: dict[str, Any] = {"id": call, "name": "look", "response": {"output": "found", "code": 0}}
        items += [content("model", *parts), content("user", {"function_response": answer})]
    with engine() as nx:
        body = nx.mirror(items, provider="gemini", model="gemini-2.5-pro").to_gemini()
    assert CHECKS["gemini"](body) == []
    sent = [part for message in body["contents"] for part in message["parts"]]
    assert [part["thought_signature"] for part in sent if "function_call" in part] == ["c2ln"] * 2
    answers = [part["function_response"] for part in sent if "function_response" in part]
    assert [answer["response"] for answer in answers] == [{"output": "found", "code": 0}] * 2
    assert len({answer["id"] for answer in answers}) == 2


class Placement(NamedTuple):
    """A list with system messages, and the sent roles with the texts."""

    name: str
    source: str
    form: str
    model: str
    items: list[dict[str, Any]]
    sent: list[str]
    """Each sent message: its role and its texts, `!` before the note of a system message."""


OPUS, SONNET = "claude-opus-5-5", "claude-sonnet-4-5"
CALL = calls("anthropic", ["t"], is_named=True)
RESULT = results("anthropic", [("t", "found")])
CHAT_CALL = calls("openai", ["t"], is_named=True)
CHAT_RESULT = results("openai", [("t", "found")])
PLACEMENTS = [
    Placement("Claude Code's first call", CLAUDE_CODE, "anthropic", OPUS, [user("a"), system("s")], ["user a", "system s"]),
    Placement("older model", OLDER, "anthropic", SONNET, [user("a"), system("s")], ["user a!s"]),
    Placement("Opus 4.8", SYSTEM_PAGE, "anthropic", "claude-opus-4-8", [user("a"), system("s")], ["user a", "system s"]),
    Placement("Opus 4.7", SYSTEM_PAGE, "anthropic", "claude-opus-4-7", [user("a"), system("s")], ["user a!s"]),
    Placement("in the middle", SYSTEM_PAGE, "anthropic", OPUS, [user("a"), system("s"), assistant("b"), user("c")], ["user a", "system s", "assistant b", "user c"]),
    Placement("before a user's", PLACES, "anthropic", OPUS, [user("a"), assistant("b"), system("s"), user("c")], ["user a", "assistant b", "user !sc"]),
    Placement("between two users'", PLACES, "anthropic", OPUS, [user("a"), system("s"), user("c")], ["user a!sc"]),
    Placement("two in a row", PLACES, "anthropic", OPUS, [user("a"), system("s"), system("t")], ["user a", "system st"]),
    Placement("behind an answer", PLACES, "anthropic", OPUS, [user("a"), assistant("b"), system("s")], ["user a", "assistant b", "user !s"]),
    Placement("behind a result", CLAUDE_CODE, "anthropic", OPUS, [user("a"), *CALL, *RESULT, system("s")], ["user a", "assistant ", "user found", "system s"]),
    Placement("behind a result, older model", OLDER, "anthropic", SONNET, [user("a"), *CALL, *RESULT, system("s")], ["user a", "assistant ", "user found!s"]),
    Placement("between call and result", PLACES, "anthropic", OPUS, [user("a"), *CALL, system("s"), *RESULT], ["user a", "assistant ", "user found", "system s"]),
    Placement("first", FIRST, "anthropic", OPUS, [system("s"), user("a")], ["user a"]),
    Placement("aider's last message", AIDER, "openai", "gpt-4o", [user("a"), system("s")], ["user a", "system s"]),
    Placement("in the middle", "own", "openai", "gpt-4o", [user("a"), system("s"), assistant("b"), user("c")], ["user a", "system s", "assistant b", "user c"]),
    Placement("between call and result", "own", "openai", "gpt-4o", [user("a"), *CHAT_CALL, system("s"), *CHAT_RESULT], ["user a", "assistant ", "tool found", "system s"]),
    Placement("behind an answer", "own", "openai", "gpt-4o", [user("a"), assistant("b"), system("s")], ["user a", "assistant b", "system s"]),
    Placement("Codex's developer message", CODEX, "responses", "gpt-5", [user("a"), {"role": "developer", "content": "s"}], ["user a", "developer s"]),
    Placement("at the end", "own", "gemini", "gemini-2.5-pro", [content("user", {"text": "a"}), content("system", {"text": "s"})], ["user a!s"]),
]  # fmt: skip


def outline(form: str, body: dict[str, Any]) -> list[str]:
    """Each sent message as its role and its texts."""
    lines: list[str] = []
    for message in body[SENT[form]]:
        value: Any = message.get("parts", message.get("content")) or []
        blocks: list[Any] = [{"text": value}] if isinstance(value, str) else value
        texts = [block.get("text") or block.get("content") or "" for block in blocks]
        lines.append(f"{message['role']} " + "".join("!" if text == "[System message]" else text for text in texts))
    return lines


@pytest.mark.parametrize("row", PLACEMENTS, ids=[f"{row.form}, {row.model}: {row.name}" for row in PLACEMENTS])
def test_system_messages_stay_where_the_provider_takes_them(row: Placement) -> None:
    with engine() as nx:
        ctx = nx.mirror(row.items, provider=row.form, model=row.model)  # pyright: ignore[reportArgumentType]
        body = BODIES[row.form](ctx)
        assert CHECKS[row.form](body) == []
        assert outline(row.form, body) == row.sent
        nx.record(ctx, reply(row.form, ["r_0"]))
        (session,) = nx.sessions()
        assert BODIES[row.form](nx.replay(session.label, nx.ledger.store.thread(session.thread).turn)) == body


@pytest.mark.parametrize("target", SENT)
@pytest.mark.parametrize("source", SENT)
def test_system_message_of_one_format_is_sent_in_another(source: str, target: str) -> None:
    items = start(source)
    items.append(content("system", {"text": "Be quick."}) if source == "gemini" else system("Be quick."))
    with engine() as nx:
        ctx = nx.mirror(items, provider=source, model=MODELS[target][0])  # pyright: ignore[reportArgumentType]
        body = BODIES[target](ctx)
    assert CHECKS[target](body) == []
    last = outline(target, body)[-1]
    assert last == "user Look.!Be quick." if target == "gemini" else last == "system Be quick."


TOOL: dict[str, Any] = {
    "type": "function",
    "name": "exec",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
TOOLS: dict[str, Any] = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}


def developer(text: str) -> dict[str, Any]:
    return {"role": "developer", "content": text}


def environment(folder: str) -> dict[str, Any]:
    return user(f"<environment_context>\n  <cwd>{folder}</cwd>\n</environment_context>")


class Head(NamedTuple):
    """Items that are in the list at some turns, and which of their texts a cut leaves."""

    name: str
    source: str
    form: str
    opening: list[dict[str, Any]]
    later: dict[int, dict[str, Any]]
    stays: list[str]
    leaves: list[str]


HEADS = [
    Head("Codex's tools and instructions", CODEX, "responses", [TOOLS, developer("<permissions instructions>\nall"), environment("/a")], {}, ["exec", "permissions", "/a"], []),
    Head("environment that was sent again", CODEX, "responses", [TOOLS, environment("/a")], {2: environment("/b"), 4: environment("/c")}, ["/a", "/c"], ["/b"]),
    Head("tools that were sent again", "own", "responses", [TOOLS, developer("x")], {2: {**TOOLS, "tools": [{**TOOL, "name": "more"}]}}, ["exec", "more"], []),
    Head("reminders of one kind", CLAUDE_CODE, "responses", [TOOLS], {2: developer("<system-reminder>\nTodo list: 3 open, one"), 4: developer("<system-reminder>\nTodo list: 2 open, one")}, ["2 open"], ["3 open"]),
    Head("reminders of two kinds", CLAUDE_CODE, "responses", [TOOLS], {2: developer("<system-reminder>\nTodo list"), 4: developer("<system-reminder>\nPlan mode")}, ["Todo list", "Plan mode"], []),
    Head("Claude Code's environment", CLAUDE_CODE, "anthropic", [user("Begin."), system("# Environment\nfolder /a")], {}, ["folder /a"], []),
    Head("Claude Code's environment, sent again", CLAUDE_CODE, "anthropic", [user("Begin."), system("# Environment\nfolder /a")], {3: system("# Environment\nfolder /b")}, ["folder /b"], ["folder /a"]),
    Head("standing instruction", "own", "openai", [user("Begin.")], {2: system("Answer in French."), 4: system("The user is in a hurry.")}, ["French", "hurry"], []),
    Head("rules sent with each turn", AIDER, "openai", [user("Begin.")], {n: system(f"# Rules\nnumber {n}") for n in range(5)}, ["number 4"], ["number 1"]),
]  # fmt: skip


@pytest.mark.parametrize("row", HEADS, ids=[f"{row.form}: {row.name}" for row in HEADS])
@pytest.mark.parametrize("is_compacted", [False, True], ids=["cut", "compacted"])
def test_head_in_the_list_is_never_cut(row: Head, is_compacted: bool) -> None:
    items = [*row.opening]
    body: dict[str, Any] = {}
    with engine() as nx:
        for turn in range(12):
            items.append(user(f"question {turn} " + "word " * 40))
            items += [row.later[turn]] if turn in row.later else []
            ctx = nx.mirror(copy.deepcopy(items), budget=1_600, provider=row.form, model=MODELS[row.form][0])  # pyright: ignore[reportArgumentType]
            body = BODIES[row.form](ctx)
            assert CHECKS[row.form](body) == []
            assert ctx.token_budget.used.total <= 1_600
            nx.record(ctx, nexus.AgentResult((nexus.assistant(f"answer {turn} " + "text " * 80),)))
            items.append(assistant(f"answer {turn} " + "text " * 80))
        (session,) = nx.sessions()
        if is_compacted:
            assert nx.compact(session.label, budget=1_600, profile="bare", model=MODELS[row.form][0])
            items.append(user("last question"))
            ctx = nx.mirror(items, budget=1_600, provider=row.form, model=MODELS[row.form][0])  # pyright: ignore[reportArgumentType]
            body = BODIES[row.form](ctx)
            assert CHECKS[row.form](body) == []
        sent = json.dumps(body)
        assert "question 1 word" not in sent or "Earlier user turns" in sent
        assert [text for text in row.stays if text not in sent] == []
        assert [text for text in row.leaves if text in sent] == []
        for number in range(1, nx.ledger.store.thread(session.thread).turn + 1):
            nx.replay(session.label, number)


def test_error_of_a_small_budget_names_tools_and_instructions_in_the_list() -> None:
    tools: dict[str, Any] = {**TOOLS, "tools": [{**TOOL, "description": "word " * 300}]}
    items: list[Any] = [tools, developer("rule " * 300), user("Look.")]
    with engine() as nx:
        with pytest.raises(nexus.BudgetTooSmall, match=r"tools in the list .*instructions in the list") as raised:
            nx.mirror(items, budget=500, provider="responses", model="gpt-5")
        assert raised.value.parts["tools in the list"] > 250
        assert raised.value.parts["instructions in the list"] > 250
        assert raised.value.parts["current event"] < 60
        ctx = nx.mirror(items, provider="responses", model="gpt-5")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Yes."),)))
        items += [assistant("Yes."), user("And?")]
        with pytest.raises(nexus.BudgetTooSmall, match=r"tools in the list .*instructions in the list"):
            nx.mirror(items, budget=500, provider="responses", model="gpt-5")


def aider_list(done: list[dict[str, Any]], text: str, files: str, rules: str) -> list[dict[str, Any]]:
    """A list as aider makes it: what was said, then the files, the request and the rules."""
    chat = [
        user(f"I have *added these files to the chat*.\n{files * 60}"),
        assistant("Any changes are to those files."),
    ]
    return [system("You edit files."), *done, *(chat if files else []), user(text), *([system(rules)] if rules else [])]


@pytest.mark.parametrize(
    ("name", "files", "rules"),
    [
        ("files unchanged", ("one ", "one ", "one ", "one "), "# Rules\nkeep"),
        ("files edited", ("one ", "two ", "three ", "four "), "# Rules\nkeep"),
        ("files added", ("", "", "three ", "four "), "# Rules\nkeep"),
        ("files dropped", ("one ", "two ", "", ""), "# Rules\nkeep"),
        ("no rules", ("one ", "two ", "three ", "four "), ""),
        ("no files", ("", "", "", ""), "# Rules\nkeep"),
    ],
)
@pytest.mark.parametrize("is_reopened", [False, True])
def test_list_with_moved_messages_stays_in_one_session(
    name: str, files: Sequence[str], rules: str, is_reopened: bool, tmp_path: Any
) -> None:
    done: list[dict[str, Any]] = []
    body: Any = None
    nx = nexus.open(ledger=tmp_path / "ledger.db")
    for turn, text in enumerate(files):
        if is_reopened:
            nx.close()
            nx = nexus.open(ledger=tmp_path / "ledger.db")
        items = aider_list(done, f"request {turn}", text, rules)
        ctx = nx.mirror(items, provider="openai", model="gpt-4o")
        body = ctx.to_openai()
        assert stripped(body["messages"]) == stripped(items)
        nx.record(ctx, nexus.AgentResult((nexus.assistant(f"reply {turn}"),)))
        done += [user(f"request {turn}  \n"), assistant(f"\nreply {turn}\n\n")]  # as aider has them afterwards
    assert len(nx.sessions()) == 1, name
    (session,) = nx.sessions()
    assert nx.replay(session.label, nx.ledger.store.thread(session.thread).turn).to_openai() == body
    nx.close()


def stripped(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(item["role"], item["content"].strip()) for item in items]


EDITS: list[tuple[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]]] = [
    ("earlier request edited", lambda done: [user("other"), *done[1:]]),
    ("earlier turn removed", lambda done: done[2:]),
    ("client's own summary", lambda done: [user("Summary of it."), *done[2:]]),
]


@pytest.mark.parametrize(("name", "edit"), EDITS, ids=[name for name, _ in EDITS])
def test_edited_list_is_a_session_of_its_own(name: str, edit: Callable[[Any], Any]) -> None:
    done: list[dict[str, Any]] = []
    with engine() as nx:
        for turn in range(3):
            nx.record(
                nx.mirror([*done, user(f"request {turn}")]), nexus.AgentResult((nexus.assistant(f"reply {turn}"),))
            )
            done += [user(f"request {turn}"), assistant(f"reply {turn}")]
        ctx = nx.mirror([*edit(done), user("go on")])
        assert ctx.mirrored is not None and ctx.mirrored.action in ("fork", "new"), name
        nx.record(ctx, nexus.AgentResult((nexus.assistant("yes"),)))
        assert len(nx.sessions()) == 2


def test_router_with_the_conversations_list_has_sessions_of_its_own() -> None:
    """Gemini CLI asks a smaller model which model is to answer, and resumes with each result twice."""
    tools: list[Any] = [{"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}]
    main: dict[str, Any] = {
        "provider": "gemini",
        "model": "gemini-3.8-flash",
        "system": "You are a coding agent.",
        "tools": tools,
    }
    router: dict[str, Any] = {"provider": "gemini", "model": "gemini-3.5-flash-lite", "system": "You choose a model."}
    items: list[dict[str, Any]] = []
    labels: set[str] = set()
    with engine() as nx:
        for turn in range(3):
            items.append(content("user", {"text": f"question {turn}"}))
            ctx = nx.mirror(copy.deepcopy(items), **router)  # pyright: ignore[reportArgumentType]
            nx.record(ctx, nexus.AgentResult((nexus.assistant('{"model": "flash"}'),)))
            side = ctx.session_label
            for step in range(2):
                ctx = nx.mirror(copy.deepcopy(items), **main)
                body = ctx.to_gemini()
                assert CHECKS["gemini"](body) == []
                assert "flash" not in json.dumps(body["contents"])
                assert ctx.session_label != side
                labels.add(ctx.session_label)
                part: dict[str, Any] = (
                    {"function_call": {"name": "look", "args": {}}} if not step else {"text": f"done {turn}"}
                )
                nx.record(ctx, {"candidates": [{"content": content("model", part), "finishReason": "STOP"}]})
                items.append(content("model", part))
                if not step:
                    [answer] = results("gemini", [(f"look_{turn}", f"found {turn}")])
                    items.append(answer)
            items[-2] = content("user", *items[-2]["parts"], *items[-2]["parts"])  # as it is after a resumption
    assert len(labels) == 1


@pytest.mark.parametrize("lists", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_no_list_gives_an_invalid_body_or_loses_a_result(
    lists: int, record_property: Callable[[str, object], None]
) -> None:
    counts = Counter[str]()
    searched(lists, 1, counts)
    assert counts["unchanged lists"] and counts["cut lists"]
    record_property("figures", {f"lists of clients: {name}": count for name, count in counts.items()})
