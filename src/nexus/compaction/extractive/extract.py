"""What extraction finds: one line of text that should outlive the messages it stood in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive import values as slots
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
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Text

REQUEST, ASKED = "Newest request: ", "Asked the user: "
TASK_CHARS = 2_000
_RECENT_CHARS = 160
_HEAVY = 60
_PASTED_CHARS = 3_000  # a longer message is mostly material, not what its user says
_TYPED_CHARS = 1_200  # of a longer one only sentences with a cue or a value are what its user says
_REQUEST_CHARS = 300
_BOLD = re.compile(r"\*\*([^*]{1,300})\*\*")
_LEAD = re.compile(r"^(?:[-*+#>•✅✓✔]+ ?|\[[ xX]\] |\d{1,3}[.)] ){1,3}")
_WEIGHTS: dict[Kind, int] = {"constraint": 90, "preference": 85, "decision": 70, "fact": 75, "open": 70, "done": 40}


class Extract(Struct, frozen=True):
    """What was found: the user's first request (bounded), the findings in order, and how many statements were replaced."""

    task: str
    findings: tuple[ExtractedLine, ...]
    replaced: int = 0


def extract(rows: Iterable[StoredMessage], earlier: Sequence[ExtractedLine] = (), task: str = "") -> Extract:
    """The findings of these rows after those of an earlier summary; later values have replaced earlier ones among both.

    `task` is the first request as an earlier summary has it; without one it is the first user's text in these rows. Time is linear in the text. Of one message at most 60,000 characters are searched.
    """
    rows = list(rows)
    said = [(row, _said(row)) for row in rows if row.message.role != "tool"]
    found: list[ExtractedLine] = []
    first = task or next((text for row, text in said if row.message.role == "user" and text), "")
    shown = _shown_anyway(said, first)
    for row, text in said:
        found += [one for one in _statements(row, text) if not (_is_uncued(one) and one.text in shown)]
    found += _questions(said, task)
    found += _recent(said)
    found += tool_activity(rows)
    found += tool_statements(rows)
    task = task or first[:TASK_CHARS]
    found.sort(key=lambda finding: finding.place)
    kept, replaced = _newest([*earlier, *found])
    return Extract(_still_true(task, kept), (*kept, *_names(said, kept)), replaced)


def _still_true(task: str, kept: Sequence[ExtractedLine]) -> str:
    """The task with every sentence that a later statement replaced marked as such."""
    stated = list(sentences(task))
    later = [_bare(finding) for finding in kept if _is_compared(finding)]
    for at in slots.superseded_sentences([*stated, *later]):
        if at < len(stated):
            task = task.replace(stated[at], "[replaced later]")
    return task


def _said(row: StoredMessage) -> str:
    text = "\n".join(part.text for part in row.message.parts if isinstance(part, Text))
    text = limit_length(text)
    return redact(strip_markup(text) if row.message.role == "user" else text).text.strip()


def _statements(row: StoredMessage, text: str) -> list[ExtractedLine]:
    """The sentences of one message that are worth keeping by their cues."""
    by_user = row.message.role in ("user", "system")
    found: list[ExtractedLine] = []
    for sentence in sentences(text):
        if sentence.endswith((":", "：")):
            continue
        labelled, bare = cues.parse_label(_BOLD.sub(r"\1", sentence))
        kind = labelled if by_user else None
        if kind in (None, "fact", "open"):
            heard = cues.requested_kind(bare) if by_user else cues.reported_kind(bare)
            kind = heard if kind is None or heard in ("constraint", "preference") else kind
        stated = 0
        if kind is None and by_user:
            by_hand = row.message.role == "user" and len(text) <= _TYPED_CHARS
            stated = weight_of(bare) if by_hand or states_value(bare) else 0
            kind = "fact" if stated else None
        line = _LEAD.sub("", bare).strip()
        if kind is None or sum(letter.isalnum() for letter in line) < 6:
            continue
        weight = stated or _WEIGHTS[kind] + (5 if labelled else 0)
        if not by_user:
            weight = {"decision": 45, "open": 50, "done": 40}.get(kind, 30)
        elif row.message.role == "system":
            weight = 60
        elif not labelled and cues.is_soft(bare):
            weight = 35
        elif len(text) > _PASTED_CHARS:
            weight -= 30
        found.append(ExtractedLine(kind, line, row.place, min(weight, 100)))
    return found


def _is_uncued(finding: ExtractedLine) -> bool:
    return finding.kind == "fact" and finding.weight in (EXACT, PLAIN)


def _shown_anyway(said: Sequence[tuple[StoredMessage, str]], task: str) -> str:
    """The first request, and the newest if its line holds all of it, on one line: they are not said twice."""
    newest = [text for row, text in said if row.message.role == "user" and text][-1:]
    return " ".join(" ".join([task, *(text for text in newest if len(text) <= _REQUEST_CHARS)]).split())


