"""Parser and validator of SKILL.md: the Agent Skills standard (agentskills.io/specification) and Nexus's extensions.

The standard's fields are `name`, `description`, `license`, `compatibility`, `metadata` and `allowed-tools`. The extensions
`always`, `requires`, `provides` and `category` are read at the top, in `metadata`, or in `metadata.nexus`, which may be a
map or JSON text. `requires` and `always` are also read as nanobot writes them (`metadata.nanobot`), `requires` as OpenClaw
does (`metadata.openclaw`; its `always` has another meaning). A file that breaks a rule is still used if possible; each
broken rule is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.types.skill import Requires, Skill, SkillPlace
from nexus.workspace.files.front_matter import Content, FrontMatter, Value, front_matter

# Limits of the standard, in characters.
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
COMPATIBILITY_CHARS = 500
BODY_LINES = 500  # length that the standard recommends as the maximum below the front matter

UNWRITTEN = "Say here what this skill does. Use when: say which tasks it is for."
"""Placeholder that `nexus skill new` writes without a description."""

MAX_REQUIRED = 20  # number of programs, variables or credentials that one skill may require, of each kind

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
STANDARD = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
EXTENSIONS = ("always", "requires", "provides", "category")
OPENCLAW = ("openclaw", "clawdbot", "clawdis")  # keys of `requires` in OpenClaw's documentation

_KINDS = {"bins": "bins", "env": "env", "credentials": "credentials", "anyBins": "any_bins", "any_bins": "any_bins"}
_YES = frozenset({"true", "yes", "on"})
_NO = frozenset({"false", "no", "off", ""})
_JOINERS = "\u200c\u200d"
_SEPARATORS = re.compile(r"[\s,]+")


class LintFinding(Struct, frozen=True, order=True):
    """Error or warning about a skill's file."""

    line: int
    text: str
    error: bool = True


class ValidatedSkill(Struct, frozen=True):
    """Result of validating a SKILL.md."""

    skill: Skill | None
    """The skill; None if it cannot be used."""
    findings: tuple[LintFinding, ...] = ()
    body_at: int = 0
    """Start of the text below the front matter."""


def validate_skill(text: str, folder: str, origin: str, place: SkillPlace) -> ValidatedSkill:
    """Return the skill in a file's text, and findings by line. `folder` is the name of its folder."""
    try:
        head = front_matter(text)
    except UnreadableFile as error:
        return ValidatedSkill(None, (LintFinding(max(error.line, 1), str(error)),))
    parser = _Parser(head)
    skill = parser.skill(folder, origin, place)
    body = text[head.body_at :].strip()
    lines = body.count("\n") + 1
    note = "" if body else "no text below the front matter"
    if lines > BODY_LINES:
        note = f"text has {lines:,} lines; the standard recommends at most {BODY_LINES} (move parts into other files)"
    notes = [LintFinding(head.body_line, note, error=False)] if note else []
    return ValidatedSkill(skill, tuple(sorted([*parser.findings, *notes])), head.body_at)


def name_problem(name: str) -> str:
    """Return the rule of the standard that a name breaks, or ""."""
    if len(name) > NAME_CHARS:
        return f"has {len(name):,} characters; the standard allows {NAME_CHARS}"
    if NAME.match(name):
        return ""
    if not name:
        return "is empty"
    if name != name.lower():
        return "has capital letters; the standard allows a-z, 0-9 and hyphens"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        return "begins or ends with a hyphen, or has two in a row"
    return "has other characters than a-z, 0-9 and hyphens"


def printable_line(text: str) -> str:
    """Return a text on one line, white space collapsed; terminal and direction controls become U+FFFD."""
    # Controls could hide a line in a terminal, or show a name in another direction; joiners are part of words.
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c.isspace() or c in _JOINERS else "\ufffd" for c in text)
    return " ".join(text.split())


