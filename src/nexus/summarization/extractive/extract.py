"""Extraction: the lines of a conversation that should outlive their messages, weighed and without superseded ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from nexus.summarization.extractive import patterns, statements
from nexus.summarization.extractive.patterns import Kind, cued_kind, find_identifiers
from nexus.summarization.extractive.statements import (
    ExtractedLine,
    parse_clauses,
    sentences,
    superseded_sentences,
    truncate_line,
)
from nexus.summarization.extractive.tool_activity import is_quoted, is_solved, tool_activity, tool_statements
from nexus.text.late_pattern import late_pattern
from nexus.text.message_text import is_injected, typed_text
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage

REQUEST = "Newest request: "
QUESTION = "Asked the user: "
LEFT_OPEN = "Left open: "
_TASK_CHARS = 2_000
_RECENT_CHARS = 160
_HEAVY = 60
_PASTED_CHARS = 3_000  # a longer message is mostly pasted material
_TYPED_CHARS = 1_200  # of a longer message only sentences with a cue or a value count as the user's own words
_TYPED_LINES = 6  # of more lines only sentences count: the others are output, lists of steps and tables
_REQUEST_CHARS = 300
_NAME_LETTERS = 3
_LEAST_LETTERS = 6  # of a statement
_COMPARED = 200  # open tasks and reports that are compared with each other: bounds the time
_DONE_SHARE = 0.6  # of the words of an open task, in a later report: it is done
_BOLD = late_pattern(r"\*\*([^*]{1,300})\*\*")
_LEAD = late_pattern(r"^(?:[-*+#>•✅✓✔]+ ?|\[[ xX]\] |\d{1,3}[.)] ){1,3}")
_WEIGHTS: dict[Kind, int] = {"constraint": 90, "preference": 85, "decision": 70, "fact": 75, "open": 70, "done": 40}
_ASSISTANT_WEIGHTS: dict[Kind, int] = {"decision": 45, "open": 50, "done": 40}
_ACTIVITY = frozenset({"file", "command", "error"})
_COMPARABLE = frozenset({"constraint", "preference", "fact", "decision", "open", "recent"})


class Extract(Struct, frozen=True):
    """Result of extraction."""

    task: str
    """The user's first request, at most `_TASK_CHARS` characters."""

    findings: tuple[ExtractedLine, ...]
    """In the order of their messages; identifiers last."""


def extract(rows: Iterable[StoredMessage], previous: Sequence[ExtractedLine] = (), task: str = "") -> Extract:
    """Return the findings of a previous summary and these rows, without values that later ones replaced.

    Args:
        rows: Messages in order. At most 60,000 characters of each are searched; time is linear in the text.
        previous: Findings of the previous summary.
        task: First request in the previous summary; by default the first text of a user in these rows.
    """
    rows = list(rows)
    texts = _spoken_texts(rows)
    user_texts = [text for row, text in texts if row.message.role == "user" and text]
    first_request = task or next(iter(user_texts), "")
    is_answered = _is_answered(rows)
    # The first request, and the newest if its line contains all of it, are in the summary anyway.
    repeated = first_request
    if user_texts and not is_answered and len(user_texts[-1]) <= _REQUEST_CHARS:
        repeated += f" {user_texts[-1]}"
    findings = _stated_findings(texts, " ".join(repeated.split()))
    findings += _newest(texts, task, is_answered=is_answered)
    previous_activity = [line for line in previous if line.kind in _ACTIVITY]
    findings += _without_settled(tool_activity(rows, previous_activity), rows)
    findings += tool_statements(rows)
    findings.sort(key=lambda finding: finding.place)
    previous_statements = [line for line in previous if line.kind not in _ACTIVITY]
    live = _without_done(_without_superseded([*previous_statements, *findings]))
    task = _without_replaced(task or first_request[:_TASK_CHARS], live)
    return Extract(task, (*live, *_identifiers(texts, live)))


def _spoken_texts(rows: Iterable[StoredMessage]) -> list[tuple[StoredMessage, str]]:
    """Return the messages of all but tools with what they say, without commands, markup and secrets."""
    texts: list[tuple[StoredMessage, str]] = []
    for row in rows:
        message = row.message
        if message.role == "tool":
            continue
        if message.role == "user":
            if is_injected(message):
                continue
            text = statements.strip_markup(statements.limit_length(typed_text(message)))
            if patterns.SLASH_COMMAND.match(text):
                continue
        else:
            text = statements.limit_length(message.text())
        texts.append((row, redact(text).text.strip()))
    return texts


