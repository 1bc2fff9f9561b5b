"""Judges the schema of a tool's parameters by what each provider refuses, independently of Nexus.

Each rule names where the provider, or somebody whom it refused, says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from google.genai import types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from support.strict import Json, is_dict, is_list

VALUE_KEYS = ("items", "additionalProperties")
LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAP_KEYS = ("properties", "patternProperties", "$defs", "dependentSchemas")
OTHER_KEYS = ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")


def walk(schema: Any, *, conditions: bool = True, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each schema inside a schema with its path; without `conditions` only those of values."""
    yield path, schema
    if not is_dict(schema):
        return
    for key in (*VALUE_KEYS, *(OTHER_KEYS if conditions else ())):
        if key in schema and not isinstance(schema[key], bool):
            yield from walk(schema[key], conditions=conditions, path=f"{path}/{key}")
    for key in LIST_KEYS:
        for index, item in enumerate(schema.get(key, ())):
            yield from walk(item, conditions=conditions, path=f"{path}/{key}/{index}")
    for key in MAP_KEYS if conditions else ("properties", "$defs"):
        for name, item in schema.get(key, {}).items():
            yield from walk(item, conditions=conditions, path=f"{path}/{key}/{name}")


def kinds_of(schema: Json) -> list[Any]:
    """The types that a schema names."""
    kinds: Any = schema.get("type", [])
    return kinds if is_list(kinds) else [kinds]


def check_anthropic(schema: Json) -> list[str]:
    """Problems for Anthropic, whose errors are quoted in the reports of the constants."""
    problems: list[str] = []
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:  # https://github.com/anthropics/claude-code/issues/586
        problems.append(f"JSON schema is invalid: {error.json_path}: {error.message[:80]}")
    if schema.get("type") != "object":
        problems.append("input_schema.type: must be object")
    # https://github.com/anthropics/claude-code/issues/40075
    problems += [f"{key} at the top level" for key in ("oneOf", "allOf", "anyOf") if key in schema]
    # https://github.com/anthropics/claude-code/issues/79418
    names = [name for name in schema.get("properties") or () if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name)]
    problems += [f"property key {name!r}" for name in names]
    # https://github.com/anthropics/claude-code/issues/586: another draft than 2020-12
    problems += ["$schema is another draft" for _ in [0] if "2020-12" not in schema.get("$schema", "2020-12")]
    return problems + _unresolved(schema)


