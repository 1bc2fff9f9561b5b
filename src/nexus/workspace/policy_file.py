"""The policy files: the user's `policy.toml` in the home folder, and `.nexus/policy.toml` of the workspace.

Both hold, and each only takes away. A workspace may be a copy of somebody else's, so its file cannot grant what the
user's does not. One that is there and cannot be read is an error, never an absent one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nexus.errors import BadPolicy
from nexus.policy import Policy
from nexus.policy.parse import merge_policies, parse_policy
from nexus.workspace.config.files import OutsideFolder, SettingsFile, describe_error

FILE = "policy.toml"


@dataclass(slots=True)
class Policies:
    """The policies that hold: of files, first the user's, or those that were `given`. State over time: what was read.

    `inside` is the folder that its files' links may not leave; `required` makes a file that is not there an error.

    A file is read again when its device, inode, times or size change, so a warm call costs one `stat` for each.
    """

    files: tuple[tuple[Path, str], ...] = ()
    app_policy: tuple[Policy, ...] = ()
    inside: Path | None = None
    required: bool = False
    _state: tuple[tuple[int, ...] | None, ...] | None = None
    _read: tuple[Policy, ...] = field(default=())

    def read(self) -> tuple[Policy, ...]:
        """The policies, the user's before the workspace's. Raises BadPolicy where a file cannot be used."""
        if not self.files:
            return self.app_policy
        state = tuple(_state(path, name) for path, name in self.files)
        if state != self._state:
            there = [file for file, one in zip(self.files, state, strict=True) if one is not None or self.required]
            self._read = merge_policies([self.given_by(path, name) for path, name in there])
            self._state = state
        return self._read

    def given_by(self, path: Path, name: str) -> Policy:
        """The policy of one file. Raises BadPolicy."""
        inside = self.inside if self.inside is not None and path.is_relative_to(self.inside) else None
        try:
            text = SettingsFile(path, name, inside).text()
        except OutsideFolder as error:
            raise BadPolicy(name, "", "a file inside the workspace, not a link that leads out of it") from error
        except (OSError, ValueError) as error:
            raise BadPolicy(name, "", f"a file of text that can be read ({describe_error(error)})") from error
        if text is None:
            raise BadPolicy(name, "", "a file that is there")
        return parse_policy(text, name)


def load_policies(given: Policy | str | Path | None, home: Path | None, workspace: Path | None) -> Policies:
    """What holds for an engine: the policy or file that was given, alone; else the user's file and the workspace's."""
    if isinstance(given, Policy):
        return Policies(app_policy=merge_policies([given]))
    if given is not None:
        return Policies(((Path(given).expanduser().absolute(), str(given)),), required=True)
    found: list[tuple[Path, str]] = []
    if home is not None:
        found.append((home / FILE, f"~/.nexus/{FILE}"))
    if workspace is not None:
        found.append((workspace / ".nexus" / FILE, f".nexus/{FILE}"))
    return Policies(tuple(found), inside=workspace)


def _state(path: Path, name: str) -> tuple[int, ...] | None:
    """The file's state; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - hot path
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise BadPolicy(name, "", "a file, not a link that leads nowhere") from None
        return None
    except (OSError, ValueError) as error:
        raise BadPolicy(name, "", f"a file that can be read ({error})") from error
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
