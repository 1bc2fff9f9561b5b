"""Format of a summary: fixed headings, one finding a line, written and parsed without loss; and its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nexus.summarization.extractive.extract import LEFT_OPEN, QUESTION, REQUEST, extract
from nexus.summarization.extractive.patterns import Kind
from nexus.summarization.extractive.statements import PLAIN, ExtractedLine, truncate_line, weight_of
from nexus.summarization.extractive.tool_activity import USED_WEIGHT, VALUE_WEIGHT, is_quoted, is_solved
from nexus.text.late_pattern import late_pattern
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Text, ToolCall, ToolResult

_FIRM = 50


class _KindRules(Struct, frozen=True):
    heading: str
    weight: int
    """Weight of a line that is read back from a summary."""
    share: int
    """Percent of the budget for the section in the first round; 0: firm lines may take all."""
    titles: str = ""
    """Words in headings that models write instead of the fixed ones."""
    focus: str = ""
    """Beginnings of the words that name the kind in a focus."""


_RULES: dict[Kind, _KindRules] = {
    "constraint": _KindRules(
        "## Constraints", 90, 0, "constraint rule preference requirement instruction", "constraint rule requirement"
    ),
    "preference": _KindRules("## Constraints", 85, 0, focus="preference"),
    "fact": _KindRules("## Facts", 75, 35, focus="fact"),
    "decision": _KindRules("## Decisions", 70, 30, "decision choice", "decision decided choice"),
    "done": _KindRules("## Done", 40, 20, "done progress completed accomplished finished solving", "done progress"),
    "command": _KindRules("## Done", 40, 20, focus="command"),
    "open": _KindRules(
        "## Open", 70, 30, "open next todo pending remaining question block ask", "open todo task question"
    ),
    "file": _KindRules("## Files", 25, 20, "file artifact", "file path"),
    "error": _KindRules("## Errors", 70, 15, "error problem issue failure", "error failure bug"),
    "identifier": _KindRules("## Identifiers", 20, 10, "identifier exact", "identifier"),
    "recent": _KindRules("## Recent", 10, 15, "recent current"),
}
"""Rules by kind, in the order of the sections; titles are tried in the same order."""

TASK = "## Task"
HEADINGS: tuple[str, ...] = (TASK, *dict.fromkeys(rules.heading for rules in _RULES.values()))
"""All headings in order. A summary has the task and every section with content."""

_NO_TASK = "(no request in this part)"
_LINE_CHARS = 600
_NAMES_A_LINE = 12
_TITLE = late_pattern(r"^#{1,6}\s+(.{1,120})$|^(?:\d{1,2}\. )?\*\*(.{1,80}?):?\*\*:?$|^\d{1,2}\. ([^*:]{1,80}):$")
_ANALYSIS_END = "\nSummary:\n"
"""Line between a model's analysis and its summary, as Claude Code stores them."""
_ASIDES = ("Please continue the conversation from where", "If you need specific details from before")
"""Beginnings of what Claude Code adds to a summary for the assistant."""


def render_summary(task: str, findings: Iterable[ExtractedLine]) -> str:
    """Return the summary's text: the task, then the findings of each section in the order of their messages."""
    by_heading: dict[str, list[str]] = {}
    for finding in sorted(findings, key=lambda finding: finding.place):
        by_heading.setdefault(_RULES[finding.kind].heading, []).append(finding.text)
    out = [TASK, *(f"> {line}".rstrip() for line in (task or _NO_TASK).split("\n"))]
    for heading in HEADINGS[1:]:
        lines = by_heading.get(heading, [])
        if heading == "## Identifiers":
            lines = [", ".join(lines[at : at + _NAMES_A_LINE]) for at in range(0, len(lines), _NAMES_A_LINE)]
        if lines:
            out += ["", heading, *(f"- {line}" for line in lines)]
    return "\n".join(out)


