"""Extraction: the lines of a conversation that should outlive their messages, weighed and without superseded ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from nexus.compaction.extractive import patterns, statements
from nexus.compaction.extractive.patterns import Kind, cued_kind, find_identifiers
from nexus.compaction.extractive.statements import (
    ExtractedLine,
    parse_clauses,
    sentences,
    superseded_sentences,
    truncate_line,
)
from nexus.compaction.extractive.tool_activity import is_quoted, tool_activity, tool_statements
from nexus.text.message_text import is_injected, typed_text
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage

REQUEST, QUESTION = "Newest request: ", "Asked the user: "
_TASK_CHARS = 2_000
_RECENT_CHARS = 160
_HEAVY = 60
_PASTED_CHARS = 3_000  # a longer message is mostly pasted material
_TYPED_CHARS = 1_200  # of a longer message only sentences with a cue or a value count as the user's own words
_REQUEST_CHARS = 300
_BOLD = re.compile(r"\*\*([^*]{1,300})\*\*")
_LEAD = re.compile(r"^(?:[-*+#>•✅✓✔]+ ?|\[[ xX]\] |\d{1,3}[.)] ){1,3}")
_WEIGHTS: dict[Kind, int] = {"constraint": 90, "preference": 85, "decision": 70, "fact": 75, "open": 70, "done": 40}
_ASSISTANT_WEIGHTS: dict[Kind, int] = {"decision": 45, "open": 50, "done": 40}
_COMPARABLE = frozenset({"constraint", "preference", "fact", "decision", "open", "recent"})


class Extract(Struct, frozen=True):
    """Result of extraction."""

    task: str  # the user's first request, at most _TASK_CHARS characters
    findings: tuple[ExtractedLine, ...]  # in the order of their messages; identifiers last


def extract(rows: Iterable[StoredMessage], previous: Sequence[ExtractedLine] = (), task: str = "") -> Extract:
    """Return the findings of a previous summary and these rows, without values that later ones replaced.

    Args:
        rows: Messages in order. At most 60,000 characters of each are searched; time is linear in the text.
        previous: Findings of the previous summary.
        task: First request in the previous summary; by default the first text of a user in these rows.
    """
    rows = list(rows)
    texts: list[tuple[StoredMessage, str]] = []
    for row in rows:
        if row.message.role != "tool" and not (row.message.role == "user" and is_injected(row.message)):
            by_user = row.message.role == "user"
            text = statements.limit_length(typed_text(row.message) if by_user else row.message.text())
            text = statements.strip_markup(text) if by_user else text
            texts.append((row, redact(text).text.strip()))
    by_user = [text for row, text in texts if row.message.role == "user" and text]
    first = task or next(iter(by_user), "")
    # The first request, and the newest if its line contains all of it, are in the summary anyway.
    newest = [text for text in by_user[-1:] if len(text) <= _REQUEST_CHARS]
    repeated = " ".join(" ".join([first, *newest]).split())
    findings: list[ExtractedLine] = []
    for row, text in texts:
        for line in _statements(row, text):
            is_uncued = line.kind == "fact" and line.weight in (statements.EXACT, statements.PLAIN)
            if not (is_uncued and line.text in repeated):
                findings.append(line)
    findings += [
        *_newest(texts, task, is_answered=_is_answered(rows)),
        *tool_activity(rows),
        *tool_statements(rows),
    ]
    findings.sort(key=lambda finding: finding.place)
    live = _without_superseded([*previous, *findings])
    task = task or first[:_TASK_CHARS]
    stated = list(sentences(task))
    later = [_statement_text(finding) for finding in live if _is_comparable(finding) and finding.by_user]
    for at in superseded_sentences([*stated, *later]):
        if at < len(stated):
            task = task.replace(stated[at], "[replaced later]")
    return Extract(task, (*live, *_identifiers(texts, live)))


def _statements(row: StoredMessage, text: str) -> list[ExtractedLine]:
    """Return the sentences of a message that have a cue, and those of a user that state something."""
    by_user = row.message.role in ("user", "system")
    findings: list[ExtractedLine] = []
    for sentence in sentences(text):
        plain = _BOLD.sub(r"\1", sentence)
        if sentence.startswith("#") or plain.endswith((":", "：")):  # a heading, or the beginning of a list
            continue
        label, bare = patterns.parse_label(plain)
        kind = label if by_user else None
        if kind in (None, "fact", "open"):
            cue = cued_kind(bare, by_user=by_user)
            kind = cue if kind is None or cue in ("constraint", "preference") else kind
        uncued_weight = 0
        if kind is None and by_user:
            typed = row.message.role == "user" and len(text) <= _TYPED_CHARS
            uncued_weight = statements.weight_of(bare) if typed or statements.states_value(bare) else 0
            kind = "fact" if uncued_weight else None
        line = _LEAD.sub("", bare).strip()
        if kind is None or sum(letter.isalnum() for letter in line) < 6:
            continue
        weight = uncued_weight or _WEIGHTS[kind] + (5 if label else 0)
        if not by_user:
            weight = _ASSISTANT_WEIGHTS.get(kind, 30)
        elif row.message.role == "system":
            weight = 60
        elif not label and patterns.is_soft(bare):
            weight = 35
        elif len(text) > _PASTED_CHARS:
            weight -= 30
        findings.append(ExtractedLine(kind, line, row.ref, min(weight, 100), by_user=row.message.role == "user"))
    return findings


def _is_answered(rows: Sequence[StoredMessage]) -> bool:
    """Return True if the rows end with the text that ends a turn: an assistant's, without calls or a question."""
    message = rows[-1].message if rows else None
    if message is None or message.role != "assistant" or next(message.calls(), None) is not None:
        return False
    return not message.text().rstrip(" \n*_)").endswith(("?", "？"))


