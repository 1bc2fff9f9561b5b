"""Schemas of tool parameters that all four providers accept, with the same meaning as far as they can express it.

Providers check the schemas of all tools before a call, and refuse the whole request for one that they do not accept:

- Anthropic: JSON Schema 2020-12, of type object, without `oneOf`, `anyOf` and `allOf` at the top; names of parameters match
  `[a-zA-Z0-9_.-]{1,64}` (github.com/anthropics/claude-code/issues/40075, /586 and /79418 have its messages).
- OpenAI, in both formats: of type object, without `oneOf`, `anyOf`, `allOf`, `enum`, `const` and `not` at the top; every
  array has `items`; patterns compile in Python (github.com/langchain-ai/langchainjs/issues/9804,
  github.com/mark3labs/mcphost/issues/35, github.com/BerriAI/litellm/pull/40485).
- Gemini: next to `$ref` only `description` and `default`; references lead to `$defs` at the top, and back to themselves only
  in optional properties; required properties are defined (github.com/anomalyco/opencode/issues/12295,
  github.com/probelabs/probe/issues/569, ai.google.dev/api/generate-content).

Parts that a schema cannot express become notes in the parameter's description or, for the top of the schema, in the
tool's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from nexus.errors import BadTool
from nexus.types.tool_schemas.keywords import (
    ANNOTATIONS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    SCHEMA_KEYWORDS,
    Schema,
    add_note,
    json_types,
    merge_schemas,
    note_text,
    short_json,
)
from nexus.types.tool_schemas.references import (
    References,
    used_definitions,
    without_empty_cycles,
    without_required_cycles,
)
from nexus.types.tool_schemas.unions import UNIONS, clean_schema, flatten_unions, requires_only, union_note

MAX_NODES = 2_000
"""Number of schemas after which a reference with other keywords is no longer replaced by a copy of its target."""

MAX_COPIES = 2
"""Depth of such copies inside each other."""

MAX_PATH = 8
"""Depth of targets of `allOf` inside each other."""

_PARAMETER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
Place: TypeAlias = Literal["value", "branch", "condition"]

_NOT_AT_TOP = ("not", "enum", "const", "if", "then", "else")


def usable_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a tool's schema as all providers accept it, and a note for the tool's description. Raises BadTool.

    A schema that they already accept is returned unchanged. A returned schema, passed again, has no note.
    """
    rewriting = _Rewriting(dict(schema))
    top = flatten_unions(rewriting.resolve(dict(schema), ()), lambda item: rewriting.resolve(item, ()))
    types, _ = json_types(top.get("type"))
    if types and "object" not in types:
        raise BadTool(f"its parameters are of type {' or '.join(types)}, not object")
    top = {**top, "type": "object", "properties": top.get("properties", {})}
    for key in _NOT_AT_TOP:
        if key in top:
            add_note(top, f"{key}: {short_json(top.pop(key))}")
    _move_names_to_notes(top)
    note = note_text(top)
    result = rewriting.rewrite(top, ())
    if definitions := used_definitions(result, rewriting.definitions()):
        result["$defs"] = definitions
        without_required_cycles(result)
    return result, f"Parameters: {note}." if note else ""


def _move_names_to_notes(top: Schema) -> None:
    """Move parameters whose names Anthropic refuses to a note; the model can still use them."""
    properties = cast("Schema", top["properties"])
    required = cast("list[str]", top.get("required", []))
    for name in [name for name in (*properties, *required) if not _PARAMETER_NAME.match(name)]:
        if name in properties:
            state = "required" if name in required else "optional"
            add_note(top, f"also {short_json(name, 200)} ({state}): {short_json(properties[name])}")
        elif name in required:
            add_note(top, f"also {short_json(name, 200)} (required)")
        top["properties"] = properties = {key: value for key, value in properties.items() if key != name}
        required = [key for key in required if key != name]
        if top.get("additionalProperties") is False:
            del top["additionalProperties"]
    if "required" in top:
        top["required"] = required