def parse_summary(summary: str) -> tuple[str, list[ExtractedLine]]:
    """Return the task and the findings of a summary; sections under unknown headings are facts.

    Of a summary behind an analysis, which another program stored, analysis and code blocks are left out.
    """
    task: list[str] = []
    findings: list[ExtractedLine] = []
    kind: Kind | None = "fact"
    _, analysis_end, summary = summary.rpartition(_ANALYSIS_END)
    in_code = False
    for number, raw in enumerate(summary.split("\n")):
        line = raw.strip()
        if analysis_end and line.startswith("```"):
            in_code = not in_code
        elif in_code or line.startswith(_ASIDES):
            continue
        elif title := _TITLE.match(line):
            kind = _kind_under((title[1] or title[2] or title[3]).strip().rstrip(":"))
        elif kind is None:
            task.append(line.removeprefix(">").removeprefix(" "))
        elif line.lstrip("-*> "):
            findings += _parse_line(line, kind, MessageRef(0, number))
    text = "\n".join(task).strip()
    return ("" if text == _NO_TASK else text), findings


def _kind_under(title: str) -> Kind | None:
    """Return the kind of the lines under a heading; None for the task."""
    lowered = title.lower()
    # The fixed headings come first: a word of theirs may be in the titles of another kind.
    for kind, rules in _RULES.items():
        if rules.heading == f"## {title}":
            return kind
    if lowered.split(" ")[0] in ("task", "goal", "objective", "request"):
        return None
    for kind, rules in _RULES.items():
        if any(name in lowered for name in rules.titles.split()):
            return kind
    return "fact"


def _parse_line(line: str, kind: Kind, place: MessageRef) -> list[ExtractedLine]:
    text = truncate_line(line.removeprefix("- ").removeprefix("* "), _LINE_CHARS)
    if kind == "identifier":
        return [ExtractedLine(kind, name, place, _RULES[kind].weight) for name in text.split(", ") if name]
    if kind == "done" and text.startswith("`"):
        kind = "command"
    weight = _RULES[kind].weight
    if kind == "file" and text.startswith("changed "):
        weight = 60
    elif kind == "error" and is_solved(text):
        weight = 40
    elif kind == "fact" and is_quoted(text):
        weight = VALUE_WEIGHT if text.endswith("”") else USED_WEIGHT
    elif kind == "fact":
        weight = weight_of(text) or PLAIN
    pending = kind == "open" and text.startswith((REQUEST, QUESTION, LEFT_OPEN))
    return [ExtractedLine(kind, text, place, weight, pending, by_user=kind not in ("done", "command", "file", "error"))]


# A summary is at least this much smaller than its source.
MARGIN_PERCENT = 10
_TASK_PERCENT = 15
# Percent of the budget, or tokens if that is more, for quoted tool output in both rounds.
_QUOTED_PERCENT = 30
_QUOTED_TOKENS = 80
_FOCUS_GAIN = 30
_WORDS = late_pattern(r"\w+")


