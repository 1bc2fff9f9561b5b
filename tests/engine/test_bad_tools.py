"""Unusable tool definitions: one among many is omitted with a warning, a list without any other is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nexus
from nexus.errors import BadTool
from nexus.tools import ToolRegistry
from nexus.types import tool_definition

BAD: dict[str, Any] = {
    "name": {"name": "no name!"},
    "schema": {"name": "broken", "parameters": "text"},
    "required": {"name": "broken", "parameters": {"required": 5}},
    "number": {"name": "broken", "parameters": {"default": 10**5_000}},
    "value": {"name": "broken", "input_schema": {"default": object()}},
    "declarations": {"function_declarations": 5},
}


class Listing:
    """Tools of an MCP server, as a registry of another package returns them."""

    def __init__(self, *definitions: Any) -> None:
        self.definitions = list(definitions)

    def get_all_tool_definitions(self) -> list[dict[str, Any]]:
        return self.definitions


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("build", [list, lambda items: Listing(*items)], ids=["list", "registry"])
def test_one_bad_tool_is_omitted_with_warning(kind: str, build: Any) -> None:
    with nexus.open() as nx:
        ctx = nx.assemble("hi", tools=build([{"name": "first"}, BAD[kind], {"name": "last"}]))
    assert [tool.name for tool in ctx.tools] == ["first", "last"]
    (text,) = (warning.message for warning in ctx.warnings if warning.source == "nexus:tools")
    assert text.startswith("omitted: ")
    assert "tool" in text and ("broken" in text or kind in ("name", "declarations"))
    assert text in ctx.report


@pytest.mark.parametrize("kind", BAD)
def test_list_without_a_usable_tool_is_an_error(kind: str) -> None:
    with nexus.open() as nx, pytest.raises(BadTool):
        nx.assemble("hi", tools=[BAD[kind]])


def test_bad_declaration_leaves_the_others_of_its_definition() -> None:
    with nexus.open() as nx:
        ctx = nx.assemble("hi", tools=[{"function_declarations": [{"name": "look"}, {"name": "no name!"}]}])
    assert [tool.name for tool in ctx.tools] == ["look"]


@pytest.mark.parametrize("tools", [["a"], "a", 5, [None], {"name": "a"}])
def test_tools_that_are_no_definitions_are_an_error(tools: Any) -> None:
    with nexus.open() as nx, pytest.raises(BadTool, match=r"not a (mapping|list)"):
        nx.assemble("hi", tools=tools)


def test_registering_a_bad_definition_is_an_error_at_once() -> None:
    with pytest.raises(BadTool, match="tool 'broken' cannot be sent as JSON: nested more than 64 levels deep"):
        ToolRegistry().register({"name": "broken", "parameters": {"a": json.loads("[" * 70 + "]" * 70)}})


def test_lone_surrogates_in_tool_schema_are_replaced() -> None:
    schema = {"type": "object", "properties": {"\ud800": {"description": "\udc00"}}}
    with nexus.open() as nx:
        ctx = nx.assemble("hi", tools=[{"name": "look", "parameters": schema}])
    assert ctx.tools[0].schema["properties"] == {}  # a name that providers refuse is in the description
    assert 'also "\ufffd" (optional): {"description":"\ufffd"}' in ctx.tools[0].description


def test_registry_call_accepts_arguments_by_name() -> None:
    registry = ToolRegistry()

    @registry.tool
    def double(a: int) -> int:  # pyright: ignore[reportUnusedFunction]
        return 2 * a

    assert registry.call("double", {"a": 4}) == registry.call("double", '{"a": 4}') == "8"


def test_a_call_with_a_schema_of_before_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas that are rewritten today went out as they were."""
    listing = {"type": "object", "properties": {"names": {"type": "array"}}}
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        with monkeypatch.context() as before:
            before.setattr(tool_definition, "usable_schema", _unchanged)
            tool_definition._specs_from_json.cache_clear()
            ctx = nx.assemble("hi", tools=[{"name": "list_them", "parameters": listing}], profile="bare")
            nx.record(ctx, nexus.AgentResult((nexus.assistant("hello"),)))
        tool_definition._specs_from_json.cache_clear()
        assert "items" not in ctx.tools[0].schema["properties"]["names"]
        assert nx.replay("main", 1).to_openai() == ctx.to_openai()


def _unchanged(schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    return dict(schema), ""
