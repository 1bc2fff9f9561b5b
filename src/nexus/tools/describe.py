"""A function as a tool: its parameters as a type, the JSON Schema of that type, descriptions from the docstring."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast

import docstring_parser
import msgspec
from msgspec import Struct

from nexus.errors import BadTool

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Described(Struct, frozen=True):
    """What a function says of itself. `arguments` is the type that a call's arguments are read as."""

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[Struct]


def described(function: Callable[..., Any], parameters: Mapping[str, str] | None = None) -> Described:
    """The function as a tool; `parameters` has descriptions by name that stand before the docstring's.

    The description is the docstring without its sections; parameters without a type take anything. Raises BadTool: the
    function takes any number of arguments, or one of a type that has no JSON form.
    """
    name = getattr(function, "__name__", "") or type(function).__name__
    text, told = _documented(function)
    told = {**told, **(parameters or {})}
    signature, hints = _signature(function, name)
    if unknown := sorted(set(parameters or {}) - set(signature.parameters)):
        raise BadTool(f"{name} has no parameter {unknown[0]!r} that could be described")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    for key, parameter in signature.parameters.items():
        if parameter.kind not in _BY_NAME:
            raise BadTool(f"{name} cannot be a tool: its parameter {key!r} cannot be given by name")
        kind = hints.get(key, Any)
        if parameter.default is None and kind is not Any:
            kind = kind | None
        kind = Annotated[kind, msgspec.Meta(description=told[key])] if key in told else kind
        if parameter.default is parameter.empty:
            fields.append((key, kind))
        else:
            if parameter.default is not None:
                defaults[key] = parameter.default
            fields.append((key, kind | msgspec.UnsetType, msgspec.UNSET))
    try:
        arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        schema = _schema(arguments, defaults)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadTool(f"{name} cannot be a tool: {error}") from error
    return Described(name, text, schema, arguments)


def _signature(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature and the types of the parameters. Raises BadTool where they cannot be found."""
    annotated = function if isinstance(function, (types.FunctionType, types.MethodType)) else type(function).__call__
    try:
        return inspect.signature(function), typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise BadTool(f"the types of {name} cannot be read: {error}") from error


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's description, and what it says of each parameter; all of it where its form is not known."""
    text = inspect.getdoc(function) or ""
    try:
        found = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = (found.short_description, found.long_description)
    told = {one.arg_name: " ".join((one.description or "").split()) for one in found.params}
    return "\n\n".join(part for part in parts if part), {name: said for name, said in told.items() if said}


def _schema(arguments: type[Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the arguments, references put in their place, with the defaults that have a JSON form."""
    (whole,), parts = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    own = parts.pop(whole["$ref"].removeprefix("#/$defs/"))
    properties = cast("dict[str, Any]", own["properties"])
    for key, default in defaults.items():
        try:
            properties[key]["default"] = msgspec.to_builtins(default, str_keys=True)
        except TypeError:
            continue
    inlined = {key: _inlined(value, parts, ()) for key, value in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": inlined, "additionalProperties": False}
    if required := own.get("required"):
        schema["required"] = list(required)
    needed: dict[str, Any] = {}
    while named := [name for name in parts if name not in needed and _refers([schema, needed], name)]:
        needed.update({name: parts[name] for name in named})
    return {**schema, "$defs": dict(sorted(needed.items()))} if needed else schema


def _inlined(value: Any, parts: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """The schema with what it refers to in the place of the reference; types that hold themselves stay references."""
    if isinstance(value, list):
        return [_inlined(one, parts, inside) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    schema = cast("dict[str, Any]", value)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if not name:
        return {key: _inlined(one, parts, inside) for key, one in schema.items()}
    if name in inside or _refers(parts[name], name):
        return schema
    beside = {key: one for key, one in schema.items() if key != "$ref"}
    named = {key: one for key, one in parts[name].items() if key != "title"}
    return {**_inlined(named, parts, (*inside, name)), **beside}


def _refers(value: Any, name: str) -> bool:
    if isinstance(value, list):
        return any(_refers(one, name) for one in cast("list[Any]", value))
    if not isinstance(value, dict):
        return False
    schema = cast("dict[str, Any]", value)
    return schema.get("$ref") == f"#/$defs/{name}" or any(_refers(one, name) for one in schema.values())
