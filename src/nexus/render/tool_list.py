"""Tools as text, for the frame [CAPABILITIES].

Descriptions are third-party text. So that none can imitate another tool, `###` and `Parameters:` begin a line only where
this module writes them: further lines of a description are indented by two spaces, and `#` or `Parameters:` at the
beginning of a line gets one more backslash. Schemas are one line of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from nexus.errors import BadTool
from nexus.types.tool_definition import read_definition

CAPABILITIES_HEADING = "Available tools in this conversation:"
NO_TOOLS = "(No tools are available.)"

_MARK = re.compile(r"(\s*)(\\*(?:#|Parameters:))")
_ENDS = re.compile("[\x85\u2028\u2029]")
"""Line separators that JSON does not escape."""

_WORDED = frozenset({"type", "description", "title"})
"""Keys of a parameter's schema that are printed in words."""


def capabilities_text(definitions: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of the frame [CAPABILITIES]: tools sorted by name, or the placeholder.

    Definitions may be in any provider's format; of two with one name the last counts. Parameters are in the order of
    their schemas. Raises BadTool.
    """
    tools = (tool for definition in definitions for tool in read_definition(definition))
    texts = {name: _tool(name, description, schema) for name, description, schema in tools}
    # Sorted, so that tools given in another order do not break the prompt cache.
    listed = "\n\n".join(texts[name] for name in sorted(texts)) or NO_TOOLS
    return f"{CAPABILITIES_HEADING}\n\n{listed}"


def _tool(name: str, description: str, schema: Mapping[str, Any]) -> str:
    """Return a tool with a line `- name (type, required|optional): description` for each parameter.

    What else a parameter's schema contains is appended as JSON.
    """
    properties: Any = schema.get("properties") or {}
    required: Any = schema.get("required") or ()
    lines = [f"### {name}", *_lines(description)]
    if properties:
        lines.append("Parameters:")
    for key, value in cast("Mapping[str, Any]", properties).items():
        parameter = _mapping(value)
        kind, redundant = _type(parameter)
        rest = {key: value for key, value in parameter.items() if key not in _WORDED and key != redundant}
        text = "\n".join(_lines(str(parameter.get("description") or "")))
        details = " ".join(filter(None, (text, _json(rest) if rest else "")))
        necessity = "required" if key in required else "optional"
        head = f"- {' '.join(str(key).split())} ({kind}, {necessity})"
        lines.append(f"{head}: {details}" if details else head)
    if schema.get("$defs"):
        lines.append(f"Definitions: {_json(schema['$defs'])}")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return a parameter's type in words, and the key that contains nothing else."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return " ".join(kind.split()), ""
    if isinstance(kind, (list, tuple)):
        return "|".join(" ".join(str(name).split()) for name in cast("Sequence[object]", kind)), ""
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, (list, tuple)) and choices:
            schemas = [_mapping(choice) for choice in cast("Sequence[object]", choices)]
            kinds = dict.fromkeys(_type(choice)[0] for choice in schemas)
            return "|".join(kinds), key if all(set(choice) == {"type"} for choice in schemas) else ""
    values = schema.get("enum")
    if isinstance(values, list) and values:
        is_text = all(isinstance(value, str) for value in cast("list[Any]", values))
        return "string" if is_text else "any", ""
    is_object = "$ref" in schema or "properties" in schema
    return "object" if is_object else "any", ""


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a schema; an empty one for true, false and invalid values."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def _lines(text: str) -> list[str]:
    """Return the lines of a text, escaped so that none begins a tool or its parameters."""
    lines = [_MARK.sub(r"\1\\\2", line, count=1) if _MARK.match(line) else line for line in text.strip().splitlines()]
    return [(f"  {line}" if at else line).rstrip() for at, line in enumerate(lines)]


def _json(value: object) -> str:
    try:
        text = msgspec.json.encode(value, order="deterministic", enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise BadTool(f"tool schema without a JSON form: {error}") from error
    return _ENDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
