"""The sessions that Claude Code keeps in its own folder, by project."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"
"""Variable that names another folder than `~/.claude`."""

SEARCHED_LINES = 50
"""Lines of a file in which its project is searched; the first ones may be snapshots and summaries without it."""

_CWD = re.compile(rb'"cwd":\s*("(?:[^"\\]|\\.)*")')


class ClaudeProject(Struct, frozen=True):
    """The session files of one project."""

    project: str
    """Folder of the work, or the name of its folder here if no file has it."""
    sessions: int
    """Files of sessions; files of sub-agents, which `files` has too, belong to one of these."""
    bytes: int
    last_ms: int
    """Time of the newest change."""
    files: tuple[str, ...]


def projects_folder() -> Path:
    """Return the folder with Claude Code's projects, which may not exist."""
    return Path(os.environ.get(CONFIG_VARIABLE) or "~/.claude").expanduser() / "projects"


def find_projects(folder: Path) -> list[ClaudeProject]:
    """Return the projects with sessions, the newest first; empty for a missing folder. Raises OSError."""
    projects: list[ClaudeProject] = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else []:
        files = sorted(file for file in place.rglob("*.jsonl") if file.is_file())
        sessions = [file for file in files if file.parent == place]
        if not sessions:
            continue
        stats = [file.stat() for file in files]
        project = next((name for file in reversed(sessions) if (name := _working_folder(file))), place.name)
        newest_ms = int(max(stat.st_mtime for stat in stats) * 1000)
        size = sum(stat.st_size for stat in stats)
        projects.append(ClaudeProject(project, len(sessions), size, newest_ms, tuple(map(str, files))))
    return sorted(projects, key=lambda project: -project.last_ms)


def _working_folder(file: Path) -> str:
    """Return the folder that the first lines of a session file name; empty for none."""
    with file.open("rb") as stream:
        for line in islice(stream, SEARCHED_LINES):
            if match := _CWD.search(line):
                with suppress(msgspec.MsgspecError):  # the line is damaged
                    return msgspec.json.decode(match[1], type=str)
    return ""
