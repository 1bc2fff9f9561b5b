"""Hostile values at every public entrance: the outcome is a value or a NexusError, and nothing else."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.errors import NexusError
from nexus.interop.detect import READERS, read
from nexus.interop.importing import import_transcript
from nexus.render.context_json import from_json
from nexus.tools import ToolRegistry
from nexus.turnlog.reader import log_text, read_text, violations
from nexus.workspace.config import read_configuration


def nested(levels: int, *, as_dict: bool) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value} if as_dict else [value]
    return value


HUGE = 10**5_000
JSON_VALUES: dict[str, Any] = {
    "huge": HUGE, "-1": -1, "71 bits": 2**70, "true": True, "null": None, "empty": "", "surrogate": "a\ud800",
    "home": "~nobody", "NUL": "\0", "nan": math.nan, "inf": math.inf, "1.5": 1.5, "[]": [], "{}": {}, "texts": ["a"],
    "[null]": [None], "{a: 1}": {"a": 1}, "surrogate key": {"\ud800": 1}, "70 lists": nested(70, as_dict=False),
    "lists": nested(5_000, as_dict=False), "dicts": nested(5_000, as_dict=True), "kind": [{"type": 5}],
    "part": [{"type": "text", "text": "\ud800"}],
}  # fmt: skip
VALUES: dict[str, Any] = {
    **JSON_VALUES, "object": object(), "bytes": b"x", "set": {1}, "number key": {1: 2}, "tuple": (1, 2),
    "function": lambda: 1, "message": nexus.user("x"), "path": Path("\0"),
}  # fmt: skip
# Examples are drawn by name: a value of 5,000 levels cannot be printed.
NAMES, JSON_NAMES = st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(JSON_VALUES))
TEXTS = ['"\\ud800"', "1" + "0" * 5_000, "[" * 5_000 + "]" * 5_000, '{"a":' * 5_000 + "1" + "}" * 5_000, "null"]
TEXTS += ["1e999", "NaN", "-1", "9" * 30, '""', "[]", "{}", '{"\\ud800":1}', '["a"]', "true", '[{"type":5}]', "[[1]]"]
TOML = [
    "a = 1" + "0" * 5_000,
    "a = " + "[" * 5_000 + "]" * 5_000,
    ".".join(["a"] * 5_000) + " = 1",
    "a = inf",
    "\ud800",
]
TOML += ["[" + ".".join(["model"] * 3_000) + "]", "model = 1", "instructions = 1", 'model = "' + "x" * 200_000 + '"']


@cache
def engine() -> nexus.Engine:
    return nexus.open()


def outcome(act: Callable[[], object]) -> None:
    """Calls the entrance. Any exception but a NexusError fails the test."""
    with contextlib.suppress(NexusError):
        act()


def sent(**arguments: Any) -> object:
    ctx = engine().assemble(arguments.pop("event", "hi"), **arguments)
    return ctx.to_anthropic(), ctx.to_openai(), ctx.report


def reply(value: Any, form: str) -> Any:
    match form:
        case "result":
            return nexus.AgentResult(value)
        case "message":
            return nexus.AgentResult((value,))
        case "fields":
            return nexus.AgentResult((nexus.assistant(value, at_ms=value),), stop_reason=value)
        case "openai":
            return {
                "choices": [{"message": {"role": "assistant", "content": value, "tool_calls": value}}],
                "usage": value,
            }
        case "anthropic":
            call = {"type": "tool_use", "id": value, "name": value, "input": value}
            content = [{"type": "text", "text": value}, call]
            return {"type": "message", "role": "assistant", "content": content, "usage": {"input_tokens": value}}
        case _:
            return value


ARGUMENTS = (
    "event",
    "session",
    "model",
    "tools",
    "images",
    "budget",
    "profile",
    "model_config",
    "role",
    "task",
    "manager",
)
ARGUMENTS += ("persona", "principal", "user_profile", "toolset", "permissions", "skills", "blocks")
EVENT_FIELDS = nexus.Event.__struct_fields__
OPTIONS = ("workspace", "ledger", "model", "timezone", "models", "clock_ms", "counter", "strategy", "profiles", "home")
OPTIONS += ("max_tool_result_tokens", "config", "mode", "clock", "policy", "plugins")


@given(st.sampled_from(OPTIONS), NAMES)
@settings(max_examples=300)
def test_open_gives_engine_or_typed_error(option: str, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outcome(lambda: nexus.open(**{option: VALUES[kind]}).assemble("hi"))


@given(st.sampled_from(ARGUMENTS), NAMES, st.sampled_from(["layered", "tagged", "turnlog"]))
@settings(max_examples=300)
def test_assemble_gives_context_or_typed_error(name: str, kind: str, profile: str) -> None:
    outcome(lambda: sent(**{"profile": profile, name: VALUES[kind]}))


@given(st.sampled_from(EVENT_FIELDS), NAMES)
@settings(max_examples=300)
def test_event_fields_give_context_or_typed_error(name: str, kind: str) -> None:
    value = VALUES[kind]
    fields = {"content": (nexus.Text("hi"),), name: value}
    outcome(lambda: sent(event=nexus.Event(**fields)))
    outcome(lambda: sent(event=nexus.Event((nexus.Text(value),), metadata={"a": value}, hook_data={"b": value})))


DEFINITIONS: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: {"name": value},
    lambda value: {"name": "t", "description": value, "parameters": {"properties": {"a": {"default": value}}}},
    lambda value: {"name": "t", "parameters": value},
    lambda value: {"name": "t", "parameters": {"properties": value, "required": value}},
    lambda value: {"name": "t", "x-nexus": value, "category": value, "roles": value},
    lambda value: {"type": "function", "function": value},
    lambda value: {"function_declarations": value},
]


@given(st.sampled_from(DEFINITIONS), NAMES, st.sampled_from(["layered", "tagged"]))
@settings(max_examples=300)
def test_tool_definitions_give_context_or_typed_error(build: Callable[[Any], Any], kind: str, profile: str) -> None:
    definition = build(VALUES[kind])
    outcome(lambda: sent(tools=[definition, {"name": "fine"}], profile=profile))
    outcome(lambda: sent(tools=definition))
    outcome(lambda: ToolRegistry().register(definition))


@given(NAMES)
def test_registry_calls_give_text_or_typed_error(kind: str) -> None:
    registry, value = ToolRegistry(), VALUES[kind]

    @registry.tool
    def double(a: int = 1) -> int:  # pyright: ignore[reportUnusedFunction]
        return 2 * a

    outcome(lambda: registry.call("double", value))
    outcome(lambda: registry.call(value, ""))


@given(st.sampled_from(["result", "message", "fields", "openai", "anthropic", "value"]), NAMES)
@settings(max_examples=300)
def test_record_stores_or_gives_typed_error(form: str, kind: str) -> None:
    value = VALUES[kind]

    def act() -> None:
        with nexus.open() as nx:
            nx.record(nx.assemble("hi"), reply(value, form))
            nx.assemble("again").to_anthropic()

    outcome(act)
    outcome(lambda: engine().record(value, nexus.AgentResult((nexus.assistant("x"),))))
    outcome(lambda: nexus.repaired(value))
    outcome(lambda: nexus.repaired([value]))


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in paths(item, (*path, key)))]


def with_value(base: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = json.loads(json.dumps(base))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


@cache
def saved() -> Any:
    return json.loads(json.dumps(nexus.open().assemble("hi", tools=[{"name": "t"}]).to_json()))


@given(st.data(), JSON_NAMES)
@settings(max_examples=300)
def test_saved_context_is_read_or_gives_typed_error(data: st.DataObject, kind: str) -> None:
    damaged = with_value(saved(), data.draw(st.sampled_from(paths(saved()))), JSON_VALUES[kind])

    def act() -> None:
        ctx = from_json(damaged)
        with nexus.open() as nx:
            nx.record(ctx, nexus.AgentResult((nexus.assistant("x"),)))
        assert ctx.report and ctx.to_anthropic() and ctx.to_json()

    outcome(act)


@cache
def sessions() -> dict[str, Any]:
    with nexus.open() as nx:
        call = nexus.assistant("yes", nexus.ToolCall("c", "f", "{}"))
        nx.record(nx.assemble("hi"), nexus.AgentResult((call, nexus.tool("c", "r"))))
        turn_log = json.loads(log_text(nx.ledger.entries("main")))
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]
    function = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    event = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
    return {
        "turnlog": turn_log,
        "openai": {"messages": [
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "x", "tool_calls": [function]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ]},
        "anthropic": {"system": "s", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content": [block]},
            {"role": "user", "content": results},
        ]},
        "gemini": {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"output": "r"}}}]},
        ]},
        "responses": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "claude_code": [
            {**event, "message": {"role": "user", "content": "hi"}},
            {**event, "type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": {"role": "assistant", "content": [block]}},
            {**event, "uuid": "u3", "parentUuid": "u2", "message": {"role": "user", "content": results}, "toolUseResult": {}},
        ],
        "nanobot": [
            {"_type": "metadata", "created_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:00", "metadata": {}, "last_consolidated": 0},
            {"role": "user", "content": "hi", "timestamp": "2026-01-01T00:00:00"},
            {"role": "assistant", "content": "x", "timestamp": "2026-01-01T00:00:01"},
        ],
        "dialogue": [
            {"role": "human", "content": "hi", "timestamp": "2026-01-01T00:00:00Z", "run_id": "r1"},
            {"role": "ai", "content": "x", "timestamp": "2026-01-01T00:00:01Z", "run_id": "r1"},
        ],
    }  # fmt: skip


@given(st.data(), st.sampled_from(sorted(READERS)), st.sampled_from(TEXTS))
@settings(max_examples=400)
def test_imported_file_is_read_or_gives_typed_error(data: st.DataObject, form: str, text: str) -> None:
    base = sessions()[form]
    path = data.draw(st.sampled_from(paths(base)))
    marked = with_value(base, path, "@@@@")
    lines = marked if form in ("claude_code", "nanobot") and isinstance(marked, list) else [marked]
    content = "\n".join(json.dumps(line) for line in lines).replace('"@@@@"', text)

    def act() -> None:
        with tempfile.TemporaryDirectory() as folder, nexus.open() as nx:
            file = Path(folder) / "session.json"
            file.write_text(content, "utf-8")
            if form == "turnlog":
                list(violations(read_text(file)[0]))
            for transcript in read(file, form):
                for report in import_transcript(nx, transcript):
                    log_text(nx.ledger.entries(report.session))
                    nx.record(nx.assemble("go", session=report.session), nexus.AgentResult((nexus.assistant("x"),)))

    outcome(act)


@given(st.sampled_from(TOML), st.sampled_from(TEXTS))
@settings(max_examples=60)
def test_settings_files_are_read_or_give_typed_error(toml: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".nexus" / "profiles").mkdir(parents=True)
        (root / ".nexus" / "mcp.json").write_text(f'{{"mcpServers": {{"a": {text}}}}}')
        outcome(lambda: read_configuration(root, root / "home"))
        for name in ("config.toml", "policy.toml", "profiles/mine.toml"):
            (root / ".nexus" / name).write_bytes(toml.encode("utf-8", "surrogatepass"))
        outcome(lambda: read_configuration(root, root / "home"))
        (root / ".nexus" / "config.toml").unlink()
        outcome(lambda: nexus.open(root).assemble("hi"))
        (root / ".nexus" / "policy.toml").unlink()
        outcome(lambda: nexus.open(root).assemble("hi", profile="mine"))


COMMANDS = (
    "assemble",
    "record",
    "history",
    "search",
    "validate",
    "import",
    "context",
    "explain",
    "replay",
    "fork",
    "pin",
)
WORDS = [
    "-",
    "",
    "\udcff",
    "\0",
    "~nobody",
    "-1",
    "9" * 5_000,
    "/dev/zero",
    "/dev/null",
    ".",
    "x" * 5_000,
    "--json",
    "main",
]
WORDS += ["--at", "--budget", "--turn", "--tools", "--attach", "--timezone", "--block", "a=b", "--profile", "./a.toml"]


@given(st.sampled_from(COMMANDS), st.lists(st.sampled_from(WORDS), max_size=4))
@settings(max_examples=150)
def test_command_arguments_end_in_an_exit_code(command: str, words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # `run` raises what a user would see as a traceback.
        assert run(command, *words, folder=Path(folder)).code in range(6)


@pytest.mark.parametrize("value", [nested(5_000, as_dict=True), {"x": HUGE}], ids=["deep", "huge"])
def test_error_about_tool_schema_names_the_tool(value: Any) -> None:
    with pytest.raises(nexus.NexusError, match=r"tool 'broken' cannot be sent as JSON: (nested|integer)"):
        sent(tools=[{"name": "broken", "parameters": {"properties": {"a": value}}}])


OK = nexus.AgentResult((nexus.assistant("ok"),))


def asked(*before: Any) -> list[Any]:
    return [*before, {"role": "user", "content": "y"}]


def called(arguments: Any) -> list[Any]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": arguments if isinstance(arguments, str) else "a", "content": arguments}
    return [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x", "tool_calls": [call]}, result]


def recorded(items: Any, **options: Any) -> object:
    ctx = engine().mirror(items, **options)
    return ctx.to_openai(), engine().record(ctx, OK)


def begun(session: Any = "turns") -> nexus.Turn:
    return engine().begin("x", session=session)


LISTS_AND_TURNS: dict[str, Callable[[Any], object]] = {
    "items": recorded,
    "item": lambda value: recorded([value]),
    "content": lambda value: recorded([{"role": "user", "content": value}]),
    "answer": lambda value: recorded(asked({"role": "assistant", "content": value})),
    "calls": lambda value: recorded(asked({"role": "assistant", "content": "x", "tool_calls": value})),
    "arguments": lambda value: recorded(called(value)),
    "scope": lambda value: recorded(asked(), scope=value),
    "provider": lambda value: recorded(asked(), provider=value),
    "reserve": lambda value: recorded(asked(), reserve=value),
    "event": lambda value: engine().begin(value, session="turns").cancel(),
    "session": lambda value: begun(value).cancel(),
    "call id": lambda value: begun().result(value, "x"),
    "result": lambda value: begun().result("a", value),
    "kind": lambda value: begun().fail(value, "x"),
    "text": lambda value: begun().fail("error", value),
    "partial": lambda value: begun().fail("error", "x", partial=value),
    "reply": lambda value: begun().record(value),
}


@pytest.mark.parametrize("entrance", LISTS_AND_TURNS)
def test_lists_and_turns_take_any_value_or_say_what_is_wrong(entrance: str) -> None:
    for value in VALUES.values():
        outcome(lambda value=value: LISTS_AND_TURNS[entrance](value))
