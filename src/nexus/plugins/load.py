"""Discovery and loading of plugins: entry points, registration of hooks, checks of what they add."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import pluggy
from msgspec.structs import replace

from nexus.plugins import spec
from nexus.plugins.guard import Guard, InvalidHookResult, describe_error
from nexus.plugins.hooks import Ask, Hooks, Plugin
from nexus.plugins.validate import (
    call_hook,
    private_source_context,
    validate_blocks,
    validate_profiles,
    validate_sources,
)
from nexus.text.one_line import collapse_whitespace
from nexus.types.config import HooksConfig
from nexus.types.profile import Profile
from nexus.workspace.source_context import Source, SourceContext, SourceResult
from nexus.workspace.sources.registry import source_functions

HOOKS = ("nexus_moment", "nexus_profiles", "nexus_sources", "nexus_tools")


def register_plugin(plugin: object, name: str) -> tuple[dict[str, Any], list[str]]:
    """Functions that ask the plugin's hooks, by hook, and what is wrong with it. Raises UnfitAnswer if it has none."""
    manager = pluggy.PluginManager(spec.GROUP)
    manager.add_hookspecs(spec)
    manager.register(plugin, name=name)
    troubles: list[str] = []
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        troubles.append(f"it has a hook that there is not: {collapse_whitespace(describe_error(error))}")
    callers = manager.get_hookcallers(plugin) or []
    found = {caller.name: partial(_first, caller) for caller in callers if caller.name in HOOKS}
    if not found:
        raise InvalidHookResult("gave no hook: mark its functions with nexus.hookimpl")
    return found, troubles


def _first(caller: pluggy.HookCaller, **given: Any) -> Any:
    """The one answer of the one plugin."""
    return next(iter(caller(**given)), None)


GROUP = "nexus"
LOAD_MS = 10_000
"""How long importing a plugin may take."""

Found: TypeAlias = tuple[Plugin, Callable[[], object]]
"""A plugin as it was found, and what loads it."""

T = TypeVar("T")


def load_hooks(config: HooksConfig, given: Sequence[object], profiles: Collection[str]) -> Hooks:
    """The hooks of the plugins that are given, and of those that are installed, each in the order of their names.

    `profiles` are names that are taken. A plugin that cannot be loaded is among the plugins, with the reason.
    """
    guard = Guard(config.timeout_ms)
    plugins: dict[str, Plugin] = {}
    doubles: list[Plugin] = []
    sources: dict[str, Source] = source_functions()
    forms: dict[str, Profile] = {}
    asks: dict[str, dict[str, Ask]] = {}
    for plugin, load in (*_given(given), *_installed()):
        name = plugin.name
        if name in plugins:
            doubles.append(replace(plugin, troubles=("left out: another plugin has that name",)))
            continue
        if name in config.disabled:
            plugins[name] = replace(plugin, disabled=True)
            continue
        own, troubles = _registered(guard, name, load)
        functions = _offered(guard, name, own, "nexus_sources", partial(validate_sources, taken=set(sources)), troubles)
        shown = _offered(
            guard, name, own, "nexus_profiles", partial(validate_profiles, taken={*profiles, *forms}), troubles
        )
        sources.update({one: guarded_source(guard, name, one, function) for one, function in functions.items()})
        forms.update(shown)
        for what, ask in own.items():
            asks.setdefault(what, {})[name] = ask
        plugins[name] = replace(
            plugin, hooks=tuple(sorted(own)), sources=tuple(functions), profiles=tuple(shown), troubles=tuple(troubles)
        )
    return Hooks(guard, (*plugins.values(), *doubles), sources, forms, asks)


def _given(plugins: Sequence[object]) -> Iterator[Found]:
    """The plugins that a program gives: modules, classes or objects, named after themselves or their class."""
    named = [(collapse_whitespace(str(getattr(one, "__name__", type(one).__name__))), one) for one in plugins]
    for name, one in sorted(named, key=lambda pair: pair[0]):
        yield Plugin(name, "given"), partial(_itself, one)


def _itself(plugin: object) -> object:
    return plugin


def _installed() -> Iterator[Found]:
    """The entry points of the group, which are imported when they are loaded."""
    for place, name, load in _entry_points(tuple(sys.path)):
        yield Plugin(name, place), load


@lru_cache(maxsize=8)
def _entry_points(_path: tuple[str, ...]) -> list[tuple[str, str, Callable[[], object]]]:
    """Package, name and loader of each entry point of the group, sorted by name. Looked for once for a path of modules."""
    from importlib.metadata import entry_points

    found = [
        (
            collapse_whitespace(f"{one.dist.name} {one.dist.version}") if one.dist else "",
            collapse_whitespace(one.name),
            one.load,
        )
        for one in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda one: (one[1], one[0]))


def _registered(guard: Guard, name: str, load: Callable[[], object]) -> tuple[dict[str, Ask], list[str]]:
    """A plugin's hooks by name, and what was wrong with it."""
    found, note = guard.call(name, "loading it", lambda: register_plugin(load(), name), timeout_ms=LOAD_MS)
    return found or ({}, [note.message] if note else [])


def _offered(
    guard: Guard,
    name: str,
    asks: Mapping[str, Ask],
    what: str,
    read: Callable[[Any], tuple[dict[str, T], list[str]]],
    troubles: list[str],
) -> dict[str, T]:
    """What a plugin offers by name, nothing if it does not; what is wrong with it goes to `troubles`."""
    if what not in asks:
        return {}
    found, note = guard.call(name, what, partial(call_hook, asks[what], read))
    troubles.extend([note.message] if note else found[1] if found else [])
    return found[0] if found else {}


def guarded_source(guard: Guard, plugin: str, name: str, function: Callable[..., Any]) -> Source:
    """The function as a source that is called through the guard, and whose answer is made into blocks of its own origin."""

    def source(desk: SourceContext) -> SourceResult:
        work = partial(_of_source, function, plugin, name, desk)
        found, note = guard.call(plugin, f"source {name}", work)
        return found or ([], [note] if note else [])

    return source


def _of_source(function: Callable[..., Any], plugin: str, name: str, desk: SourceContext) -> SourceResult:
    return validate_blocks(function(private_source_context(desk)), plugin, name)
