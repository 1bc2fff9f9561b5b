"""Skills on disk checked for their authors: every rule of the standard, with file and line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
_BEGINNING = 4_096
"""Bytes that are read once more, for what is lost when a file is read as text."""


class LintedFile(Struct, frozen=True):
    """A skill's file as it is shown, and what there is to say about it, by line."""

    file: str
    findings: tuple[LintFinding, ...] = ()


def lint_path(path: Path) -> list[LintedFile]:
    """The skill at a path: its folder or its SKILL.md; or all in a folder, or in its folder `skills`. Raises BadSkill."""
    if path.is_file():
        if path.name != FILE:
            raise BadSkill(f"{path} is no skill: the file has to be named {FILE}")
        path = path.parent
    if not path.is_dir():
        raise BadSkill(f"{path} is not there, or is no regular file or folder")
    shown, place = path, path.resolve()
    if (place / FILE).exists():
        return [lint_files(Files(place.parent, READ_BYTES), place.name, f"{shown / FILE}")]
    for folder in (place, place / SKILLS):
        under = shown if folder == place else shown / SKILLS
        names = [name for name in _folders(folder) if (folder / name / FILE).exists()]
        if names:
            return [lint_files(Files(folder, READ_BYTES), name, f"{under / name / FILE}") for name in names]
    raise BadSkill(f"{path} holds no skill: there is no {FILE} in it, nor in its folders")


def lint_all(around: WorkspaceContext) -> list[LintedFile]:
    """Every skill of the workspace, of the user and of the package; folders without a SKILL.md too."""
    found: list[LintedFile] = []
    for shelf in around.skill_index.of(around.files, around.home):
        files = Files(shelf.files.root, READ_BYTES)
        found += [lint_files(files, f"{SKILLS}/{name}", shelf.origin(name)) for name in shelf.folders()[0]]
    return found


def lint_files(files: Files, folder: str, shown: str) -> LintedFile:
    """The skill in a folder of `files`."""
    found, warned = files.read(f"{folder}/{FILE}")
    if found is None:
        why = warned.message if warned else f"there is no {FILE}, or it is empty"
        return LintedFile(shown, (LintFinding(1, why),))
    with (files.root / folder / FILE).open("rb") as stream:
        beginning = stream.read(_BEGINNING)
    findings = [*_encoding(beginning), *([LintFinding(1, warned.message)] if warned else [])]
    text = beginning.removeprefix(_UTF_8_MARK)
    empty = text[: len(text) - len(text.lstrip(b"\r\n"))].count(b"\n")
    if empty:
        findings.append(
            LintFinding(1, "empty lines stand before the front matter: other tools want it on the first line")
        )
    judgement = validate_skill(found.text, Path(folder).name, shown, "workspace")
    findings += _moved(judgement.findings, empty)
    if len(found.text) > FILE_CHARS:
        told = (
            f"the file has {len(found.text):,} characters; a context shows the first {FILE_CHARS:,} when it is active"
        )
        findings.append(LintFinding(1, told, error=False))
    return LintedFile(shown, tuple(sorted(findings)))


def _encoding(beginning: bytes) -> Iterator[LintFinding]:
    if beginning.startswith(_UTF_16):
        yield LintFinding(1, "the file is UTF-16; other tools read UTF-8 only")
    elif beginning.startswith(_UTF_8_MARK):
        yield LintFinding(
            1, "the file begins with a byte order mark, which hides the front matter from other tools", error=False
        )


def _moved(findings: Iterable[LintFinding], lines: int) -> Iterator[LintFinding]:
    return (replace(one, line=one.line + lines) for one in findings)


def _folders(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith(".")) if folder.is_dir() else []
