"""Neutral settings of a request in each provider's format.

What a model refuses is omitted or replaced, with a warning, because the request would be rejected: sampling parameters of
reasoning models, thinking budgets, forced tools. The refusals are data (`tokens/data/providers.json`, as of its date):

- Anthropic: platform.claude.com/docs/en/models/sonnet-5-5/migration-guide and the guides of the other models,
  /docs/en/build-with-claude/adaptive-thinking, /docs/en/build-with-claude/extended-thinking
- OpenAI: developers.openai.com/api/docs/guides/reasoning, /guides/latest-model (parameter compatibility)
- Gemini: ai.google.dev/gemini-api/docs/thinking, /docs/function-calling

Models of other makers get their settings as they are. `extra` has precedence over the translation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from nexus.context import AssembledContext
from nexus.providers.received import present_fields
from nexus.providers.tools import BodyFormat, sent_tools
from nexus.tokens.model import Model, setting_rules
from nexus.tokens.model_table import SettingRules
from nexus.types.settings import Effort, extra_settings, is_neutral, stop_texts
from nexus.types.tool_definition import ToolSpec

EFFORT_TOKENS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Thinking tokens for an effort, for models that take a number; a number becomes the first effort that covers it."""

_LEAST_BUDGET = 1_024
"""Least thinking tokens in Anthropic's format."""

_LEAST_TOP_P = 0.95
"""Smallest `top_p` that Anthropic accepts with thinking."""

_MAX_STOPS: dict[BodyFormat, int] = {"openai": 4, "responses": 0, "anthropic": 8_191, "gemini": 5}


def body_settings(ctx: AssembledContext, body_format: BodyFormat) -> dict[str, Any]:
    """Return the settings of a context under the names of a body."""
    return translate_settings(ctx.model_config, ctx.accounting.model_info, body_format, ctx.tools)[0]


