"""The layers of document 004: global, ancestors, local. Which folders they are, and which files of instructions they have.

Ancestors are the folders above the workspace up to its repository's root, the nearest one with `.git`; without one there
are none: what happens to lie above a folder is not about it. Nothing above the user's home folder is looked at, no more
than 32 folders are, and a repository that belongs to somebody else does not count. What was found holds for as long as an
engine is open; the files themselves are looked at for each call.
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
from nexus.workspace.files.templates import template_texts

MOST_ANCESTORS = 32

PERSONAL = "NEXUS.md"
DEFAULTS = Path(__file__).parent / "defaults" / PERSONAL
"""The personal prompt that ships with the package."""

LayerKind: TypeAlias = Literal["personal", "global", "ancestor", "local"]


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of the layers: the user's own, those above the workspace (outermost first), the workspace."""

    home: Path
    ancestors: tuple[Path, ...] = ()
    workspace: Path | None = None
    warned: tuple[ContextWarning, ...] = ()

    def display_path(self, folder: Path) -> str:
        """The folder as it is shown in front of a file's name: empty for the workspace, `../`, `~/.nexus/`, `/etc/`."""
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
    """Where a file of instructions may be: its name under the root of `files`, and how it and the root are shown."""

    files: Files
    name: str
    origin: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class FileLayer:
    """The places of one layer, in order. Of a personal layer only the first file that has a text counts."""

    kind: LayerKind
    trust: Trust
    places: tuple[InstructionFile, ...]


def folders_of(workspace: Path | None, home: Path) -> Folders:
    """The folders of the layers around a workspace; without one only the user's own."""
    home = home.absolute()
    if workspace is None:
        return Folders(home)
    ancestors, warned = _ancestors(workspace)
    return Folders(home, ancestors, workspace, warned)


def layers_of(
    folders: Folders, local: Files, names: Sequence[str], own_names: Sequence[str], file_chars: int
) -> tuple[FileLayer, ...]:
    """The places of instruction files: personal, global (`own_names`), each ancestor, local (whose files are `local`).

    Files with further names in other folders are read in all layers where they are in the local one.
    """
    own, links = [folders.home / name for name in own_names if name != PERSONAL], local.hard_links
    layers = [
        FileLayer("personal", "user", _resolved(folders, personal_places(folders.home), file_chars, hard_links=links)),
        FileLayer("global", "user", _resolved(folders, own, file_chars, hard_links=links)),
    ]
    for folder in folders.ancestors:
        files, shown = Files(folder, file_chars, template_texts(), hard_links=links), folders.display_path(folder)
        places = tuple(InstructionFile(files, name, f"{shown}{name}", shown) for name in names)
        layers.append(FileLayer("ancestor", "workspace", places))
    layers.append(FileLayer("local", "workspace", tuple(InstructionFile(local, name, name) for name in names)))
    return tuple(layers)


def personal_places(home: Path) -> list[Path]:
    """Where the personal prompt may be: `NEXUS.md` in the user's folder, then in `~/.nexus3`, then the packaged one.

    `~/.nexus3` counts only beside `~/.nexus`: who names another folder means that one.
    """
    user = user_home()
    older = [user / ".nexus3" / PERSONAL] if user is not None and home == user / ".nexus" else []
    return [home / PERSONAL, *older, DEFAULTS]


def user_home() -> Path | None:
    """The user's home folder of the operating system; None if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _resolved(
    folders: Folders, paths: Iterable[Path], file_chars: int, *, hard_links: bool
) -> tuple[InstructionFile, ...]:
    """The user's own files, where links may lead anywhere: they often do, to a folder of dotfiles."""
    made: list[InstructionFile] = []
    for path in paths:
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a circle of links: reading it says so
            real = path
        packaged = path == DEFAULTS
        origin = f"nexus:defaults/{path.name}" if packaged else f"{folders.display_path(path.parent)}{path.name}"
        made.append(
            InstructionFile(
                Files(real.parent, file_chars, hard_links=hard_links),
                real.name,
                origin,
                folders.display_path(real.parent),
            )
        )
    return tuple(made)


def _ancestors(workspace: Path) -> tuple[tuple[Path, ...], tuple[ContextWarning, ...]]:
    """The folders from the repository's root down to the one above the workspace."""
    user = user_home()
    if user is not None and (user == workspace or workspace in user.parents):
        return (), ()
    above: list[Path] = []
    for folder in (workspace, *workspace.parents)[: MOST_ANCESTORS + 1]:
        above.append(folder)
        if os.path.lexists(folder / ".git"):
            if not _same_owner(folder, workspace):
                note = f"its files are not read: {folder} is a repository of another user than the workspace's"
                return (), (ContextWarning(".git", note),)
            return tuple(reversed(above[1:])), ()
        if folder == user:
            return (), ()
    if len(workspace.parents) > MOST_ANCESTORS:
        note = f"there is no repository's root among the {MOST_ANCESTORS} folders above: instruction files there are not read"
        return (), (ContextWarning(".git", note),)
    return (), ()


def _same_owner(folder: Path, workspace: Path) -> bool:
    try:
        return folder.stat().st_uid == workspace.stat().st_uid
    except OSError:
        return False
