"""Settings of an engine and of a call, and the form in which a model's settings are stored with a call.

A model's settings (`Settings.model_settings`) are in one of two forms. With a key `extra` it has neutral names, which each provider format
translates (`nexus.providers.settings`), and `extra` is put into the body as it is. Without one it is `extra` itself: the
form of `model_config=`, and of calls that were recorded before there were neutral names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self, TypeAlias, TypedDict, cast, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from nexus.errors import BadSetting, NotAllowed
from nexus.types.tool_definition import ToolSource

AgentRole: TypeAlias = Literal["manager", "worker", "unified"]
Clock: TypeAlias = Literal["", "message", "system", "off"]
Effort: TypeAlias = Literal["low", "medium", "high"]
RunMode: TypeAlias = Literal["", "repl", "server"]
Strategy: TypeAlias = Literal["keep_user_turns", "oldest_first", "middle_out", "digest"]

MINUTES_PER_DAY = 24 * 60

EXTRA = "extra"
MAX_TEMPERATURE = 2.0

_OUTPUT_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The providers' names for the maximum tokens of a reply."""


_PRINTED = {"temperature": "temperature", "maxTokens": "max_tokens", "thinking": "thinking"}
"""The names of document 002's `modelConfig`, and the neutral ones."""


class ModelSettings(TypedDict, total=False):
    """Settings of a model under one name for all providers, as keyword arguments: see `Settings`."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    thinking: bool | int | Effort | None
    stop: str | Sequence[str] | None
    tool_choice: str | None
    extra: Mapping[str, Any] | None


class SettingsChanges(ModelSettings, total=False):
    """Settings as keyword arguments: see `Settings`."""

    model: str
    budget: int | None
    profile: str
    model_config: Mapping[str, Any] | None
    system: str
    role: AgentRole
    task: str
    manager: str
    manager_call: str
    persona: str
    principal: str | None
    user_profile: Mapping[str, Any] | None
    toolset: str
    permissions: str | Iterable[str]
    capabilities: Iterable[str] | None
    skills: str | Iterable[str]
    blocks: Mapping[str, str] | None
    timezone: str | int
    strategy: Strategy
    pin_first_message: bool
    max_tool_result_tokens: int | None
    calibrate: bool
    run_mode: RunMode
    clock: Clock


class CallArguments(SettingsChanges, total=False):
    """Arguments of `Engine.assemble`, and of every function that assembles, besides event and session."""

    tools: Sequence[dict[str, Any]] | ToolSource
    """Tool definitions in any provider's format, or a tool registry."""
    settings: Settings
    """The settings to change, in place of the engine's."""


