"""Document 004's loading of a system prompt in layers: personal, project, and the environment.

The personal prompt is the first of `~/.nexus/NEXUS.md` (`NEXUS_HOME` names another folder), `~/.nexus3/NEXUS.md` and
the text that ships with the package. The project's is `NEXUS.md` in the working directory. Files are read in each
call. The prompt contains no time (see `ContextManager`). `nexus.compat.nexus3.context.loader` adds ancestors, other
file names and includes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nexus.types.block import ContextWarning, text_hash
from nexus.workspace.environment.machine import environment_section
from nexus.workspace.files.reader import Files, home_folder, working_folder
from nexus.workspace.instruction_layers import DEFAULTS, PERSONAL, personal_places
from nexus.workspace.prompts import template_texts

__all__ = ["DEFAULTS", "FilePromptSource", "LoadedPrompt", "PromptLoader", "PromptSource", "get_system_info"]


def get_system_info(is_repl: bool = True) -> str:  # noqa: FBT002 - the documented signature
    """Return the `# Environment` section: working directory, operating system, terminal (in a REPL only) and mode."""
    return environment_section(str(working_folder()), "repl" if is_repl else "server", os.environ)


class PromptSource(Protocol):
    """A source of a prompt, such as a file or a variable."""

    def load(self) -> str | None:
        """Return the prompt; None if there is none."""
        ...

    @property
    def path(self) -> Path | None:
        """The file; None for other sources."""
        ...


class FilePromptSource:
    """A prompt from a file. `warned` contains the warnings of the last reading.

    A text over 20,000 characters is truncated, with a notice. With `inside` the file may not be a link out of its
    folder: an untrusted project must not show the model a file of its user.
    """

    def __init__(self, path: str | Path, *, inside: bool = False) -> None:
        self._path = Path(path)
        self._inside = inside
        self.warned: tuple[ContextWarning, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file."""
        return self._path

    def load(self) -> str | None:
        """Return the file's text; None if it is missing, empty or unreadable."""
        try:
            path = self._path if self._inside else self._path.resolve()
            file, warning = Files(path.parent, templates=template_texts()).read(path.name)
        except (OSError, RuntimeError) as error:  # a circle of links
            file = None
            warning = ContextWarning("", f"unreadable: {error}")
        self.warned = (ContextWarning(str(self._path), warning.message),) if warning else ()
        if file:
            return file.text
        return None


@dataclass(frozen=True, slots=True)
class LoadedPrompt:
    """A combined prompt, its files, and warnings about truncated, omitted or unreadable text."""

    content: str
    personal_path: Path | None
    project_path: Path | None
    warnings: tuple[ContextWarning, ...] = ()


class PromptLoader:
    """Loads and combines the prompts. Sources that are passed replace the documented ones."""

    def __init__(
        self, personal_sources: Sequence[PromptSource] | None = None, project_source: PromptSource | None = None
    ) -> None:
        self._personal = personal_sources
        self._project = project_source

    def load(self, is_repl: bool = True) -> LoadedPrompt:  # noqa: FBT002 - the documented signature
        """Return the layers with their headings, the environment last. A text that both layers contain appears once.

        Raises NotFound if the working directory was deleted.
        """
        sources = self._personal
        if sources is None:  # the documented places; the first existing file counts
            sources = [FilePromptSource(path) for path in personal_places(home_folder())]
        personal_path, personal, warnings = _first(sources)
        project_path, project, more = _first(
            [self._project or FilePromptSource(working_folder() / PERSONAL, inside=True)]
        )
        warnings += more
        if project and personal and text_hash(project) == text_hash(personal):
            warnings.append(ContextWarning(str(project_path), "same text as the personal prompt, included once"))
            project_path = None
            project = ""
        layers = (("# Personal Configuration", personal), ("# Project Configuration", project))
        sections = [f"{header}\n{text}" for header, text in layers if text]
        content = "\n\n".join([*sections, get_system_info(is_repl)])
        return LoadedPrompt(content, personal_path, project_path, tuple(warnings))


def _first(sources: Sequence[PromptSource]) -> tuple[Path | None, str, list[ContextWarning]]:
    """Return path and text of the first source with a text, and the warnings of all sources that were read."""
    warnings: list[ContextWarning] = []
    for source in sources:
        text = source.load()
        warnings.extend(getattr(source, "warned", ()))
        if text:
            return source.path, text, warnings
    return None, "", warnings
