"""Templates of the services' configuration: YAML with names, texts, numbers and flags, as values by dotted name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, TypeGuard, cast

import yaml

from nexus.errors import BadConfig
from nexus.types.sanitize import sanitize_text
from nexus.types.validation import MAX_INTEGER

TEMPLATE_FILE = "config.example.yml"
"""The packaged template, a file of this package."""

MAX_NAMES = 1_000
MAX_LEVELS = 10

Scalar: TypeAlias = str | bool | int | float


@cache
def packaged_template() -> Mapping[str, Scalar]:
    """Return the values of this package's template by dotted name."""
    return flatten(
        read_template(files("nexus.services").joinpath(TEMPLATE_FILE).read_text("utf-8"), TEMPLATE_FILE), TEMPLATE_FILE
    )


def read_template(text: str, name: str) -> dict[str, Any]:
    """Return the template in a YAML text; `name` is its file. Raises BadConfig."""
    try:
        value: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadConfig(name, "", f"not readable as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(value, dict):
        raise BadConfig(name, "", "expected names with values")
    return nested(flatten(cast("dict[str, Any]", value), name))


def flatten(template: Mapping[str, Any], name: str) -> dict[str, Scalar]:
    """Return the values of a template by dotted name. Raises BadConfig for other values than texts, numbers and flags."""
    flat: dict[str, Scalar] = {}
    waiting: list[tuple[str, object, int]] = [("", template, 0)]
    while waiting:
        prefix, value, level = waiting.pop()
        if isinstance(value, Mapping):
            fields = cast("Mapping[object, object]", value)
            if level > MAX_LEVELS or len(waiting) + len(fields) + len(flat) > MAX_NAMES:
                raise BadConfig(name, prefix, f"more than {MAX_NAMES:,} names or {MAX_LEVELS} levels")
            for key, inner in fields.items():
                if not isinstance(key, str) or not key.isidentifier():
                    raise BadConfig(name, prefix, f"name {str(key)[:60]!r} is not made of letters, digits and _")
                waiting.append((f"{prefix}.{key}" if prefix else key, inner, level + 1))
        elif is_scalar(value):
            flat[prefix] = sanitize_text(value) if isinstance(value, str) else value
        else:
            shown = "a number that JSON lacks"
            if not isinstance(value, (int, float)):
                shown = type(value).__name__
            raise BadConfig(name, prefix, f"expected a text, number or true or false, got {shown}")
    return flat


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Return true for texts, flags, finite numbers and integers of 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and abs(value) < MAX_INTEGER)


def nested(flat: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the dicts whose values have these dotted names, sorted."""
    result: dict[str, Any] = {}
    for name in sorted(flat):
        *parents, last = name.split(".")
        inner = result
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = flat[name]
    return result
