"""Truncation of tool results and other large texts, and notes in place of images.

Of a text, head and tail stay; JSON is shortened by its structure. A truncated text or a note is a pure function of what
is stored and a limit, never of a truncated text, so it has the same bytes in every call under that limit. The ledger
keeps everything, and a line in the text says how to get it.
"""

from __future__ import annotations

import json
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.fit.lookup import call_lookup, image_lookup
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.message_tokens import text_tokens_json
from nexus.types.history import Lookup
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Image, Message, Part, Text, ToolResult, with_parts

LEAST_TOKENS = 64
"""Smallest limit. A smaller one would leave room for little more than the omission line."""

HEAD_PERCENT = 60
"""Percentage of a truncated text that its beginning gets. Programs print errors and outcomes at the end."""

LEAST_CHARS = 200
"""Smallest limit in characters."""

LARGEST_JSON_CHARS = 2_000_000
"""Longer texts are truncated as plain text, even if they are JSON."""

_CHARS_A_TOKEN = 4
_JSON_LIMITS = ((40, 2_000), (20, 800), (10, 400), (6, 200), (4, 120), (2, 80), (2, 40), (1, 24))
"""Items per list and characters per string that stay, in the order to try, until render version 6."""


def _json_steps() -> tuple[tuple[int, int], ...]:
    """Return items per list and characters per string, each pair about a tenth larger than the one before."""
    chars = [24]
    while chars[-1] < 20 * LARGEST_JSON_CHARS:  # as many items as a text can have
        chars.append(chars[-1] * 12 // 11)
    return tuple((max(each // 40, 1), each) for each in chars)


_JSON_STEPS = _json_steps()
"""Items per list and characters per string that may stay. The largest pair that fits is chosen."""


class TruncationLimits(Struct, frozen=True):
    """Limits of tool results in a view, in base tokens."""

    max_tokens: int = 0
    """Limit of results after entry `until`, and of what a cut truncates; 0 is unlimited."""

    until: int = 0
    """Last entry whose results get the smaller limit `tokens`; their images become a line of text."""

    tokens: int = 0

    images: int = 0
    """Last entry whose images become notes."""

    whole_new: bool = False
    """True if results after entry `until` are whole, so that only cuts truncate."""

    @property
    def new_tokens(self) -> int:
        """Limit of results after entry `until`; 0 is unlimited."""
        if self.whole_new:
            return 0
        return self.max_tokens

    def limit(self, seq: int) -> int:
        """Return the limit for a result in entry `seq`; 0 is unlimited."""
        if seq <= self.until:
            return self.tokens
        return self.new_tokens

    def aged(self, seq: int) -> bool:
        """Return True if a result in entry `seq` gets the smaller limit and no images."""
        return seq <= self.until


def truncate_results(
    message: Message,
    limit: int,
    counter: TokenCounter,
    *,
    keeps_images: bool,
    lookup: Lookup = "command",
    render: int = RENDER_VERSION,
) -> Message:
    """Return the message with each result within `limit` base tokens; the same object if none is too large.

    Without `keeps_images`, images in results become lines of text.
    """

    def truncated(result: ToolResult) -> ToolResult:
        images: list[Text | Image] = [item for item in result.content if isinstance(item, Image)]
        text = _text_of(result)
        short = text
        if limit:
            short = truncate_text(text, limit, counter, call_lookup(lookup, result.call_id), render)
        if short == text and (keeps_images or not images):
            return result
        if keeps_images:
            image_parts = images
        else:
            image_parts = [Text(_image_line(item)) for item in result.content if isinstance(item, Image)]
        return replace(result, content=(*((Text(short),) if short else ()), *image_parts))

    return _with_results(message, truncated)


def result_tokens(message: Message, counter: TokenCounter) -> list[int]:
    """Return the base tokens of the text of each result in a message."""
    return [text_tokens_json(_text_of(result), counter) for result in message.results()]


def limit_within(sizes: Iterable[int], total: int) -> int:
    """Return the largest limit with which sizes above it, cut down to it, and the others take at most `total`."""
    ascending_sizes = sorted(sizes)
    limit = 0
    for at, size in enumerate(ascending_sizes):
        limit = max(total, 0) // (len(ascending_sizes) - at)
        if size > limit:
            break
        total -= size
    return limit


def truncate_chars(message: Message, limit: int, lookup: Lookup = "command") -> Message:
    """Return the message with each result's text in at most `limit` characters; the same object if none is longer.

    Images stay. For interfaces that limit characters; contexts are truncated by tokens.
    """
    limit = max(limit, LEAST_CHARS)

    def truncated(result: ToolResult) -> ToolResult:
        text = _text_of(result)
        where = call_lookup(lookup, result.call_id)
        if len(text) <= limit:
            return result
        available = limit - len(_omission_line(len(text), where)) - 2
        head = _beginning(text, available * HEAD_PERCENT // 100)
        tail = _ending(text, available - available * HEAD_PERCENT // 100)
        short = f"{head}\n{_omission_line(len(text) - len(head) - len(tail), where)}\n{tail}"
        return replace(result, content=(Text(short), *(item for item in result.content if isinstance(item, Image))))

    return _with_results(message, truncated)


def _with_results(message: Message, change: Callable[[ToolResult], ToolResult]) -> Message:
    """Return the message with each result changed; the same object if no result is."""
    parts = tuple(change(part) if isinstance(part, ToolResult) else part for part in message.parts)
    if all(map(operator.is_, parts, message.parts)):
        return message
    return with_parts(message, parts)


def truncate_text(text: str, limit: int, counter: TokenCounter, where: str = "", render: int = RENDER_VERSION) -> str:
    """Return the text in at most `limit` base tokens: shorter JSON for JSON, else head and tail.

    A line reports the number of omitted characters and `where` the full text is. A text that fits is unchanged.
    """
    limit = max(limit, LEAST_TOKENS)
    if _fits(text, limit, counter, render):
        return text
    return _shorter_json(text, limit, counter, where, render) or _head_and_tail(text, limit, counter, where, render)


def shorten(text: str, limit: int, counter: TokenCounter, head_percent: int = HEAD_PERCENT) -> str:
    """Return the text in at most `limit` base tokens: its beginning, with that share, and its end, with dots between."""
    if _fits(text, limit, counter):
        return text
    available = limit - 4
    head_tokens = available * head_percent // 100
    head = _fitting(text, head_tokens, counter, lambda string, chars: string[:chars])
    tail = _fitting(text, available - head_tokens, counter, lambda string, chars: string[-chars:])
    return f"{head.rstrip()} … {tail.lstrip()}".rstrip()


def _fits(text: str, limit: int, counter: TokenCounter, render: int = RENDER_VERSION) -> bool:
    """Return whether a text takes at most `limit` base tokens. Long ones are not counted."""
    # Until render version 7 a character was taken for a token at most; rare characters are more.
    if render < 7 and len(text) <= limit:
        return True
    return len(text) <= 16 * limit and text_tokens_json(text, counter) <= limit


def _text_of(result: ToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, Text))


def _image_line(image: Image) -> str:
    size = ""
    if image.width and image.height:
        size = f" {image.width}x{image.height}"
    return f"[{image.media_type}{size} was shown here before; it is in the ledger]"


def _omission_line(chars: int, where: str) -> str:
    command = f"; the whole: {where}" if where else ""
    return f"[… {chars:,} characters left out here{command} …]"


def _head_and_tail(text: str, limit: int, counter: TokenCounter, where: str, render: int) -> str:
    line = _omission_line(len(text), where)
    available = limit - text_tokens_json(line, counter) - 2
    while available >= 4:
        head = _fitting(text, available * HEAD_PERCENT // 100, counter, _beginning, render)
        tail = _fitting(text, available - available * HEAD_PERCENT // 100, counter, _ending, render)
        short = f"{head}\n{_omission_line(len(text) - len(head) - len(tail), where)}\n{tail}"
        if text_tokens_json(short, counter) <= limit:
            return short
        available = available * 9 // 10  # tokens merge differently where the pieces meet
    if text_tokens_json(line, counter) <= limit:
        return line
    return _omission_line(len(text), "")


def _fitting(
    text: str, tokens: int, counter: TokenCounter, part: Callable[[str, int], str], render: int = RENDER_VERSION
) -> str:
    """Return about as much of the text's beginning or end as fits in `tokens`, with at most five counts."""
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
        # Up to render version 2 the scale was the number asked for, not the piece: dense texts got no head.
        scaled = len(piece) if render >= 3 else chars
        chars = max(scaled * tokens * 95 // (max(counted, 1) * 100), 1)
    return best


def _beginning(text: str, chars: int) -> str:
    """Return the first `chars` characters, up to a line end if one is in their last fifth."""
    end = min(chars, len(text) // 2)
    line = text.rfind("\n", end - end // 5, end)
    return text[: line if line > 0 else end]


def _ending(text: str, chars: int) -> str:
    """Return the last `chars` characters, from a line start if one is in their first fifth."""
    start = len(text) - min(chars, len(text) // 2)
    line = text.find("\n", start, start + (len(text) - start) // 5)
    return text[line + 1 if line >= 0 else start :]


def _shorter_json(text: str, limit: int, counter: TokenCounter, where: str, render: int) -> str:
    """Return a JSON list or object without some items and long strings; empty if it is not JSON or never fits."""
    if len(text) > LARGEST_JSON_CHARS or text.lstrip()[:1] not in ("{", "["):
        return ""

    def fitting(value: Any, items: int, chars: int) -> str:
        short = json.dumps(_shortened(value, items, chars), ensure_ascii=False, separators=(",", ":"))
        if len(short) > limit * 12:
            return ""
        with_line = f"{short}\n{_omission_line(max(len(text) - len(short), 1), where)}"
        if text_tokens_json(with_line, counter) <= limit:
            return with_line
        return ""

    try:
        value = json.loads(text)
        if render < 7:
            return next((short for items, chars in _JSON_LIMITS if (short := fitting(value, items, chars))), "")
        first_too_large = bisect_left(_JSON_STEPS, 1, key=lambda step: int(not fitting(value, *step)))
        if not first_too_large:
            return ""
        return fitting(value, *_JSON_STEPS[first_too_large - 1])
    except (ValueError, RecursionError):
        return ""


def _shortened(value: Any, items: int, chars: int) -> Any:
    match value:
        case str():
            if len(value) <= chars:
                return value
            return f"{value[: chars * 2 // 3]} … {value[-(chars // 3) :]}"
        case list():
            rows = cast("list[Any]", value)
            if len(rows) <= items + 1:
                return [_shortened(item, items, chars) for item in rows]
            head = items - items // 3
            tail = rows[len(rows) - items // 3 :]
            note = f"… {len(rows) - items:,} of {len(rows):,} items left out …"
            return [
                *(_shortened(item, items, chars) for item in rows[:head]),
                note,
                *(_shortened(i, items, chars) for i in tail),
            ]
        case dict():
            fields = cast("dict[str, Any]", value)
            shortened = {name: _shortened(item, items, chars) for name, item in list(fields.items())[: items * 4]}
            if len(fields) > len(shortened):
                shortened["…"] = f"{len(fields) - len(shortened):,} of {len(fields):,} fields left out"
            return shortened
        case _:
            return value


NOTE_TOKENS = 120
"""Upper bound of a note's tokens. An image frees at least its own tokens minus these."""

_PLAIN_TYPE = re.compile(r"[A-Za-z0-9/+.-]{1,40}\Z")


def with_image_notes(message: Message, ref: MessageRef, lookup: Lookup = "command") -> Message:
    """Return the message at `ref` with each image, also in results, replaced by a note; the same object if it has none."""
    if next(images_of(message), None) is None:
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            way_back = image_lookup(lookup, part.call_id, ref)
            content = [_image_note(item, way_back) if isinstance(item, Image) else item for item in part.content]
            parts.append(replace(part, content=tuple(content)))
        elif isinstance(part, Image) and (part.data or part.url):
            parts.append(_image_note(part, image_lookup(lookup, "", ref)))
        else:
            parts.append(part)
    return with_parts(message, parts)


def freed_tokens(message: Message, images: ImagePrice = ANY_MODEL) -> int:
    """Return the minimum of tokens that image notes free in the message."""
    return sum(max(images.tokens(image) - NOTE_TOKENS, 0) for image in images_of(message))


def images_of(message: Message) -> Iterator[Image]:
    """Yield the images that a message shows, including images in results."""
    for part in message.parts:
        if isinstance(part, Image):
            if part.data or part.url:  # no prompt contains an image without data
                yield part
        elif isinstance(part, ToolResult):
            yield from (item for item in part.content if isinstance(item, Image))


def describe_image(image: Image) -> str:
    """Return an image's type and size in pixels, as far as they are known."""
    kind = "an image"
    if _PLAIN_TYPE.match(image.media_type):
        kind = image.media_type
    if image.width > 0 and image.height > 0:
        return f"{kind} {image.width}x{image.height}"
    return kind


def _image_note(image: Image, where: str) -> Text:
    """Return type and size of the image, and where it can be seen."""
    pointer = f"; to see it again: {where}" if where else ""
    return Text(f"[{describe_image(image)} was shown here before{pointer}]")
