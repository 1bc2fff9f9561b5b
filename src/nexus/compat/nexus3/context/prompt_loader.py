"""Loading a system prompt in the layers of document 004: personal, project, and the surroundings.

Personal is the first of `~/.nexus/NEXUS.md` (`NEXUS_HOME` names another folder), `~/.nexus3/NEXUS.md` and the text that
ships with the package; project is `NEXUS.md` in the working directory. Files are read for each call. No time is in the
prompt: see `ContextManager`. For ancestors, other names and includes there is `nexus.compat.nexus3.context.loader`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nexus.types.block import ContextWarning, text_hash
from nexus.workspace.environment.system_info import environment_section
from nexus.workspace.files.reader import Files, home_folder, working_folder
from nexus.workspace.instruction_layers import DEFAULTS, PERSONAL, personal_places

__all__ = ["DEFAULTS", "FilePromptSource", "LoadedPrompt", "PromptLoader", "PromptSource", "get_system_info"]


def get_system_info(is_repl: bool = True) -> str:  # noqa: FBT002 - the documented signature
    """The `# Environment` section: working directory, operating system, terminal (in a REPL only) and mode."""
    return environment_section(str(working_folder()), "repl" if is_repl else "server", os.environ)


class PromptSource(Protocol):
    """Where a prompt comes from: a file, a variable, whatever has a text."""

    def load(self) -> str | None:
        """The prompt, None if there is none."""
        ...

    @property
    def path(self) -> Path | None:
        """The file, None if it is none."""
        ...


class FilePromptSource:
    """A prompt from a file. `warned` has what was to say about it when it was last read.

    A text over 20,000 characters is cut, and a line in it says so. With `inside` the file may not lead out of its
    folder: a project that somebody else wrote must not show the model a file of its user.
    """

    def __init__(self, path: str | Path, *, inside: bool = False) -> None:
        self._path, self._inside = Path(path), inside
        self.warned: tuple[ContextWarning, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file."""
        return self._path

    def load(self) -> str | None:
        """The file's text; None where it is not there, empty or cannot be read."""
        try:
            place = self._path if self._inside else self._path.resolve()
            found, warned = Files(place.parent).read(place.name)
        except (OSError, RuntimeError) as error:  # a circle of links
            found, warned = None, ContextWarning("", f"cannot be read: {error}")
        self.warned = (ContextWarning(str(self._path), warned.message),) if warned else ()
        return found.text if found else None


@dataclass(frozen=True, slots=True)
class LoadedPrompt:
    """A combined prompt and the files it came from; `warnings` say what was cut, left out or unreadable."""

    content: str
    personal_path: Path | None
    project_path: Path | None
    warnings: tuple[ContextWarning, ...] = ()


class PromptLoader:
    """Loads and combines the prompts. Sources of your own take the place of the documented ones."""

    def __init__(
        self, personal_sources: Sequence[PromptSource] | None = None, project_source: PromptSource | None = None
    ) -> None:
        self._personal, self._project = personal_sources, project_source

    def load(self, is_repl: bool = True) -> LoadedPrompt:  # noqa: FBT002 - the documented signature
        """The layers with their headers, the surroundings last. A text that both layers have stands once.

        Raises WorkspaceMissing where the working directory was deleted.
        """
        sources = self._personal if self._personal is not None else personal_files()
        personal_path, personal, warnings = _first(sources)
        project_path, project, more = _first(
            [self._project or FilePromptSource(working_folder() / PERSONAL, inside=True)]
        )
        warnings += more
        if project and personal and text_hash(project) == text_hash(personal):
            warnings.append(
                ContextWarning(str(project_path), "has the same text as the personal prompt: it stands once")
            )
            project_path, project = None, ""
        layers = (("# Personal Configuration", personal), ("# Project Configuration", project))
        sections = [f"{header}\n{text}" for header, text in layers if text]
        content = "\n\n".join([*sections, get_system_info(is_repl)])
        return LoadedPrompt(content, personal_path, project_path, tuple(warnings))


def personal_files() -> list[FilePromptSource]:
    """The documented places of the personal prompt, the first one that is there wins."""
    return [FilePromptSource(path) for path in personal_places(home_folder())]


def _first(sources: Sequence[PromptSource]) -> tuple[Path | None, str, list[ContextWarning]]:
    """Path and text of the first source that has one, and what was to say about those that were tried."""
    warnings: list[ContextWarning] = []
    for source in sources:
        text = source.load()
        warnings.extend(getattr(source, "warned", ()))
        if text:
            return source.path, text, warnings
    return None, "", warnings
