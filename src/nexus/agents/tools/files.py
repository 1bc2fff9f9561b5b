"""Reading tools for the files of a workspace: one file, a list, a search.

Files are opened by `nexus.workspace.files.containment`, so neither `..` nor links lead out of the workspace. Files and
folders that usually contain secrets are refused by name, also behind a link. Hidden folders, and folders such as
`node_modules`, are left out unless a pattern names them. All results have limits, and notes about omitted content.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path

import regex
from msgspec import Struct

from nexus.engine import Engine
from nexus.errors import ToolCallFailed
from nexus.workspace.files.containment import names_differing_in_case, open_inside, path_problem, read_bytes
from nexus.workspace.files.reader import decode_text

OUTPUT_CHARS = 20_000
"""Characters of a file that one call returns."""

READ_BYTES = 20_000_000
"""Bytes that are read of any file."""

SEARCH_BYTES = 200_000_000
"""Bytes that one search reads."""

LISTED = 300
FOLDERS = 20  # folders that a note names
MATCHES = 100
LINE_CHARS = 300
"""Characters of a matching line, around the match."""

VISITED = 50_000
"""Files and folders that one call looks at."""

PATTERN_CHARS = 1_000
SEARCH_S = 5.0
"""Seconds after which a search stops. An expression may take forever on a single line."""

PRIVATE_FOLDERS = (".nexus", ".git", ".hg", ".svn", ".ssh", ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".docker")
PRIVATE_FILES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".dockercfg", ".htpasswd",
    ".git-credentials", "credentials", "credentials.json", "credentials.toml", "credentials.y*ml", "secrets.*", ".vault*",
)  # fmt: skip
PUBLIC_FILES = (".env.example", ".env.sample", ".env.template", ".env.dist")
TOOL_FOLDERS = frozenset(("node_modules", "__pycache__", "venv"))


class _WorkspaceFile(Struct, frozen=True):
    """A file of the workspace, by its path there."""

    path: str
    size: int


class FileTools:
    """The tools `read_file`, `list_files` and `search_files` for one workspace."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self.root = root.resolve()
        self._hard_links = engine.workspace_context.config.files.hard_links
        self._home = engine.credentials.home.resolve()

    def read_file(self, path: str, first_line: int = 1, last_line: int | None = None, first_character: int = 1) -> str:
        """Read a text file of the workspace, or some of its lines.

        A long file is returned in parts; the last line then says how to read on.

        Args:
            path: Path of the file, relative to the workspace.
            first_line: First line to read, from 1.
            last_line: Last line to read; by default as many as fit.
            first_character: First character to read of the first line, for a very long line.
        """
        name = self.relative_name(path)
        if first_line < 1 or first_character < 1 or (last_line is not None and last_line < first_line):
            raise ToolCallFailed("lines and characters are counted from 1, and last_line is not before first_line")
        text, notes = self._text(name)
        # Not `splitlines`: it also splits at characters that editors do not count as line ends.
        lines = text.split("\n")
        if text.endswith("\n"):
            lines.pop()
        if not text:
            return f"[{name} is empty]"
        if first_line > len(lines):
            raise ToolCallFailed(f"{name} has {len(lines):,} lines (read from a line up to that number)")
        chosen = lines[first_line - 1 : last_line]
        chosen[0] = chosen[0][first_character - 1 :]
        part = list(_fitting(chosen, OUTPUT_CHARS))
        end = first_line + len(part) - 1
        if not part:
            start = first_character + OUTPUT_CHARS
            part = [chosen[0][:OUTPUT_CHARS]]
            more = f"line {first_line} goes on; read on with first_line={first_line}, first_character={start}"
            notes = (*notes, more)
        elif end < len(lines) and (last_line is None or end < last_line):
            notes = (*notes, f"lines {first_line} to {end} of {len(lines):,}; read on with first_line={end + 1}")
        elif first_line > 1 or end < len(lines):
            notes = (*notes, f"lines {first_line} to {end} of {len(lines):,}")
        return "\n".join([*part, *(f"[{name}: {note}]" for note in notes)])

    def list_files(self, pattern: str = "**") -> str:
        """List the files of the workspace, with their sizes in bytes.

        Args:
            pattern: A folder, or a pattern: `docs`, `*.py` (in all folders), `src/**/test_*.py`.
        """
        walk = _Walk(self, pattern)
        files = sorted(walk, key=lambda file: file.path)
        notes = walk.notes()
        if not files:
            return _with_notes([f"No file matches {pattern!r}."], notes)
        lines = [f"{file.path}  {file.size:,}" for file in files[:LISTED]]
        if len(files) > LISTED:
            folders = Counter(file.path.rpartition("/")[0] or "." for file in files[LISTED:])
            counts = ", ".join(f"{folder} ({count:,})" for folder, count in folders.most_common(FOLDERS))
            notes.insert(0, f"{len(files) - LISTED:,} more files; choose a narrower pattern. Folders: {counts}")
        return _with_notes(lines, notes)

    def search_files(self, text: str, files: str = "**", *, is_regex: bool = False, ignore_case: bool = False) -> str:
        """Search the workspace's text files; each match is a line `path:number: text`.

        Args:
            text: The text to find within a line.
            files: A folder, or a pattern: `docs`, `*.py` (in all folders), `src/**/test_*.py`.
            is_regex: True if the text is a regular expression.
            ignore_case: True to find capitals and small letters alike.
        """
        expression = _expression(text, is_regex=is_regex, ignore_case=ignore_case)
        walk = _Walk(self, files)
        lines: list[str] = []
        notes: list[str] = []
        read = 0
        unreadable = 0
        deadline = time.monotonic() + SEARCH_S
        for file in sorted(walk, key=lambda file: file.path):
            if len(lines) >= MATCHES or read >= SEARCH_BYTES:
                notes.append(f"stopped before {file.path}, after {len(lines)} matches; choose fewer files")
                break
            try:
                content, _ = self._text(file.path)
            except ToolCallFailed:
                unreadable += 1
                continue
            read += file.size
            try:
                matches = _matching_lines(content, expression, deadline)
                lines += (f"{file.path}:{number}: {line}" for number, line in islice(matches, MATCHES - len(lines)))
            except TimeoutError:
                text = f"stopped in {file.path} after {SEARCH_S:g} seconds; use a simpler expression or fewer files"
                notes.append(text)
                break
        if unreadable:
            notes.append(f"{unreadable:,} files are not text, or cannot be read")
        return _with_notes(lines or [f"No line of the files {files!r} matches."], [*notes, *walk.notes()])

    def is_private(self, parts: tuple[str, ...]) -> bool:
        """Return True for a path whose names say that it contains secrets."""
        folded = [part.casefold() for part in parts]
        if self.root.joinpath(*parts).is_relative_to(self._home) and not self.root.is_relative_to(self._home):
            return True
        if any(folder in PRIVATE_FOLDERS for folder in folded):
            return True
        name = folded[-1] if folded else ""
        return name not in PUBLIC_FILES and any(fnmatchcase(name, pattern) for pattern in PRIVATE_FILES)

    def relative_name(self, path: str) -> str:
        """Return a path relative to the workspace. Raises ToolCallFailed for one that leads out of it."""
        for root in (str(self.root), os.path.abspath(self.root)):  # noqa: PTH100 - without following links
            if path == root or path.startswith(f"{root}{os.sep}"):
                path = path[len(root) + 1 :]
        name = os.path.normpath(path) if path.strip() else ""
        if problem := path_problem(path):
            raise ToolCallFailed(f"{_quoted(path)} cannot be used: {problem} (use a path that list_files shows)")
        if name == ".":
            return ""
        return name

    def _text(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return a file's text and notes about it. Raises ToolCallFailed."""
        try:
            self._check_private(name, tuple(name.split("/")))
            judge = partial(self._check_private, name)
            with open_inside(self.root, name, hard_links=self._hard_links, judge=judge) as handle:
                status = os.fstat(handle)
                if status.st_nlink > 1 and not self._hard_links:  # its other name may be that of a secret
                    raise ToolCallFailed(f"{_quoted(name)} is a hard link and cannot be read by tools")
                data = read_bytes(handle, READ_BYTES + 1)
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolCallFailed(self._problem(name, error)) from error
        is_cut = len(data) > READ_BYTES
        text, notes = decode_text(data[:READ_BYTES], cut=is_cut)
        if data and not text:
            raise ToolCallFailed(f"{_quoted(name)} is not a text file ({len(data):,} bytes)")
        if is_cut:
            notes = (*notes, f"only the first {READ_BYTES:,} bytes can be read")
        return text, notes

    def _check_private(self, name: str, parts: tuple[str, ...]) -> None:
        if self.is_private(parts):
            raise ToolCallFailed(f"{_quoted(name)} may contain secrets and cannot be read by tools")

    def _problem(self, name: str, error: OSError | RuntimeError | ValueError) -> str:
        if isinstance(error, FileNotFoundError):
            similar = ", ".join(names_differing_in_case(self.root, name))
            hint = "list_files shows the files"
            if similar:
                hint = f"did you mean {similar}?"
            return f"{_quoted(name)} not found ({hint})"
        reason = getattr(error, "strerror", None) or str(error)
        if os.path.isdir(self.root / name):  # noqa: PTH112 - Path raises for a name that is too long
            return f"{_quoted(name)} is a folder (list_files shows its files)"
        # The reason of a link that leads out of the workspace names its target, which is nobody's business here.
        return f"{_quoted(name)} cannot be read: {reason.partition(': /')[0]}"


class _Walk:
    """The files that match a pattern, and the number of those that were left out."""

    def __init__(self, tools: FileTools, pattern: str) -> None:
        self._tools = tools
        name = tools.relative_name(pattern)
        if name and os.path.isdir(tools.root / name):  # noqa: PTH112 - Path raises for a name that is too long
            name = f"{name}/**"
        if name and "/" not in name and name != "**":
            self._pattern = ["**", name]
        else:
            self._pattern = (name or "**").split("/")
        self._start = list(self._fixed_parts())
        self._unreadable = self._odd_names = 0
        self._left_out: set[str] = set()
        self._is_complete = True

    def __iter__(self) -> Iterator[_WorkspaceFile]:
        root = self._tools.root
        start = root.joinpath(*self._start).resolve()
        if not start.is_relative_to(root) or self._tools.is_private(tuple(self._start)):
            return
        visited = 0
        for folder, folders, files in os.walk(start, onerror=self._count):
            parts = Path(folder).relative_to(root).parts
            folders[:] = sorted(name for name in folders if self._is_entered(parts, name))
            for name in sorted(files):
                visited += 1
                if visited > VISITED:
                    self._is_complete = False
                    return
                file = self._file((*parts, name))
                if file is not None:
                    yield file
            visited += len(folders)

    def notes(self) -> list[str]:
        """Return a line for each kind of omission."""
        notes: list[str] = []
        if not self._is_complete:
            notes.append(f"only {VISITED:,} files were looked at; choose a narrower pattern")
        if self._left_out:
            names = ", ".join(sorted(self._left_out)[:FOLDERS]) + (", …" if len(self._left_out) > FOLDERS else "")
            notes.append(f"folders that only a pattern with their name includes: {names}")
        if self._unreadable:
            notes.append(f"{self._unreadable:,} folders or files cannot be read")
        if self._odd_names:
            notes.append(f"{self._odd_names:,} files have names with control characters")
        return notes

    def _fixed_parts(self) -> Iterator[str]:
        """Yield the folders that the pattern begins with."""
        for part in self._pattern[:-1]:
            if any(sign in part for sign in "*?["):
                return
            yield part

    def _is_entered(self, parts: tuple[str, ...], name: str) -> bool:
        if self._tools.is_private((*parts, name)):
            return False
        if not (name in TOOL_FOLDERS or name.startswith(".")) or name in self._pattern:
            return True
        self._left_out.add("/".join((*parts, name)))
        return False

    def _file(self, parts: tuple[str, ...]) -> _WorkspaceFile | None:
        """Return the file at a path if the pattern matches it and a tool may read it."""
        if not _matches(parts, self._pattern) or self._tools.is_private(parts):
            return None
        path = "/".join(parts)
        root = self._tools.root
        if path_problem(path):
            self._odd_names += 1
            return None
        try:
            real = root.joinpath(*parts).resolve(strict=True)
            status = real.lstat()
        except (OSError, RuntimeError):  # a circle of links, a link to nothing
            self._unreadable += 1
            return None
        is_inside = real.is_relative_to(root) and not self._tools.is_private(real.relative_to(root).parts)
        if is_inside and stat.S_ISREG(status.st_mode):
            return _WorkspaceFile(path, status.st_size)
        return None

    def _count(self, _error: OSError) -> None:
        self._unreadable += 1


def _matches(parts: tuple[str, ...], pattern: list[str]) -> bool:
    """Return whether a path matches a pattern, where `**` is any number of folders. Linear in both."""
    places = {0}  # numbers of names that the pattern can have used up so far
    for part in pattern:
        if part == "**":
            places = set(range(min(places), len(parts) + 1))
        else:
            places = {place + 1 for place in places if place < len(parts) and fnmatchcase(parts[place], part)}
        if not places:
            return False
    return len(parts) in places


def _expression(text: str, *, is_regex: bool, ignore_case: bool) -> regex.Pattern[str]:
    """Return what lines are searched for. Raises ToolCallFailed."""
    if not text or len(text) > PATTERN_CHARS:
        raise ToolCallFailed(f"the text to find is empty or longer than {PATTERN_CHARS:,} characters")
    try:
        return regex.compile(text if is_regex else regex.escape(text), regex.IGNORECASE if ignore_case else 0)
    except (regex.error, OverflowError, MemoryError, RecursionError) as error:
        raise ToolCallFailed(f"not a regular expression: {error} (or pass is_regex=false)") from error


def _matching_lines(text: str, expression: regex.Pattern[str], deadline: float) -> Iterator[tuple[int, str]]:
    """Yield number and text of each matching line, long ones around the match. Raises TimeoutError."""
    for number, line in enumerate(text.split("\n"), 1):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        match = expression.search(line, timeout=remaining)
        if match is None:
            continue
        start = 0
        if len(line) > LINE_CHARS:
            start = max(0, match.start() - LINE_CHARS // 3)
        end = min(len(line), start + LINE_CHARS)
        yield number, f"{'… ' * (start > 0)}{line[start:end]}{' …' * (end < len(line))}"


def _fitting(lines: list[str], most_chars: int) -> Iterator[str]:
    for line in lines:
        most_chars -= len(line) + 1
        if most_chars < 0:
            return
        yield line


def _with_notes(lines: list[str], notes: list[str]) -> str:
    return "\n".join([*lines, *(f"[{note}]" for note in notes)])


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 200 else f"{name[:200]}…")
