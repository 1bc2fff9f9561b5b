"""Tools as real clients define them, and what a program in front of a provider asks of a mirrored list."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

import nexus
from nexus.engine.analysis.cache_use import cached_calls
from nexus.types.tool_definition import canonical
from support.bodies import PNG
from support.validity import CHECKS

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
GRAMMAR: Json = {"syntax": "lark", "definition": 'start: "yes" | "no"'}
MODELS = {"openai": "gpt-5", "responses": "gpt-5", "anthropic": "claude-sonnet-5-5", "gemini": "gemini-2.5-pro"}
FORMATS = tuple(MODELS)


def sent_tools(definitions: list[Json], name: str, **options: Any) -> tuple[list[Json], list[str], Json]:
    """The tools of a valid body, the warnings about tools, and the body."""
    with nexus.open(ledger=":memory:") as nx:
        ctx = nx.assemble("hello", model=MODELS[name], profile="bare", tools=definitions, **options)
    body = ctx.to_provider(name)  # type: ignore[arg-type]
    assert CHECKS[name](body) == []
    tools = body.get("config", {}).get("tools", []) if name == "gemini" else body.get("tools", [])
    warnings = [warning.message for warning in ctx.warnings if warning.source == "nexus:tools"]
    return [without_breakpoint(tool) for tool in tools], warnings, body


def without_breakpoint(tool: Json) -> Json:
    return {key: value for key, value in tool.items() if key != "cache_control"}


def function(name: str) -> Json:
    """A function `weather` as a provider has it, sent from its neutral parts."""
    head = {"name": "weather", "description": "Weather of a city"}
    return {
        "openai": {"type": "function", "function": {**head, "parameters": SCHEMA}},
        "responses": {"type": "function", **head, "parameters": SCHEMA, "strict": False},
        "anthropic": {**head, "input_schema": SCHEMA},
        "gemini": {"function_declarations": [{**head, "parameters_json_schema": SCHEMA}]},
    }[name]


AS_RECEIVED: list[tuple[str, str, Json, str]] = [
    ("memory tool", "anthropic", {"type": "memory_20250818", "name": "memory"}, "claude-code"),
    (
        "web search with settings",
        "anthropic",
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 5,
            "user_location": {"type": "approximate", "city": "Berlin", "country": "DE"},
        },
        "https://github.com/farion1231/cc-switch/issues/6370",
    ),
    ("web fetch", "anthropic", {"type": "web_fetch_20260309", "name": "web_fetch"}, "own"),
    ("bash", "anthropic", {"type": "bash_20250124", "name": "bash"}, "own"),
    (
        "text editor with a limit",
        "anthropic",
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10_000},
        "own",
    ),
    (
        "code execution",
        "anthropic",
        {"type": "code_execution_20250825", "name": "code_execution"},
        "https://github.com/decolua/9router/issues/3133",
    ),
    ("tool search", "anthropic", {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, "own"),
    (
        "deferred function",
        "anthropic",
        {"name": "weather", "description": "Weather of a city", "input_schema": SCHEMA, "defer_loading": True},
        "own",
    ),
    (
        "strict function with examples",
        "anthropic",
        {
            "name": "weather",
            "description": "Weather of a city",
            "input_schema": {**SCHEMA, "additionalProperties": False},
            "input_examples": [{"city": "Bonn"}],
            "strict": True,
        },
        "https://github.com/Nasiko-Labs/nasiko/issues/165",
    ),
    (
        "strict function of chat completions",
        "openai",
        {
            "type": "function",
            "function": {"name": "weather", "description": "", "parameters": SCHEMA, "strict": True},
        },
        "https://github.com/Nasiko-Labs/nasiko/issues/165",
    ),
    (
        "custom tool with a grammar in chat completions",
        "openai",
        {
            "type": "custom",
            "custom": {
                "name": "answer",
                "description": "Yes or no",
                "format": {"type": "grammar", "grammar": GRAMMAR},
            },
        },
        "own",
    ),
    (
        "custom tool with a grammar",
        "responses",
        {"type": "custom", "name": "apply_patch", "description": "Patch", "format": {"type": "grammar", **GRAMMAR}},
        "codex",
    ),
    ("custom tool of free text", "responses", {"type": "custom", "name": "exec", "description": "Run"}, "codex"),
    ("web search of OpenAI", "responses", {"type": "web_search", "search_context_size": "low"}, "codex"),
    ("older web search of OpenAI", "responses", {"type": "web_search_preview_2025_03_11"}, "own"),
    (
        "file search",
        "responses",
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3},
        "own",
    ),
    (
        "remote MCP server",
        "responses",
        {
            "type": "mcp",
            "server_label": "deepwiki",
            "server_url": "https://mcp.example/mcp",
            "require_approval": "never",
        },
        "own",
    ),
    ("code interpreter", "responses", {"type": "code_interpreter", "container": {"type": "auto"}}, "own"),
    (
        "deferred function of OpenAI",
        "responses",
        {
            "type": "function",
            "name": "weather",
            "description": "Weather of a city",
            "parameters": SCHEMA,
            "strict": False,
            "defer_loading": True,
        },
        "own",
    ),
    ("Google search", "gemini", {"google_search": {}}, "https://github.com/agno-agi/agno/issues"),
    ("code execution of Gemini", "gemini", {"code_execution": {}}, "own"),
    ("URL context", "gemini", {"url_context": {}}, "gemini-cli"),
]


@pytest.mark.parametrize(("name", "definition"), [row[1:3] for row in AS_RECEIVED], ids=[row[0] for row in AS_RECEIVED])
def test_tool_goes_to_its_own_provider_as_received(name: str, definition: Json) -> None:
    sent, warnings, _ = sent_tools([definition], name)
    assert sent == [definition]
    assert all("not sent by to_openai()" in warning for warning in warnings)


@pytest.mark.parametrize("definition", [row[2] for row in AS_RECEIVED], ids=[row[0] for row in AS_RECEIVED])
def test_tool_is_the_same_after_it_was_stored(definition: Json) -> None:
    """A recorded call is replayed from the specs that were stored with it."""
    specs = canonical([definition])
    assert canonical(spec.definition() for spec in specs) == specs


@pytest.mark.parametrize(("own", "definition"), [row[1:3] for row in AS_RECEIVED], ids=[row[0] for row in AS_RECEIVED])
@pytest.mark.parametrize("name", FORMATS)
def test_other_providers_get_a_function_without_the_fields_and_no_typed_tool(
    own: str, definition: Json, name: str
) -> None:
    if {own, name} <= {"openai", "responses"}:
        return
    other: Json = {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}
    sent, warnings, body = sent_tools([definition, other], name)
    is_function = "weather" in str(definition)
    assert len(str(body).split("clock")) == 2
    assert ("weather" in str(sent)) == is_function
    if own == name:
        assert warnings == []
    else:
        assert len(warnings) == 1
        assert "omitted" in warnings[0]
        assert not any(field in str(sent) for field in ("defer_loading", "input_examples", "strict': True"))


def test_custom_tool_is_translated_between_both_apis_of_openai() -> None:
    flat = {"type": "custom", "name": "answer", "format": {"type": "grammar", **GRAMMAR}}
    nested = {"type": "custom", "custom": {"name": "answer", "format": {"type": "grammar", "grammar": GRAMMAR}}}
    for definition in (flat, nested):
        assert sent_tools([definition], "openai")[0] == [nested]
        assert sent_tools([definition], "responses")[0] == [flat]


def test_choice_of_a_custom_tool_has_its_type() -> None:
    definition = {"type": "custom", "name": "answer"}
    assert sent_tools([definition], "responses", tool_choice="answer")[2]["tool_choice"] == definition
    assert sent_tools([definition], "openai", tool_choice="answer")[2]["tool_choice"] == {
        "type": "custom",
        "custom": {"name": "answer"},
    }


def test_choice_of_an_omitted_tool_is_omitted() -> None:
    body = sent_tools([{"type": "web_search_20250305", "name": "web_search"}], "openai", tool_choice="web_search")[2]
    assert "tool_choice" not in body
    assert "tools" not in body


def test_responses_tool_is_named_in_chat_completions() -> None:
    with nexus.open(ledger=":memory:", model="gpt-5") as nx:
        ctx = nx.assemble("hello", profile="bare", tools=[{"type": "web_search"}])
    assert "tools" not in ctx.to_openai()
    assert ctx.to_responses()["tools"] == [{"type": "web_search"}]
    assert "not sent by to_openai()" in str(ctx.warnings)


def test_compatible_server_gets_its_own_typed_tool() -> None:
    tools = [{"type": "builtin_function", "function": {"name": "$web_search"}}, {"type": "browser_search"}]
    with nexus.open(ledger=":memory:", model="kimi-k2") as nx:
        ctx = nx.assemble("hello", profile="bare", tools=tools)
    assert sorted(map(str, ctx.to_openai()["tools"])) == sorted(map(str, tools))


def test_declared_and_typed_tools_of_one_gemini_definition_are_both_sent() -> None:
    declared: Json = {
        "googleSearch": {},
        "functionDeclarations": [
            {"name": "weather", "description": "Weather of a city", "parametersJsonSchema": SCHEMA}
        ],
    }
    assert sent_tools([declared], "gemini")[0] == [function("gemini"), {"google_search": {}}]
    sent, warnings, _ = sent_tools([declared], "anthropic")
    assert sent == [function("anthropic")]
    assert len(warnings) == 1


def test_deferred_tool_counts_its_name_and_description() -> None:
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(200)}}
    tool = {"name": "weather", "description": "Weather of a city", "input_schema": schema}
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        whole = nx.assemble("hello", tools=[tool]).token_budget.used.tools
        deferred = nx.assemble("hello", tools=[{**tool, "defer_loading": True}]).token_budget.used.tools
    assert deferred < whole / 10


def test_typed_tools_of_a_recorded_call_are_replayed() -> None:
    tools = [row[2] for row in AS_RECEIVED if row[1] == "anthropic"]
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        ctx = nx.assemble("hello", session="s", tools=tools)
        nx.record(ctx, nexus.AgentResult((nexus.assistant("hi"),)))
        assert nx.replay("s", 1).to_anthropic() == ctx.to_anthropic()


REST_SETTINGS: list[tuple[str, Json, Json]] = [
    ("the client's names", {"temperature": 0.5, "top_k": 3}, {"generationConfig": {"temperature": 0.5, "topK": 3}}),
    (
        "REST's names",
        {"generationConfig": {"maxOutputTokens": 99, "thinkingConfig": {"thinkingBudget": 0}}},
        {"generationConfig": {"maxOutputTokens": 99, "thinkingConfig": {"thinkingBudget": 0}}},
    ),
    (
        "settings next to the contents",
        {"safetySettings": [{"category": "C", "threshold": "OFF"}], "cached_content": "cachedContents/1"},
        {"safetySettings": [{"category": "C", "threshold": "OFF"}], "cachedContent": "cachedContents/1"},
    ),
    (
        "names inside of schemas stay",
        {"response_json_schema": {"properties": {"full_name": {"type": "string"}}}},
        {"generationConfig": {"responseJsonSchema": {"properties": {"full_name": {"type": "string"}}}}},
    ),
    (
        "a forced function",
        {"tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["get_it"]}}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_it"]}}},
    ),
    ("settings of the client alone", {"http_options": {"timeout": 5}, "seed": 1}, {"generationConfig": {"seed": 1}}),
]


@pytest.mark.parametrize(
    ("extra", "expected"), [row[1:] for row in REST_SETTINGS], ids=[row[0] for row in REST_SETTINGS]
)
def test_rest_body_of_gemini_has_the_settings(extra: Json, expected: Json) -> None:
    with nexus.open(ledger=":memory:", model=MODELS["gemini"]) as nx:
        body = nx.assemble("hello", profile="bare", extra=extra).to_gemini_rest()
    assert body == {**expected, "contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


def test_rest_body_is_what_the_official_client_sends() -> None:
    tools: list[Json] = [{"googleSearch": {}}, function("anthropic")]
    contents: list[Json] = [
        {"role": "user", "parts": [{"text": "What is here?"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]},
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"id": "a", "name": "weather", "args": {"city_name": "Ulm"}},
                    "thoughtSignature": "c2ln",
                }
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "a", "name": "weather", "response": {"is_warm": True}}}],
        },
    ]
    with nexus.open(ledger=":memory:", model=MODELS["gemini"]) as nx:
        ctx = nx.mirror(contents, tools=tools, system="Be brief.", temperature=0.5, tool_choice="weather")
    sent, expected = ctx.to_gemini_rest(), request_of_client(ctx.to_gemini())
    # The client moves functions behind typed tools, and leaves one name in snake case.
    assert sorted(map(str, sent.pop("tools"))) == sorted(
        str({"functionDeclarations": [function_of_rest()]}) if "functionDeclarations" in tool else str(tool)
        for tool in expected.pop("tools")
    )
    expected["systemInstruction"].pop("role")
    assert sent == expected
    assert ctx.to_gemini_rest()["contents"] == contents
    assert ctx.to_provider("gemini_rest") == ctx.to_gemini_rest()


def function_of_rest() -> Json:
    (declared,) = function("gemini")["function_declarations"]
    return {
        "name": declared["name"],
        "description": declared["description"],
        "parametersJsonSchema": {"properties": SCHEMA["properties"], "type": "object"},
    }


def request_of_client(arguments: Json) -> Json:
    """The JSON that the package `google-genai` sends for keyword arguments."""
    requests: list[Json] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            requests.append(json.loads(text.replace('"mime_type"', '"mimeType"')))  # it leaves one in snake case
            self.send_response(400)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            del format, args

    server = HTTPServer(("127.0.0.1", 0), Recorder)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        client = genai.Client(api_key="none", http_options=genai_types.HttpOptions(base_url=address))
        with pytest.raises(Exception):  # noqa: B017, PT011 - the answer does not matter
            client.models.generate_content(**arguments)
    finally:
        server.shutdown()
        server.server_close()
    return requests[0]


UNCHANGED: list[tuple[str, str, list[Json]]] = [
    ("plain texts", "openai", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
    ("plain texts", "anthropic", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
    ("plain texts", "responses", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
    (
        "system, name, call and parts",
        "openai",
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}], "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "warm"},
            {"role": "assistant", "content": "Warm."},
        ],
    ),
    (
        "custom call of chat completions",
        "openai",
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "exec", "input": "ls -l"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "none"},
        ],
    ),
    (
        "custom call with reasoning",
        "responses",
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": "ls -l", "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "none"},
        ],
    ),
    (
        "web search and annotated text",
        "responses",
        [
            {"role": "user", "content": "a"},
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "message", "role": "assistant", "id": "m_1", "content": [{"type": "output_text", "text": "b"}]},
        ],
    ),
    (
        "thinking, call and separate user messages",
        "anthropic",
        [
            {"role": "user", "content": "<system-reminder>x</system-reminder>"},
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": None}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "warm"}]},
                    {"type": "text", "text": "Continue."},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
        ],
    ),
    (
        "document with citations",
        "anthropic",
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "A."},
                        "citations": {"enabled": True},
                    },
                    {"type": "text", "text": "a"},
                ],
            },
            {"role": "assistant", "content": "b"},
        ],
    ),
    (
        "camel case with a signature and no ids",
        "gemini",
        [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "warm"}}}]},
            {"role": "model", "parts": [{"text": "b"}]},
        ],
    ),
]
LAST = {"gemini": {"role": "user", "parts": [{"text": "And now?"}]}}


@pytest.mark.parametrize(
    ("name", "items"), [row[1:] for row in UNCHANGED], ids=[f"{row[1]}: {row[0]}" for row in UNCHANGED]
)
def test_list_that_fits_is_unchanged_and_one_that_is_cut_is_not(name: str, items: list[Json]) -> None:
    listed = [*items, LAST.get(name, {"role": "user", "content": "And now?"})]
    format_name: Any = name
    tools = (
        [function(name), {"type": "custom", "name": "exec"}] if name in ("openai", "responses") else [function(name)]
    )
    options: Json = {"model": MODELS[name], "tools": tools, "provider": format_name}
    with nexus.open(ledger=":memory:") as nx:
        ctx = nx.mirror(listed, **options)
        assert {sent.state for sent in ctx.sent_messages} == {"unchanged"}
        assert ctx.mirrored is not None
        assert ctx.mirrored.unchanged
        # The second time most of it is stored, and the reply comes back in the client's words.
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Nothing."),), model=MODELS[name]))
        reply = {"role": "model", "parts": [{"text": "Nothing."}]} if name == "gemini" else None
        again = [*listed, reply or {"role": "assistant", "content": "Nothing."}, listed[-1]]
        second = nx.mirror(again, **options)
        assert second.mirrored is not None
        assert second.mirrored.action == "append"
        assert second.mirrored.unchanged
        # With much before it, the list is cut, and the body has to be sent.
        long = [{"role": "user", "parts": [{"text": "word " * 9_000}]}] if name == "gemini" else None
        old = long or [{"role": "user", "content": "word " * 9_000}]
        between = [reply or {"role": "assistant", "content": "Nothing."}]
        cut = nx.mirror([*old, *between, *old, *between, *listed], **options, budget=16_000)
        assert cut.mirrored is not None
        assert cut.cut is not None
        assert not cut.mirrored.unchanged


CHANGED: list[tuple[str, str, list[Json]]] = [
    ("result without a call", "openai", [{"role": "tool", "tool_call_id": "x", "content": "lost"}]),
    ("blank block", "anthropic", [{"role": "user", "content": [{"type": "text", "text": " "}]}]),
    (
        "thinking without a signature",
        "anthropic",
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "b"}],
            },
        ],
    ),
    (
        "call without a result",
        "anthropic",
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
        ],
    ),
    (
        "broken arguments",
        "openai",
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{a"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "warm"},
        ],
    ),
    ("lone surrogate", "openai", [{"role": "user", "content": "a\ud800"}, {"role": "assistant", "content": "b"}]),
    (
        "field of another server",
        "openai",
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "x": 1}],
    ),
]


@pytest.mark.parametrize(("name", "items"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_list_that_a_provider_would_refuse_is_not_unchanged(name: Any, items: list[Json]) -> None:
    with nexus.open(ledger=":memory:", model=MODELS[name]) as nx:
        ctx = nx.mirror([*items, {"role": "user", "content": "And now?"}], provider=name)
        assert ctx.mirrored is not None
        assert not ctx.mirrored.unchanged
        assert CHECKS[name](ctx.to_provider(name)) == []


def test_added_system_prompt_or_denied_tool_is_a_change() -> None:
    listed = [{"role": "user", "content": "a"}]
    with nexus.open(ledger=":memory:", model="gpt-5", system="House rules.") as nx:
        ctx = nx.mirror(listed)
        assert ctx.mirrored is not None
        assert not ctx.mirrored.unchanged
    with nexus.open(ledger=":memory:", model="gpt-5") as nx:
        ctx = nx.mirror(listed, tools=[{"type": "bash_20250124", "name": "bash"}, function("openai")])
        assert ctx.mirrored is not None
        assert not ctx.mirrored.unchanged


def test_anthropic_body_has_texts_messages_and_system_blocks_as_received() -> None:
    listed: list[Json] = [
        {"role": "system", "content": [{"type": "text", "text": "Header."}, {"type": "text", "text": "Rules."}]},
        {"role": "user", "content": "environment"},
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "user", "content": "last"},
    ]
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        ctx = nx.mirror(listed)
        body = ctx.to_anthropic()
        assert [block["text"] for block in body["system"]] == ["Header.", "Rules."]
        assert [message_without_breakpoints(message) for message in body["messages"]] == listed[1:]
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Done."),), model=MODELS["anthropic"]))
        assert nx.replay(ctx.session_label, 2).to_anthropic() == body


def message_without_breakpoints(message: Json) -> Json:
    """A message without breakpoints; a plain string that carries one is a block."""
    content = message["content"]
    if isinstance(content, str):
        return message
    blocks = [without_breakpoint(block) for block in content]
    is_marked = len(blocks) == 1 and "cache_control" in content[0]
    return {**message, "content": blocks[0]["text"] if is_marked else blocks}


@pytest.mark.parametrize("name", FORMATS)
def test_pinned_messages_of_a_list_stay_at_every_cut(name: Any) -> None:
    def said(role: str, text: str) -> Json:
        if name == "gemini":
            return {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]}
        return {"role": role, "content": text}

    def call_of(name: str) -> list[Json]:
        calls: dict[str, list[Json]] = {
            "openai": [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "The pinned result."},
            ],
            "responses": [
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "The pinned result."},
            ],
            "anthropic": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "The pinned result."}],
                },
            ],
            "gemini": [
                {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "weather", "response": {"output": "The pinned result."}}}],
                },
            ],
        }
        return calls[name]

    filler = [said(role, f"{role} {number} " + "word " * 900) for number in range(30) for role in ("user", "assistant")]
    head = [] if name == "gemini" else [{"role": "system", "content": "Be brief."}]
    listed = [*head, said("user", "start"), said("assistant", "The pinned answer."), said("user", "weather?")]
    listed += [*call_of(name), said("assistant", "Warm."), *filler, said("user", "And now?")]
    pins = [len(head) + 1, len(head) + 4]
    options: Json = {"tools": [function(name)], "budget": 12_000, "provider": name, "model": MODELS[name]}
    with nexus.open(ledger=":memory:") as nx:
        plain = str(nx.mirror(listed, **options).to_provider(name))
        assert "The pinned result." not in plain
        ctx = nx.mirror(listed, pins=pins, **options)
        body = ctx.to_provider(name)
        assert CHECKS[name](body) == []
        assert "The pinned answer." in str(body)
        assert "The pinned result." in str(body)
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Cold."),), model=MODELS[name]))
        replayed = nx.replay(ctx.session_label, len(nx.ledger.turns(ctx.session_label)))
        assert replayed.to_provider(name) == body
        more = [*listed, said("assistant", "Cold."), *filler, said("user", "And then?")]
        later = str(nx.mirror(more, pins=pins, **options).to_provider(name))
        assert "The pinned answer." in later
        assert "The pinned result." in later


def test_pin_that_is_not_in_the_list_is_an_error() -> None:
    with nexus.open(ledger=":memory:", model="gpt-5") as nx, pytest.raises(nexus.errors.BadSetting, match="pins"):
        nx.mirror([{"role": "user", "content": "a"}], pins=[1])


COUNTED: list[tuple[str, list[Json]]] = [
    ("openai", [{"role": "user", "content": "What is the plan for the garden?"}]),
    ("anthropic", [{"role": "user", "content": "What is the plan for the garden?"}]),
    ("gemini", [{"role": "user", "parts": [{"text": "What is the plan for the garden?"}]}]),
    ("anthropic", UNCHANGED[7][2][:-1]),
]


@pytest.mark.parametrize(("name", "items"), COUNTED)
def test_public_count_is_that_of_a_context(name: Any, items: list[Json]) -> None:
    options: Json = {"model": MODELS[name], "system": "Be brief.", "tools": [function(name)]}
    with nexus.open(ledger=":memory:") as nx:
        used = nx.mirror(items, provider=name, **options).token_budget.used.total
    assert abs(nexus.count_tokens(items, provider=name, **options) - used) <= max(3, used * 0.02)


def test_public_count_of_a_text_is_without_framing() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 100
    assert nexus.count_tokens("", model="gpt-5") == 0
    assert 900 <= nexus.count_tokens(text, model="gpt-5") <= 1_100
    assert nexus.count_tokens(text, model=MODELS["anthropic"]) >= 900
    assert nexus.count_tokens("\ud800", model="gpt-5") >= 1


FIELDS: list[tuple[str, Json]] = [
    (
        "anthropic",
        {
            "output_config": {"effort": "medium"},
            "context_management": {
                "edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}]
            },
            "metadata": {"user_id": "u"},
            "diagnostics": {"previous_message_id": "msg_1"},
            "service_tier": "auto",
            "a_field_of_tomorrow": {"x": [1, None]},
            "stream": True,
            "max_tokens": 2_000,
        },
    ),
    (
        "responses",
        {
            "store": True,
            "include": ["web_search_call.action.sources"],
            "prompt_cache_key": "thread",
            "prompt_cache_options": {"mode": "explicit", "ttl": "12h"},
            "reasoning": {"effort": "high", "summary": "auto"},
            "text": {"verbosity": "low"},
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "weather"}],
            },
            "context_management": [{"type": "compaction", "compact_threshold": 200_000}],
            "client_metadata": {"kind": "turn"},
            "max_output_tokens": 2_000,
        },
    ),
    (
        "openai",
        {
            "stream": True,
            "stream_options": {"include_usage": True},
            "provider": {"order": ["a"]},
            "reasoning": {"enabled": True},
            "max_completion_tokens": 2_000,
        },
    ),
]


@pytest.mark.parametrize(("name", "fields"), FIELDS, ids=[row[0] for row in FIELDS])
def test_other_fields_of_a_request_come_back_when_it_was_cut(name: Any, fields: Json) -> None:
    listed = [{"role": role, "content": "word " * 900} for _ in range(30) for role in ("user", "assistant")]
    listed.append({"role": "user", "content": "And now?"})
    with nexus.open(ledger=":memory:", model=MODELS[name]) as nx:
        ctx = nx.mirror(listed, extra=fields, tools=[function(name)], provider=name, budget=12_000)
        body = ctx.to_provider(name)
        assert ctx.cut is not None
        assert {key: body[key] for key in fields} == fields


def reply_of_anthropic(**fields: Any) -> Json:
    return {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": MODELS["anthropic"],
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 500, "output_tokens": 3},
        **fields,
    }


COMPACTION: Json = {"type": "compaction", "content": "The user is called Ada.", "encrypted_content": "b3BhcXVl"}


def test_providers_reason_for_a_cache_miss_is_the_cause_of_the_break() -> None:
    reason = {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 4_000}}
    result = nexus.read_reply(reply_of_anthropic(diagnostics=reason))
    assert result.cache_miss_reason == "tools_changed"
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        for number, fields in enumerate([{}, {"diagnostics": reason}]):
            ctx = nx.assemble(f"question {number}", session="s")
            usage = {"input_tokens": ctx.token_budget.used.total, "output_tokens": 3}
            nx.record(ctx, reply_of_anthropic(usage=usage, **fields))
        thread = nx.ledger.thread("s")
        first, second = cached_calls(nx.ledger.store, thread, nx.resolve)
    assert first.causes == ("first call",)
    assert second.causes[0] == "tools changed (the provider's reason)"


def test_usage_of_an_edited_prompt_calibrates_nothing() -> None:
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}
    edits = {"context_management": {"applied_edits": [edit]}}
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        for number in range(4):
            ctx = nx.assemble("word " * 3_000, session="s")
            nx.record(ctx, reply_of_anthropic(id=f"msg_{number}", **edits))
        later = nx.assemble("and now", session="s")
        assert later.accounting.anchor is None
        assert later.token_budget.used.history >= 12_000
        calls = [*cached_calls(nx.ledger.store, nx.ledger.thread("s"), nx.resolve)]
    assert calls[1].causes == ("the provider edited the prompt (clear_tool_uses_20250919)",)


def test_edits_of_a_stream_are_read() -> None:
    reader = nexus.StreamReader("anthropic")
    start: Json = {**reply_of_anthropic(), "content": []}
    events: list[Json] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "Ada."}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "compaction_delta", "content": None, "encrypted_content": "b3Bh"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "context_management": {"applied_edits": [{"type": "compact_20260112"}]},
        },
        {"type": "message_stop"},
    ]
    for event in events:
        reader.add(event)
    result = reader.reply()
    assert result.context_edits == ("compact_20260112", "compaction")
    (sent,) = nexus.write_messages(result.messages, "anthropic")
    assert sent["content"][0] == {"type": "compaction", "content": "Ada.", "encrypted_content": "b3Bh"}


def test_compaction_of_a_recorded_reply_stays_at_every_cut() -> None:
    with nexus.open(ledger=":memory:", model=MODELS["anthropic"]) as nx:
        ctx = nx.assemble("hello", session="s", profile="bare")
        nx.record(ctx, reply_of_anthropic(content=[COMPACTION, {"type": "text", "text": "Hi."}]))
        for number in range(20):
            ctx = nx.assemble(f"{number} " + "word " * 900, session="s", profile="bare", budget=10_000)
            nx.record(ctx, reply_of_anthropic(id=f"msg_{number}"))
        ctx = nx.assemble("and now", session="s", profile="bare", budget=10_000)
        assert COMPACTION in [block for message in ctx.to_anthropic()["messages"] for block in blocks_of(message)]
        assert "The user is called Ada." in str(ctx.to_openai())


COMPACTED: list[tuple[str, list[Json]]] = [
    (
        "anthropic",
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [COMPACTION, {"type": "text", "text": "Hi."}]},
        ],
    ),
    (
        "responses",
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "b3BhcXVlb3BhcXVl"},
        ],
    ),
]


@pytest.mark.parametrize(("name", "items"), COMPACTED, ids=[row[0] for row in COMPACTED])
def test_compaction_item_of_a_list_stays_at_every_cut(name: Any, items: list[Json]) -> None:
    filler = [{"role": role, "content": "word " * 900} for _ in range(30) for role in ("user", "assistant")]
    listed = [*items, {"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Yes."}, *filler]
    listed.append({"role": "user", "content": "And now?"})
    with nexus.open(ledger=":memory:", model=MODELS[name]) as nx:
        ctx = nx.mirror(listed, provider=name, budget=12_000)
        assert ctx.cut is not None
        assert "b3BhcXVl" in str(ctx.to_provider(name))


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.parametrize(
    ("name", "kind"), [("responses", "input_text"), ("openai", "text")], ids=["responses", "chat completions"]
)
def test_cache_breakpoint_of_openai_goes_out_as_received(name: Any, kind: str) -> None:
    part = {"type": kind, "text": "a long document", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    listed = [{"role": "user", "content": [part, {"type": kind, "text": "Summarize it."}]}]
    with nexus.open(ledger=":memory:", model="gpt-5.6") as nx:
        ctx = nx.mirror(listed, provider=name)
        body = ctx.to_provider(name)
        assert CHECKS[name](body) == []
        assert (body["input"] if name == "responses" else body["messages"])[-1]["content"][0] == part
        assert ctx.mirrored is not None
        assert ctx.mirrored.unchanged
        assert "prompt_cache_breakpoint" not in str(ctx.to_anthropic())


def test_list_with_a_schema_that_is_rewritten_is_not_unchanged() -> None:
    """The provider would refuse the tools as they came."""
    draft = "https://json-schema.org/draft/2020-12/schema"  # Claude Code's tools name it
    schema = {"$schema": draft, "type": "object", "properties": {"a": {"type": "string"}}}
    fine = {"name": "find", "input_schema": schema}
    refused = {"name": "list_them", "input_schema": {"type": "object", "oneOf": [{"required": ["a"]}]}}
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5") as nx:
        for tools, unchanged in (([fine], True), ([fine, refused], False)):
            ctx = nx.mirror([{"role": "user", "content": "hi"}], tools=tools)
            assert ctx.mirrored is not None and ctx.mirrored.unchanged is unchanged
