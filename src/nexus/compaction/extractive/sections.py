"""A summary's form: fixed headings, one finding a line, written and read back without loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nexus.compaction.extractive import tool_statements as told
from nexus.compaction.extractive.finding import Finding, Kind
from nexus.compaction.extractive.sentences import one_line
from nexus.compaction.extractive.statements import PLAIN, weight_of
from nexus.types.ledger_entries import Place

TASK = "## Task"
SECTIONS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("## Constraints", ("constraint", "preference")),
    ("## Facts", ("fact",)),
    ("## Decisions", ("decision",)),
    ("## Done", ("done", "command")),
    ("## Open", ("open",)),
    ("## Files", ("file",)),
    ("## Errors", ("error",)),
    ("## Identifiers", ("identifier",)),
    ("## Recent", ("recent",)),
)
HEADINGS: tuple[str, ...] = (TASK, *(heading for heading, _ in SECTIONS))
"""All headings, in order. A summary has those under which something stands, and the task always."""

HEADING_OF: dict[Kind, str] = {kind: heading for heading, kinds in SECTIONS for kind in kinds}
NO_TASK = "(no request in this part)"
REQUEST, ASKED = "Newest request: ", "Asked the user: "

_LINE_CHARS = 600
_NAMES_A_LINE = 12
_WEIGHTS: dict[Kind, int] = {
    "constraint": 90, "preference": 85, "fact": 75, "decision": 70, "done": 40, "command": 40, "open": 70, "file": 25,
    "identifier": 20, "error": 70, "recent": 10,
}  # fmt: skip
_OTHER_WORDS: tuple[tuple[str, Kind], ...] = (
    ("constraint rule preference requirement instruction", "constraint"),
    ("decision choice", "decision"),
    ("done progress completed accomplished finished", "done"),
    ("open next todo pending remaining question block ask", "open"),
    ("file artifact", "file"),
    ("error problem issue failure", "error"),
    ("identifier exact", "identifier"),
    ("recent current", "recent"),
)
_TITLE = re.compile(r"^#{1,6}\s+(.{1,120})$|^\*\*(.{1,80}?):?\*\*:?$")


def render(task: str, findings: Iterable[Finding]) -> str:
    """The summary's text: the task, then each section's findings in their order of place."""
    by_heading: dict[str, list[Finding]] = {}
    for finding in findings:
        by_heading.setdefault(HEADING_OF[finding.kind], []).append(finding)
    out = [TASK, *(f"> {line}".rstrip() for line in (task or NO_TASK).split("\n"))]
    for heading, _ in SECTIONS:
        listed = sorted(by_heading.get(heading, ()), key=lambda finding: finding.place)
        if heading == "## Identifiers":
            names = [finding.text for finding in listed]
            lines = [", ".join(names[at : at + _NAMES_A_LINE]) for at in range(0, len(names), _NAMES_A_LINE)]
        else:
            lines = [finding.text for finding in listed]
        if lines:
            out += ["", heading, *(f"- {line}" for line in lines)]
    return "\n".join(out)


def parse(summary: str) -> tuple[str, list[Finding]]:
    """The task and the findings of a summary; one that is of another form is read as far as its headings are known."""
    task: list[str] = []
    found: list[Finding] = []
    heading = ""
    kinds: Sequence[Kind] = ("fact",)
    for number, raw in enumerate(summary.split("\n")):
        line = raw.strip()
        title = _TITLE.match(line)
        if title is not None:
            heading, kinds = _section((title[1] or title[2]).strip().rstrip(":"))
        elif heading == TASK:
            task.append(line.removeprefix(">").removeprefix(" "))
        elif line.lstrip("-*> "):
            found += _read(line, kinds, Place(0, number))
    text = "\n".join(task).strip()
    return ("" if text == NO_TASK else text), found


def _section(title: str) -> tuple[str, Sequence[Kind]]:
    known = next(((heading, kinds) for heading, kinds in SECTIONS if heading == f"## {title}"), None)
    if known is not None:
        return known
    lowered = title.lower()
    if lowered.split(" ")[0] in ("task", "goal", "objective", "request"):
        return TASK, ()
    for words, kind in _OTHER_WORDS:
        if any(word in lowered for word in words.split()):
            return title, (kind,)
    return title, ("fact",)


def _read(line: str, kinds: Sequence[Kind], place: Place) -> list[Finding]:
    text = one_line(line.removeprefix("- ").removeprefix("* "), _LINE_CHARS)
    kind: Kind = kinds[0] if kinds else "fact"
    if kind == "identifier":
        return [Finding(kind, name, place, _WEIGHTS[kind]) for name in text.split(", ") if name]
    if kind == "done" and text.startswith("`"):
        kind = "command"
    weight = _WEIGHTS[kind]
    if kind == "file" and text.startswith("changed "):
        weight = 60
    elif kind == "error" and "— solved" in text:
        weight = 40
    elif kind == "fact":
        weight = told.VALUE_WEIGHT if told.is_quoted(text) else weight_of(text) or PLAIN
    return [Finding(kind, text, place, weight, asked=kind == "open" and text.startswith((REQUEST, ASKED)))]
