r"""Making marks in a text harmless, and undoing that exactly: one more backslash where a mark could be read.

`</human_input>` becomes `<\/human_input>`, and `<\/human_input>`, should a text hold it, `<\\/human_input>`. Undoing
takes one away. Text without marks comes out as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from nexus.text.frames.places import Scope, TagSpan, lines, spans

Finder: TypeAlias = Callable[[str], Iterable[TagSpan]]

_SAID = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F) if code != 0xE005C}
"""Unicode's tag characters, which nobody sees and some models read, and the ASCII characters that they stand for. The
backslash's is none: what it hides from a reader it must not hide from the search."""

_TAG_CHARACTER = re.compile("[\U000e0020-\U000e007e]")


def escape(text: str, scope: Scope = "block") -> str:
    """The text with every mark of the scope made harmless; the same object where there is none.

    It is to be called once, with all the text that stands in one place of a frame: two pieces can be a mark together.
    """
    for find in _passes(text, scope):
        text = _stuffed(text, find(text))
    return text


def unescape(text: str, scope: Scope = "block") -> str:
    """The text that `escape` was given: `unescape(escape(text, scope), scope) == text` for every text."""
    for find in reversed(_passes(text, scope)):
        text = _thinned(text, find(text))
    return text


def _passes(text: str, scope: Scope) -> list[Finder]:
    """The searches in their order. Each finds the same places before and after its backslashes are put in."""
    seen: list[Finder] = [spans, partial(lines, scope=scope)]
    if text.isascii() or not _TAG_CHARACTER.search(text):
        return seen
    return [*seen, lambda text: spans(text.translate(_SAID)), lambda text: lines(text.translate(_SAID), scope)]


def _stuffed(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    done = 0
    for place in places:
        pieces += (text[done : place.at], "\\")
        done = place.at
    return "".join((*pieces, text[done:])) if pieces else text


def _thinned(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    done = 0
    for place in places:
        if place.run:
            pieces.append(text[done : place.at])
            done = place.at + 1
    return "".join((*pieces, text[done:])) if pieces else text
