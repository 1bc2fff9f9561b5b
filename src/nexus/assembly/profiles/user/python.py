"""Profiles from Python files. A file runs as part of the program that opens Nexus, with all its rights."""

from __future__ import annotations

import sys
from types import ModuleType

from msgspec.structs import replace

from nexus.assembly.profiles.user.toml import validate_profile
from nexus.errors import bad_profile
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.workspace.config import SettingsFile
from nexus.workspace.plugins.guard import (
    OMITTED,
    InvalidHookResult,
    describe_error,
    validate_profiles,
    validate_sources,
)
from nexus.workspace.plugins.hooks import Hooks
from nexus.workspace.plugins.load import LOAD_MS, guarded_source
from nexus.workspace.source_context import Source

EXPECTED = "a nexus.types.profile.Profile: `profile = Profile(…)`"


def load_profile(
    text: str, name: str, file: SettingsFile, hooks: Hooks
) -> tuple[Profile, dict[str, Source], tuple[ContextWarning, ...]]:
    """Run a Python file and return its `profile`, named after the file, its `sources`, and warnings.

    Raises BadConfig if the program fails or takes too long, or if `profile` or `sources` is invalid.
    """
    path = str(file.path)

    def run() -> ModuleType:
        module = ModuleType(f"nexus_profile_{name.replace('-', '_')}")
        module.__file__ = path
        sys.modules[module.__name__] = module  # dataclasses and msgspec look up a class's module by name
        try:
            exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - the user's own program, by its name
        except Exception as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            trace = error.__traceback__
            while trace is not None:  # the innermost frame of this file, not of a library that it calls
                if trace.tb_frame.f_code.co_filename == path:
                    line = trace.tb_lineno
                trace = trace.tb_next
            raise InvalidHookResult(f"{describe_error(error)}{f', line {line}' if line else ''}") from error
        return module

    module, failure = hooks.guard.call(path, "running it", run, timeout_ms=LOAD_MS)
    if module is None:
        reason = ""
        if failure:
            reason = failure.message.removesuffix(OMITTED)
        raise bad_profile(file.origin, "", f"Python that runs ({reason})")
    value: object = getattr(module, "profile", None)
    if not isinstance(value, Profile):
        raise bad_profile(file.origin, "profile", EXPECTED)
    try:
        profile = validate_profiles([replace(value, name=name)], ())[0][name]
        functions, problems = validate_sources(getattr(module, "sources", {}), hooks.sources)
    except InvalidHookResult as error:
        raise bad_profile(file.origin, "", f"{EXPECTED}, and `sources`, functions by name ({error})") from error
    sources = {
        source: guarded_source(hooks.guard, file.path.name, source, function) for source, function in functions.items()
    }
    validate_profile(profile, {**hooks.sources, **sources}, file.origin)
    return profile, sources, tuple(ContextWarning(file.origin, problem) for problem in problems)
