"""The profiles of an engine by name, wherever they come from, and the files that define them.

A file's text is read again when the file changes on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.assembly.profiles.builtin import PROFILES
from nexus.assembly.profiles.user.toml import NAME, NAME_RULE, ProfileDraft, build_profile, parse_profile
from nexus.errors import BadConfig, NotFound, bad_profile
from nexus.text.one_line import collapse_whitespace
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.workspace.config import LAYER_FOLDER, OutsideFolder, SettingsFile, describe_error
from nexus.workspace.files.containment import State, state_of
from nexus.workspace.files.reader import is_young
from nexus.workspace.instruction_layers import Folders
from nexus.workspace.plugins.hooks import Hooks
from nexus.workspace.source_context import Source
from nexus.workspace.sources.event_blocks import app_block_sources, unplaced_blocks

FOLDER = "profiles"
PYTHON = ".py"
TOML = ".toml"
MOST_FILES = 1_000  # maximum number of entries read from one folder
MOST_EXTENDED = 10  # maximum length of a chain of profiles that extend one another

NOT_RUN = "not run: Python files count in your own folder, or where you name them by path"

Kind: TypeAlias = Literal["ready", "program", "user", "plugin", "workspace"]
"""Where a profile comes from. `program` is an argument of `nexus.open(profiles=)`, `ready` a built-in profile."""

Extending: TypeAlias = tuple[Kind, str]  # kind and name of a profile that extends another one


@dataclass(slots=True)
class ProfileFiles:
    """Profile files of the user and of a workspace, with a cache of their texts by path and state on disk.

    A workspace's Python files are never run: they would be somebody else's program.
    """

    home: Path
    """The user's folder, an absolute path."""
    workspace: Path | None = None
    _user_folder: str = field(init=False)
    _workspace_folder: str = field(init=False, default="")
    _files: dict[str, SettingsFile] = field(default_factory=dict[str, SettingsFile])
    _texts: dict[Path, tuple[State | None, str]] = field(default_factory=dict[Path, tuple["State | None", str]])

    def __post_init__(self) -> None:
        self._user_folder = os.path.join(self.home, FOLDER, "")  # noqa: PTH118 - a prefix of file names, for speed
        if self.workspace is not None:
            folder = self.workspace / LAYER_FOLDER
            # Not Path.resolve(), which raises for a circle of links.
            if folder not in (self.home, Path(os.path.realpath(self.home))):
                self._workspace_folder = os.path.join(folder, FOLDER, "")  # noqa: PTH118 - as above

    def user_files(self, name: str) -> SettingsFile | None:
        """Return the user's file of that name, TOML before Python; None if there is none."""
        return self._find(self._user_folder, name, TOML) or self._find(self._user_folder, name, PYTHON)

    def workspace_files(self, name: str) -> SettingsFile | None:
        """Return the workspace's TOML file of that name; None if there is none."""
        return self._find(self._workspace_folder, name, TOML)

    def rejected_files(self, name: str) -> SettingsFile | None:
        """Return the workspace's Python file of that name, which is not run; None if there is none."""
        return self._find(self._workspace_folder, name, PYTHON)

    def duplicates(self, name: str) -> SettingsFile | None:
        """Return the user's Python file of that name if a TOML file takes precedence over it."""
        python = self._find(self._user_folder, name, PYTHON)
        if self._find(self._user_folder, name, TOML) is not None:
            return python
        return None

    def names(self) -> tuple[list[str], list[ContextWarning]]:
        """Return the names of all files, sorted, and warnings about folders and file names that cannot be used."""
        names: set[str] = set()
        warnings: list[ContextWarning] = []
        for folder in filter(None, (self._user_folder, self._workspace_folder)):
            try:
                with os.scandir(folder) as entries:
                    paths = [Path(folder, name) for name in sorted(entry.name for entry in islice(entries, MOST_FILES))]
            except FileNotFoundError:
                continue
            except OSError as error:
                text = f"profiles of this folder not usable: {describe_error(error)}"
                warnings.append(ContextWarning(collapse_whitespace(self._file(Path(folder)).origin), text))
                continue
            for path in paths:
                if path.suffix not in (PYTHON, TOML) or path.name.startswith("."):
                    continue
                if NAME.fullmatch(path.stem):
                    names.add(path.stem)
                else:
                    origin = collapse_whitespace(self._file(path).origin)
                    warnings.append(ContextWarning(origin, f"omitted: expected {NAME_RULE}"))
        return sorted(names), warnings

    def text(self, file: SettingsFile) -> tuple[str, bool]:
        """Return the file's text, and whether it is the same as at the last reading. Raises BadConfig."""
        try:
            state = state_of(file.path.stat())
            cached = self._texts.get(file.path)
            if cached is not None and cached[0] == state:
                return cached[1], True
            text = file.text()
        except OutsideFolder as error:
            raise bad_profile(file.origin, "", "a file inside the workspace, not a link out of it") from error
        except (OSError, ValueError, RuntimeError) as error:
            if isinstance(error, (OSError, ValueError)):
                reason = describe_error(error)
            else:
                reason = str(error)
            raise bad_profile(file.origin, "", f"a readable text file ({reason})") from error
        if text is None:
            raise bad_profile(file.origin, "", "an existing file")
        # A file that was just written may change again within the resolution of its time stamp: read it again.
        self._texts[file.path] = (None if is_young(state) else state, text)
        return text, cached is not None and cached[1] == text

    def _find(self, folder: str, name: str, suffix: str) -> SettingsFile | None:
        """Return the folder's file of that name, if it exists; `folder` may be empty."""
        path = f"{folder}{name}{suffix}"
        if not folder or not os.path.lexists(path):
            return None
        if path not in self._files:
            self._files[path] = self._file(Path(path))
        return self._files[path]

    def _file(self, path: Path) -> SettingsFile:
        if path.parent == self.home / FOLDER:
            home = Folders(self.home, (), self.workspace).display_path(self.home)
            return SettingsFile(path, f"{home}{FOLDER}/{path.name}")
        return SettingsFile(path, f"{LAYER_FOLDER}/{FOLDER}/{path.name}", self.workspace)


