"""Locations and texts of profile files. A text is read again when its file changes on disk."""

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
from nexus.workspace.config import LAYER_FOLDER, OutsideFolder, SettingsFile, describe_error
from nexus.workspace.files.containment import State, state_of
from nexus.workspace.files.reader import is_young
from nexus.workspace.instruction_layers import Folders

FOLDER = "profiles"
PYTHON = ".py"
TOML = ".toml"
MOST_FILES = 1_000  # maximum number of entries read from one folder


@dataclass(slots=True)
class ProfileFiles:
    """Profile files of the user and of a workspace, with a cache of their texts by path and state on disk.

    A workspace's Python files are never run: they would be somebody else's program.
    """

    home: Path  # the user's folder, an absolute path
    workspace: Path | None = None
    _user_folder: str = field(init=False)
    _workspace_folder: str = field(init=False, default="")
    _files: dict[str, SettingsFile] = field(default_factory=dict[str, SettingsFile])
    _texts: dict[Path, tuple[State | None, str]] = field(default_factory=dict[Path, tuple["State | None", str]])

    def __post_init__(self) -> None:
        self._user_folder = os.path.join(self.home, FOLDER, "")  # noqa: PTH118 - a prefix of file names, for speed
        if self.workspace is not None:
            folder = self.workspace / LAYER_FOLDER
            if folder not in (
                self.home,
                Path(os.path.realpath(self.home)),
            ):  # Path.resolve() raises for a circle of links
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
        return python if self._find(self._user_folder, name, TOML) is not None else None

    def names(self) -> tuple[list[str], list[ContextWarning]]:
        """Return the names of all files, sorted, and warnings about folders and file names that cannot be used."""
        names: set[str] = set()
        warnings: list[ContextWarning] = []
        for folder in (self._user_folder, self._workspace_folder):
            try:
                paths = [*_entries(Path(folder))] if folder else []
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
        """Return the file's text, and whether it is the same as at the last reading. Raises BadProfile."""
        try:
            state = state_of(file.path.stat())
            cached = self._texts.get(file.path)
            if cached is not None and cached[0] == state:
                return cached[1], True
            text = file.text()
        except OutsideFolder as error:
            raise BadProfile(file.origin, "", "a file inside the workspace, not a link out of it") from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = describe_error(error) if isinstance(error, (OSError, ValueError)) else str(error)
            raise BadProfile(file.origin, "", f"a readable text file ({reason})") from error
        if text is None:
            raise BadProfile(file.origin, "", "an existing file")
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


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, sorted; none if it does not exist. Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_FILES)]
    except FileNotFoundError:
        return
    yield from (folder / name for name in sorted(names))
