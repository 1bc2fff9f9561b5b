"""Files that a file of instructions includes: a line that holds nothing but `@path`, alone or after a list's dash.

Claude Code and Gemini CLI document `@path` anywhere in a text. Here it takes a line of its own (several may stand on it):
in a sentence `@name` is as often a person, a package or a decorator, and a file put into the middle of a sentence tears it
apart. Paths are relative to the file that includes them and stay inside the folder of its layer. What cannot be included
stays as the text stands, with a warning; a lone word that names no file is taken for a mention and left alone.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from nexus.errors import OverCap
from nexus.types.block import ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.workspace.files.markdown import Fence, close_fences, fences
from nexus.workspace.files.reader import FileText
from nexus.workspace.instruction_layers import InstructionFile

MOST_INCLUDES = 64
"""Files that one context's instructions may include in all."""

MOST_LOOKED_FOR = 256
"""Paths that are looked for in all, found or not."""

_LINE = re.compile(r"^[ \t]{0,3}(?:[-*+][ \t]+)?(@[^\s@]+(?:[ \t]+@[^\s@]+)*)[ \t]*$", re.MULTILINE)


class IncludeLine(Struct, frozen=True):
    """A line that includes files: where it stands, and the paths as they are written."""

    start: int
    end: int
    paths: tuple[str, ...]


@lru_cache(maxsize=256)
def include_lines(text: str) -> tuple[IncludeLine, ...]:
    """The lines of a text that include files, in order; none inside code fences."""
    if "@" not in text:
        return ()
    spans = fences(text)
    starts = [fence.start for fence in spans]
    return tuple(
        IncludeLine(line.start(), line.end(), tuple(path[1:] for path in line[1].split()))
        for line in _LINE.finditer(text)
        if not _inside(spans, starts, line.start())
    )


def _inside(spans: Sequence[Fence], starts: Sequence[int], at: int) -> bool:
    nearest = bisect_right(starts, at) - 1
    return nearest >= 0 and at < spans[nearest].end


_closed = lru_cache(maxsize=256)(close_fences)


@dataclass(slots=True)
class Expansion:
    """Puts included files into texts, each file once. State over one reading of all instruction files.

    `seen` has the origin of every file's text so far by its hash; `within` the files that are being expanded, outermost
    first. `hashes` and `left_out` grow with each file that is put in; `count` counts these, `repeated` the lines that name
    a text that stands already.
    """

    config: InstructionsConfig
    seen: dict[str, str]
    warned: list[ContextWarning] = field(default_factory=list[ContextWarning])
    hashes: list[str] = field(default_factory=list[str])
    left_out: int = 0
    count: int = 0
    repeated: int = 0
    looked_for: int = 0
    full: bool = False
    _within: list[str] = field(default_factory=list[str])

    def expand(self, place: InstructionFile, name: str, found: FileText) -> str:
        """The text of a file (`name` under the place's root) with the files that it includes. Raises OverCap."""
        lines = include_lines(found.text) if self.config.include_depth else ()
        if not lines:
            return found.text
        self._within.append(name)
        out: list[str] = []
        at = 0
        for line in lines:
            pieces = [self._piece(place, name, path) for path in line.paths]
            if any(piece is not None for piece in pieces):
                shown = [piece or f"@{path}" for piece, path in zip(pieces, line.paths, strict=True)]
                out += [found.text[at : line.start], "\n".join(shown)]
                at = line.end
        self._within.pop()
        return "".join([*out, found.text[at:]])

    def _piece(self, place: InstructionFile, name: str, path: str) -> str | None:
        """The included file between two lines that name it; None where it is not included."""
        target = os.path.normpath(os.path.join(os.path.dirname(name), os.path.expanduser(path)))  # noqa: PTH111, PTH118, PTH120 - text of paths, on the hot path
        inner = os.path.relpath(target, place.files.root) if os.path.isabs(target) else target  # noqa: PTH117 - the same
        asked = f"{place.prefix}{name}" if self._within[1:] else place.origin
        if self.count >= MOST_INCLUDES or self.looked_for >= MOST_LOOKED_FOR:
            if not self.full:
                self.warned.append(
                    ContextWarning(asked, f"@{path} and further ones are not included: they are too many")
                )
            self.full = True
            return None
        self.looked_for += 1
        if inner in self._within:
            return self._refused(asked, path, "it includes itself")
        if len(self._within) > self.config.include_depth:
            return self._refused(asked, path, f"files include each other more than {self.config.include_depth} deep")
        if inner == os.pardir or inner.startswith(f"{os.pardir}{os.sep}"):
            return self._refused(asked, path, "it is outside of this folder")
        found, note = place.files.read(inner)
        if found is None and note is not None:
            return self._refused(asked, path, note.message.removeprefix("left out: "))
        if found is None:
            is_path = "/" in path or "." in path
            return self._refused(asked, path, "there is no such file, or it is empty") if is_path else None
        if found.hash in self.seen:
            self.repeated += 1
            return self._refused(asked, path, f"its text stands already, from {self.seen[found.hash]}")
        return self._put_in(place, inner, found, note)

    def _put_in(self, place: InstructionFile, inner: str, found: FileText, note: ContextWarning | None) -> str:
        origin = f"{place.prefix}{inner}"
        if found.left_out_chars and self.config.caps == "error":
            raise OverCap(origin, found.chars, self.config.file_chars)
        if note is not None:
            self.warned.append(ContextWarning(origin, note.message))
        self.count += 1
        self.seen[found.hash] = origin
        self.hashes.append(found.hash)
        self.left_out += found.left_out_chars
        text = _closed(self.expand(place, inner, found))
        return f"<!-- {origin} -->\n{text}\n<!-- end of {origin} -->"

    def _refused(self, asked: str, path: str, why: str) -> None:
        self.warned.append(ContextWarning(asked, f"@{path} is not included: {why}"))