def _questions(said: Sequence[tuple[StoredMessage, str]], task: str) -> list[ExtractedLine]:
    """The newest request if it is not the task itself, and what was asked and not answered after it."""
    found: list[ExtractedLine] = []
    asked_by_user = [
        (row, text) for row, text in said if row.message.role == "user" and text and not cues.THANKS.match(text)
    ]
    if len(asked_by_user) > (not task):
        row, text = asked_by_user[-1]
        found.append(ExtractedLine("open", REQUEST + truncate_line(text, _REQUEST_CHARS), row.place, 95, asked=True))
    last = next(((row, text) for row, text in reversed(said) if text), None)
    if last is not None and last[0].message.role == "assistant":
        asked = [sentence for sentence in sentences(last[1]) if sentence.endswith(("?", "？"))]
        found += [ExtractedLine("open", ASKED + sentence, last[0].place, 80, asked=True) for sentence in asked[-2:]]
    return found


def _recent(said: Sequence[tuple[StoredMessage, str]]) -> list[ExtractedLine]:
    """The last things said, newest with most weight."""
    heard = [(row, text) for row, text in said if text and row.message.role != "system"][-8:]
    return [
        ExtractedLine("recent", _line(row, text), row.place, 50 if left <= 2 else 22)
        for left, (row, text) in zip(range(len(heard), 0, -1), heard, strict=True)
    ]


def _line(row: StoredMessage, text: str) -> str:
    return f"{row.message.role.capitalize()}: {truncate_line(' '.join(lines(text)), _RECENT_CHARS)}"


def _newest(findings: Sequence[ExtractedLine]) -> tuple[list[ExtractedLine], int]:
    """The findings without repeats and without what a later one replaced, and how many were replaced."""
    last: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        group = finding.kind if finding.kind in ("recent", "file", "error", "command") else "said"
        last[group, " ".join(finding.text.lower().split()).rstrip(".!。")] = index
    single = [findings[index] for index in sorted(last.values())]
    spoken_of = [index for index, finding in enumerate(single) if _is_compared(finding)]
    left = slots.superseded_sentences([_bare(single[index]) for index in spoken_of])
    kept: list[ExtractedLine] = []
    gone = {spoken_of[at]: rest for at, rest in left.items()}
    for index, finding in enumerate(single):
        if index not in gone:
            kept.append(finding)
        elif gone[index] and finding.kind in _WEIGHTS:
            kept.append(ExtractedLine(finding.kind, gone[index], finding.place, finding.weight))
    return kept, sum(single[index].kind != "recent" for index in gone)


_COMPARED = frozenset({"constraint", "preference", "fact", "decision", "open", "recent"})


def _is_compared(finding: ExtractedLine) -> bool:
    """Whether a later statement may take it away, and it an earlier one: what was said, not what a result says."""
    return finding.kind in _COMPARED and not (finding.kind == "fact" and is_quoted(finding.text))


def _bare(finding: ExtractedLine) -> str:
    return finding.text.partition(": ")[2] if finding.kind == "recent" or finding.asked else finding.text


def _names(said: Sequence[tuple[StoredMessage, str]], kept: Sequence[ExtractedLine]) -> list[ExtractedLine]:
    """Identifiers of what was said, heavier when named often or by the user; those of replaced statements left out."""
    weights: dict[str, int] = {}
    places: dict[str, MessageRef] = {}
    stated = " ".join(finding.text for finding in kept)
    for row, text in said:
        for sentence in sentences(text):
            values = {
                value for clause in slots.parse_clauses(sentence) for found in clause.values.values() for value in found
            }
            for name, kind, weight in find_identifiers(sentence):
                if (name.lower() in values and name not in stated) or kind in ("amount", "date", "port"):
                    continue
                gain = 8 if row.message.role == "user" else 3
                weights[name] = min(weights.get(name, weight) + gain, 75)
                places[name] = row.place
    return [
        ExtractedLine("identifier", name, places[name], weight - 30)
        for name, weight in weights.items()
        if name not in stated
    ]


def exact_identifiers(found: Extract, most: int = 20) -> tuple[str, ...]:
    """The identifiers of most weight among the findings: those that a summary by a model has to have, heaviest first."""
    weights: dict[str, int] = {}
    for finding in found.findings:
        if finding.kind == "identifier":
            weights.setdefault(finding.text, finding.weight)
        elif finding.kind == "file" and finding.weight >= _HEAVY:
            weights[finding.text.removeprefix("changed ")] = finding.weight
        elif finding.kind in _COMPARED and finding.kind != "recent" and finding.weight >= _HEAVY:
            for name, _, _ in find_identifiers(finding.text):
                weights[name] = max(weights.get(name, 0), finding.weight)
    return tuple(sorted(weights, key=lambda name: (-weights[name], name))[:most])