class Settings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of an engine (`nexus.open`), an agent and a call (`Engine.assemble`): each changes those before it.

    The same names are keyword arguments of all functions that assemble.
    """

    model: str = ""
    """The model's name; by default the configured one."""
    budget: int | None = None
    """Available tokens; by default the model's context window less the reserves."""
    profile: str = ""
    """Name of the profile; by default `layered`, and `bare` for mirrored lists."""
    system: str = ""
    """The application's own system prompt, shown first and unchanged, in every profile."""
    role: AgentRole = "unified"
    task: str = ""
    """A worker's task."""
    manager: str = ""
    """Label of the session that spawned a worker; its persona is the default for the worker."""
    manager_call: str = ""
    """Id of the tool call in that session that spawned it."""
    persona: str = ""
    """Name of the persona that answers."""
    principal: str = ""
    """Name of the speaker, whose rights apply; without one it is the program itself."""
    user_profile: dict[str, Any] = {}
    """Replaces the profile that is kept for the principal."""
    toolset: str = ""
    """Name of the toolset."""
    permissions: tuple[str, ...] = ()
    """Names of permissions, stored with the turn."""
    capabilities: tuple[str, ...] | None = None
    """Capabilities that the environment section lists; None for all."""
    skills: tuple[str, ...] = ()
    """Skills whose instructions are included."""
    blocks: dict[str, str] = {}
    """The application's texts by name, shown where the profile places them."""
    temperature: float | None = None
    """Randomness, from 0 to 2 (Anthropic: 1)."""
    top_p: float | None = None
    """Share of the probability from which tokens are drawn, up to 1."""
    max_tokens: int | None = None
    """Longest reply in tokens, thinking included; also the reserve for it."""
    thinking: bool | int | Effort | None = None
    """False turns thinking off, True on; or its effort, or its tokens."""
    stop: str | tuple[str, ...] | None = None
    """Texts at which the reply ends."""
    tool_choice: str | None = None
    """`auto`, `none`, `required` (some tool must be called), or the name of the tool to call."""
    extra: dict[str, Any] | None = None
    """Other settings of the model under the provider's own names."""
    model_config: dict[str, Any] = {}
    """The same as `extra`; or all settings of another context (`ctx.model_config`)."""
    timezone: str | Annotated[int, Meta(gt=-MINUTES_PER_DAY, lt=MINUTES_PER_DAY)] = ""
    """IANA name, offset or a browser's minutes, for events without their own; by default the configured one."""
    strategy: Strategy = "keep_user_turns"
    """What a cut keeps besides the newest messages: user turns and closing texts (`keep_user_turns`), a line for each
    tool call too (`digest`), the beginning (`middle_out`), or nothing (`oldest_first`)."""
    pin_first_message: bool = True
    """Never cut a session's first user message."""
    max_tool_result_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Limit of one tool result in base tokens; None is an eighth to a quarter of the available tokens, 0 no limit."""
    calibrate: bool = True
    """Calibrate token counts from reported usage."""
    run_mode: RunMode = ""
    """`repl` or `server`, for the source `surroundings`."""
    clock: Clock = ""
    """Where the profiles `layered` and `repl` show the time: `message`, the default; `off`, the default of calls with a
    `system` prompt of the application; `system` for the system slot of `repl` (document 004), which breaks the prompt
    cache in every call."""

    def with_changes(self, changes: SettingsChanges) -> Self:
        """Return the settings with changes.

        Types are checked where a request is used (`nexus.types.request.checked_request`). Raises NotAllowed for an empty
        principal, which would have the rights of the program itself, BadSetting.
        """
        if changes.get("principal") == "":
            raise NotAllowed(
                "principal is empty: a sender without a name has no rights (the program itself passes none)"
            )
        values: dict[str, Any] = {**changes}
        try:
            for name in _TUPLES & values.keys():
                values[name] = _names(values[name])
            for name in _MAPPINGS & values.keys():
                values[name] = dict(values[name] or {})
        except (TypeError, ValueError) as error:
            raise BadSetting(
                f"argument invalid: {error} (names are lists of text; profiles, settings and blocks are dicts)"
            ) from error
        if "principal" in values:
            values["principal"] = values["principal"] or ""
        return replace(self, **values)

    def changes_from(self, other: Settings) -> SettingsChanges:
        """Return the changes that make these settings of `other`, as JSON values."""
        changes = {
            name: msgspec.to_builtins(value)
            for name in Settings.__struct_fields__
            if (value := getattr(self, name)) != getattr(other, name)
        }
        if changes.get("principal") == "":
            changes["principal"] = None
        return cast("SettingsChanges", changes)

    def with_model_settings(self, config: dict[str, Any]) -> Settings:
        """Return the settings with those of the model in the form in which they are stored with a call."""
        return replace(self, model_config=config, **dict.fromkeys(ModelSettings.__annotations__))

    def model_settings(self) -> dict[str, Any]:
        """Return the settings of the model in the form in which they are stored with a call."""
        return request_settings(
            {name: getattr(self, name) for name in (*ModelSettings.__annotations__, "model_config")}
        )


CHOICES: dict[str, tuple[str, ...]] = {
    "role": get_args(AgentRole),
    "strategy": get_args(Strategy),
    "run_mode": get_args(RunMode),
    "clock": get_args(Clock),
}
"""Values of the settings that have a few."""

_TUPLES = {"permissions", "skills", "capabilities"}
_MAPPINGS = {"user_profile", "blocks", "model_config"}


def _names(value: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    return tuple(value)


def is_neutral(config: Mapping[str, Any]) -> bool:
    """Return True if a request's settings have neutral names."""
    return isinstance(config.get(EXTRA), Mapping)


def extra_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a request's settings that has the provider's own names."""
    if is_neutral(config):
        return dict(config[EXTRA])
    return dict(config)


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
        if is_neutral(config):
            return {**config, EXTRA: extra}
        return extra
    if is_neutral(config):
        neutral = dict(config)
    else:
        neutral = {EXTRA: extra}
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
            if close:
                hint = f"did you mean {close[0]!r}?"
            else:
                hint = f"available: {', '.join(_EXPECTED)}"
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
    if isinstance(stop, Sequence):
        return list(cast("Sequence[Any]", stop))
    return []
