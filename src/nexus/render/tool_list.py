"""Tools as text: what document 000 prints under the frame [CAPABILITIES].

Descriptions are written by whoever offers a tool. So that none can look like another tool, only lines that begin here
begin with `###` or `Parameters:` at the start of a line: further lines of a description are indented by two spaces, and
where a line of it begins with `#` or `Parameters:`, one backslash more than it has stands before that. Schemas are
printed as JSON, in which no line can end.
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
"""What ends a line although JSON lets it stand in a text."""

_TOLD = frozenset({"type", "description", "title"})
"""Keys of a parameter's schema that are said in words."""


def capabilities_text(definitions: Iterable[Mapping[str, Any]]) -> str:
    """All that stands under the frame [CAPABILITIES]: the heading, a blank line, and `tools_text`. Raises BadTool."""
    return f"{CAPABILITIES_HEADING}\n\n{tools_text(definitions)}"


def tools_text(definitions: Iterable[Mapping[str, Any]]) -> str:
    """The tools by name, a blank line between them, or the placeholder; parameters in their schemas' order.

    Definitions of any provider's form; of two with one name the last stands. Raises BadTool.
    """
    read = (tool for given in definitions for tool in read_definition(given))
    texts = {name: _tool(name, description, schema) for name, description, schema in read}
    return "\n\n".join(texts[name] for name in sorted(texts)) or NO_TOOLS


def _tool(name: str, description: str, schema: Mapping[str, Any]) -> str:
    properties: Any = schema.get("properties") or {}
    required: Any = schema.get("required") or ()
    if not isinstance(properties, Mapping) or not isinstance(required, (list, tuple)):
        raise BadTool(f"the parameters of tool {name!r} are no JSON schema: {str(dict(schema))[:60]!r}")
    named = cast("Mapping[str, Any]", properties)
    lines = [f"### {name}", *_lines(description)]
    if named:
        lines.append("Parameters:")
        lines += [_parameter(key, named[key], required=key in required) for key in named]
    if schema.get("$defs"):
        lines.append(f"Definitions: {_json(schema['$defs'])}")
    return "\n".join(lines)


def _parameter(name: str, given: object, *, required: bool) -> str:
    """`- name (type, required|optional): description`, with what else the schema says as JSON at its end."""
    schema = _mapping(given)
    kind, left_out = _type(schema)
    rest = {key: value for key, value in schema.items() if key not in _TOLD and key != left_out}
    text = "\n".join(_lines(str(schema.get("description") or "")))
    told = " ".join(part for part in (text, _json(rest) if rest else "") if part)
    head = f"- {' '.join(str(name).split())} ({kind}, {'required' if required else 'optional'})"
    return f"{head}: {told}" if told else head


def _type(schema: Mapping[str, Any]) -> tuple[str, str]:
    """A parameter's type in words, and the key that says nothing more than that."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return " ".join(kind.split()), ""
    if isinstance(kind, (list, tuple)):
        return "|".join(" ".join(str(one).split()) for one in cast("Sequence[object]", kind)), ""
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, (list, tuple)) and choices:
            schemas = [_mapping(one) for one in cast("Sequence[object]", choices)]
            kinds = dict.fromkeys(_type(one)[0] for one in schemas)
            return "|".join(kinds), key if all(set(one) == {"type"} for one in schemas) else ""
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return ("string" if all(isinstance(one, str) for one in cast("list[Any]", values)) else "any"), ""
    return ("object" if "$ref" in schema or "properties" in schema else "any"), ""


def _mapping(given: object) -> Mapping[str, Any]:
    """A schema; one that is true or false, or none at all, says nothing."""
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def _lines(text: str) -> list[str]:
    """The lines of a text, without power to begin a tool or its parameters."""
    lines = [_MARK.sub(r"\1\\\2", line, count=1) if _MARK.match(line) else line for line in text.strip().splitlines()]
    return [line.rstrip() if not at else f"  {line}".rstrip() for at, line in enumerate(lines)]


def _json(value: object) -> str:
    try:
        text = msgspec.json.encode(value, order="deterministic", enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise BadTool(f"a tool's schema has no JSON form: {error}") from error
    return _ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
