r"""Escaping of frame tags by one more backslash, and the exact reverse.

`</human_input>` becomes `<\/human_input>`, and `<\/human_input>` in the original text becomes `<\\/human_input>`.
Unescaping removes one backslash. Text without tags is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from nexus.text.frames.places import Scope, TagSpan, lines, spans

Finder: TypeAlias = Callable[[str], Iterable[TagSpan]]

# Unicode's tag characters are invisible, and some models read them as the ASCII characters that they mirror. The
# backslash's is left out: the searches must not take it for an escape that is already there.
_TAG_CHARACTERS = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F) if code != 0xE005C}
_TAG_CHARACTER = re.compile("[\U000e0020-\U000e007e]")


def escape(text: str, scope: Scope = "block") -> str:
    """Return the text with every frame tag of the scope escaped; the same object if there is none.

    Call it once with all the text of one place in a frame: two pieces can form a tag together.
    """
    for find in _passes(text, scope):
        text = _escaped(text, find(text))
    return text


def unescape(text: str, scope: Scope = "block") -> str:
    """Reverse `escape`: `unescape(escape(text, scope), scope) == text` for every text."""
    for find in reversed(_passes(text, scope)):
        text = _unescaped(text, find(text))
    return text


def _passes(text: str, scope: Scope) -> list[Finder]:
    """Return the searches in their order. Each finds the same places before and after its backslashes are added."""
    passes: list[Finder] = [spans, partial(lines, scope=scope)]
    if text.isascii() or not _TAG_CHARACTER.search(text):
        return passes
    return [
        *passes,
        lambda text: spans(text.translate(_TAG_CHARACTERS)),
        lambda text: lines(text.translate(_TAG_CHARACTERS), scope),
    ]


def _escaped(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    end = 0
    for place in places:
        pieces += (text[end : place.at], "\\")
        end = place.at
    return "".join((*pieces, text[end:])) if pieces else text


def _unescaped(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    end = 0
    for place in places:
        if place.run:
            pieces.append(text[end : place.at])
            end = place.at + 1
    return "".join((*pieces, text[end:])) if pieces else text
