"""Extraction: the lines of a conversation that should outlive their messages, weighed and without superseded ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nexus.compaction.extractive import patterns
from nexus.compaction.extractive.patterns import Kind, find_identifiers
from nexus.compaction.extractive.statements import (
    EXACT,
    PLAIN,
    ExtractedLine,
    limit_length,
    lines,
    sentences,
    states_value,
    strip_markup,
    truncate_line,
    weight_of,
)
from nexus.compaction.extractive.tool_activity import is_quoted, tool_activity, tool_statements
from nexus.compaction.extractive.values import parse_clauses, superseded_sentences
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Text

REQUEST, QUESTION = "Newest request: ", "Asked the user: "
TASK_CHARS = 2_000
_RECENT_CHARS = 160
_HEAVY = 60
_PASTED_CHARS = 3_000  # a longer message is mostly pasted material
_TYPED_CHARS = 1_200  # of a longer message only sentences with a cue or a value count as the user's own words
_REQUEST_CHARS = 300
_BOLD = re.compile(r"\*\*([^*]{1,300})\*\*")
_LEAD = re.compile(r"^(?:[-*+#>•✅✓✔]+ ?|\[[ xX]\] |\d{1,3}[.)] ){1,3}")
_WEIGHTS: dict[Kind, int] = {"constraint": 90, "preference": 85, "decision": 70, "fact": 75, "open": 70, "done": 40}
_COMPARABLE = frozenset({"constraint", "preference", "fact", "decision", "open", "recent"})


class Extract(Struct, frozen=True):
    """Result of extraction."""

    task: str
    """The user's first request, at most TASK_CHARS characters."""
    findings: tuple[ExtractedLine, ...]
    """In the order of their messages; identifiers last."""
    replaced: int = 0
    """Number of statements that a later one replaced."""


def extract(rows: Iterable[StoredMessage], previous: Sequence[ExtractedLine] = (), task: str = "") -> Extract:
    """Return the findings of a previous summary and these rows, without values that later ones replaced.

    Args:
        rows: Messages in order. At most 60,000 characters of each are searched; time is linear in the text.
        previous: Findings of the previous summary.
        task: First request in the previous summary; by default the first text of a user in these rows.
    """
    rows = list(rows)
    texts = [(row, _searchable_text(row)) for row in rows if row.message.role != "tool"]
    first = task or next((text for row, text in texts if row.message.role == "user" and text), "")
    # The first request, and the newest if its line contains all of it, are in the summary anyway.
    newest = [text for row, text in texts if row.message.role == "user" and text][-1:]
    repeated = " ".join(" ".join([first, *(text for text in newest if len(text) <= _REQUEST_CHARS)]).split())
    findings: list[ExtractedLine] = []
    for row, text in texts:
        findings += [line for line in _statements(row, text) if not (_is_uncued(line) and line.text in repeated)]
    findings += [*_requests(texts, task), *_recent(texts), *tool_activity(rows), *tool_statements(rows)]
    findings.sort(key=lambda finding: finding.place)
    live, replaced = _without_superseded([*previous, *findings])
    return Extract(_mark_replaced(task or first[:TASK_CHARS], live), (*live, *_identifiers(texts, live)), replaced)


def _mark_replaced(task: str, live: Sequence[ExtractedLine]) -> str:
    """Return the task with every sentence that a later statement replaced marked as such."""
    stated = list(sentences(task))
    later = [_statement_text(finding) for finding in live if _is_comparable(finding)]
    for at in superseded_sentences([*stated, *later]):
        if at < len(stated):
            task = task.replace(stated[at], "[replaced later]")
    return task


def _searchable_text(row: StoredMessage) -> str:
    text = limit_length("\n".join(part.text for part in row.message.parts if isinstance(part, Text)))
    return redact(strip_markup(text) if row.message.role == "user" else text).text.strip()


def _statements(row: StoredMessage, text: str) -> list[ExtractedLine]:
    """Return the sentences of a message that have a cue, and those of a user that state something."""
    by_user = row.message.role in ("user", "system")
    findings: list[ExtractedLine] = []
    for sentence in sentences(text):
        if sentence.endswith((":", "：")):
            continue
        label, bare = patterns.parse_label(_BOLD.sub(r"\1", sentence))
        kind = label if by_user else None
        if kind in (None, "fact", "open"):
            cue = patterns.requested_kind(bare) if by_user else patterns.reported_kind(bare)
            kind = cue if kind is None or cue in ("constraint", "preference") else kind
        uncued_weight = 0
        if kind is None and by_user:
            typed = row.message.role == "user" and len(text) <= _TYPED_CHARS
            uncued_weight = weight_of(bare) if typed or states_value(bare) else 0
            kind = "fact" if uncued_weight else None
        line = _LEAD.sub("", bare).strip()
        if kind is None or sum(letter.isalnum() for letter in line) < 6:
            continue
        weight = uncued_weight or _WEIGHTS[kind] + (5 if label else 0)
        if not by_user:
            weight = {"decision": 45, "open": 50, "done": 40}.get(kind, 30)
        elif row.message.role == "system":
            weight = 60
        elif not label and patterns.is_soft(bare):
            weight = 35
        elif len(text) > _PASTED_CHARS:
            weight -= 30
        findings.append(ExtractedLine(kind, line, row.ref, min(weight, 100)))
    return findings


