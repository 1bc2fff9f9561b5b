"""The plugins of an engine, and their hooks that are called for each request: tools and event metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.plugins.guard import Guard, call_hook, validate_event_metadata, validate_tools
from nexus.workspace.source_context import Source
from nexus.workspace.sources.registry import source_functions

T = TypeVar("T")

HookCall = Callable[..., Any]  # calls one plugin's hook; returns None if it has no result


class Plugin(Struct, frozen=True):
    """A discovered plugin."""

    name: str
    distribution: str
    """The distribution that contains it, or `given` if the program passed it."""
    hooks: tuple[str, ...] = ()
    """Names of the hooks that it implements."""
    sources: tuple[str, ...] = ()
    """Names of the sources that it adds."""
    profiles: tuple[str, ...] = ()
    """Names of the profiles that it adds."""
    formats: tuple[str, ...] = ()
    """Names of the message formats that it adds."""
    readers: tuple[str, ...] = ()
    """Names of the readers of session files that it adds, once they are asked for."""
    problems: tuple[str, ...] = ()
    """Reasons why parts of it are omitted."""
    disabled: bool = False
    """Whether the configuration disables it; it is not imported then."""


@dataclass(slots=True)
class Hooks:
    """The hooks of an engine."""

    guard: Guard
    plugins: tuple[Plugin, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=source_functions)
    """All sources, Nexus's included."""
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    """The plugins' profiles."""
    formats: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The plugins' message formats."""
    calls: Mapping[str, Mapping[str, HookCall]] = field(default_factory=dict[str, Mapping[str, HookCall]])
    """The plugins' hooks, by hook and plugin."""

    def run(self, request: Request, at_ms: int, *, moment: bool) -> tuple[Request, tuple[ContextWarning, ...]]:
        """Return a request with the plugins' tools and, if `moment`, with their event metadata, and warnings.

        Values that the request has already win. `at_ms` is the time of the event, in milliseconds since 1970.
        """
        warnings = [ContextWarning(f"hook:{plugin.name}", text) for plugin in self.plugins for text in plugin.problems]
        tools = self._tools(request, warnings)
        if tools:
            request = replace(request, tools=(*tools, *request.tools))
        if moment and not request.event.results:
            data = self._event_metadata(request, at_ms, warnings)
            if data:
                event = replace(request.event, at_ms=at_ms, hook_data={**data, **request.event.hook_data})
                request = replace(request, event=event)
        return request, tuple(warnings)

    def added(
        self, hook: str, read: Callable[[Any], tuple[dict[str, T], list[str]]]
    ) -> dict[str, tuple[dict[str, T], list[str]]]:
        """Call a hook that adds values by name; return for each plugin the valid ones, by `read`, and the problems."""
        results: dict[str, tuple[dict[str, T], list[str]]] = {}
        for plugin, call in self.calls.get(hook, {}).items():
            result, failure = self.guard.call(plugin, hook, partial(call_hook, call, read))
            values, problems = result or ({}, [])
            results[plugin] = values, [failure.message] if failure else problems
        return results

    def _tools(self, request: Request, warnings: list[ContextWarning]) -> list[dict[str, Any]]:
        calls = self.calls.get("nexus_tools", {})
        if calls:
            specs = {spec.name: spec for spec in canonical(request.tools)}
        else:
            specs = dict[str, ToolSpec]()
        tools: list[dict[str, Any]] = []
        for name, call in calls.items():
            work = partial(call_hook, call, partial(validate_tools, existing=dict(specs)), request)
            result, failure = self.guard.call(name, "nexus_tools", work)
            warnings.extend([failure] if failure else [])
            if result is not None:
                added, problems = result
                tools.extend(spec.definition() for spec in added)
                specs.update((spec.name, spec) for spec in added)
                warnings.extend(ContextWarning(f"hook:{name}", text) for text in problems)
        return tools

    def _event_metadata(self, request: Request, at_ms: int, warnings: list[ContextWarning]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name, call in self.calls.get("nexus_moment", {}).items():
            work = partial(call_hook, call, validate_event_metadata, request, at_ms=at_ms)
            values, failure = self.guard.call(name, "nexus_moment", work)
            warnings.extend([failure] if failure else [])
            if not values:
                continue
            data[name] = values
            if request.event.hook_data.get(name, values) != values:
                text = "event metadata omitted: the event has hook data of that name"
                warnings.append(ContextWarning(f"hook:{name}", text))
        return data