class _Rewriting:
    """One schema that is being rewritten, with the definitions that its references need."""

    def __init__(self, root: Schema) -> None:
        self._references = References(root)
        self._nodes = 0
        self._joined_targets: list[int] = []
        """The ids of the targets that were joined with the schema at hand."""
        self._waiting: list[tuple[str, Schema]] = []

    def definitions(self) -> dict[str, Schema]:
        """Return the definitions that references lead to, rewritten; they may lead to further ones."""
        definitions: dict[str, Schema] = {}
        while self._waiting:
            name, target = self._waiting.pop(0)
            definitions[name] = self.rewrite(target, ())
        without_empty_cycles(definitions)
        return definitions

    def resolve(self, schema: Schema, path: tuple[int, ...]) -> Schema:
        """Return a schema with clean keywords, joined with what its own `$ref` and `allOf` contain.

        `path` has the ids of the schemas that are being joined, so that a schema that contains itself ends.
        """
        self._nodes += 1
        schema = clean_schema(schema)
        if "$ref" in schema or "$dynamicRef" in schema or "$recursiveRef" in schema:
            schema = self._with_target(schema, path)
        return self._without_all_of(schema, path)

    def _with_target(self, schema: Schema, path: tuple[int, ...]) -> Schema:
        rest, reference, target = self._split(schema)
        if target is None:
            add_note(rest, f"schema {short_json(reference, 200)}, which is not available")
            return rest
        self._joined_targets.append(id(target))
        if id(target) in path or len(path) > MAX_PATH or self._nodes > MAX_NODES:
            add_note(rest, f"also {short_json(reference, 200)}")
            return rest
        return merge_schemas(rest, self.resolve(target, (*path, id(target))))

    def _split(self, schema: Schema) -> tuple[Schema, Any, Schema | None]:
        """Return a schema without its reference, the reference, and its target."""
        keys = ("$ref", "$dynamicRef", "$recursiveRef")
        rest = {key: value for key, value in schema.items() if key not in keys}
        reference: Any = next(schema[key] for key in keys if key in schema)
        return rest, reference, self._references.target(reference)

    def _without_all_of(self, schema: Schema, path: tuple[int, ...]) -> Schema:
        parts = cast("list[Any]", schema.pop("allOf", []))
        for part in parts:
            if isinstance(part, dict):
                schema = merge_schemas(schema, self.resolve(cast("Schema", part), path))
        return schema

    def rewrite(self, value: object, copies: tuple[int, ...], place: Place = "value") -> Schema:
        """Return a schema with everything inside it rewritten.

        Args:
            value: The value in the position of a schema.
            copies: The ids of the targets whose copies contain it.
            place: Position of the schema: a value, an alternative, or a condition, which has no properties of its own.
        """
        self._nodes += 1
        schema = clean_schema(_as_schema(value))
        parts = cast("list[Any]", schema.get("allOf", []))
        if len(parts) == 1 and isinstance(parts[0], dict) and "$ref" in parts[0] and not set(schema) - _WITH_ALL_OF:
            del schema["allOf"]  # how a reference gets a description in older drafts
            schema = clean_schema({**parts[0], **schema})
        if not {"$ref", "$dynamicRef", "$recursiveRef"}.isdisjoint(schema):
            rest, reference, target = self._split(schema)
            if target is not None:
                return self._reference(rest, reference, target, copies)
            schema = self._with_target(schema, ())
        self._joined_targets.clear()
        schema = self._without_all_of(schema, copies)
        copies = (*copies, *self._joined_targets)
        for key in UNIONS:
            if key in schema and all(map(requires_only, schema[key])):
                branches = [clean_schema(branch) for branch in schema.pop(key)]
                add_note(schema, union_note(key, branches, {}))
        self._rewrite_inside(schema, copies)
        _complete_array(schema)
        if "required" in schema and place != "condition":
            _define_required(schema, is_branch=place == "branch")
        return _with_notes(schema)

    def _reference(self, rest: Schema, reference: str, target: Schema, copies: tuple[int, ...]) -> Schema:
        """Return a reference to a definition, or a copy of its target where other keywords restrict it further."""
        more = {key: value for key, value in rest.items() if key not in ANNOTATIONS and target.get(key) != value}
        is_nullable = more.pop("nullable", False)
        if more and id(target) not in copies and len(copies) < MAX_COPIES and self._nodes < MAX_NODES:
            merged = merge_schemas(rest, self.resolve(target, (id(target),)))
            return self.rewrite(merged, (*copies, id(target)))
        name, is_new = self._references.name(target, reference)
        if is_new:
            self._waiting.append((name, target))
        result: Schema = {key: rest[key] for key in ("description", "default") if key in rest}
        link = {"$ref": f"#/$defs/{name}"}
        if is_nullable:
            result = {**result, "anyOf": [link, {"type": "null"}]}
        else:
            result = {**result, **link}
        if more:
            add_note(result, f"also {short_json(more)}")
        return _with_notes(result)

    def _rewrite_inside(self, schema: Schema, copies: tuple[int, ...]) -> None:
        """Rewrite the schemas that are values of a schema's keywords."""
        for key, value in list(schema.items()):
            if key == "properties":
                schema[key] = self._properties(schema, cast("Schema", value), copies)
            elif key in MAP_KEYWORDS:
                place = "condition" if key in _CONDITIONS else "value"
                items = cast("Schema", value).items()
                schema[key] = {name: self.rewrite(item, copies, place) for name, item in items}
            elif key in LIST_KEYWORDS:
                place = "branch" if key in UNIONS else "value"
                schema[key] = [self.rewrite(item, copies, place) for item in cast("list[Any]", value)]
            elif key in SCHEMA_KEYWORDS and not isinstance(value, (bool, list)):
                schema[key] = self.rewrite(value, copies, "condition" if key in _CONDITIONS else "value")
        if isinstance(schema.get("items"), list):
            schema["prefixItems"] = [self.rewrite(item, copies) for item in cast("list[Any]", schema.pop("items"))]
            if "additionalItems" in schema:
                schema["items"] = schema.pop("additionalItems")
            if not schema["prefixItems"]:
                del schema["prefixItems"]

    def _properties(self, schema: Schema, properties: Schema, copies: tuple[int, ...]) -> Schema:
        """Return the properties; `required` of a property, as in draft 3, becomes the object's."""
        result: Schema = {}
        required = cast("list[str]", schema.get("required", []))
        for name, value in properties.items():
            if value is False:
                continue
            fields = _as_schema(value)
            if isinstance(fields.get("required"), bool) and fields.pop("required"):
                required = [*required, name]
            result[name] = self.rewrite(fields, copies)
        if required:
            schema["required"] = list(dict.fromkeys(required))
        return result