def _stated_findings(texts: Sequence[tuple[StoredMessage, str]], repeated: str) -> list[ExtractedLine]:
    """Return the statements of the messages, without what a summary has anyway: `repeated`."""
    newest_answer = next((row.ref for row, text in reversed(texts) if row.message.role == "assistant" and text), None)
    findings: list[ExtractedLine] = []
    for row, text in texts:
        for line in _statements(row, text):
            if line.text.startswith(LEFT_OPEN) and row.ref != newest_answer:
                continue  # what an assistant left open earlier, it has done since or says again
            is_uncued = line.kind == "fact" and line.weight in (statements.EXACT, statements.PLAIN)
            if not (is_uncued and line.text in repeated):
                findings.append(line)
    return findings


def _without_replaced(task: str, findings: Iterable[ExtractedLine]) -> str:
    """Return the task with a note in place of each sentence that a statement of the user replaces."""
    task_sentences = list(sentences(task))
    later_sentences = [_statement_text(line) for line in findings if line.by_user and _is_comparable(line)]
    for at in superseded_sentences([*task_sentences, *later_sentences]):
        if at < len(task_sentences):
            task = task.replace(task_sentences[at], "[replaced later]")
    return task


def _statements(row: StoredMessage, text: str) -> list[ExtractedLine]:
    """Return the sentences of a message that have a cue, and those of a user that state something."""
    role = row.message.role
    by_user = role in ("user", "system")
    line_count = sum(bool(line.strip()) for line in text.split("\n"))
    findings: list[ExtractedLine] = []
    for sentence in sentences(text):
        plain = _BOLD.sub(r"\1", sentence)
        if sentence.startswith("#") or plain.endswith((":", "：")):  # a heading, or the beginning of a list
            continue
        label, statement = patterns.parse_label(plain)
        kind = label if by_user else None
        if kind in (None, "fact", "open"):
            cue = cued_kind(statement, by_user=by_user)
            if kind is None or cue in ("constraint", "preference"):
                kind = cue
        uncued_weight = 0
        if kind is None and by_user:
            is_typed = role == "user" and len(text) <= _TYPED_CHARS
            uncued_weight = _uncued_weight(statement, line_count, is_typed=is_typed)
            kind = "fact" if uncued_weight else None
        is_description = not label and _is_description(kind, statement, by_user=by_user, line_count=line_count)
        line = _LEAD.sub("", statement).strip()
        if kind is None or is_description or sum(map(str.isalnum, line)) < _LEAST_LETTERS:
            continue
        if by_user:
            weight = _user_weight(row, text, statement, label, uncued_weight or _WEIGHTS[kind])
            findings.append(ExtractedLine(kind, line, row.ref, weight, by_user=role == "user"))
        elif kind == "open":
            findings.append(ExtractedLine("open", LEFT_OPEN + line, row.ref, _ASSISTANT_WEIGHTS["open"], pending=True))
        else:
            findings.append(ExtractedLine(kind, line, row.ref, _ASSISTANT_WEIGHTS.get(kind, 30)))
    return findings


def _user_weight(row: StoredMessage, text: str, statement: str, label: Kind | None, weight: int) -> int:
    """Return the weight of a user's statement: more with a label, less for small talk and in pasted material."""
    if row.message.role == "system":
        return 60
    if not label and patterns.is_soft(statement):
        return 35
    if label:
        weight += 5
    if len(text) > _PASTED_CHARS:
        weight -= 30
    return min(weight, 100)


def _uncued_weight(statement: str, line_count: int, *, is_typed: bool) -> int:
    """Return the weight of a user's sentence without a cue; 0 if it states nothing.

    In a list or output only sentences count, and lines with a value in a short one.
    """
    if not is_typed and not statements.states_value(statement):
        return 0
    weight = statements.weight_of(statement)
    is_loose_value = weight == statements.VALUE and line_count <= _TYPED_LINES
    if line_count == 1 or is_loose_value or statements.is_full_sentence(statement):
        return weight
    return 0


