"""Tools in each provider's form: functions from their neutral parts, typed tools as received on their own provider.

OpenAI's two APIs differ: the Responses API takes all of its typed tools, chat completions only functions and custom tools.
Compatible servers of other makers have typed tools in chat completions too, and get them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

from nexus.context import AssembledContext
from nexus.tokens.model import Model
from nexus.types.message import ProviderFormat
from nexus.types.tool_definition import ToolSpec

BodyFormat: TypeAlias = Literal["openai", "responses", "anthropic", "gemini"]

NOT_IN_CHAT = "is not sent by to_openai()"
"""Words of the warning about a tool that only the Responses API has."""

_CHAT_FIELDS = ("strict",)
"""Further fields of a function that chat completions take."""


def sent_tools(tools: Iterable[ToolSpec], body_format: BodyFormat, model: Model) -> list[ToolSpec]:
    """Return the tools that a request body contains."""
    if body_format == "responses":
        provider = "openai"
    else:
        provider = body_format
    specs = [spec for spec in tools if not spec.is_typed or spec.provider == provider]
    if body_format != "openai":
        return specs
    return [spec for spec in specs if not _is_of_responses(spec, model)]


def _is_of_responses(spec: ToolSpec, model: Model) -> bool:
    """Return True for a typed tool that OpenAI's chat completions do not take."""
    return spec.is_typed and model.vendor == "openai" and spec.provider_fields.get("type") != "custom"


def chat_tools(ctx: AssembledContext) -> list[dict[str, Any]]:
    """Return the tools of a chat completion."""
    return [*map(_chat_tool, _tools_for(ctx, "openai"))]


def _chat_tool(spec: ToolSpec) -> dict[str, Any]:
    fields = _own_fields(spec, "openai")
    if not spec.is_typed:
        more = {name: fields[name] for name in _CHAT_FIELDS if name in fields}
        function = {**_head(spec), "parameters": spec.fresh_schema(), **more}
        return {"type": "function", "function": function}
    if fields.get("type") == "custom":
        return {"type": "custom", "custom": _nested_custom(fields)}
    return fields


def responses_tools(ctx: AssembledContext) -> list[dict[str, Any]]:
    """Return the tools of a request of the Responses API."""
    return [*map(_responses_tool, _tools_for(ctx, "responses"))]


def _responses_tool(spec: ToolSpec) -> dict[str, Any]:
    fields = _own_fields(spec, "openai")
    if spec.is_typed:
        return fields
    # Without `strict` the API requires every schema to be of its strict kind, and rejects others.
    return {"type": "function", **_head(spec), "parameters": spec.fresh_schema(), "strict": False, **fields}


def anthropic_tools(ctx: AssembledContext) -> list[dict[str, Any]]:
    """Return the tools of a request of the Messages API."""
    return [*map(_anthropic_tool, _tools_for(ctx, "anthropic"))]


def _anthropic_tool(spec: ToolSpec) -> dict[str, Any]:
    fields = _own_fields(spec, "anthropic")
    if spec.is_typed:
        return fields
    return {**_head(spec), "input_schema": spec.fresh_schema(), **fields}


def gemini_tools(ctx: AssembledContext) -> list[dict[str, Any]]:
    """Return the tools of a request for Gemini: one with all declarations, then the typed ones."""
    specs = _tools_for(ctx, "gemini")
    declarations: list[dict[str, Any]] = []
    typed: list[dict[str, Any]] = []
    for spec in specs:
        fields = _own_fields(spec, "gemini")
        if spec.is_typed:
            typed.append(fields)
        else:
            declarations.append({**_head(spec), "parameters_json_schema": spec.fresh_schema(), **fields})
    if not declarations:
        return typed
    return [{"function_declarations": declarations}, *typed]


def _tools_for(ctx: AssembledContext, body_format: BodyFormat) -> list[ToolSpec]:
    return sent_tools(ctx.tools, body_format, ctx.accounting.model_info)


def tool_problems(tools: Sequence[ToolSpec], model: Model) -> Iterator[str]:
    """Yield a line for each tool that the model's provider does not get, or not with all of its fields."""
    wanted = model.provider_format
    for spec in tools:
        if not spec.provider_fields:
            continue
        if spec.provider != wanted:
            yield _foreign(spec, wanted)
        elif wanted == "openai" and _is_of_responses(spec, model):
            yield f"tool {spec.name!r} {NOT_IN_CHAT}: only the Responses API has it (use to_responses)"


def _foreign(spec: ToolSpec, wanted: ProviderFormat) -> str:
    if spec.is_typed:
        return f"tool {spec.name!r} omitted: only {spec.provider} has it, and the request is for {wanted}"
    fields = ", ".join(spec.provider_fields)
    return f"{fields} of tool {spec.name!r} omitted: only {spec.provider} takes it, and the request is for {wanted}"


def _head(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description}


def _own_fields(spec: ToolSpec, provider: ProviderFormat) -> dict[str, Any]:
    """Return a copy of the fields that only this provider takes, for a body whose owner may change it."""
    if spec.provider == provider:
        return msgspec.to_builtins(spec.provider_fields)
    return {}


def _nested_custom(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a custom tool as chat completions have it: its grammar is nested, and it cannot be deferred."""
    custom = {name: fields[name] for name in ("name", "description", "format") if name in fields}
    form = custom.get("format")
    if isinstance(form, Mapping) and cast("Mapping[str, Any]", form).get("type") == "grammar":
        grammar = {key: value for key, value in cast("Mapping[str, Any]", form).items() if key != "type"}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return custom
