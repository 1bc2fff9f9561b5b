"""Discovery and loading of plugins: entry points, registration of hooks, and checks of the names they add."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from nexus.text.one_line import collapse_whitespace
from nexus.types.config import HooksConfig
from nexus.types.profile import Profile
from nexus.workspace.plugins.guard import (
    Guard,
    InvalidHookResult,
    call_hook,
    describe_error,
    private_source_context,
    validate_blocks,
    validate_profiles,
    validate_sources,
)
from nexus.workspace.plugins.hooks import HookCall, Hooks, Plugin
from nexus.workspace.source_context import Source, SourceContext, SourceResult
from nexus.workspace.sources.registry import source_functions

if TYPE_CHECKING:
    import pluggy

GROUP = "nexus"  # the entry point group

HOOKS = ("nexus_formats", "nexus_moment", "nexus_profiles", "nexus_readers", "nexus_sources", "nexus_tools")

LOAD_MS = 10_000  # timeout for importing a plugin
LoadablePlugin: TypeAlias = tuple[Plugin, Callable[[], object]]  # a discovered plugin, and the function that loads it

T = TypeVar("T")


class AddFormats(Protocol):
    """Adds a plugin's message formats to the table: the valid ones, by name, and problems with the others."""

    def __call__(self, result: Any, names_in_use: Collection[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the formats whose names are valid and free, and the problems."""
        ...


def load_hooks(
    config: HooksConfig,
    plugins: Sequence[object],
    profiles: Collection[str],
    add_formats: AddFormats,
) -> Hooks:
    """Load a program's plugins (modules, classes or objects) and the installed ones, each group sorted by name.

    `profiles` are names that are taken; `add_formats` adds a plugin's message formats. A plugin that cannot be loaded
    is listed with the reason.
    """
    guard = Guard(config.timeout_ms)
    loaded: dict[str, Plugin] = {}
    duplicates: list[Plugin] = []
    all_sources: dict[str, Source] = source_functions()
    all_profiles: dict[str, Profile] = {}
    all_formats: dict[str, Any] = {}
    calls: dict[str, dict[str, HookCall]] = {}
    given = sorted(((_label(plugin), plugin) for plugin in plugins), key=lambda pair: pair[0])
    # Plugins passed by the program come first, so that they win over installed ones of the same name.
    found: list[LoadablePlugin] = [(Plugin(label, "given"), partial(_identity, plugin)) for label, plugin in given]
    found += [(Plugin(label, distribution), load) for distribution, label, load in _entry_points(tuple(sys.path))]
    for plugin, load in found:
        name = plugin.name
        if name in loaded:
            duplicates.append(replace(plugin, problems=("omitted: another plugin has the same name",)))
            continue
        if name in config.disabled:
            loaded[name] = replace(plugin, disabled=True)
            continue
        # Importing runs the package's code, which may fail or hang as its hooks may.
        registered, failure = guard.call(name, "loading it", partial(register_plugin, load, name), timeout_ms=LOAD_MS)
        hooks, problems = registered or ({}, [failure.message] if failure else [])
        read_sources = partial(validate_sources, names_in_use=set(all_sources))
        functions = _added(guard, name, hooks, "nexus_sources", read_sources, problems)
        read_profiles = partial(validate_profiles, names_in_use={*profiles, *all_profiles})
        added_profiles = _added(guard, name, hooks, "nexus_profiles", read_profiles, problems)
        add_free_formats = partial(add_formats, names_in_use=set(all_formats))
        formats = _added(guard, name, hooks, "nexus_formats", add_free_formats, problems)
        all_formats.update(formats)
        for source, function in functions.items():
            all_sources[source] = guarded_source(guard, name, source, function)
        all_profiles.update(added_profiles)
        for hook, call in hooks.items():
            calls.setdefault(hook, {})[name] = call
        loaded[name] = replace(
            plugin,
            hooks=tuple(sorted(hooks)),
            sources=tuple(functions),
            profiles=tuple(added_profiles),
            formats=tuple(formats),
            problems=tuple(problems),
        )
    return Hooks(guard, (*loaded.values(), *duplicates), all_sources, all_profiles, all_formats, calls)


def _label(plugin: object) -> str:
    try:
        name = str(getattr(plugin, "__name__", type(plugin).__name__))
    except Exception:  # noqa: BLE001 - a property of the plugin
        name = type(plugin).__name__
    return collapse_whitespace(name)


def _identity(plugin: object) -> object:
    return plugin


@lru_cache(maxsize=8)
def _entry_points(_path: tuple[str, ...]) -> list[tuple[str, str, Callable[[], object]]]:
    """Return distribution, name and loader of each entry point of the group, sorted by name. Cached by `sys.path`."""
    from importlib.metadata import entry_points

    points: list[tuple[str, str, Callable[[], object]]] = []
    for point in entry_points(group=GROUP):
        distribution = ""
        if point.dist:
            distribution = collapse_whitespace(f"{point.dist.name} {point.dist.version}")
        points.append((distribution, collapse_whitespace(point.name), point.load))
    return sorted(points, key=lambda point: (point[1], point[0]))


def register_plugin(load: Callable[[], object], name: str) -> tuple[dict[str, HookCall], list[str]]:
    """Load a plugin; return its hook calls by hook, and its problems. Raises InvalidHookResult if it implements no hook."""
    import pluggy  # here, because most programs have no plugin and the import takes time

    from nexus.workspace.plugins import spec

    plugin = load()
    manager = pluggy.PluginManager(spec.GROUP)
    manager.add_hookspecs(spec)
    manager.register(plugin, name=name)
    problems: list[str] = []
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        problems.append(f"unknown hook: {collapse_whitespace(describe_error(error))}")
    callers = manager.get_hookcallers(plugin) or []
    calls = {caller.name: partial(_first_result, caller) for caller in callers if caller.name in HOOKS}
    if not calls:
        raise InvalidHookResult("implements no hook (mark its functions with nexus.hookimpl)")
    return calls, problems


def _first_result(caller: pluggy.HookCaller, **arguments: Any) -> Any:
    """Return the only result, as each manager has one plugin."""
    return next(iter(caller(**arguments)), None)


def _added(
    guard: Guard,
    plugin: str,
    hooks: Mapping[str, HookCall],
    hook: str,
    read: Callable[[Any], tuple[dict[str, T], list[str]]],
    problems: list[str],
) -> dict[str, T]:
    """Return what a hook adds by name, and append its problems."""
    if hook not in hooks:
        return {}
    result, failure = guard.call(plugin, hook, partial(call_hook, hooks[hook], read))
    if failure:
        problems.append(failure.message)
        return {}
    if not result:
        return {}
    added, result_problems = result
    problems.extend(result_problems)
    return added


def guarded_source(guard: Guard, plugin: str, name: str, function: Callable[..., Any]) -> Source:
    """Return a source that calls a plugin's function through the guard and labels its blocks with the plugin."""

    def source(context: SourceContext) -> SourceResult:
        def work() -> SourceResult:
            return validate_blocks(function(private_source_context(context)), plugin, name)

        result, failure = guard.call(plugin, f"source {name}", work)
        return result or ([], [failure] if failure else [])

    return source
