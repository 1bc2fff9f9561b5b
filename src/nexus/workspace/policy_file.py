"""The policy files: the user's `policy.toml` in the home folder, and `.nexus/policy.toml` of the workspace.

Both apply, and each can only restrict. A workspace may be a copy of another person's, so its file cannot grant what the
user's does not. A file that exists but cannot be read is an error, never treated as absent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nexus.errors import bad_policy
from nexus.policy import Policy
from nexus.policy.parse import merge_policies, parse_policy
from nexus.workspace.config import OutsideFolder, SettingsFile, describe_error
from nexus.workspace.files.containment import State, state_of

FILE = "policy.toml"


@dataclass(slots=True)
class Policies:
    """The policies of an engine, reread when a file's device, inode, times or size change.

    A warm call costs one `stat` per file.
    """

    files: tuple[tuple[Path, str], ...] = ()
    """Paths with displayed names, the user's first."""
    app_policy: tuple[Policy, ...] = ()
    """The application's policy, used without files."""
    inside: Path | None = None
    """Folder that links of its files may not leave."""
    required: bool = False
    """Whether a missing file is an error."""
    _state: tuple[State | None, ...] | None = None
    _cached: tuple[Policy, ...] = field(default=())

    def read(self) -> tuple[Policy, ...]:
        """Return the policies, the user's before the workspace's. Raises BadConfig for an unusable file."""
        if not self.files:
            return self.app_policy
        states = tuple(_state(path, name) for path, name in self.files)
        if states != self._state:
            existing = [
                file for file, state in zip(self.files, states, strict=True) if state is not None or self.required
            ]
            self._cached = merge_policies([self.load_file(path, name) for path, name in existing])
            self._state = states
        return self._cached

    def load_file(self, path: Path, name: str) -> Policy:
        """Return the policy of one file. Raises BadConfig."""
        inside = None
        if self.inside is not None and path.is_relative_to(self.inside):
            inside = self.inside
        try:
            text = SettingsFile(path, name, inside).text()
        except OutsideFolder as error:
            raise bad_policy(name, "", "a file inside the workspace, not a link out of it") from error
        except (OSError, ValueError) as error:
            raise bad_policy(name, "", f"a readable text file ({describe_error(error)})") from error
        if text is None:
            raise bad_policy(name, "", "an existing file")
        return parse_policy(text, name)


def load_policies(source: Policy | str | Path | None, home: Path | None, workspace: Path | None) -> Policies:
    """Return the policies of an engine: `source` alone, if it is a policy or a file, else the user's and the workspace's."""
    if isinstance(source, Policy):
        return Policies(app_policy=merge_policies([source]))
    if source is not None:
        return Policies(((Path(source).expanduser().absolute(), str(source)),), required=True)
    files: list[tuple[Path, str]] = []
    if home is not None:
        files.append((home / FILE, f"~/.nexus/{FILE}"))
    if workspace is not None:
        files.append((workspace / ".nexus" / FILE, f".nexus/{FILE}"))
    return Policies(tuple(files), inside=workspace)


def _state(path: Path, name: str) -> State | None:
    """Return the file's state, or None if it does not exist."""
    try:
        return state_of(os.stat(path))  # noqa: PTH116 - hot path
    except (FileNotFoundError, NotADirectoryError):
        # A broken link is no missing file: its absence would lift the restrictions.
        if path.is_symlink():
            raise bad_policy(name, "", "a file, not a broken link") from None
        return None
    except (OSError, ValueError) as error:
        raise bad_policy(name, "", f"a readable file ({error})") from error
