"""The base count of messages: never below what any provider's form would count."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nexus
from nexus.tokens.counter import EstimateCounter, get_counter
from nexus.tokens.images import UNKNOWN_SIZE_TOKENS, max_image_tokens
from nexus.tokens.message_tokens import message_tokens, text_tokens_json, tools_tokens
from nexus.types.message import (
    Image,
    Message,
    Note,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    assistant,
    tool,
    user,
)
from support.recount import count_text
from tokens.random_messages import objects, sent_messages, texts, thinking_messages
from tokens.wire_forms import FORMS, compact

COUNTER = get_counter("o200k_base")
slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def image_tokens_of(message: Message) -> int:
    parts = [part for part in message.parts if isinstance(part, Image)]
    inside = [part for result in message.results() for part in result.content if isinstance(part, Image)]
    return sum(map(max_image_tokens, parts + inside))


@pytest.mark.parametrize("form", FORMS)
@slow
@given(message=sent_messages)
def test_base_count_covers_provider_format(form: str, message: Message) -> None:
    sent = sum(count_text(compact(body)) for body in FORMS[form](message))
    assert message_tokens(message, COUNTER).tokens - image_tokens_of(message) >= sent


@slow
@given(message=sent_messages)
@example(message=Message("user", (Note("moment", ""), Unknown("A", "{}"), Unknown("A", "{}"), Unknown("A", "{}"))))
def test_openai_count_covers_chat_and_responses(message: Message) -> None:
    for form in ("openai", "responses"):
        sent = sum(count_text(compact(body)) for body in FORMS[form](message))
        assert message_tokens(message, COUNTER).openai - image_tokens_of(message) >= sent


def test_count_covers_many_results_and_images_in_responses_format() -> None:
    picture = Image("image/png", data="AAAA", width=10, height=10)
    plain = Message("tool", tuple(ToolResult(f"c{n}", (Text("ok"),), "f") for n in range(80)))
    mixed = Message("tool", tuple(ToolResult(f"c{n}", (Text("a"), picture, Text("b")), "f") for n in range(80)))
    shown = Message("user", tuple(Text("x") for _ in range(80)))
    for message in (plain, mixed, shown):
        sent = count_text(compact(FORMS["responses"](message)).replace('"AAAA"', '""'))
        assert message_tokens(message, COUNTER).openai - image_tokens_of(message) >= sent


def test_openai_count_covers_text_phases() -> None:
    said = {"role": "assistant", "content": "word", "phase": "final_answer"}
    message = Message("assistant", (Text("word"),) * 80, meta=compact({"phases": ["final_answer"] * 80}))
    assert message_tokens(message, COUNTER).openai >= count_text(compact([said] * 80))


def test_only_returnable_reasoning_is_counted() -> None:
    sealed = compact({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA" * 1_000})
    opened = compact({"type": "reasoning", "id": "rs_1", "summary": []})
    bare = message_tokens(Message("assistant", (Thinking("why"), Text("so"))), COUNTER)
    counted, not_sent = (
        message_tokens(Message("assistant", (Thinking("why", text), Text("so"))), COUNTER) for text in (sealed, opened)
    )
    assert 1_000 < counted.openai - bare.openai < 1_060
    assert (counted.anthropic, counted.gemini, counted.optional) == (bare.anthropic, bare.gemini, bare.optional)
    assert not_sent == bare


@pytest.mark.parametrize("form", FORMS)
@slow
@given(message=thinking_messages)
def test_optional_and_base_counts_cover_thinking_and_memory(form: str, message: Message) -> None:
    counted = message_tokens(message, COUNTER)
    sent = sum(count_text(compact(body)) for body in FORMS[form](message))
    assert counted.tokens + counted.optional >= sent


@slow
@given(message=sent_messages)
def test_base_count_is_close_to_largest_format(message: Message) -> None:
    largest = max(sum(count_text(compact(body)) for body in form(message)) for form in FORMS.values())
    pieces = len(message.parts) + sum(len(result.content) for result in message.results())
    assert message_tokens(message, COUNTER).tokens - image_tokens_of(message) <= 1.3 * largest + 12 + 30 * pieces


def test_long_text_count_is_close_to_its_own_tokens() -> None:
    text = "The migration is done and all checks are green. " * 400
    assert COUNTER.count(text) < message_tokens(user(text), COUNTER).tokens < COUNTER.count(text) + 40


def test_thinking_and_memory_notes_count_as_optional_only() -> None:
    said = Text("Here it is.")
    plain = message_tokens(Message("assistant", (said,)), COUNTER)
    thought = Thinking("First I look at the log. " * 30, signature="EqQB" * 500)
    memory = Note("memory", "The user likes short answers. " * 20)
    counted = message_tokens(Message("assistant", (thought, memory, said)), COUNTER)
    assert plain.optional == 0
    assert counted.tokens == plain.tokens
    texts_alone = COUNTER.count(thought.text) + COUNTER.count(memory.text)
    assert texts_alone < counted.optional < texts_alone + 40


def test_moment_note_counts_with_message() -> None:
    moment = Note("moment", "Current time: 2026-11-12T09:15:33.123Z")
    with_note = message_tokens(Message("user", (moment, Text("hi"))), COUNTER)
    assert with_note.optional == 0
    assert with_note.tokens > message_tokens(user("hi"), COUNTER).tokens + COUNTER.count(moment.text)


def test_signatures_and_redacted_thinking_cost_nothing() -> None:
    bare = Message("assistant", (Thinking("why"),))
    sealed = Message("assistant", (Thinking("why", signature="s" * 9000, redacted="r" * 9000),))
    assert message_tokens(sealed, COUNTER) == message_tokens(bare, COUNTER)


def test_image_data_is_never_counted_as_text() -> None:
    small = Message("user", (Image("image/png", data="", width=800, height=600),))
    large = Message("user", (Image("image/png", data="iVBORw0KGgo" * 100_000, width=800, height=600),))
    inline = Message("user", (Image("image/png", url="data:image/png;base64," + "A" * 100_000, width=800, height=600),))
    assert message_tokens(large, COUNTER) == message_tokens(small, COUNTER) == message_tokens(inline, COUNTER)


def test_image_costs_largest_of_three_formulas_also_in_results() -> None:
    picture = Image("image/png", width=1024, height=1024)
    without = message_tokens(tool("call_1", "shot", "screen"), COUNTER).tokens
    result = ToolResult("call_1", (Text("shot"), picture), "screen")
    within = message_tokens(Message("tool", (result,)), COUNTER).tokens
    assert within - without >= max_image_tokens(picture) == 1369
    unsized = message_tokens(Message("user", (Image("image/png", data="AAAA"),)), COUNTER).tokens
    assert UNKNOWN_SIZE_TOKENS < unsized < UNKNOWN_SIZE_TOKENS + 60


def test_invalid_arguments_are_counted_as_received() -> None:
    broken = '{"path": "src/app.py", "text": "unfinished'
    message = assistant("", ToolCall("call_1", "write_file", broken))
    assert message_tokens(message, COUNTER).tokens > COUNTER.count(json.dumps(broken))


def test_encoded_data_in_unknown_part_has_bounded_count() -> None:
    data = "JVBERi0xLjcKJeLjz9M" * 20_000
    part = Unknown("document", json.dumps({"type": "document", "source": {"data": data}}))
    tokens = message_tokens(Message("user", (part,)), COUNTER).tokens
    assert len(data) // 8 < tokens < len(data) // 8 + 100


def test_empty_message_costs_its_framing() -> None:
    assert 4 < message_tokens(Message("user", ()), COUNTER).tokens < 20


def test_messages_with_lone_surrogates_and_nul_are_counted() -> None:
    odd = "a\ud800b\x00c"
    message = Message(
        "user", (Text(odd), ToolCall(odd, odd, odd), ToolResult(odd, (Text(odd),), odd), Unknown(odd, odd))
    )
    assert message_tokens(message, COUNTER).tokens > 40
    assert text_tokens_json(odd, COUNTER) > 4
    assert tools_tokens([{"name": odd}], COUNTER) > 10


def test_message_tokens_accepts_estimate_counter() -> None:
    message = assistant("Reading.", ToolCall("call_1", "read_file", '{"path":"src/app.py"}'))
    assert message_tokens(message, EstimateCounter()).tokens >= message_tokens(message, COUNTER).tokens


@slow
@given(text=texts)
def test_system_prompt_count_covers_json_string(text: str) -> None:
    sent = count_text(compact({"role": "system", "content": text})) - count_text('{"role":"system","content":""}')
    assert text_tokens_json(text, COUNTER) >= sent


def in_order(schema: dict[str, object]) -> dict[str, object]:
    """The schema with the keys of its objects sorted, as a body has them."""
    return json.loads(json.dumps(schema, sort_keys=True))


def tool_forms(schemas: list[dict[str, object]]) -> tuple[dict[str, list[dict[str, object]]], int]:
    """The definitions of tools in each form, and what the longest of them takes."""
    bare: list[dict[str, object]] = [
        {"name": f"tool_{i}", "description": "d", "parameters": schema} for i, schema in enumerate(schemas)
    ]
    forms: dict[str, list[dict[str, object]]] = {
        "bare": bare,
        "anthropic": [{"name": t["name"], "description": "d", "input_schema": t["parameters"]} for t in bare],
        "openai": [{"type": "function", "function": t} for t in bare],
        "responses": [{"type": "function", **t, "strict": False} for t in bare],
        "gemini": [{"functionDeclarations": bare}],
    }
    return forms, max(count_text(compact(form)) for name, form in forms.items() if name != "bare")


ODD_ORDER: dict[str, object] = {
    "M": {"art": -0.0, "Q3g": "\n\n\x07\U0001f5b5if (x >= 10 && y != 'z') {2026-11-12T09:15:33.123Z"},
    "_cVl": {"eNh7x2WbZ": 1, "ORpwecSWD": []},
    "idWfT-jBs": {"fyZ": False, "ZA": []},
    "riM": 1,
    "n": {"xiv": None, "Wo": ""},
    "nj6gpf06U": "",
}
"""In this order of its keys it is a token longer than what is counted, which has them sorted, as what is sent has."""
EXPONENTS: dict[str, object] = {f"k{number}": 1e16 for number in range(30)}
"""Sent as `1e+16`, a token more than `1e16`."""


@slow
@given(schemas=st.lists(objects, min_size=1, max_size=4))
@example(schemas=[ODD_ORDER])
@example(schemas=[EXPONENTS])
def test_tools_count_covers_each_provider_format(schemas: list[dict[str, object]]) -> None:
    """As they are sent, with sorted keys: tokens merge otherwise in another order."""
    given_forms = tool_forms(schemas)[0]
    longest = tool_forms([in_order(schema) for schema in schemas])[1]
    for name in ("bare", "anthropic", "openai"):
        assert tools_tokens(given_forms[name], COUNTER) >= longest


def test_tools_are_counted_with_sorted_keys() -> None:
    forms, longest = tool_forms([ODD_ORDER])
    assert tools_tokens(forms["openai"], COUNTER) == longest - 1
    with nexus.open() as nx:
        ctx = nx.assemble("hi", profile="bare", tools=forms["openai"], model="gpt-4o")
    for body in (ctx.to_openai(), ctx.to_responses(), ctx.to_anthropic()):
        sent = body["tools"]
        assert ctx.token_budget.used.tools >= count_text(compact(sent))
        schema = sent[0].get("function", sent[0])
        shown = schema.get("parameters", schema.get("input_schema"))
        assert compact(shown) == json.dumps(shown, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def test_tools_count_is_zero_without_tools_and_ignores_key_order() -> None:
    one = {"name": "read", "description": "Reads a file.", "parameters": {"type": "object", "required": ["path"]}}
    other = {"parameters": {"required": ["path"], "type": "object"}, "description": "Reads a file.", "name": "read"}
    assert tools_tokens([], COUNTER) == 0
    assert tools_tokens([one], COUNTER) == tools_tokens([other], COUNTER) > 20
