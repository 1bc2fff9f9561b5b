"""Lint of skills on disk for their authors: every rule of the standard, with file and line."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadSkill
from nexus.workspace.files.reader import FILE_CHARS, READ_BYTES, Files
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.skills.skill_file import LintFinding, validate_skill
from nexus.workspace.source_context import WorkspaceContext

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UTF_8_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 4_096  # bytes that are read a second time, for properties that decoding removes


class LintedFile(Struct, frozen=True):
    """Displayed name of a skill's file, and its findings by line."""

    file: str
    findings: tuple[LintFinding, ...] = ()


def lint_path(path: Path) -> list[LintedFile]:
    """Lint the skill at a path (its folder or SKILL.md), or all in a folder or its folder `skills`. Raises BadSkill."""
    if path.is_file():
        if path.name != FILE:
            raise BadSkill(f"{path} is not a skill: the file has to be named {FILE}")
        path = path.parent
    if not path.is_dir():
        raise BadSkill(f"{path} not found, or not a regular file or folder")
    place = path.resolve()
    if (place / FILE).exists():
        return [lint_files(Files(place.parent, READ_BYTES), place.name, f"{path / FILE}")]
    for folder, display in ((place, path), (place / SKILLS, path / SKILLS)):
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        names = [name for name in names if not name.startswith(".") and (folder / name / FILE).exists()]
        if names:
            return [lint_files(Files(folder, READ_BYTES), name, f"{display / name / FILE}") for name in names]
    raise BadSkill(f"no skill found in {path}: {FILE} missing there and in its folders")


def lint_all(workspace: WorkspaceContext) -> list[LintedFile]:
    """Lint every skill of the workspace, the user and the package; folders without a SKILL.md too."""
    results: list[LintedFile] = []
    for place in workspace.skill_index.of(workspace.files, workspace.home):
        files = Files(place.files.root, READ_BYTES)
        results += [lint_files(files, f"{SKILLS}/{name}", place.origin(name)) for name in place.folders()[0]]
    return results


def lint_files(files: Files, folder: str, display: str) -> LintedFile:
    """Lint the skill in a folder of `files`."""
    file, warning = files.read(f"{folder}/{FILE}")
    if file is None:
        why = warning.message if warning else f"{FILE} missing or empty"
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
