"""What every form of a tool's definition says: name, description and the schema of its parameters.

Understood are OpenAI's `{"type": "function", "function": …}`, Anthropic's `input_schema`, Gemini's declarations and plain
`parameters`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from nexus.errors import BadTool
from nexus.types.tool_metadata import each, inner

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
    for definition in each([given]):
        own: Mapping[str, Any] = inner(definition)
        name = own.get("name") if isinstance(own, Mapping) else None
        if not isinstance(name, str) or not _NAME.match(name):
            raise BadTool(f"tool definition {str(given)[:80]!r} needs a name of letters, digits, _ and -, at most 64")
        schema: Any = own.get("parameters") or own.get("input_schema") or own.get("parameters_json_schema") or {}
        if not isinstance(schema, Mapping):
            raise BadTool(f"the parameters of tool {name!r} are no JSON schema but {str(schema)[:40]!r}")
        yield name, str(own.get("description") or ""), cast("Mapping[str, Any]", schema)