_CONDITIONS = frozenset(("not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas"))
_WITH_ALL_OF = ANNOTATIONS | {"allOf", "type", "nullable"}


def _as_schema(value: object) -> Schema:
    """Return a value in the position of a schema as a schema: names of types, texts, values."""
    if isinstance(value, dict):
        return dict(cast("Schema", value))
    if value is None or value is True:
        return {}
    if value is False:
        return {"not": {}}
    is_list = isinstance(value, list)
    names = cast("list[object]", value) if is_list else [value]
    if names and all(isinstance(name, str) for name in names):
        types, unknown = json_types(names)
        if types and not unknown:
            return {"type": names if is_list else names[0]}
        if is_list:
            return {"enum": names}
        return {"description": names[0]}
    if names and all(isinstance(name, dict) for name in names):
        return {"anyOf": names}
    return {"description": short_json(names if is_list else names[0])}


def _complete_array(schema: Schema) -> None:
    """Give an array `items`, empty if it has none; a fixed number of items becomes a limit."""
    types = schema.get("type")
    is_array = types == "array" or (isinstance(types, list) and "array" in types)
    if not is_array and "items" not in schema and "prefixItems" not in schema:
        return
    if schema.get("items") is False:
        length = len(schema.get("prefixItems", ()))
        schema["maxItems"] = min(schema.get("maxItems", length), length)
    if not isinstance(schema.get("items"), dict):
        schema["items"] = {}


def _define_required(schema: Schema, *, is_branch: bool) -> None:
    """Define missing required properties; in an alternative, note them instead, because they belong to the object."""
    properties = cast("Schema", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    if missing := [name for name in required if name not in properties]:
        if is_branch:
            schema["required"] = [name for name in required if name in properties]
            add_note(schema, f"{', '.join(missing)} required")
        else:
            schema["properties"] = {**properties, **{name: {} for name in missing}}
    if not schema.get("required"):
        schema.pop("required", None)


def _with_notes(schema: Schema) -> Schema:
    """Return the schema with its notes at the end of its description."""
    if note := note_text(schema):
        text = schema.get("description", "")
        schema["description"] = f"{text} ({note})" if text else note
    return schema
