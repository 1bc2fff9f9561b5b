"""The profiles that an engine knows by name, wherever they come from, and what is to be said of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.errors import BadProfile, UnknownProfile
from nexus.plugins.hooks import Hooks
from nexus.profiles.builtin import PROFILES
from nexus.profiles.user.discovery import PYTHON, ProfileFiles
from nexus.profiles.user.toml import NAME, NAME_RULE, ProfileDraft, build_profile, parse_profile
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.workspace.config.files import SettingsFile
from nexus.workspace.source_context import Source
from nexus.workspace.sources.app_blocks import app_block_sources, unplaced_blocks

MOST_EXTENDED = 10
"""Profiles that extend one another in a row."""

NOT_RUN = "not run: a Python file counts in your own folder, or where you name it by its path"

Kind: TypeAlias = Literal["ready", "program", "user", "plugin", "workspace"]
"""Where a profile comes from, the first of a name before the others. `program` is what `nexus.open(profiles=)` was given."""

Above: TypeAlias = tuple[Kind, str]
"""A profile that extends another one: where it comes from, and its name."""


class ResolvedProfile(Struct, frozen=True):
    """A profile, where it comes from, the sources that its file brings, and what is to be said of it."""

    profile: Profile
    kind: Kind
    source: str
    sources: Mapping[str, Source] = {}
    warnings: tuple[ContextWarning, ...] = ()


class ProfileEntry(Struct, frozen=True):
    """One name of the list: what it stands for, or what is wrong with it."""

    name: str
    kind: Kind
    source: str
    profile: Profile | None = None
    trouble: str = ""
    warnings: tuple[ContextWarning, ...] = ()


@dataclass(slots=True)
class Profiles:
    """The profiles of an engine. State over time: files that were read or run, and names that were looked for.

    A program's come first, then ready ones, the user's files, plugins', and last the workspace's: none of these can take
    the place of one before it. `given` may name files; a Python file counts only there and in the user's own folder.
    """

    app_profiles: Mapping[str, Profile | Path]
    files: ProfileFiles
    hooks: Callable[[], Hooks]
    _ran: dict[Path, ResolvedProfile] = field(default_factory=dict[Path, ResolvedProfile])
    _made: dict[Path, tuple[ProfileDraft, Profile | None, Profile]] = field(
        default_factory=dict[Path, "tuple[ProfileDraft, Profile | None, Profile]"]
    )
    _hidden: dict[str, tuple[ContextWarning, ...]] = field(default_factory=dict[str, "tuple[ContextWarning, ...]"])

    @property
    def names_in_use(self) -> set[str]:
        """Names that no plugin can have."""
        return {*PROFILES, *self.app_profiles}

    def resolve_with_source(self, name: str, above: tuple[Above, ...] = ()) -> ResolvedProfile:
        """The profile of that name. Raises UnknownProfile, which lists all, and BadProfile.

        `above` are those that extend it: a file of the user's builds on nothing of a workspace.
        """
        given = self.app_profiles.get(name)
        if isinstance(given, Profile):
            return ResolvedProfile(given, "program", "nexus.open")
        if given is not None:
            return self._read(name, SettingsFile(given, str(given)), "program", above)
        if name in PROFILES:
            return ResolvedProfile(PROFILES[name], "ready", "nexus", warnings=self._not_used(name, "a ready profile"))
        if not NAME.fullmatch(name):
            file = None
        elif (file := self.files.user_files(name)) is not None:
            return self._read(name, file, "user", above)
        if name in self.hooks().profiles:
            origin = self._plugin(name)
            warned = self._not_used(name, f"that of {origin}") if NAME.fullmatch(name) else ()
            return ResolvedProfile(self.hooks().profiles[name], "plugin", origin, warnings=warned)
        if NAME.fullmatch(name) and not any(kind == "user" for kind, _ in above):
            file = self.files.workspace_files(name)
        if file is None:
            raise UnknownProfile(self._unknown(name))
        return self._read(name, file, "workspace", above)

    def resolve(self, name: str) -> tuple[Profile, Mapping[str, Source]]:
        """The profile of that name, and every source that it may name. Raises UnknownProfile, BadProfile."""
        found = self.resolve_with_source(name)
        return found.profile, self.sources(found)

    def sources(self, found: ResolvedProfile) -> Mapping[str, Source]:
        """Every source that the profile may name: Nexus's and plugins', its own file's, and blocks of the application."""
        fed = app_block_sources(found.profile)
        return {**self.hooks().sources, **found.sources, **fed} if found.sources or fed else self.hooks().sources

    def warnings_for(self, found: ResolvedProfile, request: Request) -> tuple[ContextWarning, ...]:
        """What is to be said before anything is gathered: clashes of names, and blocks of the request without a place."""
        return (*found.warnings, *unplaced_blocks(request.blocks, found.profile)) if request.blocks else found.warnings

    def entries(self) -> tuple[list[ProfileEntry], list[ContextWarning]]:
        """Every profile, also those that cannot be used; and what is to be said of files that are none."""
        names, warned = self.files.names()
        own = [name for name in names if name not in self.names_in_use]
        every = sorted({*self.names_in_use, *own, *self.hooks().profiles})
        order: tuple[Kind, ...] = ("ready", "program", "user", "plugin", "workspace")
        rows = [row for name in every if (row := self._row(name)) is not None]
        return sorted(rows, key=lambda row: (order.index(row.kind), row.name)), warned

    def _row(self, name: str) -> ProfileEntry | None:
        try:
            found = self.resolve_with_source(name)
        except BadProfile as error:
            kind: Kind = (
                "program" if name in self.app_profiles else "user" if self.files.user_files(name) else "workspace"
            )
            return ProfileEntry(name, kind, error.file, trouble=str(error).removeprefix(f"{error.file}: "))
        except UnknownProfile:
            refused = self.files.rejected_files(name)
            return ProfileEntry(name, "workspace", refused.origin, trouble=NOT_RUN) if refused else None
        return ProfileEntry(name, found.kind, found.source, found.profile, warnings=found.warnings)

    def _plugin(self, name: str) -> str:
        """The plugin that has a profile of that name; empty if none has."""
        found = next((one.name for one in self.hooks().plugins if name in one.profiles), "")
        return f"plugin {found}" if found else ""

    def _read(self, name: str, file: SettingsFile, kind: Kind, above: tuple[Above, ...]) -> ResolvedProfile:
        """The profile of a file, what it extends looked up in turn."""
        if not NAME.fullmatch(name):
            raise BadProfile(file.origin, "", f"{NAME_RULE}; not {name[:80]!r}")
        if name in PROFILES:
            raise BadProfile(file.origin, "", f"another name: {name!r} is a ready profile")
        text, same = self.files.text(file)
        warned = self._not_used(name, file.origin) if kind != "program" else ()
        if kind == "user" and (plugin := self._plugin(name)):
            warned = (
                *warned,
                ContextWarning(plugin, f"its profile is not used: {file.origin} has the same name and comes first"),
            )
        if file.path.suffix == PYTHON:
            if not same:
                self._ran.pop(file.path, None)
            if file.path not in self._ran:
                from nexus.profiles.user import python as program

                profile, sources, notes = program.load_profile(text, name, file, self.hooks())
                self._ran[file.path] = ResolvedProfile(profile, kind, file.origin, sources, notes)
            ran = self._ran[file.path]
            return ResolvedProfile(ran.profile, kind, file.origin, ran.sources, (*ran.warnings, *warned))
        draft = parse_profile(text, file.origin)
        base = None
        if draft.extends:
            base = self._base(draft.extends, file, (*above, (kind, name)))
        own: Mapping[str, Source] = base.sources if base else {}
        under = base.profile if base else None
        made = self._made.get(file.path)
        if made is None or made[0] is not draft or made[1] != under:
            profile = build_profile(draft, name, under, {**self.hooks().sources, **own}, file.origin)
            made = self._made[file.path] = (draft, under, profile)
        return ResolvedProfile(made[2], kind, file.origin, own, warned)

    def _base(self, name: str, file: SettingsFile, above: tuple[Above, ...]) -> ResolvedProfile:
        chain = [one for _, one in above]
        if name in chain:
            raise BadProfile(file.origin, "extends", f"no circle: {' → '.join([*chain, name])}")
        if len(chain) > MOST_EXTENDED:
            raise BadProfile(file.origin, "extends", f"at most {MOST_EXTENDED} profiles that extend one another")
        try:
            return self.resolve_with_source(name, above)
        except UnknownProfile as error:
            raise BadProfile(file.origin, "extends", f"the name of a profile ({error})") from error

    def _not_used(self, name: str, by: str) -> tuple[ContextWarning, ...]:
        """What is to be said of files of that name that another profile goes before; looked for once."""
        if name not in self._hidden:
            others = [
                self.files.user_files(name),
                self.files.duplicates(name),
                self.files.workspace_files(name),
                self.files.rejected_files(name),
            ]
            origins = sorted({one.origin for one in others if one is not None} - {by})
            self._hidden[name] = tuple(
                ContextWarning(one, f"not used: {by} has the same name and comes first") for one in origins
            )
        return self._hidden[name]

    def _unknown(self, name: str) -> str:
        refused = self.files.rejected_files(name) if NAME.fullmatch(name) else None
        if refused is not None:
            return f"there is no profile {name!r}, and {refused.origin} is {NOT_RUN}"
        there = (one for one in self.files.names()[0] if self.files.user_files(one) or self.files.workspace_files(one))
        known = sorted({*self.names_in_use, *self.hooks().profiles, *there})
        return f"there is no profile {name[:80]!r}; there are: {', '.join(known)}"


def load_profiles(
    app_profiles: Mapping[str, Profile | str | Path], home: Path, workspace: Path | None, hooks: Callable[[], Hooks]
) -> Profiles:
    """The profiles of an engine: those that a program gives, as values or files, and those that are found."""
    named: dict[str, Profile | Path] = {}
    for name, one in app_profiles.items():
        if not isinstance(one, (Profile, str, Path)):
            raise BadProfile("nexus.open", f"profiles.{name}", f"a Profile, or its file; not {type(one).__name__}")
        named[name] = one if isinstance(one, Profile) else Path(one).expanduser().absolute()
    return Profiles(named, ProfileFiles(home.absolute(), workspace), hooks)
