"""A summary's form: fixed headings, one finding a line, written and read back without loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nexus.compaction.extractive.extract import ASKED, REQUEST, Extract, extract
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
"""All headings, in order. A summary has those under which something stands, and the task always."""

HEADING_OF: dict[Kind, str] = {kind: heading for heading, kinds in SECTIONS for kind in kinds}
NO_TASK = "(no request in this part)"

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


def render_summary(task: str, findings: Iterable[ExtractedLine]) -> str:
    """The summary's text: the task, then each section's findings in their order of place."""
    by_heading: dict[str, list[ExtractedLine]] = {}
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


def parse_summary(summary: str) -> tuple[str, list[ExtractedLine]]:
    """The task and the findings of a summary; one that is of another form is read as far as its headings are known."""
    task: list[str] = []
    found: list[ExtractedLine] = []
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
            found += _read(line, kinds, MessageRef(0, number))
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


def _read(line: str, kinds: Sequence[Kind], place: MessageRef) -> list[ExtractedLine]:
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
    return [ExtractedLine(kind, text, place, weight, asked=kind == "open" and text.startswith((REQUEST, ASKED)))]


MARGIN_PERCENT = 10
"""A summary is at least this much smaller than what it replaces."""

_TASK_PERCENT = 15
_SHARES = {
    "## Facts": 35, "## Decisions": 30, "## Done": 20, "## Open": 30, "## Files": 20, "## Errors": 15, "## Identifiers": 10,
    "## Recent": 15,
}  # fmt: skip
"""What a section may take of the budget, in percent, while others still wait. Firm constraints may take all."""

_QUOTED_PERCENT, _LEAST_QUOTED = 15, 80
"""What results of tools say may take this much of the budget, or so many tokens, also where room is left."""

_QUOTED = "quoted"

_FIRM = 50
_FOCUS_GAIN = 30
_WORD = re.compile(r"\w+")
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
"""Words, by their beginning, with which a focus names a kind."""


class Summary(Struct, frozen=True):
    """A summary: its text (empty if not even the task fits), its tokens, those of what it replaces, and what it left out.

    `kept` and `left_out` count findings, `replaced` the earlier statements that a later one made stale.
    """

    text: str
    tokens: int
    source_tokens: int
    kept_lines: int = 0
    omitted_lines: int = 0
    replaced: int = 0


def summarize(
    rows: Sequence[StoredMessage], limit_tokens: int, counter: TokenCounter, *, previous: str = "", focus: str = ""
) -> Summary:
    """A summary of the previous summary and these rows in at most `limit_tokens`, and smaller than both by a tenth.

    The previous one comes back unchanged when there are no rows and it fits. `focus` names what the user wants kept above
    all: findings of a kind that it names ("decisions", "files") or that share a word with it weigh more.
    """
    source = source_tokens(rows, counter, previous)
    if not rows and previous and (tokens := counter.count(previous)) <= limit_tokens:
        return Summary(previous, tokens, source)
    limit = min(limit_tokens, source - source * MARGIN_PERCENT // 100)
    task, earlier = parse_summary(previous)
    if any(row.message.text().strip() for row in rows):
        earlier = [finding for finding in earlier if finding.kind != "recent" and not finding.asked]
    found = apply_focus(extract(rows, earlier, task), focus)
    task = _fitting_task(found.task, limit, counter)
    chosen = _chosen(found, limit - counter.count(render_summary(task, ())), counter)
    text, kept = _within(task, chosen, limit, counter)
    tokens = counter.count(text)
    if tokens > limit:
        return Summary("", 0, source, 0, len(found.findings), found.replaced)
    return Summary(text, tokens, source, kept, len(found.findings) - kept, found.replaced)


def apply_focus(found: Extract, focus: str) -> Extract:
    """The findings with more weight where the focus names their kind or shares a word of four letters or more."""
    words = {word for word in _WORD.findall(focus.lower()) if len(word) > 3 or not word.isascii()}
    if not words:
        return found
    kinds = {kind for kind, names in _KIND_NAMES.items() if any(word.startswith(names) for word in words)}
    return replace(
        found,
        findings=tuple(
            replace(finding, weight=min(finding.weight + _FOCUS_GAIN, 100))
            if finding.kind in kinds or any(word in finding.text.lower() for word in words)
            else finding
            for finding in found.findings
        ),
    )


def source_tokens(rows: Sequence[StoredMessage], counter: TokenCounter, previous: str = "") -> int:
    """The tokens of the previous summary and of all text, tool arguments and results in the rows, without framing."""
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


def _fitting_task(task: str, limit: int, counter: TokenCounter) -> str:
    """As much of the first request, from its beginning, as the task's share of the budget holds."""
    lines = [truncate_line(line, 1_000) for line in task.split("\n")]
    whole = "\n".join(line for line in lines if line)
    room = max(limit * _TASK_PERCENT // 100, min(limit // 2, 24))
    low, high = 0, len(whole)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(render_summary(whole[:middle], ())) <= room:
            low = middle
        else:
            high = middle - 1
    if low == len(whole):
        return whole
    cut = whole[: max(low - 2, 0)]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[len(cut) // 2 :] else cut} …".lstrip()


def _chosen(found: Extract, room: int, counter: TokenCounter) -> list[ExtractedLine]:
    """The findings that fit into the room: by weight for their size, newer first, no section over its share at first."""
    costs = [counter.count(f"\n- {finding.text}") for finding in found.findings]
    order = sorted(
        range(len(costs)),
        key=lambda at: (-(found.findings[at].weight ** 2) * 1000 // (costs[at] + 8), -at),
    )
    quotes = max(room * _QUOTED_PERCENT // 100, _LEAST_QUOTED)
    chosen: list[int] = []
    spent: dict[str, int] = {}
    opened: set[str] = set()
    left = room
    for shared in (True, False):
        taken = set(chosen)
        for at in order:
            finding = found.findings[at]
            heading = HEADING_OF[finding.kind]
            group = _QUOTED if is_quoted(finding.text) else heading
            cost = costs[at] + (0 if heading in opened else counter.count(f"\n\n{heading}"))
            most = quotes if group == _QUOTED else room * (_share(finding) if shared else 100) // 100
            if at in taken or cost > left or spent.get(group, 0) + cost > most:
                continue
            chosen.append(at)
            opened.add(heading)
            spent[group] = spent.get(group, 0) + cost
            left -= cost
    return [found.findings[at] for at in chosen]


def _share(finding: ExtractedLine) -> int:
    """What the finding's section may have taken of the room with it, in percent."""
    if finding.asked:
        return 100
    return _SHARES.get(HEADING_OF[finding.kind], 100 if finding.weight >= _FIRM else 25)


def _within(task: str, chosen: Sequence[ExtractedLine], limit: int, counter: TokenCounter) -> tuple[str, int]:
    """The text of as many of the chosen, the first ones first, as the limit holds; tokens of lines do not add up exactly."""
    low, high = 0, len(chosen)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(render_summary(task, chosen[:middle])) <= limit:
            low = middle
        else:
            high = middle - 1
    return render_summary(task, chosen[:low]), low
