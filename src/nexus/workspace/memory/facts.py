"""MEMORY.md as text: the facts in it, and the same text with one fact more or less.

A fact is an item of a list, a paragraph, a table or a block of code; headings make sections, and comments are none. The
file is Markdown that people write, so a change touches its own lines only: the other facts of the changed text are
compared with those before, and a place where they would differ is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nexus.errors import BadFact, NoSuchFact
from nexus.text.one_line import collapse_whitespace
from nexus.workspace.memory.normalize import INDENT, comparison_key

SECTION = "Facts"
TITLE = "# Long-term memory"

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]{1,4}|(?=[\r\n]|\Z))")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d):?[ \t]+")


class Fact(Struct, frozen=True):
    """A fact: its number from 1, the heading over it, its date as written ("" if none), its text without marks.

    It stands in the lines from `first_line` up to `end_line`, counted from 0; `item` says whether it is one of a list.
    """

    number: int
    section: str
    date: str
    text: str
    first_line: int
    end_line: int
    item: bool


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, which may be of any kind."""
    return _LINE.findall(text)


def facts_of(text: str) -> list[Fact]:
    """The facts of a memory file, in order."""
    lines = lines_of(text)
    found: list[Fact] = []
    for section, first, last, item in _blocks(text):
        end = last
        while end > first and not lines[end - 1].strip():
            end -= 1
        date, plain = _plain(lines[first:end], item=item)
        if plain:
            found.append(Fact(len(found) + 1, section, date, plain, first, end, item))
    return found


def with_fact(text: str, fact: str, date: str, section: str = SECTION) -> str:
    """The text with one fact more, as the last item of its section, which is made if it is not there.

    Raises BadFact: the fact is there already (case, white space and date do not matter), or it has no place where it
    would not change others, as in a comment that is never closed.
    """
    known = facts_of(text)
    if same := next((one for one in known if comparison_key(one.text) == comparison_key(fact)), None):
        raise BadFact(f"this is known already: it is fact {same.number}, of {same.date or 'no date'}")
    first, *more = fact.split("\n")
    item = [f"- {date}: {first}", *(f"{INDENT}{line}".rstrip() for line in more)]
    lines, end = lines_of(text), _line_end(text)
    section = collapse_whitespace(section)
    titles = [title for _, _, title in _headings(text)]
    section = next((title for title in titles if title.casefold() == section.casefold()), section)
    for changed in _places(lines, item, section, end, known):
        after = facts_of("".join(changed))
        new = [one for one in after if (one.date, one.text, one.section) == (date, fact, section)]
        if len(new) == 1 and _told(after, new[0]) == _told(known):
            return "".join(changed)
    raise BadFact(
        f"the fact has no place in the file under a heading {section!r} where it would not change others: "
        "is a comment or a block of code open there?"
    )


def without_fact(text: str, fact: Fact) -> str:
    """The text without the lines of a fact, and of empty lines on both sides one less.

    Raises NoSuchFact where the others would not stay as they are.
    """
    lines = lines_of(text)
    before, after = lines[: fact.first_line], lines[fact.end_line :]
    wanted = _told(facts_of(text), fact)
    ways = [[*before, *after], [*before, _line_end(text), *after]]
    if before and not before[-1].strip() and not "".join(after[:1]).strip():
        ways.insert(0, [*before, *after[1:]] if after else before[:-1])
    for left in ways:
        changed = "".join(left)
        if _told(facts_of(changed)) == wanted:
            return changed
    raise NoSuchFact(f"fact {fact.number} cannot be taken out without changing others: change the file by hand")


def _told(facts: Sequence[Fact], but: Fact | None = None) -> list[tuple[str, str, str]]:
    """What facts say, without where they stand."""
    return [(one.section, one.date, one.text) for one in facts if one is not but and one != but]


def _places(lines: list[str], item: list[str], section: str, end: str, known: Sequence[Fact]) -> Iterator[list[str]]:
    """The lines with the item in each place that may do: its section, a new one at the end, a new one at the start."""
    headings = _headings("".join(lines))
    here = next((at for at, (_, _, title) in enumerate(headings) if title == section), None)
    if here is not None:
        stop = headings[here + 1][0] if here + 1 < len(headings) else len(lines)
        yield _inserted(lines, stop, item, end, known)
    new = [f"## {section}", "", *item]
    yield _inserted(lines or [f"{TITLE}{end}"], max(len(lines), 1), new, end, ())
    yield [*(f"{line}{end}" for line in (*new, "")), *lines]


def _inserted(lines: list[str], stop: int, new: list[str], end: str, known: Sequence[Fact]) -> list[str]:
    """The lines with new ones before line `stop`, behind what stands there; apart from what they do not go on with."""
    at = stop
    while at and not lines[at - 1].strip():
        at -= 1
    before, after = lines[:at], lines[at:]
    if before and not before[-1].endswith(("\r", "\n")):
        before[-1] += end
    follows = any(one.end_line == at and one.item for one in known)
    gap = [end] if before and not follows else []
    apart = [end] if after and after[0].strip() else []
    return [*before, *gap, *(f"{line}{end}" for line in new), *apart, *after]


def _line_end(text: str) -> str:
    """How lines of this text end: as its first one does."""
    found = re.search(r"\r\n|\r|\n", text)
    return found[0] if found else "\n"


def _headings(text: str) -> list[tuple[int, int, str]]:
    """First line, line after the last, and title of each heading."""
    return [(first, end, title) for kind, first, end, title in _tokens(text) if kind == "heading"]


def _blocks(text: str) -> Iterator[tuple[str, int, int, bool]]:
    """Section, first line, line after the last, and whether it is an item, of all that may be a fact."""
    section = ""
    for kind, first, end, title in _tokens(text):
        if kind == "heading":
            section = title
        elif kind in ("item", "text"):
            yield section, first, end, kind == "item"


def _tokens(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Kind (`heading`, `item`, `text`, `none`), first line, line after the last, and title of what stands in the text."""
    from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark").disable(["inline", "reference"]).parse(text)
    for at, token in enumerate(found):
        if token.map is None or token.nesting < 0:
            continue
        first, end = token.map
        if token.level == 1 and token.type == "list_item_open":
            yield "item", first, end, ""
        elif token.level == 0 and token.type == "heading_open":
            yield "heading", first, end, collapse_whitespace(found[at + 1].content)
        elif token.level == 0 and token.type not in ("bullet_list_open", "ordered_list_open", "hr"):
            comment = token.type == "html_block" and token.content.lstrip().startswith("<!--")
            yield "none" if comment else "text", first, end, ""


def _plain(lines: Sequence[str], *, item: bool) -> tuple[str, str]:
    """Date and text of the lines of a fact, without the mark of a list and the indent that belongs to it."""
    bare = [line.rstrip("\r\n").rstrip() for line in lines]
    if item and bare:
        mark = _ITEM.match(lines[0])
        width = mark.end() if mark else 0
        bare = [bare[0][width:], *(_without_indent(line, width) for line in bare[1:])]
    dated = _DATE.match(bare[0]) if bare else None
    if dated:
        bare[0] = bare[0][dated.end() :]
    return dated[1] if dated else "", "\n".join(bare).strip("\n").lstrip(" ")


def _without_indent(line: str, width: int) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return line[min(indent, width) :]
