"""Format of a summary: fixed headings, one finding a line, written and parsed without loss; and its budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nexus.compaction.extractive.extract import QUESTION, REQUEST, Extract, extract
from nexus.compaction.extractive.patterns import Kind
from nexus.compaction.extractive.statements import PLAIN, ExtractedLine, truncate_line, weight_of
from nexus.compaction.extractive.tool_activity import VALUE_WEIGHT, is_quoted
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Text, ToolCall, ToolResult

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
"""All headings in order. A summary has the task and every section with content."""

HEADING_OF: dict[Kind, str] = {kind: heading for heading, kinds in SECTIONS for kind in kinds}
NO_TASK = "(no request in this part)"

_LINE_CHARS = 600
_NAMES_A_LINE = 12
_WEIGHTS: dict[Kind, int] = {
    "constraint": 90, "preference": 85, "fact": 75, "decision": 70, "done": 40, "command": 40, "open": 70, "file": 25,
    "identifier": 20, "error": 70, "recent": 10,
}  # fmt: skip
_TITLE_WORDS: tuple[tuple[str, Kind], ...] = (
    ("constraint rule preference requirement instruction", "constraint"),
    ("decision choice", "decision"),
    ("done progress completed accomplished finished", "done"),
    ("open next todo pending remaining question block ask", "open"),
    ("file artifact", "file"),
    ("error problem issue failure", "error"),
    ("identifier exact", "identifier"),
    ("recent current", "recent"),
)
"""Words in headings that models write instead of the fixed ones."""

_TITLE = re.compile(r"^#{1,6}\s+(.{1,120})$|^\*\*(.{1,80}?):?\*\*:?$")


def render_summary(task: str, findings: Iterable[ExtractedLine]) -> str:
    """Return the summary's text: the task, then the findings of each section in the order of their messages."""
    by_heading: dict[str, list[ExtractedLine]] = {}
    for finding in findings:
        by_heading.setdefault(HEADING_OF[finding.kind], []).append(finding)
    out = [TASK, *(f"> {line}".rstrip() for line in (task or NO_TASK).split("\n"))]
    for heading, _ in SECTIONS:
        lines = [line.text for line in sorted(by_heading.get(heading, ()), key=lambda finding: finding.place)]
        if heading == "## Identifiers":
            lines = [", ".join(lines[at : at + _NAMES_A_LINE]) for at in range(0, len(lines), _NAMES_A_LINE)]
        if lines:
            out += ["", heading, *(f"- {line}" for line in lines)]
    return "\n".join(out)


def parse_summary(summary: str) -> tuple[str, list[ExtractedLine]]:
    """Return the task and the findings of a summary; sections under unknown headings are facts."""
    task: list[str] = []
    findings: list[ExtractedLine] = []
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
            findings += _parse_line(line, kinds, MessageRef(0, number))
    text = "\n".join(task).strip()
    return ("" if text == NO_TASK else text), findings


def _section(title: str) -> tuple[str, Sequence[Kind]]:
    for heading, kinds in SECTIONS:
        if heading == f"## {title}":
            return heading, kinds
    lowered = title.lower()
    if lowered.split(" ")[0] in ("task", "goal", "objective", "request"):
        return TASK, ()
    for names, kind in _TITLE_WORDS:
        if any(name in lowered for name in names.split()):
            return title, (kind,)
    return title, ("fact",)


def _parse_line(line: str, kinds: Sequence[Kind], place: MessageRef) -> list[ExtractedLine]:
    text = truncate_line(line.removeprefix("- ").removeprefix("* "), _LINE_CHARS)
    kind: Kind = kinds[0] if kinds else "fact"
    if kind == "identifier":
        return [ExtractedLine(kind, name, place, _WEIGHTS[kind]) for name in text.split(", ") if name]
    if kind == "done" and text.startswith("`"):
        kind = "command"
    weight = _WEIGHTS[kind]
    if kind == "file" and text.startswith("changed "):
        weight = 60
    elif kind == "error" and "— solved" in text:
        weight = 40
    elif kind == "fact":
        weight = VALUE_WEIGHT if is_quoted(text) else weight_of(text) or PLAIN
    return [ExtractedLine(kind, text, place, weight, pending=kind == "open" and text.startswith((REQUEST, QUESTION)))]


MARGIN_PERCENT = 10
"""A summary is at least this much smaller than its source."""

_TASK_PERCENT = 15
_SHARES = {
    "## Facts": 35, "## Decisions": 30, "## Done": 20, "## Open": 30, "## Files": 20, "## Errors": 15, "## Identifiers": 10,
    "## Recent": 15,
}  # fmt: skip
"""Percent of the budget for a section in the first round. Firm constraints may take all."""

_QUOTED_PERCENT, _QUOTED_TOKENS = 15, 80
"""Percent of the budget, or tokens if that is more, for quoted tool output in both rounds."""

_QUOTED = "quoted"

_FIRM = 50
_FOCUS_GAIN = 30
_WORDS = re.compile(r"\w+")
_KIND_NAMES: dict[Kind, tuple[str, ...]] = {
    "constraint": ("constraint", "rule", "requirement"),
    "preference": ("preference",),
    "fact": ("fact",),
    "decision": ("decision", "decided", "choice"),
    "done": ("done", "progress"),
    "open": ("open", "todo", "task", "question"),
    "file": ("file", "path"),
    "command": ("command",),
    "identifier": ("identifier",),
    "error": ("error", "failure", "bug"),
}
"""Beginnings of the words that name a kind in a focus."""