def check_openai(schema: Json) -> list[str]:
    """Problems for chat completions and Responses, without `strict`."""
    problems: list[str] = []
    # https://github.com/langchain-ai/langchainjs/issues/9804; with `const`: https://github.com/feigeCode/navop/issues/247
    if schema.get("type") != "object":
        problems.append("schema must have type 'object'")
    refused = ("oneOf", "anyOf", "allOf", "enum", "const", "not")
    problems += [f"{key} at the top level" for key in refused if key in schema]
    # https://github.com/cbdb-project/cbdb-online-main-server/pull/879: "[] is not of type 'object'"
    if not isinstance(schema.get("properties"), dict):
        problems.append("object schema missing properties")
    try:
        # It names the errors of Python's jsonschema, with its check of patterns:
        # https://github.com/pleaseai/shunt/pull/488, https://github.com/BerriAI/litellm/pull/40485
        checker = Draft202012Validator(
            Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        errors: Any = checker.iter_errors(schema)  # pyright: ignore[reportUnknownMemberType]
        problems += [f"{error.json_path}: {error.message[:80]}" for error in errors]
    except RecursionError:
        problems.append("nested too deeply")
    for path, item in walk(schema):
        if not is_dict(item):
            problems.append(f"{path}: {item!r} is not of type object")
            continue
        kinds = kinds_of(item)
        # https://github.com/mark3labs/mcphost/issues/35, /campfirein/byterover-cli/issues/42 (lists of types),
        # https://github.com/gumloop/guMCP/pull/136 (arrays in arrays)
        if "array" in kinds and not isinstance(item.get("items"), dict):
            problems.append(f"{path}: array schema missing items")
        patterns = [item["pattern"]] if "pattern" in item else []
        for pattern in (*patterns, *item.get("patternProperties", ())):
            try:
                re.compile(pattern)
            except re.error:
                problems.append(f"{path}: {pattern!r} is not a 'regex'")
    return problems + _unresolved(schema)


def check_gemini(schema: Json) -> list[str]:
    """Problems for Gemini's `parameters_json_schema`; the package's own type of such schemas reads each value."""
    problems: list[str] = []
    if schema.get("type") != "object":
        problems.append("must describe an object")  # google-genai, FunctionDeclaration.parameters_json_schema
    for path, item in walk(schema, conditions=False):
        if not is_dict(item):
            problems.append(f"{path}: not a schema")
            continue
        kinds = kinds_of(item)
        allowed = {kind.value for kind in types.JSONSchemaType}
        if unknown := set(kinds) - allowed:
            problems.append(f"{path}: type {unknown}")  # https://github.com/zereight/gitlab-mcp/issues/166
        # https://github.com/anomalyco/opencode/issues/12295
        if "$ref" in item and set(item) - {"$ref", "$defs", "description", "default"}:
            problems.append(f"{path}: $ref with {sorted(set(item) - {'$ref'})}")
        # https://github.com/probelabs/probe/issues/569, https://github.com/iBUHub/AIStudioToAPI/issues/154
        missing = [name for name in item.get("required", ()) if name not in item.get("properties", {})]
        problems += [f"{path}: required property {name!r} is not defined" for name in missing]
        # https://github.com/DEEIX-AI/DEEIX-Chat/issues/546
        if "array" in kinds and "items" not in item:
            problems.append(f"{path}: items: missing field")
        if item.get("enum") == []:  # https://github.com/elastic/kibana/pull/286302
            problems.append(f"{path}: enum should be non-empty")
    return problems + _unresolved(schema, defs_only=True) + _required_cycles(schema)


def _unresolved(schema: Json, *, defs_only: bool = False) -> list[str]:
    problems: list[str] = []
    for path, item in walk(schema):
        reference = item.get("$ref") if is_dict(item) else None
        if reference is None:
            continue
        found: Any = schema
        for step in str(reference).removeprefix("#").split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if is_dict(found) else None
        if not str(reference).startswith("#") or found is None:
            problems.append(f"{path}: {reference!r} leads nowhere")
        # google-genai, Schema.ref: "a valid reference to a child of the root `defs`"
        elif defs_only and not re.fullmatch(r"#/\$defs/[^/]+", reference):
            problems.append(f"{path}: {reference!r} is no definition of the top level")
    return problems


def _required_cycles(schema: Json) -> list[str]:
    """Required properties that contain their own object: https://ai.google.dev/api/generate-content, `responseJsonSchema`."""

    def reaches(item: Any, name: str, visited: frozenset[str], *, is_inside: bool = False) -> bool:
        if not is_dict(item):
            return False
        if "$ref" in item:
            other = str(item["$ref"]).removeprefix("#/$defs/")
            if other == name:
                return is_inside
            return other not in visited and reaches(
                schema["$defs"].get(other), name, visited | {other}, is_inside=is_inside
            )
        needed = [item.get("properties", {}).get(key) for key in item.get("required", ())]
        inner = [item.get("items"), *(child for key in LIST_KEYS for child in item.get(key, ()))]
        return any(reaches(child, name, visited, is_inside=True) for child in needed) or any(
            reaches(child, name, visited, is_inside=is_inside) for child in inner
        )

    definitions: Json = schema.get("$defs", {})
    return [f"{name} requires itself" for name, item in definitions.items() if reaches(item, name, frozenset())]


CHECKS: dict[str, Callable[[Json], list[str]]] = {
    "anthropic": check_anthropic,
    "openai": check_openai,
    "openai-responses": check_openai,
    "gemini": check_gemini,
}


def schema_problems(schema: Json) -> list[str]:
    """Problems of a schema with any provider."""
    return [f"{provider}: {problem}" for provider, check in CHECKS.items() for problem in check(schema)]