class _Parser:
    """Parser of one file's fields, which collects findings."""

    def __init__(self, head: FrontMatter) -> None:
        self.head = head
        self.fields = head.fields
        self.findings = [
            LintFinding(line, f"`{_short(name)}` is duplicated; the first one counts") for name, line in head.duplicates
        ]

    def skill(self, folder: str, origin: str, place: SkillPlace) -> Skill | None:
        """Return the skill; None without a name and description that could be listed."""
        name = self._name(folder)
        description = self._description()
        value = self.fields.get("compatibility")
        compatibility = printable_line(self._text("compatibility", value))
        if value is not None and not 1 <= len(compatibility) <= COMPATIBILITY_CHARS:
            note = (
                f"`compatibility` has {len(compatibility):,} characters; the standard allows 1 to {COMPATIBILITY_CHARS}"
            )
            self._report(value, note)
        value = self.fields.get("metadata")
        metadata = _map_of(value)
        if value is not None and not isinstance(value.content, dict):  # nanobot writes the map as JSON text
            self._report(value, "`metadata` has to be a map", error=not metadata)
        for key, entry in metadata.items():
            if not isinstance(entry.content, str):
                note = f"`metadata.{_short(key)}` is not text, as the standard requires (JSON text is allowed)"
                self._report(entry, note, error=False)
        nanobot = _map_of(metadata.get("nanobot"))
        levels = (self.fields, metadata, _map_of(metadata.get("nexus")))
        always = _first("always", (*levels, nanobot))
        flag = self._text("always", always).strip().lower()
        if flag not in _YES | _NO:
            self._report(always, f"`always` is {_short(flag)!r}, neither true nor false")
        requires = (*levels, nanobot, *(_map_of(metadata.get(key)) for key in OPENCLAW))
        # The standard's metadata has texts only: other values are given as JSON.
        values = {key: _plain(entry.content) for key, entry in metadata.items()}
        texts = {
            key: item if isinstance(item, str) else msgspec.json.encode(item).decode() for key, item in values.items()
        }
        skill = Skill(
            name,
            description,
            origin,
            place,
            flag in _YES,
            self._requires(_first("requires", requires)),
            self._names("provides", _first("provides", levels)),
            printable_line(self._text("category", _first("category", levels))),
            printable_line(self._text("license", self.fields.get("license"))),
            compatibility[:COMPATIBILITY_CHARS],
            self._names("allowed-tools", self.fields.get("allowed-tools"), commas=False),
            {printable_line(key): printable_line(text) for key, text in texts.items()},
        )
        for key, value in self.fields.items():
            if key not in STANDARD:
                is_read = "Nexus reads it; under `metadata`, other tools accept it too"
                note = is_read if key in EXTENSIONS else "ignored"
                self._report(value, f"`{_short(key)}` is not a field of the standard: {note}", error=False)
        if name and description and len(name) <= NAME_CHARS:
            return skill
        return None

    def _report(self, value: Value | None, text: str, *, error: bool = True) -> None:
        self.findings.append(LintFinding(value.line if value else 1, text, error))

    def _name(self, folder: str) -> str:
        value = self.fields.get("name")
        name = printable_line(self._text("name", value))
        if not name:
            self._report(value, f"`name` is missing; the folder's name is used: {_short(folder)}")
            return printable_line(folder)
        if problem := name_problem(name):
            self._report(value, f"name {_short(name)!r} {problem}")
        if name != folder:
            self._report(value, f"name {_short(name)!r} differs from its folder's, {_short(folder)!r}")
        return name

    def _description(self) -> str:
        value = self.fields.get("description")
        text = self._text("description", value).strip()
        if not text:
            self._report(value, "`description` is missing or empty; the skill is not listed")
        elif text == UNWRITTEN:
            note = "`description` is the placeholder of `nexus skill new` (say what the skill is for)"
            self._report(value, note, error=False)
        elif len(text) > DESCRIPTION_CHARS:
            note = f"`description` has {len(text):,} characters; the standard allows {DESCRIPTION_CHARS:,}, the rest is cut"
            self._report(value, note)
        return printable_line(text[:DESCRIPTION_CHARS])

    def _text(self, field: str, value: Value | None) -> str:
        if value is not None and not isinstance(value.content, str):
            self._report(value, f"`{field}` has to be text")
        if value is not None and isinstance(value.content, str):
            return value.content
        return ""

    def _names(self, field: str, value: Value | None, *, commas: bool = True) -> tuple[str, ...]:
        """Return names from a list of texts, or from a text with separating spaces and, unless disabled, commas."""
        if value is None:
            return ()
        content = value.content
        if isinstance(content, str):
            parts: Iterable[str] = _SEPARATORS.split(content) if commas else content.split()
        elif isinstance(content, tuple) and all(isinstance(item.content, str) for item in content):
            parts = [str(item.content) for item in content]
        else:
            self._report(value, f"`{field}` has to be text or a list of texts")
            parts = ()
        names = (printable_line(part)[:100] for part in parts)
        return tuple(dict.fromkeys(name for name in names if name))

    def _requires(self, value: Value | None) -> Requires:
        if value is None:
            return Requires()
        entries = _map_of(value)
        if not entries and value.content:
            self._report(value, "`requires` has to be a map of `bins`, `any_bins`, `env` and `credentials`")
        kinds: dict[str, tuple[str, ...]] = {}
        for key, entry in entries.items():
            if key not in _KINDS:
                self._report(entry, f"`requires.{_short(key)}` is ignored", error=False)
                continue
            names = self._names(f"requires.{key}", entry)
            if len(names) > MAX_REQUIRED:  # each name is looked up on the path or in a keyring
                note = f"`requires.{key}` has {len(names):,} names; only the first {MAX_REQUIRED} are used"
                self._report(entry, note)
            kinds[_KINDS[key]] = names[:MAX_REQUIRED]
        return Requires(**kinds)


def _first(key: str, maps: Sequence[dict[str, Value]]) -> Value | None:
    return next((fields[key] for fields in maps if key in fields), None)


def _map_of(value: Value | None) -> dict[str, Value]:
    """Return a map, which may be written as JSON text; empty for anything else."""
    if value is None:
        return {}
    content = value.content
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            content = _from_json(msgspec.json.decode(content), value.line).content
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return {}
    if isinstance(content, dict):
        return content
    return {}


def _from_json(data: Any, line: int) -> Value:
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return Value({key: _from_json(item, line) for key, item in fields.items()}, line)
    if isinstance(data, list):
        return Value(tuple(_from_json(item, line) for item in cast("list[Any]", data)), line)
    if data is None or isinstance(data, bool):
        return Value({None: "", True: "true", False: "false"}[data], line)
    return Value(str(data), line)


def _plain(content: Content) -> Any:
    if isinstance(content, dict):
        return {key: _plain(value.content) for key, value in content.items()}
    if isinstance(content, str):
        return content
    return [_plain(value.content) for value in content]


def _short(text: str) -> str:
    line = printable_line(text)
    if len(line) <= 60:
        return line
    return f"{line[:59]}…"
