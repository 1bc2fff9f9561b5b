"""Files of settings beside the texts: each layer's file of one name, read whole or not at all."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from nexus.workspace.instruction_layers import Folders

LAYER_FOLDER = ".nexus"
MOST_BYTES = 100_000


class OutsideFolder(OSError):
    """A file leads out of the folder that it may be in."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A layer's file of settings: where it may be, how that is shown, and whether it is the user's own.

    A file that is not the user's own may not lead out of its layer's folder, `inside`.
    """

    path: Path
    origin: str
    inside: Path | None = None

    @property
    def is_users(self) -> bool:
        """Whether it is the user's: a workspace's may be somebody else's text."""
        return self.inside is None

    def text(self) -> str | None:
        """The whole text; None if there is no file. Raises OSError, ValueError for what cannot be read as UTF-8 text."""
        path = self.path
        if self.inside is not None:
            try:
                path = path.resolve()
            except RuntimeError as error:
                raise OSError("it is a circle of links") from error
            if not path.is_relative_to(self.inside.resolve()):
                raise OutsideFolder(f"it leads outside of its folder, to {path}")
        data = _regular(path)
        return None if data is None else data.decode("utf-8-sig")


def settings_files(folders: Folders, name: str) -> list[SettingsFile]:
    """Each layer's file of that name, in order: the user's own, those of ancestors, the workspace's."""
    own = SettingsFile(folders.home / name, f"{folders.display_path(folders.home)}{name}")
    around = [*folders.ancestors, *([folders.workspace] if folders.workspace else [])]
    found = [own]
    for folder in around:
        path = folder / LAYER_FOLDER / name
        if path != own.path:
            found.append(SettingsFile(path, f"{folders.display_path(folder)}{LAYER_FOLDER}/{name}", folder))
    return found


def describe_error(error: OSError | ValueError) -> str:
    """What an error of `SettingsFile.text` says, without the file's name."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start:,})"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _regular(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb", closefd=False) as stream:
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError("it is no regular file")
            data = stream.read(MOST_BYTES + 1)
        finally:
            os.close(handle)
    if len(data) > MOST_BYTES:
        raise OSError(f"it has more than {MOST_BYTES:,} bytes")
    return data
