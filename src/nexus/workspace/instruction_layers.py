"""The layers of document 004, global, ancestors and local: their folders and the possible instruction files in them.

Ancestors are the folders above the workspace up to its repository's root, the nearest one with `.git`. Without a
repository there are none, because files that happen to be above a folder are not about it. The search stops at the user's
home folder and after 32 folders, and ignores a repository of another user. The folders are fixed while an engine is open;
the files are looked up for each call.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import ContextWarning, Trust
from nexus.workspace.files.reader import Files
from nexus.workspace.prompts import template_texts

MAX_ANCESTORS = 32

PERSONAL = "NEXUS.md"
DEFAULTS = Path(__file__).parent / "defaults" / PERSONAL  # the packaged personal prompt

LayerKind: TypeAlias = Literal["personal", "global", "ancestor", "local"]


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of the layers."""

    home: Path
    ancestors: tuple[Path, ...] = ()
    """Folders above the workspace, outermost first."""
    workspace: Path | None = None
    warnings: tuple[ContextWarning, ...] = ()

    def display_path(self, folder: Path) -> str:
        """Return the folder as a prefix of a displayed file name: "" for the workspace, `../`, `~/.nexus/`, `/etc/`."""
        if folder == self.workspace:
            return ""
        if self.workspace is not None and folder in self.workspace.parents:
            return "../" * (self.workspace.parents.index(folder) + 1)
        user = user_home()
        if user is not None and folder.is_relative_to(user):
            return f"~/{collapse_whitespace(folder.relative_to(user).as_posix())}/".replace("~/./", "~/")
        return f"{collapse_whitespace(str(folder))}/"


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """Possible location of an instruction file: its name under the root of `files`."""

    files: Files
    name: str
    origin: str
    """Displayed name of the file."""
    prefix: str = ""
    """Displayed name of the root."""


@dataclass(frozen=True, slots=True)
class FileLayer:
    """The locations of one layer, in order. Only the first existing file of a personal layer counts."""

    kind: LayerKind
    trust: Trust
    places: tuple[InstructionFile, ...]


def folders_of(workspace: Path | None, home: Path) -> Folders:
    """Return the folders of the layers around a workspace; without one, only the user's."""
    home = home.absolute()
    if workspace is None:
        return Folders(home)
    ancestors, warnings = _ancestors(workspace)
    return Folders(home, ancestors, workspace, warnings)


def layers_of(
    folders: Folders, local: Files, names: Sequence[str], own_names: Sequence[str], file_chars: int
) -> tuple[FileLayer, ...]:
    """Return the layers: personal, global (with `own_names`), each ancestor, and local (with the files of `local`).

    All layers allow hard links if the local one does.
    """
    global_files = [folders.home / name for name in own_names if name != PERSONAL]
    links = local.hard_links
    layers = [
        FileLayer("personal", "user", _resolved(folders, personal_places(folders.home), file_chars, hard_links=links)),
        FileLayer("global", "user", _resolved(folders, global_files, file_chars, hard_links=links)),
    ]
    for folder in folders.ancestors:
        files = Files(folder, file_chars, template_texts(), hard_links=links)
        prefix = folders.display_path(folder)
        places = tuple(InstructionFile(files, name, f"{prefix}{name}", prefix) for name in names)
        layers.append(FileLayer("ancestor", "workspace", places))
    layers.append(FileLayer("local", "workspace", tuple(InstructionFile(local, name, name) for name in names)))
    return tuple(layers)


def personal_places(home: Path) -> list[Path]:
    """Return the possible personal prompts: `NEXUS.md` in the user's folder, then in `~/.nexus3`, then the packaged one.

    `~/.nexus3` counts only if the user's folder is `~/.nexus`: another folder was chosen on purpose.
    """
    user = user_home()
    older = [user / ".nexus3" / PERSONAL] if user is not None and home == user / ".nexus" else []
    return [home / PERSONAL, *older, DEFAULTS]


def user_home() -> Path | None:
    """Return the operating system's home folder of the user, or None."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _resolved(
    folders: Folders, paths: Iterable[Path], file_chars: int, *, hard_links: bool
) -> tuple[InstructionFile, ...]:
    """Return the user's own files with links resolved, wherever they lead: often to a folder of dotfiles."""
    places: list[InstructionFile] = []
    for path in paths:
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a circle of links, which reading reports
            real = path
        origin = f"nexus:defaults/{path.name}"
        if path != DEFAULTS:
            origin = f"{folders.display_path(path.parent)}{path.name}"
        files = Files(real.parent, file_chars, template_texts(), hard_links=hard_links)
        places.append(InstructionFile(files, real.name, origin, folders.display_path(real.parent)))
    return tuple(places)


def _ancestors(workspace: Path) -> tuple[tuple[Path, ...], tuple[ContextWarning, ...]]:
    """Return the folders from the repository's root down to the workspace's parent."""
    user = user_home()
    # A workspace at or above the home folder has no project around it.
    if user is not None and (user == workspace or workspace in user.parents):
        return (), ()
    above: list[Path] = []
    for folder in (workspace, *workspace.parents)[: MAX_ANCESTORS + 1]:
        above.append(folder)
        if os.path.lexists(folder / ".git"):
            try:
                is_own = folder.stat().st_uid == workspace.stat().st_uid
            except OSError:
                is_own = False
            if not is_own:  # as git: another user's repository could plant instructions above a shared folder
                text = f"repository {folder} belongs to another user than the workspace; its files are not read"
                return (), (ContextWarning(".git", text),)
            return tuple(reversed(above[1:])), ()
        if folder == user:
            return (), ()
    if len(workspace.parents) > MAX_ANCESTORS:
        text = f"no repository root within {MAX_ANCESTORS} folders above; instruction files there are not read"
        return (), (ContextWarning(".git", text),)
    return (), ()
