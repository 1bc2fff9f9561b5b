"""Alternatives at the top of a schema as one object with all their properties, and as a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from nexus.types.tool_schemas.keywords import (
    ANNOTATIONS,
    NOTES,
    Schema,
    add_note,
    clean_keywords,
    is_object,
    json_types,
    merge_schemas,
    short_json,
    with_json_names,
)

UNIONS = ("anyOf", "oneOf")
_COUNT = {"anyOf": "at least one of", "oneOf": "exactly one of"}

Resolve = Callable[[Schema], Schema]
"""Returns a schema without `$ref` and `allOf` of its own."""


MAX_UNIONS = 6
"""Alternatives inside each other that are joined: a schema may contain itself."""


def flatten_unions(schema: Schema, resolve: Resolve, level: int = 0) -> Schema:
    """Return an object's schema without alternatives of its own: their properties are joined, and a note names them."""
    if level > MAX_UNIONS:
        return {key: value for key, value in schema.items() if key not in UNIONS}
    for key in UNIONS:
        if key not in schema:
            continue
        rest = {name: value for name, value in schema.items() if name != key}
        branches = [_branch(item, resolve, level + 1) for item in cast("list[Any]", schema[key])]
        objects = [branch for branch in branches if is_object(branch)]
        if not objects:
            return {**rest, "type": json_types(branches[0].get("type"))[0] if branches else "object"}
        schema = _join(rest, objects)
        if len(objects) > 1:
            add_note(schema, union_note(key, objects, rest))
        others = [branch for branch in branches if not is_object(branch) and branch.get("type") != "null"]
        if others:
            add_note(schema, f"or: {', '.join(map(short_json, others))}")
    return schema


def _branch(value: object, resolve: Resolve, level: int) -> Schema:
    schema = cast("Schema", value) if isinstance(value, dict) else {}
    return flatten_unions(resolve(schema), resolve, level)


def _join(base: Schema, branches: list[Schema]) -> Schema:
    if len(branches) == 1:
        return merge_schemas(base, branches[0])
    joined = dict(base)
    base_properties = _properties(base)
    names = dict.fromkeys(name for branch in branches for name in _properties(branch))
    added = {name: _either([b[name] for b in map(_properties, branches) if name in b]) for name in names}
    more = {name: value for name, value in added.items() if name not in base_properties}
    joined["properties"] = {**base_properties, **more}
    always = [name for name in _required(branches[0]) if all(name in _required(branch) for branch in branches)]
    joined["required"] = list(dict.fromkeys((*_required(base), *always)))
    if not joined["required"]:
        del joined["required"]
    if all(branch.get("additionalProperties") is False for branch in branches):
        joined.setdefault("additionalProperties", False)
    joined["type"] = "object"
    return joined


def _properties(schema: Schema) -> Schema:
    return cast("Schema", schema.get("properties", {}))


def _required(schema: Schema) -> list[str]:
    return cast("list[str]", schema.get("required", []))


def _either(variants: list[Any]) -> Any:
    """Return a schema for values that one of the variants accepts: one list of values, if all of them have values."""
    distinct: list[Any] = []
    for variant in variants:
        if variant not in distinct:
            distinct.append(variant)
    if len(distinct) == 1:
        return distinct[0]
    values = [_values(variant) for variant in distinct]
    if not all(values):
        return {"anyOf": distinct}
    choices = [value for group in values for value in group]
    kinds = {variant.get("type") for variant in distinct}
    if len(kinds) == 1 and (kind := kinds.pop()):
        return {"type": kind, "enum": choices}
    return {"enum": choices}


def _values(schema: object) -> list[Any]:
    """Return the values that a schema lists, if it has no other restriction; else none."""
    if not isinstance(schema, dict) or set(cast("Schema", schema)) - ANNOTATIONS - {"type", "enum", "const"}:
        return []
    fields = cast("Schema", schema)
    if "const" in fields:
        return [fields["const"]]
    return list(fields.get("enum") or [])


def requires_only(schema: object) -> bool:
    """Return whether a schema says nothing but which properties are required."""
    if isinstance(schema, dict):
        keys = set(cast("Schema", schema))
    else:
        keys = set[str]()
    return "required" in keys and not keys - ANNOTATIONS - {"required", "type"}


def union_note(key: str, branches: list[Schema], base: Schema) -> str:
    """Return a sentence about the alternatives: what each requires, and the values that set it apart."""
    texts = [_describe(branch, base) for branch in branches]
    numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
    return f"{_COUNT[key]} these combinations of parameters: {numbered}"


def _describe(branch: Schema, base: Schema) -> str:
    parts: list[str] = []
    name = branch.get("title") or branch.get("description")
    fixed: list[str] = []
    base_properties = _properties(base)
    for key, value in _properties(branch).items():
        if values := _values(value):
            fixed.append(key)
            parts.append(f"{key} = {' or '.join(map(short_json, values))}")
        elif key in base_properties and base_properties[key] != value:
            fixed.append(key)
            parts.append(f"{key}: {short_json(value)}")
    needed = [key for key in _required(branch) if key not in fixed and key not in _required(base)]
    if needed:
        parts.append(f"{', '.join(needed)} required")
    named = {*fixed, *_required(branch), *base_properties}
    optional = [key for key in _properties(branch) if key not in named]
    if optional:
        parts.append(f"{', '.join(optional)} optional")
    ignored = ANNOTATIONS | {"type", "properties", "required", "additionalProperties", NOTES}
    if rest := {key: value for key, value in branch.items() if key not in ignored}:
        parts.append(short_json(rest))
    parts.extend(cast("list[str]", branch.get(NOTES, [])))
    text = ", ".join(parts) or "no parameter required"
    if isinstance(name, str) and len(name) <= 80:
        return f"{name}: {text}"
    return text


def clean_schema(schema: Schema) -> Schema:
    """Return a schema with the names and values of draft 2020-12."""
    return clean_keywords(with_json_names(schema))
