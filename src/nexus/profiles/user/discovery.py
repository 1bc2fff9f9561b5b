"""Where files of profiles are, and their texts, each read again when its state on disk changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from nexus.errors import BadProfile
from nexus.profiles.user.toml import NAME, NAME_RULE
from nexus.text.one_line import collapse_whitespace
from nexus.types.block import ContextWarning
from nexus.workspace.config.files import LAYER_FOLDER, OutsideFolder, SettingsFile, describe_error
from nexus.workspace.files.containment import State, state_of
from nexus.workspace.files.reader import is_young
from nexus.workspace.instruction_layers import Folders

FOLDER = "profiles"
PYTHON = ".py"
TOML = ".toml"
MOST_FILES = 1_000
"""Entries of one folder of profiles that are looked at."""


@dataclass(slots=True)
class ProfileFiles:
    """The files of profiles of the user and of a workspace. State over time: what was read, by path and state.

    A workspace's Python files are never among them: they would be somebody else's program. `home` is an absolute path.
    """

    home: Path
    workspace: Path | None = None
    _own_folder: str = field(init=False)
    _workspace_folder: str = field(init=False, default="")
    _files: dict[str, SettingsFile] = field(default_factory=dict[str, SettingsFile])
    _texts: dict[Path, tuple[State | None, str]] = field(default_factory=dict[Path, tuple["State | None", str]])

    def __post_init__(self) -> None:
        self._own_folder = os.path.join(self.home, FOLDER, "")  # noqa: PTH118 - put before every name that is looked for
        if self.workspace is not None:
            folder = self.workspace / LAYER_FOLDER
            if folder not in (self.home, Path(os.path.realpath(self.home))):  # resolve() raises for a circle of links
                self._workspace_folder = os.path.join(folder, FOLDER, "")  # noqa: PTH118 - as above

    def user_files(self, name: str) -> SettingsFile | None:
        """The user's file of that name, TOML before Python; None if there is none."""
        return self._there(self._own_folder, name, TOML) or self._there(self._own_folder, name, PYTHON)

    def workspace_files(self, name: str) -> SettingsFile | None:
        """The workspace's file of that name, which is TOML; None if there is none."""
        return self._there(self._workspace_folder, name, TOML)

    def rejected_files(self, name: str) -> SettingsFile | None:
        """The workspace's Python file of that name, which is not run; None if there is none."""
        return self._there(self._workspace_folder, name, PYTHON)

    def duplicates(self, name: str) -> SettingsFile | None:
        """The user's Python file of a name that has a TOML file too, which goes before it."""
        python = self._there(self._own_folder, name, PYTHON)
        return python if self._there(self._own_folder, name, TOML) is not None else None

    def names(self) -> tuple[list[str], list[ContextWarning]]:
        """The names of all files, sorted, and what is to be said about files whose names can be none."""
        names: set[str] = set()
        warned: list[ContextWarning] = []
        for folder in (self._own_folder, self._workspace_folder):
            try:
                paths = [*_entries(Path(folder))] if folder else []
            except OSError as error:
                text = f"no profile of this folder can be used: it cannot be read ({describe_error(error)})"
                warned.append(ContextWarning(collapse_whitespace(self._file(Path(folder)).origin), text))
                continue
            for path in paths:
                if path.suffix not in (PYTHON, TOML) or path.name.startswith("."):
                    continue
                if NAME.fullmatch(path.stem):
                    names.add(path.stem)
                else:
                    warned.append(
                        ContextWarning(collapse_whitespace(self._file(path).origin), f"left out: expected {NAME_RULE}")
                    )
        return sorted(names), warned

    def text(self, file: SettingsFile) -> tuple[str, bool]:
        """The file's text, and whether it is the same as when it was last read. Raises BadProfile."""
        try:
            now = state_of(file.path.stat())
            kept = self._texts.get(file.path)
            if kept is not None and kept[0] == now:
                return kept[1], True
            text = file.text()
        except OutsideFolder as error:
            raise BadProfile(file.origin, "", "a file inside the workspace, not a link that leads out of it") from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = describe_error(error) if isinstance(error, (OSError, ValueError)) else str(error)
            raise BadProfile(file.origin, "", f"a file of text that can be read ({reason})") from error
        if text is None:
            raise BadProfile(file.origin, "", "a file that is there")
        self._texts[file.path] = (None if is_young(now) else now, text)
        return text, kept is not None and kept[1] == text

    def _there(self, folder: str, name: str, suffix: str) -> SettingsFile | None:
        """The folder's file of that name, if something is there under it; `folder` is empty for none."""
        path = f"{folder}{name}{suffix}"
        if not folder or not os.path.lexists(path):
            return None
        if path not in self._files:
            self._files[path] = self._file(Path(path))
        return self._files[path]

    def _file(self, path: Path) -> SettingsFile:
        if path.parent == self.home / FOLDER:
            shown = Folders(self.home, (), self.workspace).display_path(self.home)
            return SettingsFile(path, f"{shown}{FOLDER}/{path.name}")
        return SettingsFile(path, f"{LAYER_FOLDER}/{FOLDER}/{path.name}", self.workspace)


def _entries(folder: Path) -> Iterator[Path]:
    """The entries of a folder; none if it is not there. Raises OSError."""
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in islice(found, MOST_FILES)]
    except FileNotFoundError:
        return
    yield from (folder / name for name in sorted(names))
