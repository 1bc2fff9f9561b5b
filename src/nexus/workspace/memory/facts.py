"""MEMORY.md and HISTORY.md as text: facts and log entries, and the same text with one fact more or less.

A fact is a list item, a paragraph, a table or a block of code; headings make sections, and comments are ignored. The file is
Markdown that people write, so a change touches its own lines only: the facts before and after a change are compared, and a
position that would alter other facts is rejected. Log entries are `[2026-03-06 14:30] text`, with further lines indented.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from nexus.errors import BadFact, NotFound
from nexus.ledger.search_text import words
from nexus.render.console import printable
from nexus.text.one_line import collapse_whitespace

SECTION = "Facts"
TASK_FACTS = 20
"""Facts that a worker is shown, at most."""
SHORTEST_WORD = 4
"""Letters of a word that says what a task is about; shorter ones are mostly grammar, except in scripts like Chinese."""
TITLE = "# Long-term memory"
INDENT = "  "  # prefix of each further line of a text, so that it can begin neither an entry nor a heading

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]{1,4}|(?=[\r\n]|\Z))")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d):?[ \t]+")
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\] ?")


def normalize_fact(text: str, max_chars: int) -> str:
    """Return the text as memory stores it: tabs as spaces, control and invisible characters as escapes.

    Raises BadFact for an empty text or one of more than `max_chars` characters.
    """
    if len(text) > max_chars:
        raise BadFact(
            f"text has {len(text):,} characters, over the limit of {max_chars:,} (store it in a file, and note its path)"
        )
    lines = [printable(line.replace("\t", "    ")).rstrip() for line in text.splitlines()]
    fact = "\n".join(lines).strip()
    if not fact:
        raise BadFact("text is empty (nothing was written)")
    return fact


def comparison_key(text: str) -> str:
    """Return the key under which equal texts are found: without case and differences in white space."""
    return collapse_whitespace(text).casefold()


class Fact(Struct, frozen=True):
    """A fact of the memory file."""

    number: int
    """Counted from 1."""
    section: str
    """The heading above it."""
    date: str
    """The date as written; empty if there is none."""
    text: str
    """The fact without list markers and date."""
    first_line: int
    """First of its lines, which go up to `end_line`; counted from 0."""
    end_line: int
    item: bool
    """Whether it is a list item."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends, which may be of any kind."""
    return _LINE.findall(text)


def facts_of(text: str) -> list[Fact]:
    """Return the facts of a memory file, in order."""
    lines = lines_of(text)
    facts: list[Fact] = []
    section = ""
    for kind, first, last, title in _tokens(text):
        if kind == "heading":
            section = title
        if kind not in ("item", "text"):
            continue
        end = last
        while end > first and not lines[end - 1].strip():
            end -= 1
        bare = [line.rstrip("\r\n").rstrip() for line in lines[first:end]]
        if kind == "item" and bare:
            mark = _ITEM.match(lines[first])
            width = mark.end() if mark else 0
            # Further lines lose the marker's width at most: what is indented deeper is a list or code in the item.
            bare = [bare[0][width:], *(line[min(len(line) - len(line.lstrip(" ")), width) :] for line in bare[1:])]
        date = _DATE.match(bare[0]) if bare else None
        if date:
            bare[0] = bare[0][date.end() :]
        plain = "\n".join(bare).strip("\n").lstrip(" ")
        if plain:
            facts.append(Fact(len(facts) + 1, section, date[1] if date else "", plain, first, end, kind == "item"))
    return facts


def facts_for_task(text: str, task: str, limit: int = TASK_FACTS) -> list[Fact]:
    """Return the facts of a memory file that share words with a task, at most `limit` of them, in order.

    Those with more of the task's words are preferred. A word that over half of many facts have says nothing about one.
    """
    facts = facts_of(text)
    words_of = [set(words(f"{fact.section} {fact.text}")) for fact in facts]
    count = Counter(word for found in words_of for word in found)
    wanted = {word for word in words(task) if len(word) >= SHORTEST_WORD or not word.isascii()}
    if len(facts) > limit:
        wanted = {word for word in wanted if 2 * count[word] <= len(facts)}
    shared = [(len(wanted & found), -index) for index, found in enumerate(words_of)]
    chosen = sorted((row for row in shared if row[0]), reverse=True)[:limit]
    return [facts[-index] for _, index in sorted(chosen, key=lambda row: -row[1])]


def _list_item(fact: str, date: str) -> list[str]:
    """Return the lines of a fact as an item of a list."""
    first, *more = fact.split("\n")
    opening = f"- {date}: {first}" if date else f"- {first}"
    return [opening, *(f"{INDENT}{line}".rstrip() for line in more)]