def _is_uncued(finding: ExtractedLine) -> bool:
    return finding.kind == "fact" and finding.weight in (EXACT, PLAIN)


def _requests(texts: Sequence[tuple[StoredMessage, str]], task: str) -> list[ExtractedLine]:
    """Return the newest request unless it is the task, and unanswered questions of the assistant."""
    findings: list[ExtractedLine] = []
    requests = [
        (row, text) for row, text in texts if row.message.role == "user" and text and not patterns.THANKS.match(text)
    ]
    if len(requests) > (not task):
        row, text = requests[-1]
        findings.append(ExtractedLine("open", REQUEST + truncate_line(text, _REQUEST_CHARS), row.ref, 95, pending=True))
    last = next(((row, text) for row, text in reversed(texts) if text), None)
    if last is not None and last[0].message.role == "assistant":
        questions = [sentence for sentence in sentences(last[1]) if sentence.endswith(("?", "？"))]
        findings += [ExtractedLine("open", QUESTION + text, last[0].ref, 80, pending=True) for text in questions[-2:]]
    return findings


def _recent(texts: Sequence[tuple[StoredMessage, str]]) -> list[ExtractedLine]:
    """Return the last eight messages as lines; the newest two weigh most."""
    newest = [(row, text) for row, text in texts if text and row.message.role != "system"][-8:]
    findings: list[ExtractedLine] = []
    for remaining, (row, text) in zip(range(len(newest), 0, -1), newest, strict=True):
        line = f"{row.message.role.capitalize()}: {truncate_line(' '.join(lines(text)), _RECENT_CHARS)}"
        findings.append(ExtractedLine("recent", line, row.ref, 50 if remaining <= 2 else 22))
    return findings


def _without_superseded(findings: Sequence[ExtractedLine]) -> tuple[list[ExtractedLine], int]:
    """Return the findings without repeats and superseded values, and the number of superseded ones."""
    last: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        group = finding.kind if finding.kind in ("recent", "file", "error", "command") else "said"
        last[group, " ".join(finding.text.lower().split()).rstrip(".!。")] = index
    single = [findings[index] for index in sorted(last.values())]
    comparable = [index for index, finding in enumerate(single) if _is_comparable(finding)]
    rests = superseded_sentences([_statement_text(single[index]) for index in comparable])
    superseded = {comparable[at]: rest for at, rest in rests.items()}
    live: list[ExtractedLine] = []
    for index, finding in enumerate(single):
        if index not in superseded:
            live.append(finding)
        elif superseded[index] and finding.kind in _WEIGHTS:
            live.append(ExtractedLine(finding.kind, superseded[index], finding.place, finding.weight))
    return live, sum(single[index].kind != "recent" for index in superseded)


def _is_comparable(finding: ExtractedLine) -> bool:
    """Return true for statements of the conversation: quoted tool output neither replaces nor is replaced."""
    return finding.kind in _COMPARABLE and not (finding.kind == "fact" and is_quoted(finding.text))


def _statement_text(finding: ExtractedLine) -> str:
    return finding.text.partition(": ")[2] if finding.kind == "recent" or finding.pending else finding.text


def _identifiers(texts: Sequence[tuple[StoredMessage, str]], live: Sequence[ExtractedLine]) -> list[ExtractedLine]:
    """Return identifiers, heavier when used often or by the user, without values of superseded statements."""
    weights: dict[str, int] = {}
    places: dict[str, MessageRef] = {}
    stated = " ".join(finding.text for finding in live)
    for row, text in texts:
        for sentence in sentences(text):
            values = {
                value for clause in parse_clauses(sentence) for group in clause.values.values() for value in group
            }
            for name, kind, weight in find_identifiers(sentence):
                if (name.lower() in values and name not in stated) or kind in ("amount", "date", "port"):
                    continue
                gain = 8 if row.message.role == "user" else 3
                weights[name] = min(weights.get(name, weight) + gain, 75)
                places[name] = row.ref
    return [
        ExtractedLine("identifier", name, places[name], weight - 30)
        for name, weight in weights.items()
        if name not in stated
    ]


def exact_identifiers(extracted: Extract, limit: int = 20) -> tuple[str, ...]:
    """Return the heaviest identifiers, which a model's summary must contain, heaviest first."""
    weights: dict[str, int] = {}
    for finding in extracted.findings:
        if finding.kind == "identifier":
            weights.setdefault(finding.text, finding.weight)
        elif finding.kind == "file" and finding.weight >= _HEAVY:
            weights[finding.text.removeprefix("changed ")] = finding.weight
        elif finding.kind in _COMPARABLE and finding.kind != "recent" and finding.weight >= _HEAVY:
            for name, _, _ in find_identifiers(finding.text):
                weights[name] = max(weights.get(name, 0), finding.weight)
    return tuple(sorted(weights, key=lambda name: (-weights[name], name))[:limit])
