"""Shortening what is too large: results of tools mostly, head and tail kept, JSON by its structure.

A clip is a pure function of the stored text and a limit, never of a clipped text, so the same result under the same limit
has the same bytes in every call. The whole stays in the ledger, and a line in its place says how to get it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import text_tokens_json
from nexus.types.message import Image, Message, Part, Text, ToolResult

LEAST_TOKENS = 64
"""No limit is smaller: less would hold little more than the line that says what was left out."""

HEAD_PERCENT = 60
"""What the beginning gets of a clipped text; errors and outcomes stand at the end of what programs print."""

LEAST_CHARS = 200
"""The same for limits in characters."""

LARGEST_JSON_CHARS = 2_000_000
"""Longer texts are shortened as text, JSON or not."""

_CHARS_A_TOKEN = 4
_SHAPES = ((40, 2_000), (20, 800), (10, 400), (6, 200), (4, 120), (2, 80), (2, 40), (1, 24))
"""Items of a list and characters of a string that are kept, from generous to least."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")


class TruncationLimits(Struct, frozen=True):
    """The limits in a view, in base tokens: `tokens` for results up to entry `until`, `largest` for all others (0: none).

    Images in results up to entry `until` become a line of text, and all images up to entry `images` become notes.
    """

    max_tokens: int = 0
    until: int = 0
    tokens: int = 0
    images: int = 0

    def limit(self, seq: int) -> int:
        """The limit for a result in entry `seq`; 0 if it has none."""
        return self.tokens if seq <= self.until else self.max_tokens

    def aged(self, seq: int) -> bool:
        """Whether a result in entry `seq` is among the older ones, whose images become a line of text."""
        return seq <= self.until


def truncate_results(message: Message, limit: int, counter: TokenCounter, *, pictures: bool) -> Message:
    """The message with the text of each result within `limit` base tokens; the same object where nothing is too large.

    `pictures` says whether images in results stay.
    """
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        if isinstance(part, ToolResult):
            content = _content(part, limit, counter, pictures=pictures)
            if content is not part.content:
                changed = True
            parts.append(part if content is part.content else replace(part, content=content))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)) if changed else message


def truncate_chars(message: Message, most: int) -> Message:
    """The message with the text of each result in at most `most` characters, head and tail; images in them stay.

    The same object where nothing is longer. This is document 003's measure; contexts are shortened by tokens.
    """
    if all(len(_words(result)) <= max(most, LEAST_CHARS) for result in message.results()):
        return message
    parts = (_within(part, max(most, LEAST_CHARS)) if isinstance(part, ToolResult) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def truncate_text(text: str, limit: int, counter: TokenCounter, where: str = "") -> str:
    """The text in at most `limit` base tokens: JSON thinned out and still JSON, anything else as its head and tail.

    A line says how many characters are left out, and `where` the whole is. A text that fits comes back as it is.
    """
    limit = max(limit, LEAST_TOKENS)
    if len(text) <= limit or (len(text) <= 16 * limit and text_tokens_json(text, counter) <= limit):
        return text
    return _thinned(text, limit, counter, where) or _head_and_tail(text, limit, counter, where)


def _content(result: ToolResult, limit: int, counter: TokenCounter, *, pictures: bool) -> tuple[Text | Image, ...]:
    images = [item for item in result.content if isinstance(item, Image)]
    whole = _words(result)
    clipped = truncate_text(whole, limit, counter, _where(result.call_id)) if limit else whole
    if clipped == whole and (pictures or not images):
        return result.content
    notes = () if pictures else tuple(Text(_pictured(image)) for image in images)
    return (*((Text(clipped),) if clipped else ()), *(images if pictures else ()), *notes)


def _words(result: ToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, Text))


