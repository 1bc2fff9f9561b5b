"""Tool definitions: neutral values, what is known of a tool beside its schema, and the three dialects they are read from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from nexus.errors import BadTool
from nexus.types.sanitize import sanitize_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
"""What all three providers accept."""


@runtime_checkable
class ToolSource(Protocol):
    """What knows tools: `nexus.tools.ToolRegistry`, or a registry of your own with document 000's method."""

    def get_all_tool_definitions(self) -> Sequence[dict[str, Any]]:
        """The definitions, in any provider's form."""
        ...


def definitions_of(tools: Iterable[dict[str, Any]] | ToolSource) -> tuple[dict[str, Any], ...]:
    """The definitions as they are given, or those of a registry, with their categories and roles if it has `offers`.

    Raises BadTool where a registry gives something else.
    """
    if not isinstance(tools, ToolSource):
        return tuple(tools)
    return checked_definitions(getattr(tools, "offers", tools.get_all_tool_definitions)(), tools)


def checked_definitions(given: object, registry: object) -> tuple[dict[str, Any], ...]:
    """What a registry gave, if it is a list of definitions. Raises BadTool."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, Mapping) for one in cast("list[Any]", given)):
        raise BadTool(f"get_all_tool_definitions() of {type(registry).__name__} gave no list of definitions")
    return tuple(dict(one) for one in cast("Sequence[Mapping[str, Any]]", given))


def read_definition(given: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, description and schema of each tool in one definition. Raises BadTool."""
    for definition in iter_definitions([given]):
        own: Mapping[str, Any] = function_schema(definition)
        name = own.get("name") if isinstance(own, Mapping) else None
        if not isinstance(name, str) or not _NAME.match(name):
            raise BadTool(f"tool definition {str(given)[:80]!r} needs a name of letters, digits, _ and -, at most 64")
        schema: Any = own.get("parameters") or own.get("input_schema") or own.get("parameters_json_schema") or {}
        if not isinstance(schema, Mapping):
            raise BadTool(f"the parameters of tool {name!r} are no JSON schema but {str(schema)[:40]!r}")
        yield name, str(own.get("description") or ""), cast("Mapping[str, Any]", schema)


OWN = "x-nexus"
"""The key of a definition under which `category` and `roles` may stand; they may also stand beside the name."""

_KEYS = ("category", "roles")


class ToolMetadata(Struct, frozen=True):
    """A tool as a policy sees it. `category` is empty if none is said; no `roles` means all of them."""

    name: str
    category: str = ""
    roles: tuple[str, ...] = ()


def iter_definitions(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The definitions one tool at a time: Gemini's form may have several in one."""
    for given in definitions:
        yield from given.get("function_declarations") or given.get("functionDeclarations") or (given,)


def function_schema(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a tool's definition that has its name: OpenAI's form has it under `function`."""
    return definition.get("function") or definition


def tool_metadata(definition: Mapping[str, Any]) -> ToolMetadata | None:
    """The tool that a definition of one tool is of; None if it has no name."""
    if not isinstance(definition, Mapping):
        return None
    own = function_schema(definition)
    name = own.get("name") if own is definition or isinstance(own, Mapping) else None
    if not isinstance(name, str):
        return None
    said: dict[str, object] = {}
    for place in (definition,) if own is definition else (definition, own):
        beside = place.get(OWN)
        said.update({key: place[key] for key in _KEYS if key in place})
        if isinstance(beside, Mapping):
            under = cast("Mapping[str, object]", beside)
            said.update({key: under[key] for key in _KEYS if key in under})
    if not said:
        return ToolMetadata(name)
    category, roles = said.get("category"), said.get("roles")
    several = (
        cast("Iterable[object]", roles) if isinstance(roles, (list, tuple)) else (() if roles is None else (roles,))
    )
    return ToolMetadata(name, category if isinstance(category, str) else "", tuple(map(str, several)))


class ToolSpec(Struct, frozen=True, order=True):
    """One tool: name, description, JSON schema of its parameters (keys sorted)."""

    name: str
    description: str
    schema: dict[str, Any]

    def definition(self) -> dict[str, Any]:
        """The tool as it can be given again, in the longest of the wires' forms: the one that is counted."""
        return {"name": self.name, "description": self.description, "parameters_json_schema": self.schema}

    def fresh_schema(self) -> dict[str, Any]:
        """A copy of the schema, for a body that its owner may change."""
        return msgspec.to_builtins(self.schema)


def canonical(definitions: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """The definitions as specs, sorted by name; of two with one name the last stands. Raises BadTool.

    Accepts OpenAI's `{"type": "function", "function": …}`, Anthropic's `input_schema`, Gemini's and plain `parameters`.
    The same definitions come with every call, so the last few results are kept.
    """
    given = list(definitions)
    try:
        return _of_json(msgspec.json.encode(given))
    except (TypeError, ValueError):  # not plain JSON, or with lone surrogates
        return _canonical(given)


@lru_cache(maxsize=32)
def _of_json(given: bytes) -> tuple[ToolSpec, ...]:
    return _canonical(msgspec.json.decode(given))


def _canonical(definitions: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    specs: dict[str, ToolSpec] = {}
    for given in definitions:
        for name, description, schema in read_definition(given):
            full: dict[str, Any] = {"type": "object", "properties": {}, **schema}
            specs[name] = ToolSpec(name, sanitize_text(description), _sorted(full))
    return tuple(specs[name] for name in sorted(specs))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        named = cast("Mapping[object, Any]", value)
        return {str(key): _sorted(named[key]) for key in sorted(named, key=str)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in cast("Sequence[Any]", value)]
    return sanitize_text(value) if isinstance(value, str) else value
