"""A SKILL.md judged: what the Agent Skills standard (agentskills.io/specification) says of it, and what Nexus reads beyond.

The standard's fields are `name`, `description`, `license`, `compatibility`, `metadata` and `allowed-tools`. Beyond it
`always`, `requires`, `provides` and `category` are read: at the top, in `metadata`, or in `metadata.nexus`, which may be a
map or JSON text. `requires` and `always` are also understood as nanobot writes them (`metadata.nanobot`), `requires` as
OpenClaw does (`metadata.openclaw`; its `always` has another meaning). A file that breaks a rule is still used where that
is possible; what it breaks is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.errors import BadSkill
from nexus.types.skill import Requires, Skill, SkillPlace
from nexus.workspace.files.front_matter import Content, FrontMatter, Value, front_matter

NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
COMPATIBILITY_CHARS = 500
"""Limits of the standard, in characters."""

BODY_LINES = 500
"""The standard recommends no more below the front matter."""

UNWRITTEN = "Say here what this skill does. Use when: say which tasks it is for."
"""What `nexus skill new` writes where no description is given."""

MOST_REQUIRED = 20
"""Programs, variables or credentials that one skill may require, of each kind."""

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
STANDARD = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
BEYOND = ("always", "requires", "provides", "category")
OPENCLAW = ("openclaw", "clawdbot", "clawdis")
"""The names under which OpenClaw's documentation has `requires`."""

_KINDS = {"bins": "bins", "env": "env", "credentials": "credentials", "anyBins": "any_bins", "any_bins": "any_bins"}
_YES, _NO = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off", ""})
_JOINERS = "\u200c\u200d"
_SEPARATED = re.compile(r"[\s,]+")


class LintFinding(Struct, frozen=True, order=True):
    """Something to say about a skill's file: the line in it, what, and whether a rule is broken (else it is a warning)."""

    line: int
    text: str
    error: bool = True


class ValidatedSkill(Struct, frozen=True):
    """What a SKILL.md holds. `skill` is None where it cannot be used; `body_at` is where its guide begins."""

    skill: Skill | None
    findings: tuple[LintFinding, ...] = ()
    body_at: int = 0


def validate_skill(text: str, folder: str, origin: str, place: SkillPlace) -> ValidatedSkill:
    """The skill in a file's text, and what there is to say about it, by line. `folder` is the name of its folder."""
    try:
        head = front_matter(text)
    except BadSkill as error:
        return ValidatedSkill(None, (LintFinding(error.line, str(error)),))
    reader = _Reader(head)
    skill = reader.skill(folder, origin, place)
    reader.body(text)
    return ValidatedSkill(skill, tuple(sorted(reader.findings)), head.body_at)


