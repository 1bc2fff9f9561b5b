"""Files that an instruction file includes: a line of nothing but `@path`, optionally after a list's dash.

Claude Code and Gemini CLI document `@path` anywhere in a text. Here it takes a line of its own (which may have several):
in a sentence, `@name` is as often a person, a package or a decorator, and a file inserted there would tear the sentence
apart. Paths are relative to the including file and stay inside the folder of its layer. A failed include stays as text,
with a warning; a single word that names no file is taken for a mention.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from nexus.errors import OverCap
from nexus.types.block import ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.workspace.files.reader import FileText
from nexus.workspace.files.truncate import close_fences, fences, is_fenced
from nexus.workspace.instruction_layers import InstructionFile

MAX_INCLUDES = 64
"""Number of files that one context's instructions may include in all."""

MAX_LOOKUPS = 256
"""Number of paths that are looked up in all, existing or not."""

_LINE = re.compile(r"^[ \t]{0,3}(?:[-*+][ \t]+)?(@[^\s@]+(?:[ \t]+@[^\s@]+)*)[ \t]*$", re.MULTILINE)


class IncludeLine(Struct, frozen=True):
    """Position of a line that includes files, and the paths as written."""

    start: int
    end: int
    paths: tuple[str, ...]


@lru_cache(maxsize=256)
def include_lines(text: str) -> tuple[IncludeLine, ...]:
    """Return the lines of a text that include files, in order; none inside code fences."""
    if "@" not in text:
        return ()
    spans = fences(text)
    starts = [fence.start for fence in spans]
    return tuple(
        IncludeLine(line.start(), line.end(), tuple(path[1:] for path in line[1].split()))
        for line in _LINE.finditer(text)
        if not is_fenced(spans, starts, line.start())
    )


_close_fences = lru_cache(maxsize=256)(close_fences)


@dataclass(slots=True)
class Expansion:
    """Replaces include lines by files, each file once, while one context's instruction files are read."""

    config: InstructionsConfig
    sources: dict[str, str]
    """Source of each file's text so far, by the text's hash."""
    warnings: list[ContextWarning] = field(default_factory=list[ContextWarning])
    hashes: list[str] = field(default_factory=list[str])
    """Hashes of the files included in the current instruction file."""
    omitted_chars: int = 0
    """Characters omitted from the current instruction file and its includes."""
    count: int = 0
    """Number of included files."""
    repeats: int = 0
    """Number of include lines whose text was already shown."""
    lookups: int = 0
    is_full: bool = False
    _parents: list[str] = field(default_factory=list[str])
    """Files being expanded, outermost first."""

    def expand(self, file: InstructionFile, name: str, content: FileText) -> str:
        """Return the text of a file (`name` under the root of `file`) with its includes. Raises OverCap."""
        lines = include_lines(content.text) if self.config.include_depth else ()
        if not lines:
            return content.text
        self._parents.append(name)
        out: list[str] = []
        at = 0
        for line in lines:
            pieces = [self._piece(file, name, path) for path in line.paths]
            if any(piece is not None for piece in pieces):
                texts = [piece or f"@{path}" for piece, path in zip(pieces, line.paths, strict=True)]
                out += [content.text[at : line.start], "\n".join(texts)]
                at = line.end
        self._parents.pop()
        return "".join([*out, content.text[at:]])

    def _piece(self, file: InstructionFile, name: str, path: str) -> str | None:
        """Return the included file between two comments that name it; None if it is not included."""
        target = os.path.normpath(os.path.join(os.path.dirname(name), os.path.expanduser(path)))  # noqa: PTH111, PTH118, PTH120 - text of paths, on the hot path
        inner = os.path.relpath(target, file.files.root) if os.path.isabs(target) else target  # noqa: PTH117 - the same
        parent = f"{file.prefix}{name}" if self._parents[1:] else file.origin
        if self.count >= MAX_INCLUDES or self.lookups >= MAX_LOOKUPS:
            if not self.is_full:
                self.warnings.append(ContextWarning(parent, f"'@{path}' and later includes omitted: too many"))
            self.is_full = True
            return None
        self.lookups += 1
        if inner in self._parents:
            return self._omit(parent, path, "circular include")
        if len(self._parents) > self.config.include_depth:
            return self._omit(parent, path, f"nested more than {self.config.include_depth} deep")
        if inner == os.pardir or inner.startswith(f"{os.pardir}{os.sep}"):
            return self._omit(parent, path, "outside this folder")
        content, warning = file.files.read(inner)
        if content is None:
            if warning is not None:
                return self._omit(parent, path, warning.message.removeprefix("omitted: "))
            is_path = "/" in path or "." in path
            return self._omit(parent, path, "file not found or empty") if is_path else None
        if content.hash in self.sources:
            self.repeats += 1
            return self._omit(parent, path, f"duplicate of {self.sources[content.hash]}")
        origin = f"{file.prefix}{inner}"
        if content.omitted_chars and self.config.caps == "error":
            raise OverCap(origin, content.chars, self.config.file_chars)
        if warning is not None:
            self.warnings.append(ContextWarning(origin, warning.message))
        self.count += 1
        self.sources[content.hash] = origin
        self.hashes.append(content.hash)
        self.omitted_chars += content.omitted_chars
        text = _close_fences(self.expand(file, inner, content))
        return f"<!-- {origin} -->\n{text}\n<!-- end of {origin} -->"

    def _omit(self, parent: str, path: str, why: str) -> None:
        self.warnings.append(ContextWarning(parent, f"'@{path}' omitted: {why}"))
