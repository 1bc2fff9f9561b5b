"""Gemini's REST form of a request: the Python client's keyword arguments as the JSON that it sends.

Names are in camel case, generation settings in `generationConfig`, and the model is part of the address. Data of the
caller (arguments, responses, schemas, labels) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from nexus.context import AssembledContext
from nexus.providers import gemini

_OUTSIDE_GENERATION = frozenset(
    {"system_instruction", "tools", "tool_config", "safety_settings", "cached_content", "labels", "service_tier"}
    | {"store", "model_armor_config", "continuation_token"}
)
"""Settings next to the contents. All others are in `generationConfig`."""

_OF_CLIENT = frozenset({"http_options", "automatic_function_calling", "should_return_http_response"})
"""Settings of the Python client, which sends none of them."""

_VERBATIM = frozenset({"args", "response", "parameters", "labels", "response_schema"})
_WORD_START = re.compile(r"_([a-z0-9])")


def body(ctx: AssembledContext) -> dict[str, Any]:
    """Return the JSON body of `models/MODEL:generateContent` and `:streamGenerateContent`."""
    arguments = gemini.body(ctx)
    config: dict[str, Any] = arguments.get("config", {})
    out: dict[str, Any] = {}
    generation: dict[str, Any] = {}
    for name, value in config.items():
        key = gemini.snake_case(name)
        if key == "system_instruction" and isinstance(value, str):
            out["systemInstruction"] = {"parts": [{"text": value}]}
        elif key in _OUTSIDE_GENERATION:
            out[_camel_case(name)] = _in_camel_case(value, key)
        elif key not in _OF_CLIENT:
            generation[_camel_case(name)] = _in_camel_case(value, key)
    if generation:
        out["generationConfig"] = generation
    out["contents"] = _in_camel_case(arguments["contents"])
    extra = cast("Mapping[str, Any]", config.get("http_options") or {}).get("extra_body")
    if isinstance(extra, Mapping):
        out.update(cast("Mapping[str, Any]", extra))
    return out


def contents(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return contents of the Python client's form as JSON that it sends."""
    return _in_camel_case(items)


def _in_camel_case(value: Any, key: str = "") -> Any:
    if key in _VERBATIM or key.endswith("json_schema"):
        return value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {_camel_case(name): _in_camel_case(item, gemini.snake_case(name)) for name, item in fields.items()}
    if isinstance(value, list):
        return [_in_camel_case(item) for item in cast("list[Any]", value)]
    return value


def _camel_case(name: str) -> str:
    return _WORD_START.sub(lambda match: match[1].upper(), name)