def _newest(texts: Sequence[tuple[StoredMessage, str]], task: str, *, is_answered: bool) -> list[ExtractedLine]:
    """Return the newest request unless it is the task or answered, unanswered questions, and the last eight messages."""
    findings: list[ExtractedLine] = []
    texts = [(row, text) for row, text in texts if text]
    # After "thanks" or "ok", the request is the message before it.
    requests = [(row, text) for row, text in texts if row.message.role == "user" and not patterns.THANKS.match(text)]
    if len(requests) > (not task) and not is_answered:
        row, text = requests[-1]
        line = REQUEST + truncate_line(text, _REQUEST_CHARS)
        findings.append(ExtractedLine("open", line, row.ref, 95, pending=True, by_user=True))
    if texts and texts[-1][0].message.role == "assistant":
        row, text = texts[-1]
        questions = [sentence for sentence in sentences(text) if sentence.endswith(("?", "？"))]
        findings += [ExtractedLine("open", QUESTION + text, row.ref, 80, pending=True) for text in questions[-2:]]
    recent = [(row, text) for row, text in texts if row.message.role != "system"][-8:]
    for remaining, (row, text) in zip(range(len(recent), 0, -1), recent, strict=True):
        line = f"{row.message.role.capitalize()}: {truncate_line(' '.join(statements.lines(text)), _RECENT_CHARS)}"
        by_user = row.message.role == "user"
        findings.append(ExtractedLine("recent", line, row.ref, 50 if remaining <= 2 else 22, by_user=by_user))
    return findings


def _without_superseded(findings: Sequence[ExtractedLine]) -> list[ExtractedLine]:
    """Return the findings without repeats and superseded values."""
    last: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        # A sentence counts once whatever its kind; a recent message or a tool's action repeats only its own kind.
        group = finding.kind if finding.kind in ("recent", "file", "error", "command") else "said"
        last[group, " ".join(finding.text.lower().split()).rstrip(".!。")] = index
    single = [findings[index] for index in sorted(last.values())]
    comparable = [index for index, finding in enumerate(single) if _is_comparable(finding)]
    of_user = [index for index in comparable if single[index].by_user]
    superseded: dict[int, str] = {}
    for indexes in (comparable, of_user):
        rests = superseded_sentences([_statement_text(single[index]) for index in indexes])
        same = {indexes[at]: rest for at, rest in rests.items() if single[indexes[at]].by_user == (indexes is of_user)}
        superseded |= same
    live: list[ExtractedLine] = []
    for index, finding in enumerate(single):
        if index not in superseded:
            live.append(finding)
        elif superseded[index] and finding.kind in _WEIGHTS:
            live.append(structs.replace(finding, text=superseded[index]))
    return live


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
            for name, kind, weight in find_identifiers(sentence):
                # Amounts, dates and ports mean little without the sentence that they are part of.
                if kind in ("amount", "date", "port") or name in stated or name.lower() in _values(sentence):
                    continue
                gain = 8 if row.message.role == "user" else 3
                weights[name] = min(weights.get(name, weight) + gain, 75)
                places[name] = row.ref
    return [ExtractedLine("identifier", name, places[name], weight - 30) for name, weight in weights.items()]


def _values(sentence: str) -> frozenset[str]:
    return frozenset(value for clause in parse_clauses(sentence) for hits in clause.values.values() for value in hits)


def exact_identifiers(extracted: Extract, limit: int = 20) -> tuple[str, ...]:
    """Return the heaviest identifiers, which a model's summary must contain, heaviest first."""
    weights: dict[str, int] = {}
    for finding in extracted.findings:
        if finding.kind == "identifier":
            weights.setdefault(finding.text, finding.weight)
        elif finding.weight < _HEAVY:
            continue
        elif finding.kind == "file":
            weights[finding.text.removeprefix("changed ")] = finding.weight
        elif finding.kind in _COMPARABLE and finding.kind != "recent":
            for name, _, _ in find_identifiers(finding.text):
                weights[name] = max(weights.get(name, 0), finding.weight)
    return tuple(sorted(weights, key=lambda name: (-weights[name], name))[:limit])
