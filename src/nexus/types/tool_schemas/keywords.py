"""Keywords of a JSON Schema: their values in the form of draft 2020-12, and two schemas joined into one.

A value that cannot be converted is removed and named in a note, which is added to the schema's description.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

Schema: TypeAlias = dict[str, Any]

NOTES = "\0notes"
"""Key for the notes of a schema that is being rewritten. A tool's JSON object cannot contain it."""

MAX_NOTE_CHARS = 1_000

ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment")
)
"""Keywords that do not restrict values."""

SCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "additionalItems", "contains", "contentSchema", "else", "if", "items", "not"}
    | {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
LIST_KEYWORDS = frozenset(("anyOf", "oneOf", "prefixItems"))
MAP_KEYWORDS = frozenset(("properties", "patternProperties", "dependentSchemas"))

_IDENTIFIERS = frozenset(
    ("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions", "defs")
)
_JSON_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_TYPE_NAMES = {
    "str": "string",
    "text": "string",
    "char": "string",
    "enum": "string",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "mapping": "object",
    "record": "object",
    "struct": "object",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "none": "null",
    "nonetype": "null",
    "nil": "null",
    "undefined": "null",
}
_ANY_TYPE = frozenset(("", "any", "unknown", "mixed", "type_unspecified", "*"))
_FORMATS = frozenset(("date", "date-time", "time", "uuid", "uri", "email"))
_GEMINI_NAMES = {
    "any_of": "anyOf",
    "one_of": "oneOf",
    "all_of": "allOf",
    "additional_properties": "additionalProperties",
    "max_items": "maxItems",
    "min_items": "minItems",
    "max_length": "maxLength",
    "min_length": "minLength",
    "max_properties": "maxProperties",
    "min_properties": "minProperties",
    "property_ordering": "propertyOrdering",
    "prefix_items": "prefixItems",
    "unique_items": "uniqueItems",
}
_NULL_VALUES = frozenset(("default", "const", "example"))
"""Keywords whose value may be null; everywhere else null means an absent keyword."""


def short_json(value: object, limit: int = MAX_NOTE_CHARS) -> str:
    """Return a value as JSON for a note, shortened."""
    text = msgspec.json.encode(_without_notes(value)).decode()
    if len(text) <= limit:
        return text
    return f"{text[:limit]}…"


def _without_notes(value: object) -> object:
    if isinstance(value, list):
        return [_without_notes(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    return {key: _without_notes(item) for key, item in cast("Schema", value).items() if key != NOTES}


def add_note(schema: Schema, note: str) -> None:
    """Add a note to a schema that is being rewritten."""
    notes = cast("list[str]", schema.setdefault(NOTES, []))
    if note not in notes:
        notes.append(note)


def note_text(schema: Schema) -> str:
    """Remove a schema's notes, and return them as one text."""
    text = "; ".join(cast("list[str]", schema.pop(NOTES, [])))
    if len(text) <= MAX_NOTE_CHARS:
        return text
    return f"{text[:MAX_NOTE_CHARS]}…"


def json_types(value: object) -> tuple[list[str], list[str]]:
    """Return the JSON types that a `type` names, and its words that name none; no types means all types."""
    if isinstance(value, list):
        names = cast("list[object]", value)
    else:
        names = [value]
    words = [part.strip() for name in names if isinstance(name, str) for part in name.split("|")]
    types: dict[str, None] = {}
    unknown: list[str] = []
    accepts_all = False
    for text in words:
        name = text.lower()
        if name in _JSON_TYPES:
            types[name] = None
        elif name in _TYPE_NAMES:
            types[_TYPE_NAMES[name]] = None
        elif name.endswith("[]") or name.startswith(("list[", "array<", "array[", "list<")):
            types["array"] = None
            unknown.append(text)
        elif name in _FORMATS:
            types["string"] = None
            unknown.append(text)
        elif name in _ANY_TYPE:
            accepts_all = True
        else:
            accepts_all = True
            unknown.append(text)
    return ([] if accepts_all else list(types)), unknown


def with_json_names(schema: Schema) -> Schema:
    """Return a schema without null keywords and identifiers, and with the names of JSON Schema for Gemini's."""
    if "ref" in schema and "$ref" not in schema and isinstance(schema["ref"], str) and schema["ref"].startswith("#"):
        schema = {"$ref" if key == "ref" else key: value for key, value in schema.items()}
    return {
        _GEMINI_NAMES.get(key, key): value
        for key, value in schema.items()
        if (value is not None or key in _NULL_VALUES) and key not in _IDENTIFIERS
    }


def clean_keywords(schema: Schema) -> Schema:
    """Return a schema whose keywords have values as draft 2020-12 requires; schemas inside are left as they are."""
    result: Schema = {}
    _convert_older_drafts(schema)
    for key, value in schema.items():
        if key == NOTES:
            continue
        clean = _CLEAN.get(key)
        if clean is None:
            result[key] = value
            continue
        new_value = clean(value)
        if new_value is not _INVALID:
            result[key] = new_value
        elif value not in (None, [], {}, "", False):
            add_note(result, f"{key}: {short_json(value)}")
    _clean_type(result)
    for note in cast("list[str]", schema.get(NOTES, [])):
        add_note(result, note)
    return result


def _convert_older_drafts(schema: Schema) -> None:
    """Replace boolean `exclusiveMinimum` and `exclusiveMaximum`, `divisibleBy` and `dependencies`."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool):
            is_exclusive = schema.pop(exclusive)
            if is_exclusive and bound in schema:
                schema[exclusive] = schema.pop(bound)
    if "divisibleBy" in schema:
        schema.setdefault("multipleOf", schema.pop("divisibleBy"))
    dependencies: object = schema.pop("dependencies", None)
    if not isinstance(dependencies, dict):
        return
    for name, value in cast("Schema", dependencies).items():
        keyword = "dependentRequired"
        if isinstance(value, dict):
            keyword = "dependentSchemas"
        if isinstance(schema.setdefault(keyword, {}), dict):
            schema[keyword] = {**schema[keyword], name: value}


def _clean_type(schema: Schema) -> None:
    value: Any = schema.pop("type", None)
    if isinstance(value, dict):  # a schema where its type belongs
        for key, item in cast("Schema", value).items():
            schema.setdefault(key, item)
        value = schema.pop("type", None)
    if isinstance(value, list) and any(isinstance(item, dict) for item in cast("list[object]", value)):
        schema.setdefault("anyOf", value)  # draft 3
        return
    types, unknown = json_types(cast("object", value))
    if unknown:
        add_note(schema, f"type: {', '.join(unknown)}")
    if types:
        schema["type"] = types if isinstance(value, list) or len(types) > 1 else types[0]


_INVALID = object()


def _number(value: object) -> object:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return _INVALID
        if value.is_integer():
            value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return _INVALID
    return value


def _positive(value: object) -> object:
    number = _number(value)
    if isinstance(number, (int, float)) and number > 0:
        return number
    return _INVALID


def _count(value: object) -> object:
    number = _number(value)
    if isinstance(number, (int, float)) and number >= 0 and number == int(number):
        return int(number)
    return _INVALID


def _boolean(value: object) -> object:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, bool):
        return value
    return _INVALID


def _text(value: object) -> object:
    if isinstance(value, list) and all(isinstance(line, str) for line in cast("list[object]", value)):
        return "\n".join(cast("list[str]", value))
    if isinstance(value, str):
        return value
    return _INVALID


def _pattern(value: object) -> object:
    """Return a pattern that compiles in Python: OpenAI checks patterns with it, and refuses others."""
    if isinstance(value, str) and _compiles(value):
        return value
    return _INVALID


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _choices(value: object) -> object:
    if isinstance(value, dict):
        value = list(cast("Schema", value))
    if not isinstance(value, list):
        value = [value] if isinstance(value, (str, int, float)) else []
    choices: list[object] = []
    for item in cast("list[object]", value):
        if not any(item == choice and type(item) is type(choice) for choice in choices):
            choices.append(item)
    return choices or _INVALID


def _names(value: object) -> object:
    """Return names of properties, each once; a single one may be a text."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        return _INVALID
    return list(dict.fromkeys(name for name in cast("list[object]", names) if isinstance(name, str)))


def _name_lists(value: object) -> object:
    if not isinstance(value, dict):
        return _INVALID
    lists = {name: _names(names) for name, names in cast("Schema", value).items()}
    return {name: names for name, names in lists.items() if names is not _INVALID}


def _examples(value: object) -> object:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [value]


def _schema_list(value: object) -> object:
    if isinstance(value, dict):
        return [cast("Schema", value)]
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [item for item in items if item is not None and item is not False] or _INVALID


def _schema_map(value: object) -> object:
    if isinstance(value, dict):
        return cast("Schema", value)
    return _INVALID


def _properties(value: object) -> object:
    """Return properties by name; some lists of properties say the name in each."""
    if not isinstance(value, list):
        return _schema_map(value)
    items = [cast("Schema", item) for item in cast("list[object]", value) if isinstance(item, dict)]
    if not items or not all(isinstance(item.get("name"), str) for item in items):
        return _INVALID
    return {item["name"]: {key: field for key, field in item.items() if key != "name"} for item in items}


def _patterns(value: object) -> object:
    if not isinstance(value, dict):
        return _INVALID
    return {key: item for key, item in cast("Schema", value).items() if _compiles(key)} or _INVALID


def _schema(value: object) -> object:
    if isinstance(value, (dict, bool)):
        return cast("object", value)
    return _INVALID


_CLEAN: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    "multipleOf": _positive,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable"), _boolean),
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType", "$comment"), _text),
    "pattern": _pattern,
    "enum": _choices,
    "examples": _examples,
    "required": _names,
    "dependentRequired": _name_lists,
    "properties": _properties,
    "patternProperties": _patterns,
    "dependentSchemas": _schema_map,
    **dict.fromkeys(("anyOf", "oneOf", "prefixItems", "allOf"), _schema_list),
    **dict.fromkeys(SCHEMA_KEYWORDS - {"items"}, _schema),
}


def merge_schemas(first: Schema, second: Schema) -> Schema:
    """Return a schema for values that two schemas accept, as `allOf` means it; what cannot be joined is a note."""
    merged = dict(first)
    merged[NOTES] = [*cast("list[str]", first.get(NOTES, [])), *cast("list[str]", second.get(NOTES, []))]
    for key, value in second.items():
        if key == NOTES or value is None:
            continue
        if merged.get(key) is None:
            merged[key] = value
        elif merged[key] != value and key not in ANNOTATIONS:
            _merge_keyword(merged, key, value)
    if "properties" in first and "properties" in second and merged.get("additionalProperties") is False:
        del merged["additionalProperties"]  # of one of them: it would exclude the properties of the other
    if not merged[NOTES]:
        del merged[NOTES]
    return merged


def _merge_keyword(merged: Schema, key: str, value: Any) -> None:
    joined = _joined(key, merged[key], value)
    if joined is None:
        add_note(merged, f"also {key}: {short_json(value)}")
    else:
        merged[key] = joined


def _joined(key: str, mine: Any, value: Any) -> Any:
    """Return the value of a keyword that means two values of it; None if it cannot say so."""
    if key == "type":
        both = [name for name in json_types(mine)[0] if name in json_types(value)[0]]
        if len(both) == 1:
            return both[0]
        return both or mine
    if isinstance(mine, list) and isinstance(value, list):
        items = cast("list[Any]", mine)
        if key == "required":
            return [*items, *cast("list[Any]", value)]
        if key == "enum":
            return [item for item in items if item in value] or items
    if isinstance(mine, dict) and isinstance(value, dict):
        if key in MAP_KEYWORDS:
            return _merge_maps(cast("Schema", mine), cast("Schema", value))
        if key in ("items", "additionalProperties"):
            return merge_schemas(cast("Schema", mine), cast("Schema", value))
    if key in _STRICTER and isinstance(mine, (int, float)) and isinstance(value, (int, float)):
        return _STRICTER[key](mine, value)
    return None


def _merge_maps(first: Schema, second: Schema) -> Schema:
    merged = dict(first)
    for name, value in second.items():
        mine = merged.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[name] = merge_schemas(cast("Schema", mine), cast("Schema", value))
        else:
            merged[name] = mine or value
    return merged


_STRICTER: dict[str, Callable[[float, float], float]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
"""The function that selects the stricter one of two bounds."""


def is_object(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema accepts objects: by its type, or by keywords for objects where it has none."""
    types, _ = json_types(schema.get("type"))
    return "object" in types or not types