def translate_settings(
    config: Mapping[str, Any], model: Model, body_format: BodyFormat, tools: Iterable[ToolSpec]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a request's settings under the names of a body, and a warning for each that the model refuses."""
    extra = extra_settings(config)
    if not is_neutral(config):
        return extra, ()
    translation = _Translation(config, model, body_format, tools)
    return _merged(translation.body(), extra), tuple(translation.problems)


def _merged(settings: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return settings with `extra` over them, key by key in dicts that both have."""
    merged = {**settings, **extra}
    for name in settings.keys() & extra.keys():
        if isinstance(settings[name], dict) and isinstance(extra[name], Mapping):
            merged[name] = {**settings[name], **extra[name]}
    return merged


class _Translation:
    """The translation of one request's settings: the settings left, what is sent so far, and the problems."""

    def __init__(
        self, config: Mapping[str, Any], model: Model, body_format: BodyFormat, tools: Iterable[ToolSpec]
    ) -> None:
        self.model = model
        self.tools = {spec.name: spec for spec in sent_tools(tools, body_format, model)}
        self.format: BodyFormat = body_format
        self.rules: SettingRules = setting_rules(model)
        self.settings = dict(config)
        self.problems: list[str] = []
        self.is_anthropic = "anthropic" in (model.vendor, body_format)

    def body(self) -> dict[str, Any]:
        """Return the settings under the names of the body."""
        forced = self._tool_choice()
        limit = self._output_limit()
        stops = self._stops()
        thinking = self._thinking(limit, forced=forced)
        temperature, top_p = self._sampling(thinks=bool(thinking))
        sampling = present_fields({"temperature": temperature, "top_p": top_p})
        if sampling and self.format == "anthropic":
            sampling = {"extra_body": sampling}  # the package has no arguments for them since version 2
        plain = present_fields({self._limit_name(): limit, self._stop_name(): stops or None})
        return {**sampling, **plain, **self._thinking_fields(thinking), **self._tool_fields()}

    def _omit(self, name: str, why: str) -> None:
        value = self.settings.pop(name)
        self.problems.append(f"{name} {value!r} omitted: {why}")

    def _replace(self, name: str, value: object, why: str) -> None:
        self.problems.append(f"{name} {self.settings[name]!r} sent as {value!r}: {why}")
        self.settings[name] = value

    def _tool_choice(self) -> bool:
        """Check the tool choice; return True if the model must call a tool."""
        choice = self.settings.get("tool_choice")
        if choice is None:
            return False
        if not self.tools:
            self._omit("tool_choice", "the request has no tools")
        elif choice in ("auto", "none"):
            return False
        elif choice != "required" and choice not in self.tools:
            self._omit("tool_choice", "no tool of that name is offered")
        elif not self.rules.forces_tools:
            self._omit("tool_choice", f"{self.model.name} cannot be forced to call a tool")
        return "tool_choice" in self.settings

    def _output_limit(self) -> int | None:
        limit = self.settings.get("max_tokens")
        longest_reply = self.model.max_output_tokens
        if limit is not None and 0 < longest_reply < limit:
            self._replace("max_tokens", longest_reply, f"the longest reply of {self.model.name}")
        return self.settings.get("max_tokens")

    def _stops(self) -> list[str]:
        max_count = _MAX_STOPS[self.format] if self.rules.stop else 0
        stops = stop_texts(self.settings.get("stop"))
        if stops and not max_count:
            if self.rules.stop:
                where = "the Responses API has none"
            else:
                where = f"{self.model.name} does not take it"
            self._omit("stop", where)
        elif len(stops) > max_count:
            self._replace("stop", stops[:max_count], f"{max_count} texts at most")
        if stops[:max_count] and self.format == "openai" and self.model.vendor == "openai":
            self.problems.append("stop is not sent by to_responses(): the Responses API has none")
        return stops[:max_count]

    def _thinking(self, limit: int | None, *, forced: bool) -> bool | int | Effort | None:
        """Return how the model is to think: False for not at all, None for its default."""
        thinking = self.settings.get("thinking")
        if thinking is None or (thinking is not False and thinking != 0 and not self._can_think()):
            return None
        if not thinking:
            return self._no_thinking()
        if forced and self.is_anthropic:
            self._omit("thinking", "Anthropic's models do not think if a tool is forced")
            turns_off = self.rules.thinking == "effort" and self.model.vendor == "anthropic"
            if turns_off:
                return self._no_thinking()
            return None
        if self.rules.thinking != "budget":
            if thinking is True:
                return thinking
            return self._effort(thinking)
        if thinking is True and not self.is_anthropic:
            return True
        return self._thinking_tokens(_tokens(thinking), limit if self.is_anthropic else None)

    def _thinking_tokens(self, tokens: int, limit: int | None) -> int | None:
        """Return the thinking tokens that the model accepts; fewer than `limit`, the reply with them."""
        min_tokens, max_tokens = self.rules.thinking_tokens
        if self.is_anthropic:
            min_tokens = max(min_tokens, _LEAST_BUDGET)
        if limit is not None:
            max_tokens = min(max_tokens, limit - 1)
        if max_tokens < min_tokens:
            self._omit("thinking", f"max_tokens leaves less than {min_tokens:,} tokens for it")
            return None
        allowed = min(max(tokens, min_tokens), max_tokens)
        if allowed != tokens:
            self._replace("thinking", allowed, f"{min_tokens:,} to {max_tokens:,} tokens are possible")
        return allowed

    def _can_think(self) -> bool:
        if self.rules.thinking and self.model.reasoning:
            return True
        self._omit("thinking", f"{self.model.name} does not think")
        return False

    def _no_thinking(self) -> Literal[False] | Effort | None:
        """Return False if thinking can be turned off, else the least that the model allows; None without thinking."""
        if not (self.rules.thinking and self.model.reasoning):
            return None
        if self.format == "anthropic" and self.model.vendor != "anthropic":
            return False
        if self.rules.thinking_off == "minimal":
            self.problems.append(f"thinking False sent as 'minimal': {self.model.name} cannot be told not to think")
        if self.rules.thinking_off:
            return False
        lowest_effort = self.rules.efforts[0]
        if "thinking" in self.settings:
            self._replace("thinking", lowest_effort, f"{self.model.name} cannot be told not to think")
        return lowest_effort

    def _effort(self, thinking: int | Effort) -> Effort:
        """Return the effort that the model takes for an effort or a number of tokens: the next higher, else its highest."""
        names: list[Effort] = [*EFFORT_TOKENS]
        if isinstance(thinking, int):
            wanted = _effort_for(thinking)
        else:
            wanted = thinking
        allowed: list[Effort] = [name for name in names[names.index(wanted) :] if name in self.rules.efforts]
        effort: Effort = allowed[0] if allowed else self.rules.efforts[-1]
        if effort != thinking:
            self._replace("thinking", effort, f"{self.model.name} takes the efforts {', '.join(self.rules.efforts)}")
        return effort

    def _sampling(self, *, thinks: bool) -> tuple[float | None, float | None]:
        refusal = ""
        if self.rules.sampling == "never":
            refusal = "does not take it"
        elif self.rules.sampling == "without_thinking" and thinks:
            refusal = "takes it only without thinking"
        for name, least in (("temperature", 1), ("top_p", _LEAST_TOP_P)):
            value = self.settings.get(name)
            if value is None:
                continue
            if refusal and value == 1:  # the default
                del self.settings[name]
            elif refusal:
                self._omit(name, f"{self.model.name} {refusal}")
            elif self.is_anthropic and thinks and value < least:
                self._omit(name, "Anthropic's models take it only without thinking")
        if self.rules.one_sampling and {"temperature", "top_p"} <= self.settings.keys():
            self._omit("top_p", f"{self.model.name} takes either temperature or top_p")
        if self.is_anthropic and (self.settings.get("temperature") or 0) > 1:
            self._replace("temperature", 1, "the highest of Anthropic's models")
        return self.settings.get("temperature"), self.settings.get("top_p")

    def _limit_name(self) -> str:
        if self.format in ("responses", "gemini"):
            return "max_output_tokens"
        if self.format == "openai" and self.model.vendor == "openai" and self.model.reasoning:
            return "max_completion_tokens"
        return "max_tokens"

    def _stop_name(self) -> str:
        if self.format == "openai":
            return "stop"
        return "stop_sequences"

    def _thinking_fields(self, thinking: bool | int | Effort | None) -> dict[str, Any]:
        if thinking is None:
            return {}
        if self.format == "gemini":
            if thinking is True and self.rules.thinking != "budget":
                return {}
            return {"thinking_config": _gemini_thinking(thinking, self.rules)}
        if self.format == "anthropic":
            if thinking is False:
                # Gateways that serve other makers' models in Anthropic's format take its own words.
                off = self.rules.thinking_off if self.model.vendor == "anthropic" else "disabled"
                return {"thinking": {"type": off}}
            if self.rules.thinking == "budget":
                return {"thinking": {"type": "enabled", "budget_tokens": _tokens(thinking)}}
            if thinking is True:
                return {"thinking": {"type": "adaptive"}}
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": thinking}}
        if thinking is True:
            return {}  # the default of reasoning models
        # Gateways that serve Anthropic's and Gemini's models in this format take an effort too.
        if thinking is False:
            effort = self.rules.thinking_off if self.model.vendor == "openai" else "none"
        elif isinstance(thinking, str):
            effort = thinking
        else:
            effort = _effort_for(thinking)
        if self.format == "openai":
            return {"reasoning_effort": effort}
        return {"reasoning": {"effort": effort}}

    def _tool_fields(self) -> dict[str, Any]:
        choice = self.settings.get("tool_choice")
        if choice is None:
            return {}
        is_name = choice not in ("auto", "none", "required")
        if self.format == "gemini":
            calling: dict[str, Any] = {"mode": {"auto": "AUTO", "none": "NONE"}.get(choice, "ANY")}
            if is_name:
                calling["allowed_function_names"] = [choice]
            return {"tool_config": {"function_calling_config": calling}}
        if self.format == "anthropic":
            if is_name:
                return {"tool_choice": {"type": "tool", "name": choice}}
            return {"tool_choice": {"type": "any" if choice == "required" else choice}}
        if not is_name:
            return {"tool_choice": choice}
        spec = self.tools[choice]
        kind = "function"
        if spec.is_typed:
            kind = spec.provider_fields["type"]
        if kind not in ("function", "custom"):
            return {"tool_choice": {"type": kind}}
        if self.format == "openai":
            return {"tool_choice": {"type": kind, kind: {"name": choice}}}
        return {"tool_choice": {"type": kind, "name": choice}}


def _tokens(thinking: bool | int | Effort) -> int:
    if isinstance(thinking, str):
        return EFFORT_TOKENS[thinking]
    if thinking is True:
        return EFFORT_TOKENS["medium"]
    return int(thinking)


def _effort_for(tokens: int) -> Effort:
    efforts: list[Effort] = [name for name, effort_tokens in EFFORT_TOKENS.items() if effort_tokens >= tokens]
    if efforts:
        return efforts[0]
    return "high"


def _gemini_thinking(thinking: bool | int | Effort, rules: SettingRules) -> dict[str, Any]:
    if rules.thinking == "budget":
        if thinking is False:
            return {"thinking_budget": 0}
        return {"thinking_budget": -1 if thinking is True else _tokens(thinking)}
    if thinking is False and rules.thinking_off != "minimal":  # another maker's model behind Gemini's format
        return {"thinking_budget": 0}
    if thinking is False:
        level = rules.thinking_off
    else:
        level = cast("str", thinking)
    return {"thinking_level": level.upper()}
