"""Settings files of the layers: each layer's file of one name, read completely or not at all."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from nexus.workspace.instruction_layers import Folders

LAYER_FOLDER = ".nexus"
MAX_BYTES = 100_000


class OutsideFolder(OSError):
    """A file leads out of the folder that it may be in."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Location of a layer's settings file, and its displayed name."""

    path: Path
    origin: str
    inside: Path | None = None
    """Folder that a workspace's file may not lead out of; None for the user's own file."""

    @property
    def is_users(self) -> bool:
        """Return True if the file is the user's. A workspace's file may be another person's text."""
        return self.inside is None

    def text(self) -> str | None:
        """Return the whole text, or None without a file. Raises OSError, or ValueError for a text that is not UTF-8."""
        path = self.path
        if self.inside is not None:
            try:
                path = path.resolve()
            except RuntimeError as error:
                raise OSError("circle of links") from error
            if not path.is_relative_to(self.inside.resolve()):
                raise OutsideFolder(f"leads out of its folder, to {path}")
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError("not a regular file")
            with os.fdopen(handle, "rb", closefd=False) as stream:
                data = stream.read(MAX_BYTES + 1)
        finally:
            os.close(handle)
        if len(data) > MAX_BYTES:
            raise OSError(f"larger than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")


def settings_files(folders: Folders, name: str) -> list[SettingsFile]:
    """Return each layer's file of that name, in order: the user's, the ancestors', the workspace's."""
    users = SettingsFile(folders.home / name, f"{folders.display_path(folders.home)}{name}")
    files = [users]
    for folder in (*folders.ancestors, *([folders.workspace] if folders.workspace else [])):
        path = folder / LAYER_FOLDER / name
        if path != users.path:
            files.append(SettingsFile(path, f"{folders.display_path(folder)}{LAYER_FOLDER}/{name}", folder))
    return files


def describe_error(error: OSError | ValueError) -> str:
    """Return the text of an error of `SettingsFile.text`, without the file's name."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start:,})"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
