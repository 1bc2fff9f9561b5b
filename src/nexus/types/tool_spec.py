"""Tool definitions in any of the providers' forms, made canonical: sorted by name, schemas with sorted keys.

The same tools always give the same bytes, whatever order they were registered in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.types.sanitize import legible
from nexus.types.tool_definition import read_definition


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
            specs[name] = ToolSpec(name, legible(description), _sorted(full))
    return tuple(specs[name] for name in sorted(specs))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        named = cast("Mapping[object, Any]", value)
        return {str(key): _sorted(named[key]) for key in sorted(named, key=str)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in cast("Sequence[Any]", value)]
    return legible(value) if isinstance(value, str) else value