def _is_description(kind: Kind | None, sentence: str, *, by_user: bool, line_count: int) -> bool:
    """Return true for a sentence with the cue of a task or rule that reports a state."""
    if kind == "open" and by_user:
        return patterns.is_volatile(sentence) and "[ ]" not in sentence
    if kind == "open":
        return patterns.refers_back(sentence)
    # In a plan or report, "no user content" is a property.
    return kind == "constraint" and line_count > _TYPED_LINES and sentence.lower().startswith("no ")


def _without_settled(activity: Sequence[ExtractedLine], rows: Sequence[StoredMessage]) -> list[ExtractedLine]:
    """Return the findings of tool calls without unsolved errors of earlier turns.

    An error stays while its turn lasts and, if the answer mentions a failure, during the next one.
    """
    requests = [row.ref for row in rows if row.message.role == "user" and not is_injected(row.message)]
    if len(requests) > 1:
        settled = requests[-2]
    else:
        settled = MessageRef(-1, 0)
    for row, following in itertools.pairwise([*rows, None]):
        ends_turn = following is None or (following.message.role == "user" and not is_injected(following.message))
        if row is not None and ends_turn and _is_answered([row]) and not patterns.reports_failure(row.message.text()):
            settled = max(settled, row.ref)
    return [line for line in activity if line.kind != "error" or is_solved(line.text) or line.place > settled]


def _without_done(findings: Sequence[ExtractedLine]) -> list[ExtractedLine]:
    """Return the findings without open tasks that a later report names, and reports on files that were removed."""
    removed = {line.text.rsplit("/", 1)[-1] for line in findings if line.text.startswith("removed ")}
    tasks = [at for at, line in enumerate(findings) if line.kind == "open" and not line.text.startswith(REQUEST)]
    reports = [at for at, line in enumerate(findings) if line.kind == "done"][-_COMPARED:]
    done_words = {at: statements.subject_words(findings[at].text) for at in reports}
    stale: set[int] = set()
    for at in tasks[-_COMPARED:]:
        words = statements.subject_words(_statement_text(findings[at]))
        least_shared = max(len(words) * _DONE_SHARE, 1)
        later_reports = (report for report in reports if report > at)
        if any(len(words & done_words[report]) >= least_shared for report in later_reports):
            stale.add(at)
    for at in reports:
        if any(name.rsplit("/", 1)[-1] in removed for name, _, _ in find_identifiers(findings[at].text)):
            stale.add(at)
    return [line for at, line in enumerate(findings) if at not in stale]


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
    for at, (row, text) in enumerate(recent):
        role = row.message.role
        line = f"{role.capitalize()}: {truncate_line(' '.join(statements.lines(text)), _RECENT_CHARS)}"
        weight = 50 if at >= len(recent) - 2 else 22
        findings.append(ExtractedLine("recent", line, row.ref, weight, by_user=role == "user"))
    return findings


def _without_superseded(findings: Sequence[ExtractedLine]) -> list[ExtractedLine]:
    """Return the findings without repeats and superseded values."""
    last: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        # A sentence counts once whatever its kind; a recent message or a tool's action repeats only its own kind.
        group = "said"
        if finding.kind in ("recent", "file", "error", "command"):
            group = finding.kind
        last[group, " ".join(finding.text.lower().split()).rstrip(".!。")] = index
    single = [findings[index] for index in sorted(last.values())]
    comparable = [index for index, finding in enumerate(single) if _is_comparable(finding)]
    user_statements = [index for index in comparable if single[index].by_user]
    superseded: dict[int, str] = {}
    # Only a user's statement replaces what a user said.
    for indexes, by_user in ((comparable, False), (user_statements, True)):
        rests = superseded_sentences([_statement_text(single[index]) for index in indexes])
        for at, rest in rests.items():
            index = indexes[at]
            if single[index].by_user == by_user:
                superseded[index] = rest
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
    has_label = finding.kind == "recent" or finding.pending
    if has_label:
        return finding.text.partition(": ")[2]
    return finding.text


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
                if sum(map(str.isalnum, name)) < _NAME_LETTERS:  # code in backticks
                    continue
                gain = 8 if row.message.role == "user" else 3
                weights[name] = min(weights.get(name, weight) + gain, 75)
                places[name] = row.ref
    return [ExtractedLine("identifier", name, places[name], weight - 30) for name, weight in weights.items()]


def _values(sentence: str) -> frozenset[str]:
    by_kind = (values for clause in parse_clauses(sentence) for values in clause.values.values())
    return frozenset[str]().union(*by_kind)


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
