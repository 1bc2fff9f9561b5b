"""A profile as a Python file: a program of the user's, which is run. It has all rights that the program which opens Nexus has."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadProfile
from nexus.plugins.guard import InvalidHookResult, describe_error
from nexus.plugins.hooks import Hooks
from nexus.plugins.load import LOAD_MS, guarded_source
from nexus.plugins.validate import validate_profiles, validate_sources
from nexus.profiles.user.toml import validate_profile
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.workspace.config.files import SettingsFile
from nexus.workspace.source_context import Source

EXPECTED = "a nexus.types.profile.Profile: `profile = Profile(…)`"


def load_profile(
    text: str, name: str, file: SettingsFile, hooks: Hooks
) -> tuple[Profile, dict[str, Source], tuple[ContextWarning, ...]]:
    """The profile that a Python file sets as `profile`, under the file's name, its `sources`, and what to say of them.

    `sources` are functions as a plugin has them (`nexus.plugins`). Raises BadProfile, also for a program that fails.
    """
    module, note = hooks.guard.call(str(file.path), "running it", partial(_run, text, name, file), timeout_ms=LOAD_MS)
    if module is None:
        raise BadProfile(
            file.origin, "", f"Python that runs ({note.message.removesuffix(': it is left out') if note else ''})"
        )
    given: Any = getattr(module, "profile", None)
    if not isinstance(given, Profile):
        raise BadProfile(file.origin, "profile", EXPECTED)
    try:
        profile = validate_profiles([replace(given, name=name)], ())[0][name]
        functions, notes = validate_sources(getattr(module, "sources", {}), hooks.sources)
    except InvalidHookResult as error:
        raise BadProfile(file.origin, "", f"{EXPECTED}, and `sources`, functions by name ({error})") from error
    own = {one: guarded_source(hooks.guard, file.path.name, one, function) for one, function in functions.items()}
    validate_profile(profile, {**hooks.sources, **own}, file.origin)
    return profile, own, tuple(ContextWarning(file.origin, note) for note in notes)


def _run(text: str, name: str, file: SettingsFile) -> ModuleType:
    module = ModuleType(f"nexus_profile_{name.replace('-', '_')}")
    module.__file__ = str(file.path)
    sys.modules[module.__name__] = module  # classes look their own module up there
    try:
        exec(compile(text, str(file.path), "exec"), module.__dict__)  # noqa: S102 - the user's own program, by its name
    except Exception as error:
        raise InvalidHookResult(f"{describe_error(error)}{_line(error, str(file.path))}") from error
    return module


def _line(error: Exception, path: str) -> str:
    """Where in the file an error was raised."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == path else line
        trace = trace.tb_next
    return f", line {line}" if line else ""
