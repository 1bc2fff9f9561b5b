"""Settings of a request under neutral names, and the form in which they are stored with a call.

`Request.model_config` is in one of two forms. With a key `extra` it has neutral names, which each provider format
translates (`nexus.providers.settings`), and `extra` is put into the body as it is. Without one it is `extra` itself: the
form of `model_config=`, and of calls that were recorded before there were neutral names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args

from nexus.errors import BadSetting

Effort: TypeAlias = Literal["low", "medium", "high"]

EXTRA = "extra"
MAX_TEMPERATURE = 2.0

_OUTPUT_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The providers' names for the maximum tokens of a reply."""


_PRINTED = {"temperature": "temperature", "maxTokens": "max_tokens", "thinking": "thinking"}
"""The names of document 002's `modelConfig`, and the neutral ones."""


class ModelSettings(TypedDict, total=False):
    """Settings of a request under one name for all providers; None is the provider's default."""

    temperature: float | None
    """Randomness, from 0 to 2 (Anthropic: 1)."""
    top_p: float | None
    """Share of the probability from which tokens are drawn, up to 1."""
    max_tokens: int | None
    """Longest reply in tokens, thinking included; also the reserve for it."""
    thinking: bool | int | Effort | None
    """False turns thinking off, True on; or its effort, or its tokens."""
    stop: str | Sequence[str] | None
    """Texts at which the reply ends."""
    tool_choice: str | None
    """`auto`, `none`, `required` (some tool must be called), or the name of the tool to call."""
    extra: Mapping[str, Any] | None
    """Other settings under the provider's own names."""


def is_neutral(config: Mapping[str, Any]) -> bool:
    """Return True if a request's settings have neutral names."""
    return isinstance(config.get(EXTRA), Mapping)


def extra_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a request's settings that has the provider's own names."""
    return dict(config[EXTRA]) if is_neutral(config) else dict(config)


def with_neutral_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in document 002's spelling (`temperature`, `maxTokens`, `thinking`) under neutral names.

    A `thinking` that is an object is a provider's own, and so are all other settings.
    """
    config = dict(config)
    printed = {name: value for name, value in config.items() if name in _PRINTED and not isinstance(value, Mapping)}
    if is_neutral(config) or not printed.keys() - {"temperature"}:
        return config
    extra = {name: value for name, value in config.items() if name not in printed}
    return {**{_PRINTED[name]: value for name, value in printed.items() if value is not None}, EXTRA: extra}


def request_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the arguments of `assemble`, as a request has them."""
    config = with_neutral_names(options.get("model_config") or {})
    settings = {name: options[name] for name in ModelSettings.__annotations__ if options.get(name) is not None}
    if not settings:
        return config
    neutral = config if is_neutral(config) else {EXTRA: config}
    return {**neutral, **settings, EXTRA: {**neutral[EXTRA], **settings.get(EXTRA, {})}}


def with_output_limit(config: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Return settings with another limit of the reply, under the name that they have for it."""
    extra = extra_settings(config)
    if name := next((name for name in _OUTPUT_NAMES if name in extra), ""):
        extra[name] = tokens
        return {**config, EXTRA: extra} if is_neutral(config) else extra
    neutral = dict(config) if is_neutral(config) else {EXTRA: extra}
    return {**neutral, "max_tokens": tokens}


def output_limit(config: Mapping[str, Any]) -> int | None:
    """Return the maximum tokens of a reply among a request's settings, None without one."""
    extra = extra_settings(config)
    limits: list[Any] = [*map(extra.get, _OUTPUT_NAMES)]
    generation = extra.get("generationConfig")
    if isinstance(generation, Mapping):
        limits.append(cast("Mapping[str, Any]", generation).get("maxOutputTokens"))
    if is_neutral(config):
        limits.append(config.get("max_tokens"))
    return next((tokens for tokens in limits if isinstance(tokens, int)), None)


def check_settings(config: Mapping[str, Any]) -> None:
    """Raise BadSetting for a neutral setting that does not exist, or that has an impossible value."""
    if not is_neutral(config):
        return
    for name, value in config.items():
        expected = _EXPECTED.get(name)
        if expected is None:
            close = get_close_matches(name[:80], _EXPECTED, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"available: {', '.join(_EXPECTED)}"
            raise BadSetting(f"setting {name!r} unknown ({hint} A provider's own settings go into 'extra')")
        if not _is_valid(name, value):
            raise BadSetting(f"setting {name!r} is {value!r}: expected {expected}")


_EXPECTED = {
    "temperature": f"a number from 0 to {MAX_TEMPERATURE:g}",
    "top_p": "a number above 0, up to 1",
    "max_tokens": "a number of tokens above 0",
    "thinking": "True, False, 'low', 'medium', 'high' or a number of tokens",
    "stop": "a text or a list of texts, not blank",
    "tool_choice": "'auto', 'none', 'required' or the name of a tool",
    EXTRA: "a dict",
}


def _is_valid(name: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match name:
        case "temperature":
            return is_number and 0 <= value <= MAX_TEMPERATURE
        case "top_p":
            return is_number and 0 < value <= 1
        case "max_tokens":
            return type(value) is int and value > 0
        case "thinking":
            if isinstance(value, str):
                return value in get_args(Effort)
            return isinstance(value, int) and value >= 0
        case "stop":
            texts = stop_texts(value)
            return bool(texts) and all(isinstance(text, str) and bool(text.strip()) for text in texts)
        case "tool_choice":
            return isinstance(value, str) and bool(value.strip())
        case _:
            return isinstance(value, Mapping)


def stop_texts(stop: object) -> list[Any]:
    """Return the texts at which a reply ends as a list; empty for a value that is none."""
    if isinstance(stop, str):
        return [stop]
    return list(cast("Sequence[Any]", stop)) if isinstance(stop, Sequence) else []