class ResolvedProfile(Struct, frozen=True):
    """A profile with its source of definition."""

    profile: Profile
    kind: Kind
    source: str
    sources: Mapping[str, Source] = {}
    """Source functions that the profile's file defines."""
    warnings: tuple[ContextWarning, ...] = ()


class ProfileEntry(Struct, frozen=True):
    """One name of the list of profiles, with its profile or the reason why it cannot be used."""

    name: str
    kind: Kind
    source: str
    profile: Profile | None = None
    problem: str = ""
    warnings: tuple[ContextWarning, ...] = ()


@dataclass(slots=True)
class Profiles:
    """The profiles of an engine, with caches of files that were read or run.

    In order of precedence: the program's, built-in ones, the user's files, plugins', the workspace's. A later one never
    replaces an earlier one of the same name. Python files are run only if the program names them or if they are in the
    user's folder.
    """

    app_profiles: Mapping[str, Profile | Path]
    files: ProfileFiles
    hooks: Callable[[], Hooks]
    _python_profiles: dict[Path, ResolvedProfile] = field(default_factory=dict[Path, ResolvedProfile])
    _toml_profiles: dict[Path, tuple[ProfileDraft, Profile | None, Profile]] = field(
        default_factory=dict[Path, "tuple[ProfileDraft, Profile | None, Profile]"]
    )
    """The draft, the profile it extends and the result, by path: built again when one of the first two changes."""
    _unused_files: dict[str, tuple[ContextWarning, ...]] = field(
        default_factory=dict[str, "tuple[ContextWarning, ...]"]
    )

    @property
    def names_in_use(self) -> set[str]:
        """Names that a plugin's profile cannot have."""
        return {*PROFILES, *self.app_profiles}

    def resolve_with_source(self, name: str, chain: tuple[Extending, ...] = ()) -> ResolvedProfile:
        """Return the profile of that name. Raises NotFound, which lists all names, or BadConfig.

        `chain` are the profiles that extend it. A user's profile never extends a workspace's, which is untrusted.
        """
        value = self.app_profiles.get(name)
        # What the program passes comes first, so that no file can replace it.
        if isinstance(value, Profile):
            return ResolvedProfile(value, "program", "nexus.open")
        if value is not None:
            return self._from_file(name, SettingsFile(value, str(value)), "program", chain)
        if name in PROFILES:
            warnings = self._warn_unused(name, "a built-in profile")
            return ResolvedProfile(PROFILES[name], "ready", "nexus", warnings=warnings)
        is_file_name = NAME.fullmatch(name) is not None
        file = self.files.user_files(name) if is_file_name else None
        if file is not None:
            return self._from_file(name, file, "user", chain)
        if name in self.hooks().profiles:
            plugin = self._plugin(name)
            warnings = self._warn_unused(name, f"the profile of {plugin}") if is_file_name else ()
            return ResolvedProfile(self.hooks().profiles[name], "plugin", plugin, warnings=warnings)
        if is_file_name and not any(kind == "user" for kind, _ in chain):
            file = self.files.workspace_files(name)
        if file is None:
            rejected = None
            if is_file_name:
                rejected = self.files.rejected_files(name)
            if rejected is not None:
                raise NotFound(
                    f"profile {name!r} not found, and {rejected.origin} is {NOT_RUN}", code="unknown_profile"
                )
            names = (
                one for one in self.files.names()[0] if self.files.user_files(one) or self.files.workspace_files(one)
            )
            listed = ", ".join(sorted({*self.names_in_use, *self.hooks().profiles, *names}))
            raise NotFound(f"profile {name[:80]!r} not found (profiles: {listed})", code="unknown_profile")
        return self._from_file(name, file, "workspace", chain)

    def resolve(self, name: str) -> tuple[Profile, Mapping[str, Source]]:
        """Return the profile of that name, and every source that it may use. Raises NotFound, BadConfig."""
        resolved = self.resolve_with_source(name)
        return resolved.profile, self.sources(resolved)

    def sources(self, resolved: ResolvedProfile) -> Mapping[str, Source]:
        """Return every source that the profile may use: Nexus's, plugins', its own file's, and application blocks."""
        app_blocks = app_block_sources(resolved.profile)
        if not resolved.sources and not app_blocks:
            return self.hooks().sources
        return {**self.hooks().sources, **resolved.sources, **app_blocks}

    def warnings_for(self, resolved: ResolvedProfile, request: Request) -> tuple[ContextWarning, ...]:
        """Return warnings about name clashes, and about blocks of the request that the profile does not place."""
        if not request.settings.blocks:
            return resolved.warnings
        return (*resolved.warnings, *unplaced_blocks(request.settings.blocks, resolved.profile))

    def entries(self) -> tuple[list[ProfileEntry], list[ContextWarning]]:
        """Return every profile, including unusable ones, by kind and name, and warnings about other files."""
        names, warnings = self.files.names()
        order: tuple[Kind, ...] = ("ready", "program", "user", "plugin", "workspace")
        all_names = sorted({*self.names_in_use, *names, *self.hooks().profiles})
        rows = [row for name in all_names if (row := self._entry(name)) is not None]
        return sorted(rows, key=lambda row: (order.index(row.kind), row.name)), warnings

    def _entry(self, name: str) -> ProfileEntry | None:
        try:
            resolved = self.resolve_with_source(name)
        except BadConfig as error:
            kind: Kind = "workspace"
            if name in self.app_profiles:
                kind = "program"
            elif self.files.user_files(name):
                kind = "user"
            return ProfileEntry(name, kind, error.file, problem=str(error).removeprefix(f"{error.file}: "))
        except NotFound:
            rejected = self.files.rejected_files(name)
            if rejected:
                return ProfileEntry(name, "workspace", rejected.origin, problem=NOT_RUN)
            return None
        return ProfileEntry(name, resolved.kind, resolved.source, resolved.profile, warnings=resolved.warnings)

    def _plugin(self, name: str) -> str:
        """Return the plugin that adds a profile of that name; empty if none does."""
        return next((f"plugin {plugin.name}" for plugin in self.hooks().plugins if name in plugin.profiles), "")

    def _from_file(self, name: str, file: SettingsFile, kind: Kind, chain: tuple[Extending, ...]) -> ResolvedProfile:
        if not NAME.fullmatch(name):
            raise bad_profile(file.origin, "", f"{NAME_RULE}; not {name[:80]!r}")
        if name in PROFILES:
            raise bad_profile(file.origin, "", f"another name: {name!r} is a built-in profile")
        text, is_same = self.files.text(file)
        warnings = self._warn_unused(name, file.origin) if kind != "program" else ()
        if kind == "user" and (plugin := self._plugin(name)):
            warnings = (*warnings, ContextWarning(plugin, f"profile not used: {file.origin} has the same name"))
        if file.path.suffix == PYTHON:
            if not is_same:
                self._python_profiles.pop(file.path, None)
            if file.path not in self._python_profiles:
                from nexus.assembly.profiles.user.python import load_profile

                profile, functions, notes = load_profile(text, name, file, self.hooks())
                self._python_profiles[file.path] = ResolvedProfile(profile, kind, file.origin, functions, notes)
            run = self._python_profiles[file.path]
            return ResolvedProfile(run.profile, kind, file.origin, run.sources, (*run.warnings, *warnings))
        draft = parse_profile(text, file.origin)
        base: ResolvedProfile | None = None
        if draft.extends:
            names = [*(one for _, one in chain), name]
            if draft.extends in names:
                raise bad_profile(file.origin, "extends", f"no circle: {' → '.join([*names, draft.extends])}")
            if len(names) > MOST_EXTENDED:
                raise bad_profile(file.origin, "extends", f"at most {MOST_EXTENDED} profiles that extend one another")
            try:
                base = self.resolve_with_source(draft.extends, (*chain, (kind, name)))
            except NotFound as error:
                raise bad_profile(file.origin, "extends", f"the name of a profile ({error})") from error
        sources: Mapping[str, Source] = base.sources if base else {}
        base_profile = base.profile if base else None
        cached = self._toml_profiles.get(file.path)
        # `parse_profile` caches by text, so an unchanged text gives the same draft.
        if cached is None or cached[0] is not draft or cached[1] != base_profile:
            profile = build_profile(draft, name, base_profile, {**self.hooks().sources, **sources}, file.origin)
            cached = self._toml_profiles[file.path] = (draft, base_profile, profile)
        return ResolvedProfile(cached[2], kind, file.origin, sources, warnings)

    def _warn_unused(self, name: str, used: str) -> tuple[ContextWarning, ...]:
        """Return a warning for each file of that name that another profile replaces; cached."""
        if name not in self._unused_files:
            files = (
                self.files.user_files(name),
                self.files.duplicates(name),
                self.files.workspace_files(name),
                self.files.rejected_files(name),
            )
            origins = sorted({file.origin for file in files if file is not None} - {used})
            text = f"not used: {used} has the same name and comes first"
            self._unused_files[name] = tuple(ContextWarning(origin, text) for origin in origins)
        return self._unused_files[name]


def load_profiles(
    app_profiles: Mapping[str, Profile | str | Path], home: Path, workspace: Path | None, hooks: Callable[[], Hooks]
) -> Profiles:
    """Return the profiles of an engine; `app_profiles` are the program's, as values or files.

    `hooks` is called when a plugin's profile or source is first needed. Raises BadConfig for a value that is neither a
    Profile nor a path.
    """
    profiles: dict[str, Profile | Path] = {}
    for name, value in app_profiles.items():
        if not isinstance(value, (Profile, str, Path)):
            raise bad_profile("nexus.open", f"profiles.{name}", f"a Profile or its file, not {type(value).__name__}")
        profiles[name] = value if isinstance(value, Profile) else Path(value).expanduser().absolute()
    return Profiles(profiles, ProfileFiles(home.absolute(), workspace), hooks)