def summarize(
    rows: Sequence[StoredMessage], limit_tokens: int, counter: TokenCounter, *, previous: str = "", focus: str = ""
) -> str:
    """Summarize the previous summary and these rows in `limit_tokens` and at least a tenth smaller than both.

    Returns an empty text if not even the task fits. Without rows, a previous summary that fits is returned unchanged.
    `focus` names what the user wants kept: findings of a kind that it names ("decisions", "files") and findings with a
    word of it weigh more.
    """
    if not rows and previous and counter.count(previous) <= limit_tokens:
        return previous
    source = source_tokens(rows, counter, previous)
    limit = min(limit_tokens, source - source * MARGIN_PERCENT // 100)
    task, previous_lines = parse_summary(previous)
    if any(row.message.text().strip() for row in rows):
        previous_lines = [line for line in previous_lines if line.kind != "recent" and not line.pending]
    extracted = extract(rows, previous_lines, task)
    task = _fitting_task(extracted.task, limit, counter)
    findings = _with_focus(extracted.findings, focus)
    chosen = _chosen(findings, limit - counter.count(render_summary(task, ())), counter)
    # Tokens of single lines do not add up exactly to those of the text.
    count = largest_fit(len(chosen), lambda size: counter.count(render_summary(task, chosen[:size])) <= limit)
    text = render_summary(task, chosen[:count])
    if counter.count(text) <= limit:
        return text
    return ""


def source_tokens(rows: Sequence[StoredMessage], counter: TokenCounter, previous: str = "") -> int:
    """Count the tokens of the previous summary and of texts, arguments and results in the rows, without framing."""
    tokens = counter.count(previous)
    for row in rows:
        pieces: list[str] = []
        for part in row.message.parts:
            if isinstance(part, Text):
                pieces.append(part.text)
            elif isinstance(part, ToolCall):
                pieces.append(f"{part.name} {part.arguments}")
            elif isinstance(part, ToolResult):
                pieces += [piece.text for piece in part.content if isinstance(piece, Text)]
        tokens += counter.count("\n".join(pieces))
    return tokens


def largest_fit(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` for which `fits` is true, by bisection; 0 if there is none."""
    low = 0
    high = limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _fitting_task(task: str, limit: int, counter: TokenCounter) -> str:
    """Return the beginning of the first request that fits the task's share of the budget."""
    full = "\n".join(filter(None, (truncate_line(line, 1_000) for line in task.split("\n"))))
    budget = max(limit * _TASK_PERCENT // 100, min(limit // 2, 24))
    chars = largest_fit(len(full), lambda size: counter.count(render_summary(full[:size], ())) <= budget)
    if chars == len(full):
        return full
    beginning = full[: max(chars - 2, 0)]
    if " " in beginning[len(beginning) // 2 :]:
        beginning = beginning[: beginning.rfind(" ")]
    return f"{beginning} …".lstrip()


def _with_focus(findings: Iterable[ExtractedLine], focus: str) -> list[ExtractedLine]:
    """Return the findings with more weight where the focus names their kind or shares a word of four letters."""
    words = {token for token in _WORDS.findall(focus.lower()) if len(token) > 3 or not token.isascii()}
    kinds: set[Kind] = set()
    for kind, rules in _RULES.items():
        beginnings = tuple(rules.focus.split())
        if any(token.startswith(beginnings) for token in words):
            kinds.add(kind)
    weighed: list[ExtractedLine] = []
    for finding in findings:
        text = finding.text.lower()
        if finding.kind in kinds or any(token in text for token in words):
            finding = replace(finding, weight=min(finding.weight + _FOCUS_GAIN, 100))  # noqa: PLW2901 - the same finding
        weighed.append(finding)
    return weighed


def _chosen(findings: Sequence[ExtractedLine], budget: int, counter: TokenCounter) -> list[ExtractedLine]:
    """Return the findings that fit the budget: by weight for their size, newer first.

    In the first round no section exceeds its share; the second fills the rest.
    """
    costs = [counter.count(f"\n- {finding.text}") for finding in findings]
    order = sorted(range(len(costs)), key=lambda at: (-(findings[at].weight ** 2) * 1000 // (costs[at] + 8), -at))
    quote_limit = max(budget * _QUOTED_PERCENT // 100, _QUOTED_TOKENS)
    chosen: dict[int, ExtractedLine] = {}
    spent: dict[str, int] = {}
    headings: set[str] = set()
    remaining = budget
    for with_shares in (True, False):
        for at in order:
            finding = findings[at]
            rules = _RULES[finding.kind]
            cost = costs[at]
            if rules.heading not in headings:
                cost += counter.count(f"\n\n{rules.heading}")
            if is_quoted(finding.text):
                # Quotations of tool output share one limit, so that a long page cannot displace what was said.
                group = "quoted"
                limit = quote_limit
            else:
                share = 100
                if with_shares and not finding.pending:
                    share = rules.share or (100 if finding.weight >= _FIRM else 25)
                group = rules.heading
                limit = budget * share // 100
            if at in chosen or cost > remaining or spent.get(group, 0) + cost > limit:
                continue
            chosen[at] = finding
            headings.add(rules.heading)
            spent[group] = spent.get(group, 0) + cost
            remaining -= cost
    return list(chosen.values())
