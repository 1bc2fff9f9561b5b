"""Skill folders: discovery, lint, last use. The skills are cached, so that a warm call parses nothing.

There are three places: the workspace's `skills`, the user's, and the package's. A SKILL.md is parsed again only when its
state on disk changes; until then a call costs one `stat` for it. The last use is a best-effort cache for people and the
list of capabilities: `.nexus/used.json`, names and Unix milliseconds. An unreadable file counts as empty, and of two
simultaneous writers the last one wins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import UnreadableFile
from nexus.types.block import ContextWarning
from nexus.types.skill import SkillCatalog, SkillInstructions, SkillPlace
from nexus.workspace import prompts
from nexus.workspace.files.reader import FILE_CHARS, READ_BYTES, Files, FileText
from nexus.workspace.skills.skill_file import LintFinding, validate_skill

SKILLS = "skills"
FILE = "SKILL.md"
PACKAGED = Path(next(iter(prompts.__path__)))  # folder of the packaged `skills`

USED = Path(".nexus") / "used.json"
MAX_USED = 1_000  # number of names in `USED`, the most recent
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UTF_8_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 4_096  # bytes that are read a second time, for properties that decoding removes
MAX_ERRORS = 3  # number of errors of one file in a context's report

_Read: TypeAlias = "tuple[FileText | None, ContextWarning | None]"
ParsedSkill: TypeAlias = "tuple[SkillInstructions | None, ContextWarning | None]"


class SkillFolder(Struct):
    """One place of skills: its files, and the prefix of their displayed names."""

    place: SkillPlace
    files: Files
    prefix: str = ""

    def folders(self) -> tuple[list[str], ContextWarning | None]:
        """Return the folders that may contain a skill, sorted, without hidden ones, and a warning."""
        names, warning = self.files.listed(SKILLS)
        if warning:
            warning = ContextWarning(f"{self.prefix}{warning.source}", warning.message)
        return [name for name in names if not name.startswith(".")], warning

    def origin(self, folder: str) -> str:
        """Return the displayed name of a folder's SKILL.md."""
        return f"{self.prefix}{SKILLS}/{folder}/{FILE}"


@dataclass(slots=True)
class SkillIndex:
    """Cache of the skill places, of each parsed SKILL.md, and of the last merged result."""

    _packaged: Files = field(default_factory=lambda: Files(PACKAGED))
    _parsed: dict[str, tuple[_Read, ParsedSkill]] = field(default_factory=dict[str, "tuple[_Read, ParsedSkill]"])
    _places: tuple[Files | None, Files | None, tuple[SkillFolder, ...]] = (None, None, ())
    _last: tuple[object, SkillCatalog] | None = None

    def of(self, workspace: Files | None, home: Files | None) -> tuple[SkillFolder, ...]:
        """Return the places in order of precedence; none without a workspace."""
        if workspace is None:
            return ()
        if self._places[0] is not workspace or self._places[1] is not home:
            user: tuple[SkillFolder, ...] = ()
            if home is not None:
                usual = Path(os.path.expanduser("~/.nexus"))  # noqa: PTH111 - Path raises without a home
                prefix = "~/.nexus/" if home.root == usual else f"{home.root}/"
                user = (SkillFolder("user", home, prefix),)
            places = (SkillFolder("workspace", workspace), *user, SkillFolder("packaged", self._packaged, "nexus:"))
            self._places = (workspace, home, places)
        return self._places[2]

    def load(self, contents: object, merge: Callable[[], SkillCatalog]) -> SkillCatalog:
        """Return the result of `merge`, or its last one if the contents are the same."""
        if self._last is None or self._last[0] != contents:
            self._last = (contents, merge())
        return self._last[1]

    def instructions(self, place: SkillFolder, folder: str) -> ParsedSkill:
        """Return the skill in a folder, and a warning; both None if SKILL.md is missing or empty."""
        origin = place.origin(folder)
        file, warning = place.files.read(f"{SKILLS}/{folder}/{FILE}")
        cached = self._parsed.get(origin)
        if cached is None or cached[0] != (file, warning):  # the same objects, while the file's state is the same
            parsed = _parse(place, folder, file, warning)
            cached = self._parsed[origin] = ((file, warning), parsed)
        return cached[1]


def _parse(place: SkillFolder, folder: str, file: FileText | None, warning: ContextWarning | None) -> ParsedSkill:
    if not folder.isprintable():
        text = f"omitted: folder name {folder!r} is not printable"
        return None, ContextWarning(f"{place.prefix}{SKILLS}", text)
    origin = place.origin(folder)
    if file is None:
        return None, ContextWarning(origin, warning.message) if warning else None
    result = validate_skill(file.text, folder, origin, place.place)
    errors = [finding.text for finding in result.findings if finding.error]
    truncation = ""
    if warning and file.omitted_chars:
        truncation = warning.message
    if warning and not truncation:
        errors.insert(0, warning.message)
    if len(errors) > MAX_ERRORS:
        errors[MAX_ERRORS:] = [f"{len(errors) - MAX_ERRORS} more (`nexus skill lint` has all)"]
    text = "; ".join(errors)
    if result.skill is None:
        return None, ContextWarning(origin, f"not listed: {text}")
    skill = SkillInstructions(result.skill, file.text, result.body_at, file.omitted_chars, truncation, file.chars)
    return skill, ContextWarning(origin, text) if text else None