def _within(result: ToolResult, most: int) -> ToolResult:
    text = _words(result)
    if len(text) <= most:
        return result
    where = _where(result.call_id)
    marker = _marker(len(text), where)
    room = most - len(marker) - 2
    head = _beginning(text, room * HEAD_PERCENT // 100)
    tail = _ending(text, room - room * HEAD_PERCENT // 100)
    short = f"{head}\n{_marker(len(text) - len(head) - len(tail), where)}\n{tail}"
    images = (item for item in result.content if isinstance(item, Image))
    return replace(result, content=(Text(short), *images))


def _where(call_id: str) -> str:
    """How to get the whole result of a call, without the session's name: that may change, what was sent may not."""
    return f"`nexus history SESSION --call {call_id}`" if _PLAIN_ID.match(call_id) else "`nexus history SESSION`"


def _pictured(image: Image) -> str:
    size = f" {image.width}x{image.height}" if image.width and image.height else ""
    return f"[{image.media_type}{size} was shown here before; it is in the ledger]"


def _marker(chars: int, where: str) -> str:
    whole = f"; the whole: {where}" if where else ""
    return f"[… {chars:,} characters left out here{whole} …]"


def _head_and_tail(text: str, limit: int, counter: TokenCounter, where: str) -> str:
    room = limit - text_tokens_json(_marker(len(text), where), counter) - 2
    marker = _marker(len(text), where)
    while room >= 4:
        head = _fitting(text, room * HEAD_PERCENT // 100, counter, _beginning)
        tail = _fitting(text, room - room * HEAD_PERCENT // 100, counter, _ending)
        left_out = len(text) - len(head) - len(tail)
        short = f"{head}\n{_marker(left_out, where)}\n{tail}"
        if text_tokens_json(short, counter) <= limit:
            return short
        room = room * 9 // 10
    return marker if text_tokens_json(marker, counter) <= limit else _marker(len(text), "")


def _fitting(text: str, tokens: int, counter: TokenCounter, part: Callable[[str, int], str]) -> str:
    """As much of the text's beginning or end as `tokens` hold, in a few counts and not by bisection to the last one."""
    chars = tokens * _CHARS_A_TOKEN
    best = ""
    for _ in range(5):
        piece = part(text, chars)
        counted = text_tokens_json(piece, counter)
        if counted <= tokens:
            if len(piece) > len(best):
                best = piece
            if counted >= tokens * 85 // 100 or len(piece) >= len(text) // 2:
                break
        chars = max(chars * tokens * 95 // (max(counted, 1) * 100), 1)
    return best


def _beginning(text: str, chars: int) -> str:
    """The first `chars` characters, ending with a line where one ends in their last fifth."""
    end = min(chars, len(text) // 2)
    line = text.rfind("\n", end - end // 5, end)
    return text[: line if line > 0 else end]


def _ending(text: str, chars: int) -> str:
    """The last `chars` characters, beginning with a line where one begins in their first fifth."""
    start = len(text) - min(chars, len(text) // 2)
    line = text.find("\n", start, start + (len(text) - start) // 5)
    return text[line + 1 if line >= 0 else start :]


def _thinned(text: str, limit: int, counter: TokenCounter, where: str) -> str:
    """A JSON list or object with items and long strings left out, as JSON; empty if it is no JSON or never fits."""
    if len(text) > LARGEST_JSON_CHARS or text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        value = json.loads(text)
        for items, chars in _SHAPES:
            short = json.dumps(_shaped(value, items, chars), ensure_ascii=False, separators=(",", ":"))
            if len(short) > limit * 12:
                continue
            told = f"{short}\n{_marker(max(len(text) - len(short), 1), where)}"
            if text_tokens_json(told, counter) <= limit:
                return told
    except (ValueError, RecursionError):
        return ""
    return ""


def _shaped(value: Any, items: int, chars: int) -> Any:
    match value:
        case str():
            return value if len(value) <= chars else f"{value[: chars * 2 // 3]} … {value[-(chars // 3) :]}"
        case list():
            rows = cast("list[Any]", value)
            if len(rows) <= items + 1:
                return [_shaped(item, items, chars) for item in rows]
            head = items - items // 3
            tail = rows[len(rows) - items // 3 :]
            note = f"… {len(rows) - items:,} of {len(rows):,} items left out …"
            return [
                *(_shaped(item, items, chars) for item in rows[:head]),
                note,
                *(_shaped(i, items, chars) for i in tail),
            ]
        case dict():
            fields = cast("dict[str, Any]", value)
            kept = dict(list(fields.items())[: items * 4])
            shaped = {name: _shaped(item, items, chars) for name, item in kept.items()}
            if len(fields) > len(kept):
                shaped["…"] = f"{len(fields) - len(kept):,} of {len(fields):,} fields left out"
            return shaped
        case _:
            return value