def name_problem(name: str) -> str:
    """What the standard has against a name; empty if nothing."""
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
    """A text on one line, white space folded; characters with power over a terminal or the direction as U+FFFD."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c.isspace() or c in _JOINERS else "\ufffd" for c in text)
    return " ".join(text.split())


class _Reader:
    """The fields of one file while they are read; `findings` grows meanwhile."""

    def __init__(self, head: FrontMatter) -> None:
        self.head, self.fields = head, head.fields
        self.findings = [
            LintFinding(line, f"`{_shown(name)}` stands there twice; the first one counts") for name, line in head.twice
        ]

    def skill(self, folder: str, origin: str, place: SkillPlace) -> Skill | None:
        """The skill; None without a name or description that could be listed."""
        name, description = self._name(folder), self._description()
        metadata = self._metadata()
        nexus = _map_of(metadata.get("nexus"))
        nanobot = _map_of(metadata.get("nanobot"))
        own = (self.fields, metadata, nexus)
        requires = (*own, nanobot, *(_map_of(metadata.get(one)) for one in OPENCLAW))
        found = Skill(
            name,
            description,
            origin,
            place,
            self._flag(_first("always", (*own, nanobot))),
            self._requires(_first("requires", requires)),
            self._names("provides", _first("provides", own)),
            printable_line(self._text("category", _first("category", own))),
            printable_line(self._text("license", self.fields.get("license"))),
            self._compatibility(),
            self._names("allowed-tools", self.fields.get("allowed-tools"), commas=False),
            {printable_line(key): _plain_text(value) for key, value in metadata.items()},
        )
        for key, value in self.fields.items():
            if key not in STANDARD:
                known = (
                    "Nexus reads it; under `metadata` other tools accept it too" if key in BEYOND else "it is not read"
                )
                self.say(value, f"`{_shown(key)}` is no field of the standard: {known}", error=False)
        return found if name and description and len(name) <= NAME_CHARS else None

    def body(self, text: str) -> None:
        """Says what there is to say about the guide itself."""
        body = text[self.head.body_at :]
        lines = body.strip().count("\n") + 1
        if not body.strip():
            self.findings.append(
                LintFinding(self.head.body_line, "there is no text below the front matter", error=False)
            )
        elif lines > BODY_LINES:
            told = f"the text has {lines:,} lines; the standard recommends at most {BODY_LINES}: move parts into files beside it"
            self.findings.append(LintFinding(self.head.body_line, told, error=False))

    def say(self, at: Value | None, text: str, *, error: bool = True) -> None:
        """Adds a finding at a value's line, or at the head of the file."""
        self.findings.append(LintFinding(at.line if at else 1, text, error))

    def _name(self, folder: str) -> str:
        given = self.fields.get("name")
        name = printable_line(self._text("name", given))
        if not name:
            self.say(given, f"`name` is missing; the folder's name stands in for it: {_shown(folder)}")
            return printable_line(folder)
        if problem := name_problem(name):
            self.say(given, f"the name {_shown(name)!r} {problem}")
        if name != folder:
            self.say(given, f"the name {_shown(name)!r} is not that of its folder, {_shown(folder)!r}")
        return name

    def _description(self) -> str:
        given = self.fields.get("description")
        text = self._text("description", given).strip()
        if not text:
            self.say(given, "`description` is missing or empty, so it is not listed")
        elif text == UNWRITTEN:
            self.say(
                given, "`description` is still the one that `nexus skill new` wrote: say what it is for", error=False
            )
        elif len(text) > DESCRIPTION_CHARS:
            self.say(
                given,
                f"`description` has {len(text):,} characters; the standard allows {DESCRIPTION_CHARS:,}, the rest is cut",
            )
        return printable_line(text[:DESCRIPTION_CHARS])

    def _compatibility(self) -> str:
        given = self.fields.get("compatibility")
        text = printable_line(self._text("compatibility", given))
        if given is not None and not 1 <= len(text) <= COMPATIBILITY_CHARS:
            self.say(
                given, f"`compatibility` has {len(text):,} characters; the standard allows 1 to {COMPATIBILITY_CHARS}"
            )
        return text[:COMPATIBILITY_CHARS]

    def _metadata(self) -> dict[str, Value]:
        """The map `metadata`; one that is JSON text, as nanobot has it, counts too."""
        given = self.fields.get("metadata")
        if given is None:
            return {}
        found = _map_of(given)
        if not isinstance(given.content, dict):
            self.say(given, "`metadata` has to be a map", error=not found)
        for key, value in found.items():
            if not isinstance(value.content, str):
                self.say(
                    value,
                    f"`metadata.{_shown(key)}` is no text, as the standard wants; JSON text would be one",
                    error=False,
                )
        return found

    def _text(self, what: str, given: Value | None) -> str:
        if given is not None and not isinstance(given.content, str):
            self.say(given, f"`{what}` has to be text")
        return given.content if given is not None and isinstance(given.content, str) else ""

    def _flag(self, given: Value | None) -> bool:
        said = self._text("always", given).strip().lower()
        if said not in _YES | _NO:
            self.say(given, f"`always` is {_shown(said)!r}, neither true nor false")
        return said in _YES

    def _names(self, what: str, given: Value | None, *, commas: bool = True) -> tuple[str, ...]:
        """Names from a list of texts, or from one text, separated by space or comma."""
        if given is None:
            return ()
        content = given.content
        if isinstance(content, str):
            parts: Iterable[str] = _SEPARATED.split(content) if commas else content.split()
        elif isinstance(content, tuple) and all(isinstance(item.content, str) for item in content):
            parts = [str(item.content) for item in content]
        else:
            self.say(given, f"`{what}` has to be text or a list of texts")
            parts = ()
        names = (printable_line(part)[:100] for part in parts)
        return tuple(dict.fromkeys(name for name in names if name))

    def _requires(self, given: Value | None) -> Requires:
        if given is None:
            return Requires()
        found = _map_of(given)
        if not found and given.content:
            self.say(given, "`requires` has to be a map of `bins`, `any_bins`, `env` and `credentials`")
        kinds: dict[str, tuple[str, ...]] = {}
        for key, value in found.items():
            if key not in _KINDS:
                self.say(value, f"`requires.{_shown(key)}` is not read", error=False)
                continue
            names = self._names(f"requires.{key}", value)
            if len(names) > MOST_REQUIRED:
                self.say(value, f"`requires.{key}` has {len(names):,} names; the first {MOST_REQUIRED} are looked for")
            kinds[_KINDS[key]] = names[:MOST_REQUIRED]
        return Requires(**kinds)


def _first(key: str, maps: Sequence[dict[str, Value]]) -> Value | None:
    return next((found[key] for found in maps if key in found), None)


def _map_of(value: Value | None) -> dict[str, Value]:
    """A map as it stands there, or from JSON text; empty if it is neither."""
    if value is None:
        return {}
    content = value.content
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            content = _from_json(msgspec.json.decode(content), value.line).content
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return {}
    return content if isinstance(content, dict) else {}


def _from_json(found: Any, line: int) -> Value:
    if isinstance(found, dict):
        fields = cast("dict[str, Any]", found)
        return Value({key: _from_json(one, line) for key, one in fields.items()}, line)
    if isinstance(found, list):
        return Value(tuple(_from_json(one, line) for one in cast("list[Any]", found)), line)
    if found is None or isinstance(found, bool):
        return Value({None: "", True: "true", False: "false"}[found], line)
    return Value(str(found), line)


def _plain_text(value: Value) -> str:
    """A value of `metadata` as the standard has them: a text; a list or a map as JSON."""
    content = value.content
    return printable_line(content if isinstance(content, str) else msgspec.json.encode(_plain(content)).decode())


def _plain(content: Content) -> Any:
    if isinstance(content, dict):
        return {key: _plain(value.content) for key, value in content.items()}
    return content if isinstance(content, str) else [_plain(value.content) for value in content]


def _shown(text: str) -> str:
    line = printable_line(text)
    return line if len(line) <= 60 else f"{line[:59]}…"
