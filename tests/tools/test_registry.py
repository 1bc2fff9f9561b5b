"""The registry of tools: schemas from functions, checked calls, results as text or messages."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.errors import BadTool, ToolCallFailed
from nexus.tools import Tool, ToolRegistry, describe_function
from nexus.types.message import Image, Text, ToolCall, ToolResult
from support.errors import has_code
from support.validity import CHECKS


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    name: str
    floor: int = 0


class Tree(msgspec.Struct):
    name: str
    kids: list[Tree] = []


class Left(msgspec.Struct):
    right: Right | None = None


class Right(msgspec.Struct):
    left: Left | None = None


class Options(TypedDict, total=False):
    loud: bool


def web_search(query: str, limit: int = 10) -> str:
    """Search the web for information.

    All of it.

    Args:
        query: The search query,
            in words
        limit: Results at most

    Returns:
        The results.
    """
    return f"{limit} for {query}"


def rich(
    place: Place,
    colour: Colour,
    mode: Literal["a", "b"] = "a",
    tags: list[str] = [],  # noqa: B006 - what users write
    options: Options | None = None,
    size: Annotated[int, msgspec.Meta(ge=1, description="own words")] = 3,
    *,
    anything=None,  # noqa: ANN001 - the same
) -> dict[str, Any]:
    return {
        "place": place,
        "colour": colour,
        "mode": mode,
        "tags": tags,
        "options": options,
        "size": size,
        "x": anything,
    }


def schema(function: Any, **options: Any) -> dict[str, Any]:
    return ToolRegistry().register(function, **options).schema


def test_definition_is_built_from_signature_and_docstring() -> None:
    """Document 000, "User Message: [CAPABILITIES]": names and descriptions; parameter names, types, descriptions;
    required vs optional parameters, from `ToolRegistry.get_all_tool_definitions()`.
    """
    assert ToolRegistry([web_search]).get_all_tool_definitions() == [
        {
            "type": "function",
            "function": {
                "name": "web_search",
                "description": "Search the web for information.\n\nAll of it.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "The search query, in words"},
                        "limit": {"type": "integer", "description": "Results at most", "default": 10},
                    },
                    "additionalProperties": False,
                    "required": ["query"],
                },
            },
        }
    ]


def test_types_become_json_schema_with_inlined_references() -> None:
    found = schema(rich)
    assert found["required"] == ["place", "colour"]
    assert found["properties"] == {
        "place": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "floor": {"type": "integer", "default": 0}},
            "required": ["name"],
        },
        "colour": {"enum": ["blue", "red"]},
        "mode": {"enum": ["a", "b"], "default": "a"},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        "options": {
            "anyOf": [{"type": "object", "properties": {"loud": {"type": "boolean"}}, "required": []}, {"type": "null"}]
        },
        "size": {"type": "integer", "minimum": 1, "description": "own words", "default": 3},
        "anything": {},
    }


def test_recursive_type_stays_valid_reference() -> None:
    def grow(tree: Tree) -> str:
        return tree.kids[0].name

    def walk(left: Left) -> str:
        return str(left)

    for function, names in ((grow, {"Tree"}), (walk, {"Left", "Right"})):
        found = schema(function)
        assert set(found["$defs"]) == names
        used = {part.partition('"')[0] for part in json.dumps(found).split("#/$defs/")[1:]}
        assert used <= names
    assert ToolRegistry([grow]).call("grow", '{"tree": {"name": "a", "kids": [{"name": "b"}]}}') == "b"


@pytest.mark.parametrize(
    "docstring",
    [
        "Short.\n\nArgs:\n    query: told",
        "Short.\n\nParameters\n----------\nquery : str\n    told",
        "Short.\n\n:param query: told",
    ],
    ids=["Google", "NumPy", "reST"],
)
def test_common_docstring_styles_are_parsed(docstring: str) -> None:
    def look(query: str) -> None: ...

    look.__doc__ = docstring
    found = ToolRegistry().register(look)
    assert (found.description, found.schema["properties"]["query"]["description"]) == ("Short.", "told")


def test_explicit_descriptions_override_docstring() -> None:
    found = ToolRegistry().register(
        web_search, name="look", description="Mine", parameters={"query": "what"}, category="web", roles="worker"
    )
    assert (found.name, found.description, found.category, found.roles) == ("look", "Mine", "web", ("worker",))
    described = {name: one["description"] for name, one in found.schema["properties"].items()}
    assert described == {"query": "what", "limit": "Results at most"}


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        (lambda *names: names, {"name": "x"}, "'names' cannot be passed by name"),
        (lambda **names: names, {"name": "x"}, "'names' cannot be passed by name"),
        (eval("lambda a, /: a"), {"name": "x"}, "'a' cannot be passed by name"),
        (lambda a: a, {}, "needs a name of letters"),
        (web_search, {"name": "no spaces"}, "needs a name of letters"),
        (web_search, {"parameters": {"nope": "x"}}, "no parameter 'nope'"),
        (web_search, {"roles": ("worker", "chief")}, "role 'chief' not found"),
        (7, {}, "neither a function nor"),
        ({"name": "x"}, {"description": "other"}, "change them there"),
        ({"function_declarations": [{"name": "x"}, {"name": "y"}]}, {}, "declares 2 tools"),
        ({"nothing": 1}, {}, "needs a name"),
    ],
)
def test_invalid_tool_is_rejected(given: Any, options: dict[str, Any], told: str) -> None:
    registry = ToolRegistry()
    with pytest.raises(BadTool, match=told):
        registry.register(given, **options)
    assert len(registry) == 0


def test_unusable_and_missing_types_are_rejected() -> None:
    def odd(value: complex) -> None: ...
    def lost(value: NotThere) -> None: ...  # noqa: F821 - that is the case

    for function in (odd, lost):
        with pytest.raises(BadTool, match=function.__name__):
            ToolRegistry([function])


def test_definitions_are_sorted_by_name() -> None:
    def alpha() -> None: ...

    one, other = ToolRegistry([web_search, alpha]), ToolRegistry([alpha, web_search])
    assert json.dumps(one.get_all_tool_definitions()) == json.dumps(other.get_all_tool_definitions())
    assert [tool.name for tool in one.tools()] == ["alpha", "web_search"]
    assert [given["name"] for given in one.definitions()] == ["alpha", "web_search"]


def test_get_definitions_equals_get_all_tool_definitions() -> None:
    """Document 004, "Creation Patterns": `context.set_tool_definitions(registry.get_definitions())`."""
    registry = ToolRegistry([web_search])
    assert registry.get_definitions() == registry.get_all_tool_definitions() != []


def test_changed_definition_does_not_change_registry() -> None:
    registry = ToolRegistry([web_search])
    registry.get_all_tool_definitions()[0]["function"]["parameters"]["properties"].clear()
    assert registry.definitions()[0]["parameters"]["properties"]


def test_unregister_removes_tool_and_frees_name() -> None:
    """Document 000, [CAPABILITIES], "Stability": changes when tools are registered/unregistered."""
    registry = ToolRegistry([web_search])
    with pytest.raises(BadTool, match="tool 'web_search' already exists"):
        registry.register(web_search)
    assert isinstance(registry.unregister("web_search"), Tool)
    assert ("web_search" in registry, registry.definitions()) == (False, [])
    with pytest.raises(ToolCallFailed, match="there are: none", check=has_code("unknown_tool")):
        registry.unregister("web_search")
    registry.register(web_search)


def test_decorator_registers_and_returns_function_unchanged() -> None:
    registry = ToolRegistry()

    @registry.tool
    def plain(a: int) -> int:
        return a + 1

    @registry.tool(category="messaging", roles=("manager", "unified"))
    def send() -> None: ...

    assert plain(1) == 2
    assert (registry.get("send").category, registry.get("send").roles) == ("messaging", ("manager", "unified"))
    assert "category" not in json.dumps(registry.get_all_tool_definitions())


class Shop:
    def buy(self, what: str) -> str:
        return f"bought {what}"

    def __call__(self, what: str) -> str:
        return f"called {what}"


def test_methods_and_callable_objects_become_tools() -> None:
    registry = ToolRegistry([Shop().buy, Shop()])
    assert registry.call("buy", '{"what": "tea"}') == "bought tea"
    assert registry.call("Shop", '{"what": "tea"}') == "called tea"
    assert registry.get("buy").schema["required"] == ["what"]


def test_arguments_are_decoded_to_function_types() -> None:
    registry = ToolRegistry([web_search, rich])
    assert registry.call("web_search", '{"query": "AI"}') == "10 for AI"
    given = json.loads(
        registry.call("rich", '{"place": {"name": "hall", "floor": 2}, "colour": "red", "options": {"loud": true}}')
    )
    assert given == {
        "place": {"name": "hall", "floor": 2}, "colour": "red", "mode": "a", "tags": [], "options": {"loud": True},
        "size": 3, "x": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        '{"query": 7}', '{"limit": 1}', '{"query": "a", "more": 1}', "[]", "{", "null", '{"query": "a", "limit": "3"}',
        '{"query": "a", "limit": 1e999}', '{"query": NaN}', "[" * 100_000, '"\ud800"', "", '{"query": null}',
    ],
)  # fmt: skip
def test_invalid_arguments_raise_without_calling_function(arguments: str) -> None:
    registry = ToolRegistry([web_search])
    with pytest.raises(ToolCallFailed, match="web_search was not called", check=has_code("bad_arguments")):
        registry.call("web_search", arguments)


@given(st.text(max_size=30))
def test_any_arguments_give_result_or_nexus_error(arguments: str) -> None:
    answer = ToolRegistry([web_search]).answer(ToolCall("c", "web_search", arguments))
    assert next(answer.results()).call_id == "c"


def test_function_without_parameters_accepts_empty_arguments() -> None:
    def now() -> None: ...

    registry = ToolRegistry([now])
    assert registry.call("now") == registry.call("now", " ") == registry.call("now", "{}") == ""


def test_results_are_returned_as_text_or_json() -> None:
    values: dict[str, Any] = {"text": 'say "hi"', "list": [1, 2], "place": Place("a"), "odd": {"at": complex(1, 2)}}

    def get(name: str) -> Any:
        return values[name]

    registry = ToolRegistry([get])
    shown = [registry.call("get", json.dumps({"name": name})) for name in values]
    assert shown == ['say "hi"', "[1,2]", '{"name":"a","floor":0}', '{"at":"(1+2j)"}']


def test_raised_error_is_cause_and_error_result() -> None:
    def fail() -> None:
        raise ValueError("no such file")

    registry = ToolRegistry([fail])
    with pytest.raises(ToolCallFailed, match="fail failed: ValueError: no such file") as caught:
        registry.call("fail")
    assert isinstance(caught.value.__cause__, ValueError)
    for name, told in (("fail", "fail failed: ValueError: no such file"), ("nope", "there is no tool 'nope'")):
        result = next(registry.answer(ToolCall("call_1", name, "{}")).results())
        assert (result.call_id, result.name, result.is_error) == ("call_1", name, True)
        assert result.content[0].text.startswith(told)  # pyright: ignore[reportAttributeAccessIssue]


async def slow(what: str) -> str:
    """Wait a moment."""
    await asyncio.sleep(0)
    if what == "bad":
        raise OSError("gone")
    return f"slow {what}"


def test_async_functions_are_run_or_awaited() -> None:
    registry = ToolRegistry([slow, web_search])
    assert registry.call("slow", '{"what": "a"}') == "slow a"

    async def inside() -> list[str]:
        with pytest.raises(ToolCallFailed, match="await call_async"):
            registry.call("slow", '{"what": "a"}')
        answers = [
            await registry.answer_async(ToolCall("1", "slow", '{"what": "bad"}')),
            await registry.answer_async(ToolCall("2", "slow", '{"what": "b"}')),
        ]
        assert [next(one.results()).is_error for one in answers] == [True, False]
        return [
            await registry.call_async("slow", '{"what": "b"}'),
            await registry.call_async("web_search", '{"query":"q"}'),
        ]

    assert asyncio.run(inside()) == ["slow b", "10 for q"]


def test_registered_definition_with_function_is_called() -> None:
    definition = {
        "name": "remote",
        "description": "Elsewhere",
        "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    }
    registry = ToolRegistry()
    registry.register(definition, lambda **given: given, category="mcp")
    assert registry.definitions()[0]["parameters"] == definition["input_schema"]
    assert registry.call("remote", '{"a": "x", "b": 1}') == '{"a":"x","b":1}'
    with pytest.raises(ToolCallFailed, match="'a' is missing", check=has_code("bad_arguments")):
        registry.call("remote", "{}")
    registry.unregister("remote")
    registry.register(definition)
    with pytest.raises(ToolCallFailed, match="registered without a function"):
        registry.call("remote", '{"a": "x"}')


def test_assemble_accepts_registry_for_every_provider() -> None:
    def grow(tree: Tree) -> None:
        """Make it larger."""

    registry = ToolRegistry([web_search, rich, grow])
    nx = nexus.open(ledger=":memory:", clock_ms=lambda: 1_772_807_400_000)
    ctx = nx.assemble("hi", tools=registry)
    assert [tool.name for tool in ctx.tools] == ["grow", "rich", "web_search"]
    bodies = {
        "openai": ctx.to_openai(),
        "responses": ctx.to_responses(),
        "anthropic": ctx.to_anthropic(),
        "gemini": ctx.to_gemini(),
    }
    assert {name: CHECKS[name](body) for name, body in bodies.items()} == {name: [] for name in CHECKS}
    assert bodies["openai"] == nx.assemble("hi", tools=registry.get_all_tool_definitions()).to_openai()


class Foreign:
    def __init__(self, given: Any) -> None:
        self.given = given

    def get_all_tool_definitions(self) -> Any:
        return self.given


def test_any_tool_source_is_accepted_and_wrong_result_rejected() -> None:
    nx = nexus.open(ledger=":memory:")
    plain = {"name": "look", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert [tool.name for tool in nx.assemble("hi", tools=Foreign([plain])).tools] == ["look"]
    for wrong in (None, "text", {"look": plain}, [1]):
        with pytest.raises(BadTool, match="did not return a list of definitions"):
            nx.assemble("hi", tools=Foreign(wrong))


def _file_tools() -> ToolRegistry:
    tools = ToolRegistry()

    @tools.tool
    async def list_dir(path: str) -> list[str]:
        """List a folder."""
        await asyncio.sleep(0)
        return [path]

    @tools.tool
    def fail(how: str) -> str:
        """Fail."""
        raise {"stop": StopIteration, "value": ValueError}[how](how)

    return tools


def test_execute_awaits_an_async_tool_as_document_003_prints_it() -> None:
    assert asyncio.run(_file_tools().execute("list_dir", {"path": "."})) == '["."]'


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("missing", {}, "there is no tool 'missing'; there are: fail, list_dir"),
        ("list_dir", {}, "list_dir was not called"),
        ("list_dir", {"path": 3}, "list_dir was not called"),
        ("fail", {"how": "value"}, "fail failed: ValueError: value"),
        ("fail", {"how": "stop"}, "fail failed: StopIteration: stop"),
    ],
)
def test_execute_returns_the_text_of_an_error(name: str, arguments: dict[str, Any], error: str) -> None:
    assert error in asyncio.run(_file_tools().execute(name, arguments))
    result = asyncio.run(_file_tools().execute_call(ToolCall("c1", name, json.dumps(arguments))))
    assert (result.call_id, result.is_error) == ("c1", True)


def test_execute_runs_plain_functions_at_the_same_time() -> None:
    """Each call waits for the other one, so calls one after the other would never end."""
    tools, both = ToolRegistry(), threading.Barrier(2, timeout=60)

    @tools.tool
    def meet(who: str) -> str:
        both.wait()
        return who

    async def run() -> list[str]:
        return await asyncio.gather(*(tools.execute("meet", {"who": who}) for who in "ab"))

    assert asyncio.run(run()) == ["a", "b"]


def test_tool_result_of_a_function_keeps_its_images_and_error() -> None:
    content = (Text("a chart"), Image("image/png", "aGk="))
    tools = ToolRegistry()
    tools.register(lambda: ToolResult("", content, is_error=True), name="chart")
    expected = ToolResult("c1", content, "chart", is_error=True)
    call = ToolCall("c1", "chart", "{}")
    assert asyncio.run(tools.execute_call(call)) == expected
    assert tools.answer(call).parts == asyncio.run(tools.answer_async(call)).parts == (expected,)
    assert tools.call("chart") == "a chart"


def test_function_that_was_changed_is_described_again() -> None:
    def find(text: str, limit: int = 5) -> str:
        """Find a text."""
        return text * limit

    assert describe_function(find).description == "Find a text."
    describe_function(find).schema["properties"].clear()
    assert list(describe_function(find).schema["properties"]) == ["text", "limit"]
    find.__doc__, find.__defaults__ = "Search.", (7,)
    described = describe_function(find)
    assert (described.description, described.schema["properties"]["limit"]["default"]) == ("Search.", 7)


def test_method_and_its_function_are_described_apart() -> None:
    class Shop:
        def price(self, item: str) -> str:
            """Return a price."""
            return item

    assert list(describe_function(Shop().price).schema["properties"]) == ["item"]
    assert list(describe_function(Shop.price).schema["properties"]) == ["self", "item"]