class Summary(Struct, frozen=True):
    """A summary with its sizes."""

    text: str
    """Empty if not even the task fits."""
    tokens: int
    source_tokens: int
    kept_lines: int = 0
    omitted_lines: int = 0
    replaced: int = 0
    """Number of statements that a later one replaced."""


def summarize(
    rows: Sequence[StoredMessage], limit_tokens: int, counter: TokenCounter, *, previous: str = "", focus: str = ""
) -> Summary:
    """Summarize the previous summary and these rows in `limit_tokens` and at least a tenth smaller than both.

    Without rows, a previous summary that fits is returned unchanged. `focus` names what the user wants kept: findings of
    a kind that it names ("decisions", "files") and findings with a word of it weigh more.
    """
    source = source_tokens(rows, counter, previous)
    if not rows and previous and (tokens := counter.count(previous)) <= limit_tokens:
        return Summary(previous, tokens, source)
    limit = min(limit_tokens, source - source * MARGIN_PERCENT // 100)
    task, previous_lines = parse_summary(previous)
    if any(row.message.text().strip() for row in rows):
        previous_lines = [line for line in previous_lines if line.kind != "recent" and not line.pending]
    extracted = apply_focus(extract(rows, previous_lines, task), focus)
    task = _fitting_task(extracted.task, limit, counter)
    chosen = _chosen(extracted, limit - counter.count(render_summary(task, ())), counter)
    # Tokens of single lines do not add up exactly to those of the text.
    count = largest_fit(len(chosen), lambda size: counter.count(render_summary(task, chosen[:size])) <= limit)
    text = render_summary(task, chosen[:count])
    tokens = counter.count(text)
    if tokens > limit:
        return Summary("", 0, source, 0, len(extracted.findings), extracted.replaced)
    return Summary(text, tokens, source, count, len(extracted.findings) - count, extracted.replaced)


def apply_focus(extracted: Extract, focus: str) -> Extract:
    """Return the findings with more weight where the focus names their kind or shares a word of four letters."""
    words = {token for token in _WORDS.findall(focus.lower()) if len(token) > 3 or not token.isascii()}
    if not words:
        return extracted
    kinds = {kind for kind, names in _KIND_NAMES.items() if any(token.startswith(names) for token in words)}
    return replace(
        extracted,
        findings=tuple(
            replace(finding, weight=min(finding.weight + _FOCUS_GAIN, 100))
            if finding.kind in kinds or any(token in finding.text.lower() for token in words)
            else finding
            for finding in extracted.findings
        ),
    )


def source_tokens(rows: Sequence[StoredMessage], counter: TokenCounter, previous: str = "") -> int:
    """Count the tokens of the previous summary and of texts, arguments and results in the rows, without framing."""
    return counter.count(previous) + sum(counter.count(_text(row.message)) for row in rows)


def _text(message: Message) -> str:
    pieces: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif isinstance(part, ToolCall):
            pieces.append(f"{part.name} {part.arguments}")
        elif isinstance(part, ToolResult):
            pieces += [piece.text for piece in part.content if isinstance(piece, Text)]
    return "\n".join(pieces)


def largest_fit(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` for which `fits` is true, by bisection; 0 if there is none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _fitting_task(task: str, limit: int, counter: TokenCounter) -> str:
    """Return the beginning of the first request that fits the task's share of the budget."""
    lines = [truncate_line(line, 1_000) for line in task.split("\n")]
    full = "\n".join(line for line in lines if line)
    budget = max(limit * _TASK_PERCENT // 100, min(limit // 2, 24))
    chars = largest_fit(len(full), lambda size: counter.count(render_summary(full[:size], ())) <= budget)
    if chars == len(full):
        return full
    cut = full[: max(chars - 2, 0)]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[len(cut) // 2 :] else cut} …".lstrip()


def _chosen(extracted: Extract, budget: int, counter: TokenCounter) -> list[ExtractedLine]:
    """Return the findings that fit the budget: by weight for their size, newer first.

    In the first round no section exceeds its share; the second fills the rest.
    """
    findings = extracted.findings
    costs = [counter.count(f"\n- {finding.text}") for finding in findings]
    order = sorted(range(len(costs)), key=lambda at: (-(findings[at].weight ** 2) * 1000 // (costs[at] + 8), -at))
    quote_limit = max(budget * _QUOTED_PERCENT // 100, _QUOTED_TOKENS)
    chosen: list[int] = []
    spent: dict[str, int] = {}
    headings: set[str] = set()
    remaining = budget
    for with_shares in (True, False):
        first_round = set(chosen)
        for at in order:
            finding = findings[at]
            heading = HEADING_OF[finding.kind]
            group = _QUOTED if is_quoted(finding.text) else heading
            cost = costs[at] + (0 if heading in headings else counter.count(f"\n\n{heading}"))
            share = _share(finding) if with_shares else 100
            limit = quote_limit if group == _QUOTED else budget * share // 100
            if at in first_round or cost > remaining or spent.get(group, 0) + cost > limit:
                continue
            chosen.append(at)
            headings.add(heading)
            spent[group] = spent.get(group, 0) + cost
            remaining -= cost
    return [findings[at] for at in chosen]


def _share(finding: ExtractedLine) -> int:
    """Return the percent of the budget that the finding's section may have taken with it."""
    if finding.pending:
        return 100
    return _SHARES.get(HEADING_OF[finding.kind], 100 if finding.weight >= _FIRM else 25)
