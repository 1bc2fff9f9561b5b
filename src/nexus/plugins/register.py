"""One plugin's hooks, found by pluggy. Each plugin has a manager of its own, so that a broken one breaks no other."""

from __future__ import annotations

from functools import partial
from typing import Any

import pluggy

from nexus.plugins import spec
from nexus.plugins.guard import UnfitAnswer, said
from nexus.workspace.files.one_line import one_line

HOOKS = ("nexus_moment", "nexus_profiles", "nexus_sources", "nexus_tools")


def register(plugin: object, name: str) -> tuple[dict[str, Any], list[str]]:
    """Functions that ask the plugin's hooks, by hook, and what is wrong with it. Raises UnfitAnswer if it has none."""
    manager = pluggy.PluginManager(spec.GROUP)
    manager.add_hookspecs(spec)
    manager.register(plugin, name=name)
    troubles: list[str] = []
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        troubles.append(f"it has a hook that there is not: {one_line(said(error))}")
    callers = manager.get_hookcallers(plugin) or []
    found = {caller.name: partial(_first, caller) for caller in callers if caller.name in HOOKS}
    if not found:
        raise UnfitAnswer("gave no hook: mark its functions with nexus.hookimpl")
    return found, troubles


def _first(caller: pluggy.HookCaller, **given: Any) -> Any:
    """The one answer of the one plugin."""
    return next(iter(caller(**given)), None)
