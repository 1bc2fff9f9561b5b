"""Asking the plugins of an engine, call by call, for tools and for data of the moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.plugins.guard import Guard
from nexus.plugins.validate import call_hook, validate_event_metadata, validate_tools
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.source_context import Source
from nexus.workspace.sources.registry import source_functions

Ask = Callable[..., Any]
"""Calls one plugin's hook; None where it has no answer."""


class Plugin(Struct, frozen=True):
    """A plugin that was found. `place` is the distribution that it comes with, or `given` by the program.

    `hooks` are the hooks that it has; `sources` and `profiles` are the names that it adds. `troubles` say what of it is
    left out and why. A disabled one was not even imported.
    """

    name: str
    place: str
    hooks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    disabled: bool = False


@dataclass(slots=True)
class Hooks:
    """The hooks of an engine: the plugins, what they add to sources and profiles, and what was wrong with them.

    `sources` are all, those of Nexus included; `profiles` are the plugins' alone. State over time: calls that hang.
    """

    guard: Guard
    plugins: tuple[Plugin, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=source_functions)
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    asks: Mapping[str, Mapping[str, Ask]] = field(default_factory=dict[str, Mapping[str, Ask]])

    def run(self, request: Request, at_ms: int, *, moment: bool) -> tuple[Request, tuple[ContextWarning, ...]]:
        """The request with the plugins' tools and, where a user speaks and `moment` is set, their data of the moment.

        What the request has already stands. With it comes what to report.
        """
        warned = [ContextWarning(f"hook:{one.name}", trouble) for one in self.plugins for trouble in one.troubles]
        tools = self._tools(request, warned)
        if tools:
            request = replace(request, tools=(*tools, *request.tools))
        if moment and not request.event.results:
            data = self._moment(request, at_ms, warned)
            if data:
                event = replace(request.event, at_ms=at_ms, hook_data={**data, **request.event.hook_data})
                request = replace(request, event=event)
        return request, tuple(warned)

    def _tools(self, request: Request, warned: list[ContextWarning]) -> list[dict[str, Any]]:
        asks = self.asks.get("nexus_tools", {})
        taken = {spec.name: spec for spec in canonical(request.tools)} if asks else dict[str, ToolSpec]()
        tools: list[dict[str, Any]] = []
        for name, ask in asks.items():
            work = partial(call_hook, ask, partial(validate_tools, taken=dict(taken)), request)
            found, note = self.guard.call(name, "nexus_tools", work)
            warned.extend([note] if note else [])
            if found is not None:
                tools.extend(spec.definition() for spec in found[0])
                taken.update((spec.name, spec) for spec in found[0])
                warned.extend(ContextWarning(f"hook:{name}", text) for text in found[1])
        return tools

    def _moment(self, request: Request, at_ms: int, warned: list[ContextWarning]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name, ask in self.asks.get("nexus_moment", {}).items():
            found, note = self.guard.call(
                name, "nexus_moment", partial(call_hook, ask, validate_event_metadata, request, at_ms=at_ms)
            )
            warned.extend([note] if note else [])
            if not found:
                continue
            data[name] = found
            if request.event.hook_data.get(name, found) != found:
                warned.append(
                    ContextWarning(f"hook:{name}", "its data is left out: the event has hook data of that name")
                )
        return data
