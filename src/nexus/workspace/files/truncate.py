"""Truncation of Markdown texts that preserves their rules.

A blind cut loses the middle or the end of a long instruction file. Here the beginning stays, and of the rest the headings
and the rules: list items and paragraphs with a word of RFC 2119 in capitals (MUST, SHOULD NOT, MAY, …) or with never,
always, do not, important and the like, outside code fences.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

UNIT_CHARS = 600
"""Size up to which a list item or paragraph with a rule is kept completely; of a longer one, the lines with the rule."""

SCAN_CHARS = 1_000_000
"""Part of a text that is searched for headings and rules. No person writes a longer one."""

MAX_UNITS = 4_000  # number of headings and rules that are considered; more would not fit into any useful cap

_HEADING = r"^ {0,3}\#{1,6}[ \t][^\n]*|^[^\s\#>|*+-][^\n]{0,199}\n(?:={3,}|-{3,})[ \t]*$"
_STRONG = (
    r"\b(?:MUST|SHALL|SHOULD|REQUIRED|NEVER|ALWAYS|MAY|RECOMMENDED|OPTIONAL|ONLY|DO[ ]NOT|DON['’]T|FORBIDDEN|IMPORTANT|"
    r"CRITICAL|WARNING)\b"
)
_RULE = (
    r"\b(?i:must(?:n['’]t)?|never|always|do[ ]not|don['’]t|important|required|forbidden|prohibited|not[ ]allowed|"
    r"under[ ]no[ ]circumstances|make[ ]sure|niemals|immer|verboten|jamais|toujours|interdit|nunca|siempre|prohibido)\b"
    r"|必须|禁止|不得|不要|不能|务必|切勿|重要|始终"
)
_MARKS = re.compile(f"(?P<heading>{_HEADING})|(?P<strong>{_STRONG})|(?P<rule>{_RULE})", re.MULTILINE)
_ITEM_START = re.compile(r"[ \t]*(?:[-*+] |\d+[.)] |#{1,6}[ \t]|\||`{3,}|~{3,})")
"""Start of a line that does not continue the one above: a list item, heading, table row or fence."""

_NOTICE = re.compile(r"\n*\[[\d,]+ more characters of [^\n]* left out \(cap [\d,]+\); read the file for the rest\]\Z")

_WEIGHT = {"heading": 0, "rule": 1, "strong": 2}

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)


class Fence(Struct, frozen=True):
    """A code fence, from the start of its first line to the end of its last."""

    start: int
    end: int
    run: str
    """The characters that close it."""
    open: bool = False
    """Whether it is never closed."""


def fences(text: str) -> tuple[Fence, ...]:
    """Return the code fences of a text, in order. An open one ends with the text."""
    result: list[Fence] = []
    start = -1
    run = ""
    for line in _FENCE.finditer(text):
        marks = line[1]
        rest = line[2]
        if not run:
            if marks[0] == "`" and "`" in rest:
                continue  # code within one line
            start = line.start()
            run = marks
        elif marks[0] == run[0] and len(marks) >= len(run) and not rest.strip():
            result.append(Fence(start, line.end(), run))
            run = ""
    if run:
        result.append(Fence(start, len(text), run, open=True))
    return tuple(result)


def is_fenced(spans: Sequence[Fence], starts: Sequence[int], at: int) -> bool:
    """Return whether a position is inside one of the fences; `starts` are their starts."""
    nearest = bisect_right(starts, at) - 1
    return nearest >= 0 and at < spans[nearest].end


def close_fences(text: str) -> str:
    """Return the text with a last line that closes its code fence, if one is open."""
    spans = fences(text)
    if spans and spans[-1].open:
        return f"{text}\n{spans[-1].run}"
    return text


class TruncatedText(Struct, frozen=True):
    """A text within its cap. If characters are omitted, the last line says so."""

    text: str
    omitted_chars: int = 0


class _Unit(Struct, frozen=True):
    """Span and weight of a heading, or of a list item or paragraph with a rule."""

    start: int
    end: int
    weight: int

    def size(self) -> int:
        return self.end - self.start + 1


def truncate_text(text: str, cap: int, name: str, before: int = 0) -> TruncatedText:
    """Return a text of at most `cap` characters as it is, else its beginning, then headings and rules of the rest.

    At most `cap` characters of the text are kept. Nexus's own lines are added: one before the headings and rules, one that
    closes a fence, and the last one, which says how much of `name` is omitted. `before` characters were omitted earlier:
    the earlier notice is replaced.
    """
    if len(text) <= cap:
        return TruncatedText(text)
    text = _NOTICE.sub("", text) if before else text
    spans = fences(text[:SCAN_CHARS])
    units = [unit for unit in _units(text, spans, cap // 2) if unit.size() <= cap // 4]
    head_end = _head_end(text, units, cap)
    head = text[:head_end].rstrip()
    rest = [unit for unit in units if unit.start >= head_end]
    # Strong rules first, then other rules, then headings, as long as they fit.
    chosen: list[_Unit] = []
    available = cap - len(head)
    for unit in sorted(rest, key=lambda unit: (-unit.weight, unit.start)):
        if unit.size() <= available:
            chosen.append(unit)
            available -= unit.size()
    chosen.sort(key=lambda unit: unit.start)
    omitted = len(text) - len(head) - sum(unit.size() for unit in chosen)
    ends_in_fence = any(fence.start < len(head) < fence.end for fence in spans)
    lines = [close_fences(head) if ends_in_fence else head] if head else []
    if chosen:
        missing = len(rest) - len(chosen)
        more = f"; {missing:,} more had no room" if missing else ""
        more += f"; looked for in the first {SCAN_CHARS:,} characters" if len(text) > SCAN_CHARS else ""
        lines += ["", f"[headings and rules of what is left out{more}:]"]
        lines += [text[unit.start : unit.end] for unit in chosen]
    lines += [
        "",
        f"[{omitted + before:,} more characters of {name} left out (cap {cap:,}); read the file for the rest]",
    ]
    return TruncatedText("\n".join(lines).lstrip("\n"), omitted)


def share_limits(sizes: Sequence[int], total: int) -> list[int]:
    """Return limits for several texts that add up to at most `total`. The largest texts are cut first.

    Unused shares of small texts go to the others, so that all cut texts have the same limit.
    """
    limits = list(sizes)
    remaining = total
    for rank, at in enumerate(sorted(range(len(sizes)), key=lambda at: sizes[at])):
        limits[at] = min(sizes[at], remaining // (len(sizes) - rank))
        remaining -= limits[at]
    return limits


def _head_end(text: str, units: list[_Unit], cap: int) -> int:
    """Return the end of the beginning: as late as all units after it fit, but not before half of the cap."""
    sizes_after = [*accumulate((unit.size() for unit in reversed(units)), initial=0)][::-1]
    end = 0
    for at, size in enumerate(sizes_after):
        start = units[at - 1].end if at else 0
        if start + size > cap:
            break
        end = max(start, min(units[at].start if at < len(units) else len(text), cap - size))
    end = max(end, cap // 2)
    cut_unit = next((unit for unit in units if unit.start < end < unit.end), None)
    if cut_unit is not None and cut_unit.start >= cap // 4:
        return cut_unit.start
    # At the end of a line; in a very long line, of a word.
    line_end = text.rfind("\n", 0, end + 1)
    if line_end >= end * 3 // 4:
        return line_end
    word_end = text.rfind(" ", end - 80 if end > 80 else 0, end)
    if word_end > 0:
        return word_end
    return end


def _units(text: str, spans: Sequence[Fence], after: int) -> list[_Unit]:
    """Return the headings and rules outside code fences from a position on, in order, without overlaps."""
    starts = [fence.start for fence in spans]
    units: list[_Unit] = []
    for mark in _MARKS.finditer(text, text.rfind("\n", 0, after) + 1, SCAN_CHARS):
        if len(units) == MAX_UNITS:
            break
        kind = str(mark.lastgroup)
        at = mark.start()
        if is_fenced(spans, starts, at):
            continue
        if units and at < units[-1].end:
            units[-1] = _Unit(units[-1].start, units[-1].end, max(units[-1].weight, _WEIGHT[kind]))
            continue
        start, end = mark.span() if kind == "heading" else _paragraph(text, at)
        units.append(_Unit(max(start, units[-1].end if units else 0), end, _WEIGHT[kind]))
    return units


def _paragraph(text: str, at: int) -> tuple[int, int]:
    """Return the span of the list item or paragraph around a position, or of its line if it is over UNIT_CHARS."""
    start, end = _line(text, at)
    first = start
    last = end
    while first > 0 and not _ITEM_START.match(text, first) and end - first <= UNIT_CHARS:
        above = _line(text, first - 1)
        if not text[above[0] : above[1]].strip() or text.startswith("#", above[0]):
            break
        first = above[0]
    while last < len(text) and last - first <= UNIT_CHARS:
        below = _line(text, last + 1)
        if not text[below[0] : below[1]].strip() or _ITEM_START.match(text, below[0]):
            break
        last = below[1]
    if last - first <= UNIT_CHARS:
        return (first, last)
    return (start, end)


def _line(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end
