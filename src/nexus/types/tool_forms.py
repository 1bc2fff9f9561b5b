"""Parts of tool definitions that only one provider takes: typed tools, and further fields of functions.

A typed tool (`memory_20250818`, `web_search`, `google_search`, a custom tool with a grammar) has no schema of parameters:
its provider or its model defines it. A function may have fields that only its provider takes (`strict`, `defer_loading`).
The fields are from the packages `anthropic` 2.12, `openai` 3.54 and `google-genai` 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

ToolProvider: TypeAlias = Literal["", "openai", "anthropic", "gemini"]
"""The provider whose form a definition is in; empty if other providers take all of it."""

SCHEMA_KEYS = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema", "inputSchema")
"""Keys of a function's schema in all forms."""

FUNCTION_FIELDS: dict[ToolProvider, tuple[str, ...]] = {
    "openai": ("strict", "defer_loading", "output_schema", "allowed_callers"),
    "anthropic": ("strict", "defer_loading", "input_examples", "allowed_callers", "eager_input_streaming"),
    "gemini": ("behavior", "response", "response_json_schema", "responseJsonSchema"),
}
"""Fields of a function besides name, description and schema."""

_DECLARATIONS = ("function_declarations", "functionDeclarations")
_GEMINI_TOOLS = frozenset(
    {"google_search", "google_search_retrieval", "google_maps", "enterprise_web_search", "url_context"}
    | {"code_execution", "computer_use", "file_search", "retrieval", "mcp_servers"}
    | {"parallel_ai_search", "exa_ai_search"}
)
_ANTHROPIC_TYPE = re.compile(r".+_20\d{6}\Z|mcp_toolset\Z")
_FUNCTION_TYPES = ("function", "custom", "object", "tool")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class OwnForm(Struct, frozen=True):
    """The part of a definition that only one provider takes."""

    provider: ToolProvider = ""
    fields: dict[str, Any] = {}
    """A typed tool's whole definition, or a function's further fields."""
    type_name: str = ""
    """Name of a typed tool: its own, or its type and label; empty for a function."""


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def split_tools(definition: Mapping[str, Any]) -> Iterator[object]:
    """Yield the tools of one definition. A definition in Gemini's form may have several declared and typed tools."""
    declared = next(filter(None, map(definition.get, _DECLARATIONS)), None)
    if declared is None and not (len(definition) > 1 and all(_snake(key) in _GEMINI_TOOLS for key in definition)):
        yield definition
        return
    if isinstance(declared, (list, tuple)):
        yield from cast("list[object]", declared)
    elif declared is not None:
        yield declared
    for key, value in definition.items():
        if _snake(key) in _GEMINI_TOOLS:
            yield {key: value}


def own_form(definition: Mapping[str, Any]) -> OwnForm:
    """Return the part of one tool's definition that only its provider takes."""
    fields = {key: value for key, value in definition.items() if key != "cache_control"}
    if (typed := _typed_form(fields)) is not None:
        return typed
    kind = fields.get("type")
    function = fields.get("function")
    provider: ToolProvider = "gemini"
    if kind == "function" or function is not None:
        provider = "openai"
    elif "input_schema" in fields or kind == "custom":
        provider = "anthropic"
    inner = fields
    if isinstance(function, Mapping):
        inner = cast("Mapping[str, Any]", function)
    more = {key: inner[key] for key in FUNCTION_FIELDS[provider] if inner.get(key) not in (None, False, [])}
    if more:
        return OwnForm(provider, more)
    return OwnForm()


def _typed_form(fields: dict[str, Any]) -> OwnForm | None:
    """Return a typed tool's definition under its name; None for a function."""
    kind = fields.get("type")
    if isinstance(kind, str) and kind and kind not in _FUNCTION_TYPES and not _is_function(fields):
        return OwnForm("anthropic" if _ANTHROPIC_TYPE.match(kind) else "openai", fields, _typed_name(fields))
    if kind == "custom" and isinstance(custom := fields.get("custom"), Mapping):
        fields = {"type": "custom", **_flat_custom(cast("Mapping[str, Any]", custom))}
        return OwnForm("openai", fields, _typed_name(fields))
    if kind == "custom" and not _is_function(fields):
        return OwnForm("openai", fields, _typed_name(fields))
    if "name" in fields or len(fields) != 1:
        return None
    ((key, value),) = fields.items()
    name = _snake(key)
    if name in _GEMINI_TOOLS:
        return OwnForm("gemini", {name: value}, name)
    return None


def _is_function(fields: Mapping[str, Any]) -> bool:
    """Return True for a named tool with a schema, whatever its type."""
    return "name" in fields and any(isinstance(fields.get(key), Mapping) for key in SCHEMA_KEYS)


def _typed_name(fields: Mapping[str, Any]) -> str:
    """Return a typed tool's name: its own, or its type, with the label of a server."""
    name = fields.get("name") or mapping(fields.get("function")).get("name")
    if not isinstance(name, str):
        label = fields.get("server_label") or fields.get("mcp_server_name") or ""
        name = "_".join(filter(None, (str(fields["type"]), str(label))))
    return _UNSAFE.sub("_", name)[:64]


def _flat_custom(custom: Mapping[str, Any]) -> dict[str, Any]:
    """Return a custom tool of chat completions in the form of the Responses API, where the grammar is not nested."""
    flat = dict(custom)
    grammar = mapping(flat.get("format")).get("grammar")
    if isinstance(grammar, Mapping):
        flat["format"] = {"type": "grammar", **cast("Mapping[str, Any]", grammar)}
    return flat


def _snake(name: object) -> str:
    return _CAPITAL.sub("_", str(name)).lower()
