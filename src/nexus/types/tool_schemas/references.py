"""References of a schema: what each refers to, and the definitions at the top that replace it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

from nexus.types.tool_schemas.keywords import Schema

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_MAPS_OF_DEFINITIONS = ("$defs", "definitions", "defs")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_MISSING = object()
_ANYTHING: Schema = {}


class References:
    """The targets in a schema by what refers to them, and their names among the definitions of the result."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._names: dict[int, str] = {}
        self._targets: list[Schema] = []  # keeps the targets, and with them their ids, alive

    def target(self, reference: object) -> Schema | None:
        """Return the schema that a reference leads to, through further ones; None if there is none."""
        visited: set[int] = set()
        result = self._find(reference)
        while isinstance(result, dict):
            schema = cast("Schema", result)
            if id(schema) in visited:
                return None
            visited.add(id(schema))
            if set(schema) - {"title", "description"} != {"$ref"}:
                return schema
            result = self._find(schema["$ref"])
        if result is True:
            return _ANYTHING
        return None

    def name(self, target: Schema, reference: str) -> tuple[str, bool]:
        """Return the name of a target among the definitions, and whether it is new."""
        if id(target) in self._names:
            return self._names[id(target)], False
        last = _decode_percent(reference.rstrip("/").rsplit("/", 1)[-1]).strip("#")
        stem = _UNSAFE.sub("_", last.replace("~1", "_").replace("~0", "_"))[:60] or "root"
        name = stem
        number = 2
        while name in self._names.values():
            name = f"{stem}_{number}"
            number += 1
        self._names[id(target)] = name
        self._targets.append(target)
        return name, True

    def _find(self, reference: object) -> object:
        if not isinstance(reference, str):
            return None
        pointer = reference.partition("#")[2] if "#" in reference else ""
        if reference.startswith("#") and (result := self._at(pointer)) is not _MISSING:
            return result
        last = _decode_percent(reference.rstrip("/").rsplit("/", 1)[-1]).strip("#")
        for schema in _schemas(self._root):
            for key in _MAPS_OF_DEFINITIONS:
                definitions = schema.get(key)
                if isinstance(definitions, dict) and last in definitions:
                    return cast("Schema", definitions)[last]
            identifiers = (schema.get("$anchor"), schema.get("$dynamicAnchor"), schema.get("$id"), schema.get("id"))
            if reference in identifiers or (pointer and pointer in identifiers):
                return schema
        return None

    def _at(self, pointer: str) -> object:
        """Return the value that a JSON pointer leads to."""
        result: Any = self._root
        for step in _decode_percent(pointer).split("/")[1:] if pointer else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(result, dict) and key in result:
                result = cast("Schema", result)[key]
            elif isinstance(result, list) and key.isdecimal() and int(key) < len(cast("list[Any]", result)):
                result = cast("list[Any]", result)[int(key)]
            else:
                return _MISSING
        if pointer == "" or pointer.startswith("/"):
            return result
        return _MISSING


def _decode_percent(text: str) -> str:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode()).decode("utf-8", "replace")


def _schemas(value: object) -> Iterator[Schema]:
    """Yield all objects of a schema."""
    waiting = deque([value])
    while waiting:
        item = waiting.popleft()
        if isinstance(item, dict):
            yield cast("Schema", item)
            waiting.extend(cast("Schema", item).values())
        elif isinstance(item, list):
            waiting.extend(cast("list[object]", item))


def without_empty_cycles(definitions: dict[str, Schema]) -> None:
    """Empty definitions that are nothing but references to each other."""
    for name, definition in definitions.items():
        visited = {name}
        following = _only_reference(definition)
        while following and following not in visited:
            visited.add(following)
            following = _only_reference(definitions[following])
        if following:
            definitions[name] = {}


def _only_reference(definition: Schema) -> str:
    return str(definition.get("$ref", "")).removeprefix("#/$defs/")


def used_definitions(schema: Schema, definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return the definitions that a schema refers to, and those that they refer to."""
    names = _reference_names(schema)
    names |= {other for name in names for other in _reachable(name, definitions)}
    return {name: definition for name, definition in definitions.items() if name in names}


def without_required_cycles(schema: Schema) -> None:
    """Make properties optional that contain their own object, which Gemini accepts in optional properties only."""
    definitions = cast("dict[str, Schema]", schema.get("$defs", {}))
    reached = {name: _reachable(name, definitions) for name in definitions}
    for name, definition in definitions.items():
        if name in reached[name]:
            _make_optional(definition, {other for other in reached[name] if name in reached[other]})


def _make_optional(schema: Schema, names: set[str]) -> None:
    for item in _schemas(schema):
        required: object = item.get("required")
        properties: object = item.get("properties")
        if not isinstance(required, list) or not isinstance(properties, dict):
            continue
        for key in list(cast("list[str]", required)):
            prop: object = cast("Schema", properties).get(key)
            if not names.isdisjoint(_reference_names(prop)):
                cast("list[str]", required).remove(key)
                fields = cast("Schema", prop)
                fields["description"] = f"{fields.get('description', '')} (required)".strip()
        if not required:
            del item["required"]


def _reachable(name: str, definitions: dict[str, Schema]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for other in _reference_names(definitions.get(waiting.pop(), {})):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def _reference_names(value: object) -> set[str]:
    references: list[object] = [schema.get("$ref") for schema in _schemas(value)]
    return {item.removeprefix("#/$defs/") for item in references if isinstance(item, str)}