def used_skills(workspace: Path) -> tuple[dict[str, int], list[ContextWarning]]:
    """Return the time of each skill's last use in Unix milliseconds, by name, and warnings about the file."""
    name = USED.as_posix()
    file, warning = Files(workspace, READ_BYTES).read(name)
    if file is None:
        return {}, [warning] if warning else []
    try:
        values = msgspec.json.decode(file.text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}, [ContextWarning(name, "not used: not a JSON object of names and times")]
    times = {skill: at for skill, at in values.items() if type(at) is int and at >= 0}
    invalid = len(values) - len(times)
    text = f"{invalid} of {len(values)} times are invalid and ignored"
    return times, [ContextWarning(name, text)] if invalid else []


def record_use(workspace: Path, name: str, at_ms: int) -> None:
    """Record the use of a skill, replacing the file at once. Raises OSError if it cannot be written."""
    file = workspace / USED
    file.parent.mkdir(exist_ok=True)
    if not file.parent.resolve().is_relative_to(workspace.resolve()):
        raise OSError(0, "leads out of the workspace", str(file.parent))
    times = sorted({**used_skills(workspace)[0], name: at_ms}.items(), key=lambda item: (-item[1], item[0]))
    data = msgspec.json.format(msgspec.json.encode(dict(sorted(times[:MAX_USED]))), indent=2) + b"\n"
    # A rename replaces the file at once: a reader never sees half of it.
    handle, part = tempfile.mkstemp(".part", ".used-", file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(part).replace(file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


class LintedFile(Struct, frozen=True):
    """Displayed name of a skill's file, and its findings by line."""

    file: str
    findings: tuple[LintFinding, ...] = ()


def lint_path(path: Path) -> list[LintedFile]:
    """Lint the skill at a path (its folder or SKILL.md), or all in a folder or its folder `skills`. Raises UnreadableFile."""
    if path.is_file():
        if path.name != FILE:
            raise UnreadableFile(f"{path} is not a skill: the file has to be named {FILE}", code="bad_skill")
        path = path.parent
    if not path.is_dir():
        raise UnreadableFile(f"{path} not found, or not a regular file or folder", code="bad_skill")
    place = path.resolve()
    if (place / FILE).exists():
        return [lint_files(Files(place.parent, READ_BYTES), place.name, f"{path / FILE}")]
    for folder, display in ((place, path), (place / SKILLS, path / SKILLS)):
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        names = [name for name in names if not name.startswith(".") and (folder / name / FILE).exists()]
        if names:
            return [lint_files(Files(folder, READ_BYTES), name, f"{display / name / FILE}") for name in names]
    raise UnreadableFile(f"no skill found in {path}: {FILE} missing there and in its folders", code="bad_skill")


def lint_all(places: Iterable[SkillFolder]) -> list[LintedFile]:
    """Lint every skill of the places, by every rule of the standard; folders without a SKILL.md too."""
    results: list[LintedFile] = []
    for place in places:
        files = Files(place.files.root, READ_BYTES)
        results += [lint_files(files, f"{SKILLS}/{name}", place.origin(name)) for name in place.folders()[0]]
    return results


def lint_files(files: Files, folder: str, display: str) -> LintedFile:
    """Lint the skill in a folder of `files`."""
    file, warning = files.read(f"{folder}/{FILE}")
    if file is None:
        if warning:
            why = warning.message
        else:
            why = f"{FILE} missing or empty"
        return LintedFile(display, (LintFinding(1, why),))
    with (files.root / folder / FILE).open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    findings = [LintFinding(1, warning.message)] if warning else []
    if head.startswith(_UTF_16):
        findings.append(LintFinding(1, "file is UTF-16; other tools read UTF-8 only"))
    elif head.startswith(_UTF_8_MARK):
        text = "byte order mark at the start hides the front matter from other tools"
        findings.append(LintFinding(1, text, error=False))
    head = head.removeprefix(_UTF_8_MARK)
    empty_lines = head[: len(head) - len(head.lstrip(b"\r\n"))].count(b"\n")
    if empty_lines:
        text = "empty lines before the front matter: other tools require it on the first line"
        findings.append(LintFinding(1, text))
    result = validate_skill(file.text, Path(folder).name, display, "workspace")
    findings += [replace(finding, line=finding.line + empty_lines) for finding in result.findings]
    if len(file.text) > FILE_CHARS:
        text = f"{len(file.text):,} characters; a context shows the first {FILE_CHARS:,} of an active skill"
        findings.append(LintFinding(1, text, error=False))
    return LintedFile(display, tuple(sorted(findings)))
