"""Shortening a text to a cap so that its rules survive. Pure functions over Markdown text.

Cutting blindly loses what stands in the middle or at the end of a long file of instructions. Here the beginning stays, and
of all that follows the headings and the rules: list items and paragraphs with a word of RFC 2119 in capitals (MUST,
SHOULD NOT, MAY, ...) or with never, always, do not, important and the like. What stands in code fences is no rule.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from nexus.workspace.files.markdown import Fence, close_fences, fences

UNIT_CHARS = 600
"""A list item or paragraph with a rule is kept whole up to this size; of a longer one only the lines with the rule."""

SCAN_CHARS = 1_000_000
"""Headings and rules are looked for in so much of a text: what is longer is no text that anybody wrote."""

MOST_UNITS = 4_000
"""No more headings and rules than these are looked at: they would not fit into any cap worth having."""

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
_BEGINS = re.compile(r"[ \t]*(?:[-*+] |\d+[.)] |#{1,6}[ \t]|\||`{3,}|~{3,})")
"""A line that begins something of its own: a list item, a heading, a table's row, a fence."""

_LAST = re.compile(r"\n*\[[\d,]+ more characters of [^\n]* left out \(cap [\d,]+\); read the file for the rest\]\Z")

_WEIGHT = {"heading": 0, "rule": 1, "strong": 2}


class TruncatedText(Struct, frozen=True):
    """A text within its cap. `left_out_chars` is what is not in it; then its last line says so."""

    text: str
    left_out_chars: int = 0


class _Unit(Struct, frozen=True):
    """A heading, or a list item or paragraph with a rule: where it stands, and how much it matters."""

    start: int
    end: int
    weight: int

    def size(self) -> int:
        return self.end - self.start + 1


def truncate_text(text: str, cap: int, name: str, before: int = 0) -> TruncatedText:
    """The text if it has at most `cap` characters, else its beginning, then headings and rules of the rest, in order.

    What is kept of the text takes at most `cap` characters; Nexus's own lines come on top: one before the headings and
    rules, one that closes a fence, and the last one, which says how much of `name` is left out and where to read it
    (with `before` characters that were left out of it already, whose line goes).
    """
    if len(text) <= cap:
        return TruncatedText(text)
    text = _LAST.sub("", text) if before else text
    blocks = fences(text[:SCAN_CHARS])
    units = [unit for unit in _units(text, blocks, cap // 2) if unit.size() <= cap // 4]
    head_end = _head(text, units, cap)
    head = text[:head_end].rstrip()
    rest = [unit for unit in units if unit.start >= head_end]
    kept = _chosen(rest, cap - len(head))
    left_out = len(text) - len(head) - sum(unit.size() for unit in kept)
    lines = [_closed(head, blocks)] if head else []
    if kept:
        missed = len(rest) - len(kept)
        more = f"; {missed:,} more had no room" if missed else ""
        more += f"; looked for in the first {SCAN_CHARS:,} characters" if len(text) > SCAN_CHARS else ""
        lines += ["", f"[headings and rules of what is left out{more}:]"]
        lines += [text[unit.start : unit.end] for unit in kept]
    lines += [
        "",
        f"[{left_out + before:,} more characters of {name} left out (cap {cap:,}); read the file for the rest]",
    ]
    return TruncatedText("\n".join(lines).lstrip("\n"), left_out)


def share_limits(sizes: Sequence[int], total: int) -> list[int]:
    """How much each of several texts may take so that all of them take at most `total`: the largest give way first.

    What a small text does not need goes to the others, so those that are shortened all get the same.
    """
    given = list(sizes)
    left = total
    for rank, at in enumerate(sorted(range(len(sizes)), key=lambda at: sizes[at])):
        given[at] = min(sizes[at], left // (len(sizes) - rank))
        left -= given[at]
    return given


def _head(text: str, units: list[_Unit], cap: int) -> int:
    """Where the beginning ends: as late as all headings and rules after it have room, but not before half of the cap."""
    after = [*accumulate((unit.size() for unit in reversed(units)), initial=0)][::-1]
    end = 0
    for at, room in enumerate(after):
        begins = units[at - 1].end if at else 0
        if begins + room > cap:
            break
        end = max(begins, min(units[at].start if at < len(units) else len(text), cap - room))
    end = max(end, cap // 2)
    inside = next((unit for unit in units if unit.start < end < unit.end), None)
    if inside is not None and inside.start >= cap // 4:
        return inside.start
    return _line_end(text, end)


def _line_end(text: str, most: int) -> int:
    """The last end of a line up to `most`, or the end of a word where the line is a very long one."""
    line = text.rfind("\n", 0, most + 1)
    if line >= most * 3 // 4:
        return line
    word = text.rfind(" ", most - 80 if most > 80 else 0, most)
    return word if word > 0 else most


def _chosen(units: list[_Unit], room: int) -> list[_Unit]:
    """The units that fit, in order: rules in capitals first, other rules, then headings."""
    if sum(unit.size() for unit in units) <= room:
        return units
    chosen: list[_Unit] = []
    for unit in sorted(units, key=lambda unit: (-unit.weight, unit.start)):
        if unit.size() <= room:
            chosen.append(unit)
            room -= unit.size()
    return sorted(chosen, key=lambda unit: unit.start)


def _units(text: str, spans: Sequence[Fence], after: int) -> list[_Unit]:
    """The headings and rules outside of code fences from a place on, in order, without overlaps."""
    starts = [fence.start for fence in spans]
    found: list[_Unit] = []
    for mark in _MARKS.finditer(text, text.rfind("\n", 0, after) + 1, SCAN_CHARS):
        if len(found) == MOST_UNITS:
            break
        kind, at = str(mark.lastgroup), mark.start()
        fence = bisect_right(starts, at) - 1
        if fence >= 0 and at < spans[fence].end:
            continue
        if found and at < found[-1].end:
            found[-1] = _Unit(found[-1].start, found[-1].end, max(found[-1].weight, _WEIGHT[kind]))
            continue
        start, end = (mark.start(), mark.end()) if kind == "heading" else _around(text, at)
        found.append(_Unit(max(start, found[-1].end if found else 0), end, _WEIGHT[kind]))
    return found


def _around(text: str, at: int) -> tuple[int, int]:
    """The list item or paragraph around a place, or only its line where that is longer than UNIT_CHARS."""
    start, end = _line(text, at)
    first, last = start, end
    while first > 0 and not _BEGINS.match(text, first) and end - first <= UNIT_CHARS:
        above = _line(text, first - 1)
        if not text[above[0] : above[1]].strip() or text.startswith("#", above[0]):
            break
        first = above[0]
    while last < len(text) and last - first <= UNIT_CHARS:
        below = _line(text, last + 1)
        if not text[below[0] : below[1]].strip() or _BEGINS.match(text, below[0]):
            break
        last = below[1]
    return (first, last) if last - first <= UNIT_CHARS else (start, end)


def _line(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _closed(head: str, spans: Sequence[Fence]) -> str:
    """The beginning, with a line that closes the code fence in which it ends."""
    return close_fences(head) if any(fence.start < len(head) < fence.end for fence in spans) else head
