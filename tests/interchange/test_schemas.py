"""Schemas of tools as other people's programs declare them: what goes out, all four providers accept.

`support.tool_schemas` judges, by the providers' own errors. A row says what the schema or the description must still say.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.errors import BadTool
from nexus.services.context.builder import ContextBuilder
from nexus.tools import ToolRegistry
from nexus.types.tool_definition import canonical
from nexus.types.tool_schemas import usable_schema
from support.tool_schemas import CHECKS, schema_problems

GITHUB = "https://github.com/"


class Row(NamedTuple):
    name: str
    source: str  # address of a public report, or "own"
    schema: Any
    schema_says: tuple[str, ...] = ()
    """Parts of the JSON of what goes out."""
    description_says: tuple[str, ...] = ()


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


CIRCLE = {
    "type": "object",
    "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
    "required": ["kind", "r"],
}
SQUARE = {
    "type": "object",
    "properties": {"kind": {"const": "square"}, "a": {"type": "number"}},
    "required": ["kind", "a"],
}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node", "title": "Next"}}, "required": ["next"]}

ROWS = [
    # alternatives at the top
    Row(
        "oneOf of objects", f"{GITHUB}software-mansion/argent/issues/773", {"oneOf": [CIRCLE, SQUARE]},
        ('"enum":["circle","square"]', '"r":{"type":"number"}', '"required":["kind"]'),
        ("exactly one of", 'kind = "circle", r required', 'kind = "square", a required'),
    ),
    Row(
        "anyOf of required", f"{GITHUB}anomalyco/opencode/issues/35516",
        {**props(route={"type": "string"}, file={"type": "string"}), "anyOf": [{"required": ["route"]}, {"required": ["file"]}]},
        ('"route"', '"file"'), ("at least one of", "route required", "file required"),
    ),
    Row(
        "anyOf without type", f"{GITHUB}goruck/home-generative-agent/pull/545",
        {"anyOf": [props(duration={"type": "string"}), props(hours={"type": "integer"}, minutes={"type": "integer"})]},
        ('"duration"', '"hours"'), ("duration optional", "hours, minutes optional"),
    ),
    Row(
        "allOf of objects", f"{GITHUB}makenotion/notion-mcp-server/issues/102",
        {"allOf": [{**props(page={"type": "string"}), "required": ["page"]}, {**props(data={"type": "object"}), "required": ["data"]}]},
        ('"required":["page","data"]', '"page":{"type":"string"}'),
    ),
    Row("enum at the top", f"{GITHUB}nspady/google-calendar-mcp/issues/39", {**props(a={"type": "string"}), "enum": [{"a": "x"}]}, (), ('enum: [{"a":"x"}]',)),
    Row("not at the top", f"{GITHUB}nspady/google-calendar-mcp/issues/39", {**props(a={}, b={}), "not": {"required": ["a", "b"]}}, (), ('not: {"required":["a","b"]}',)),
    Row("const at the top", f"{GITHUB}feigeCode/navop/issues/247", {"type": "object", "const": {}}, (), ("const: {}",)),
    Row("if, then, else at the top", "own", {**props(a={}), "if": {"required": ["a"]}, "then": {"required": ["b"]}}, (), ("if: ", "then: ")),
    Row("oneOf with null", "own", {"oneOf": [{"type": "null"}, CIRCLE]}, ('"const":"circle"', '"required":["kind","r"]')),
    Row("oneOf in oneOf", "own", {"oneOf": [{"oneOf": [CIRCLE, SQUARE]}, props(text={"type": "string"})]}, ('"text"', '"a"'), ("r required", "text optional")),
    Row("alternatives by reference", "own", {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {"A": CIRCLE, "B": SQUARE}}, ('"r"', '"a"'), ("exactly one of",)),
    Row("one name, two types", "own", {"anyOf": [props(id={"type": "string"}), props(id={"type": "integer"})]}, ('"anyOf":[{"type":"string"},{"type":"integer"}]',)),
    Row("empty anyOf", "own", {**props(a={"type": "string"}), "anyOf": []}, ('"a":{"type":"string"}',)),
    Row("a reference at the top", "own", {"$ref": "#/definitions/Args", "definitions": {"Args": CIRCLE}}, ('"required":["kind","r"]',)),
    Row("anyOf of required inside", "own", props(by={**props(a={}, b={}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), ("at least one of", "a required")),
    # arrays
    Row("array", f"{GITHUB}mark3labs/mcphost/issues/35", props(texts={"type": "array", "description": "words"}), ('"items":{}', "words")),
    Row("array in a list of types", f"{GITHUB}campfirein/byterover-cli/issues/42", props(x={"type": ["string", "array"]}), ('"items":{}',)),
    Row("array in an array", f"{GITHUB}gumloop/guMCP/pull/136", props(x={"type": "array", "items": {"type": "array"}}), ('"items":{"items":{},"type":"array"}',)),
    Row("array in anyOf, map and definition", "own", {**props(x={"anyOf": [{"type": "array"}, {"type": "null"}]}, m={"type": "object", "additionalProperties": {"type": "array"}}, d={"$ref": "#/$defs/D"}), "$defs": {"D": {"type": "array"}}}, ('"D":{"items":{},"type":"array"}',)),
    Row("items null", "own", props(x={"type": "array", "items": None}), ('"items":{}',)),
    Row("items true", "own", props(x={"type": "array", "items": True}), ('"items":{}',)),
    Row("items a type's name", "own", props(x={"type": "array", "items": "string"}), ('"items":{"type":"string"}',)),
    Row("tuple of draft 7", f"{GITHUB}anthropics/claude-code/issues/586", props(x={"type": "array", "items": [{"type": "string"}, {"type": "number"}], "additionalItems": False}), ('"prefixItems":[{"type":"string"},{"type":"number"}]', '"maxItems":2')),
    Row("prefixItems alone", "own", props(x={"type": "array", "prefixItems": [{"type": "string"}]}), ('"prefixItems":[{"type":"string"}]', '"items":{}')),
    # types and values
    Row("properties null", f"{GITHUB}spacelift-io/spacectl/issues/402", {"type": "object", "properties": None}),
    Row("properties an empty list", f"{GITHUB}cbdb-project/cbdb-online-main-server/pull/879", {"type": "object", "properties": []}),
    Row("properties null inside", "own", props(x={"type": "object", "properties": None, "required": None}), ('"x":{"type":"object"}',)),
    Row("properties as a list", "own", {"type": "object", "properties": [{"name": "a", "type": "string"}]}, ('"a":{"type":"string"}',)),
    Row("no schema", "own", None),
    Row("type any", "own", props(x={"type": "any", "description": "anything"}), ('"x":{"description":"anything"}',)),
    Row("types of Python", "own", props(a={"type": "str"}, b={"type": "int"}, c={"type": "list"}, d={"type": "dict"}, e={"type": "float"}, f={"type": "bool"}), ('"a":{"type":"string"}', '"c":{"items":{},"type":"array"}', '"f":{"type":"boolean"}')),
    Row("types of Gemini", "own", {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"any_of": [{"type": "ARRAY", "min_items": 1}]}}}, ('"type":"string"', '"anyOf":[{"items":{},"minItems":1')),
    Row("type with a bar", "own", props(x={"type": "string|null"}), ('"type":["string","null"]',)),
    Row("an unknown type", "own", props(x={"type": "file", "description": "a picture"}), ("a picture (type: file)",)),
    Row("type null at the top", "own", {"type": None, "properties": {"a": {}}}),
    Row("object or null at the top", "own", {**props(a={"type": "string"}), "type": ["object", "null"]}, ('"a":{"type":"string"}',)),
    Row("a type's name for a schema", "own", props(path="string", note="Where to look"), ('"path":{"type":"string"}', "Where to look")),
    Row("true and null for a schema", "own", props(a=True, b=None), ('"a":{}', '"b":{}')),
    Row("types of draft 3", "own", props(a={"type": [{"type": "string"}, {"type": "array"}], "required": True}), ('"required":["a"]', '{"items":{},"type":"array"}')),
    Row("bounds of draft 4", "own", props(a={"type": "integer", "minimum": 0, "exclusiveMinimum": True}), ('"exclusiveMinimum":0',)),
    Row("bounds as text", "own", props(a={"type": "string", "minLength": "2", "maxLength": -1}), ('"minLength":2', "maxLength: -1")),
    Row("empty enum", f"{GITHUB}elastic/kibana/pull/286302", props(a={"type": "string", "enum": []}), ('"a":{"type":"string"}',)),
    Row("enum null, one value, a map", "own", props(a={"enum": None}, b={"enum": "x"}, c={"enum": {"y": 1}}), ('"enum":["x"]', '"enum":["y"]')),
    Row("null for keywords", "own", props(a={"type": "string", "description": None, "pattern": None, "format": None, "default": None}), ('"default":null',)),
    Row("JavaScript's pattern", f"{GITHUB}Alishahryar1/free-claude-code/issues/1730", props(a={"type": "string", "pattern": r"^[^\p{Cc}]{1,200}$"}), (r"(pattern|pattern: ", r"\\p{Cc}")),
    Row("required without definition", f"{GITHUB}probelabs/probe/issues/569", {**props(a={}), "required": ["a", "ref", "a"]}, ('"ref":{}', '"required":["a","ref"]')),
    Row("required as text", "own", {**props(a={}), "required": "a"}, ('"required":["a"]',)),
    # names
    Row("brackets in a name", f"{GITHUB}beautyfree/appstore-connect-mcp/issues/2", {**props(**{"filter[id]": {"type": "string"}, "q": {}}), "additionalProperties": False, "required": ["filter[id]"]}, ('"q"',), ('also "filter[id]" (required): {"type":"string"}',)),
    Row("a name of 70 characters", f"{GITHUB}ComposioHQ/composio/pull/3067", props(**{"x" * 70: {"type": "string"}}), (), ("x" * 70,)),
    # references
    Row("reference with siblings", f"{GITHUB}anomalyco/opencode/issues/12295", {**props(q={"$ref": "#/$defs/Option", "type": "object", "title": "Q", "description": "the option"}), "$defs": {"Option": props(label={"type": "string"})}}, ('"$ref":"#/$defs/Option"', "the option", '"label"')),
    Row("reference with limits", "own", {**props(q={"$ref": "#/$defs/Name", "minLength": 3}), "$defs": {"Name": {"type": "string"}}}, ('"minLength":3', '"type":"string"')),
    Row("reference to a property", f"{GITHUB}DEEIX-AI/DEEIX-Chat/issues/546", props(headers={"type": "object"}, actions={"type": "array", "items": {"$ref": "#/properties/headers"}}), ('"items":{"$ref":"#/$defs/headers"}',)),
    Row("reference that leads nowhere", "own", props(q={"$ref": "#/$defs/Gone", "description": "a thing", "type": "string"}), ("a thing", "#/$defs/Gone", '"type":"string"')),
    Row("reference to an address", "own", props(q={"$ref": "https://example.com/s.json#/x", "title": "Q"}), ("https://example.com/s.json#/x",)),
    Row("definitions inside a property", "own", props(q={"$defs": {"In": {"type": "array"}}, "type": "object", "properties": {"i": {"$ref": "#/$defs/In"}}}), ('"In":{"items":{},"type":"array"}',)),
    Row("allOf around a reference", "own", {**props(q={"allOf": [{"$ref": "#/definitions/E"}], "description": "which", "default": 1}), "definitions": {"E": {"enum": [1, 2]}}}, ('"$ref":"#/$defs/E"', "which", '"enum":[1,2]')),
    Row("references kept", f"{GITHUB}open-webui/computer/issues/87", {**props(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "string"}}}, ('"$defs":{"A":{"type":"string"}}', '"$ref":"#/$defs/A"')),
    Row("a schema that requires itself", "own", {**props(n={"$ref": "#/$defs/Node"}), "$defs": {"Node": NODE}}, ("(required)",)),
    Row("a schema in itself", "own", {"type": "object", "properties": {"sub": {"$ref": "#"}, "v": {"type": "string"}}}, ('"$ref":"#/$defs/root"', '"root":')),
    Row("references to each other", "own", {**props(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}),
    Row("allOf of itself", "own", {**props(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}}}),
    Row("a name with a slash", "own", {**props(a={"$ref": "#/$defs/a~1b"}), "$defs": {"a/b": {"type": "string"}}}, ('"a_b":{"type":"string"}',)),
    Row("an anchor", "own", {**props(a={"$ref": "#here"}), "$defs": {"H": {"$anchor": "here", "type": "string"}}}, ('{"type":"string"}',)),
    Row("another draft", f"{GITHUB}anthropics/claude-code/issues/586", {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x:y", **props(a={})}, ('"a":{}',)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_schema_goes_out_as_all_providers_accept_it(row: Row) -> None:
    spec = canonical([{"name": "t", "description": "Does it.", "parameters": row.schema}])[0]
    assert schema_problems(spec.schema) == []
    text = json.dumps(spec.schema, separators=(",", ":"))
    assert [part for part in row.schema_says if not any(piece in text for piece in part.split("|"))] == []
    assert spec.description.startswith("Does it.")
    assert [part for part in row.description_says if part not in spec.description] == []
    assert canonical([spec.definition()]) == (spec,)


@pytest.mark.parametrize(
    "key", ["parameters", "input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema"]
)
def test_schema_is_found_under_every_dialects_key(key: str) -> None:
    (spec,) = canonical([{"name": "t", key: {"oneOf": [CIRCLE, SQUARE]}}])
    assert set(spec.schema["properties"]) == {"kind", "r", "a"}


BAD: dict[str, Any] = {
    "array": {"type": "array", "items": {"type": "string"}},
    "text": {"type": "string"},
    "alternatives without an object": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "not a schema": "text",
    "reference to a text": {"$ref": "#/$defs/T", "$defs": {"T": {"type": "string"}}},
}


@pytest.mark.parametrize("kind", BAD)
def test_tool_that_cannot_be_sent_is_left_out_alone(kind: str) -> None:
    tools = [{"name": "first"}, {"name": "bad", "parameters": BAD[kind]}, {"name": "last"}]
    with nexus.open() as nx:
        ctx = nx.assemble("hi", tools=tools)
    assert [tool.name for tool in ctx.tools] == ["first", "last"]
    (text,) = (warning.message for warning in ctx.warnings if warning.source == "nexus:tools")
    assert "'bad'" in text


@pytest.mark.parametrize("kind", BAD)
def test_builder_of_document_000_leaves_out_the_bad_tool_alone(kind: str) -> None:
    class Registry:
        def get_all_tool_definitions(self) -> list[dict[str, Any]]:
            return [{"name": "good"}, {"name": "bad", "parameters": BAD[kind]}]

    async def build(**arguments: Any) -> Any:
        builder = ContextBuilder(tool_registry=Registry())
        return await builder.build("owner", {}, "hi", **arguments)

    for dialogue in (
        asyncio.run(build()),
        asyncio.run(build(tools=[{"name": "bad2", "parameters": BAD[kind]}, {"name": "own"}])),
    ):
        names = [tool["name"] for tool in dialogue.tools]
        assert "good" in names
        assert not {"bad", "bad2"} & set(names)
        assert any("'bad'" in warning.message for warning in dialogue.warnings)


def test_registered_definition_is_called_by_the_rewritten_schema() -> None:
    def draw(**arguments: Any) -> Any:
        return arguments["kind"]

    registry = ToolRegistry()
    registry.register({"name": "draw", "parameters": {"oneOf": [CIRCLE, SQUARE]}}, draw)
    assert registry.call("draw", '{"kind": "circle", "r": 1}') == "circle"
    assert "exactly one of" in registry.get("draw").description


@pytest.mark.parametrize("provider", CHECKS)
def test_checks_find_what_providers_refuse(provider: str) -> None:
    """The checks are not empty: each refuses a schema that its provider refuses."""
    refused: dict[str, dict[str, Any]] = {
        "anthropic": {"type": "object", "properties": {}, "oneOf": [{}]},
        "openai": props(a={"type": "array"}),
        "openai-responses": props(a={"type": "string", "pattern": r"\p{L}"}),
        "gemini": {**props(a={"$ref": "#/$defs/A", "title": "x"}), "$defs": {"A": {}}},
    }
    assert CHECKS[provider](refused[provider])


WORDS = st.sampled_from(["string", "array", "object", "any", "OBJECT", "null", "file", "a", "filter[x]", "#", "#/$defs/A", "#/$defs/B", "#/properties/a", "", "(", "$ref"])  # fmt: skip
KEYS = st.sampled_from(
    ["type", "properties", "items", "required", "enum", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "A", "B", "a",
     "description", "pattern", "minLength", "exclusiveMinimum", "minimum", "additionalProperties", "additionalItems", "prefixItems",
     "dependencies", "if", "then", "const", "default", "nullable", "$anchor", "patternProperties", "format", "title", "any_of"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_schema_is_made_acceptable_or_refused(schema: dict[str, Any]) -> None:
    before = json.dumps(schema)
    try:
        usable, _ = usable_schema(schema)
    except BadTool:
        return
    finally:
        assert json.dumps(schema) == before
    assert schema_problems(usable) == []
    assert usable_schema(usable) == (usable, "")