def with_fact(text: str, fact: str, date: str, section: str = SECTION) -> str:
    """Return the text with one fact more, as the last item of its section, which is created if necessary.

    Raises BadFact if the fact exists already (ignoring case, white space and date), or if every position would alter other
    facts, as in a comment that is never closed.
    """
    facts = facts_of(text)
    if same := next((other for other in facts if comparison_key(other.text) == comparison_key(fact)), None):
        raise BadFact(f"already known as fact {same.number}, of {same.date or 'no date'}")
    item = _list_item(fact, date)
    lines = lines_of(text)
    line_end = _line_end(text)
    section = collapse_whitespace(section)
    headings = [(start, title) for kind, start, _, title in _tokens(text) if kind == "heading"]
    section = next((title for _, title in headings if title.casefold() == section.casefold()), section)
    new = [f"## {section}", "", *item]
    candidates = [
        _insert(lines or [f"{TITLE}{line_end}"], max(len(lines), 1), new, line_end, ()),
        [*(f"{line}{line_end}" for line in (*new, "")), *lines],
    ]
    titles = [title for _, title in headings]
    if section in titles:
        at = titles.index(section) + 1
        stop = headings[at][0] if at < len(headings) else len(lines)
        candidates.insert(0, _insert(lines, stop, item, line_end, facts))
    # In the section, in a new one at the end, or at the start, which an open comment or code block cannot swallow.
    for changed in candidates:
        after = facts_of("".join(changed))
        added = [other for other in after if (other.date, other.text, other.section) == (date, fact, section)]
        if len(added) == 1 and _contents(after, added[0]) == _contents(facts):
            return "".join(changed)
    raise BadFact(
        f"no position under heading {section!r} that leaves other facts unchanged (close an open comment or code block)"
    )


def without_fact(text: str, fact: Fact) -> str:
    """Return the text without the lines of a fact, and without one of the empty lines around it.

    Raises NotFound if the other facts would change.
    """
    lines = lines_of(text)
    before = lines[: fact.first_line]
    after = lines[fact.end_line :]
    expected = _contents(facts_of(text), fact)
    candidates = [[*before, *after], [*before, _line_end(text), *after]]
    if before and not before[-1].strip() and not "".join(after[:1]).strip():
        candidates.insert(0, [*before, *after[1:]] if after else before[:-1])
    for candidate in candidates:
        changed = "".join(candidate)
        if _contents(facts_of(changed)) == expected:
            return changed
    raise NotFound(
        f"fact {fact.number} cannot be removed without changing others (edit the file by hand)", code="no_such_fact"
    )


def _contents(facts: Sequence[Fact], excluded: Fact | None = None) -> list[tuple[str, str, str]]:
    return [(fact.section, fact.date, fact.text) for fact in facts if fact is not excluded and fact != excluded]


def _insert(lines: list[str], stop: int, new: list[str], line_end: str, facts: Sequence[Fact]) -> list[str]:
    """Return the lines with new ones before line `stop`, separated by empty lines unless they continue a list."""
    at = stop
    while at and not lines[at - 1].strip():
        at -= 1
    before = lines[:at]
    after = lines[at:]
    if before and not before[-1].endswith(("\r", "\n")):
        before[-1] += line_end
    continues_list = any(fact.end_line == at and fact.item for fact in facts)
    above = [line_end] if before and not continues_list else []
    below = [line_end] if after and after[0].strip() else []
    return [*before, *above, *(f"{line}{line_end}" for line in new), *below, *after]


def _line_end(text: str) -> str:
    match = re.search(r"\r\n|\r|\n", text)
    if match:
        return match[0]
    return "\n"


def _tokens(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield kind (`heading`, `item`, `text`, `none`), first line, line after the last, and title of each block."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").disable(["inline", "reference"]).parse(text)
    for at, token in enumerate(tokens):
        if token.map is None or token.nesting < 0:
            continue
        first, end = token.map
        if token.level == 1 and token.type == "list_item_open":
            yield "item", first, end, ""
        elif token.level == 0 and token.type == "heading_open":
            yield "heading", first, end, collapse_whitespace(tokens[at + 1].content)
        elif token.level == 0 and token.type not in ("bullet_list_open", "ordered_list_open", "hr"):
            is_comment = token.type == "html_block" and token.content.lstrip().startswith("<!--")
            yield "none" if is_comment else "text", first, end, ""


class HistoryEntry(Struct, frozen=True):
    """An entry of the log."""

    number: int
    """Counted from 1."""
    at: str
    """Time as written; empty if there is none."""
    text: str


def log_line(at: str, text: str) -> str:
    """Return an entry as it is appended to the log."""
    first, *more = text.split("\n")
    return "\n".join([f"[{at}] {first}", *(f"{INDENT}{line}".rstrip() for line in more)]) + "\n"


def log_entries(lines: Iterable[str]) -> Iterator[HistoryEntry]:
    """Yield the entries, oldest first. A line that starts with a time in brackets begins one; text above is one too."""
    number = 0
    at = ""
    parts = list[str]()
    for line in lines:
        match = _STAMP.match(line)
        if match is None:
            parts.append(line.rstrip("\r\n").removeprefix(INDENT))
            continue
        if text := "\n".join(parts).strip():
            number += 1
            yield HistoryEntry(number, at, text)
        at = match[1]
        parts = [line[match.end() :].rstrip("\r\n")]
    if text := "\n".join(parts).strip():
        yield HistoryEntry(number + 1, at, text)
