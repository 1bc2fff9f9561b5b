"""Texts shortened to a number of characters, their dots included, never inside of what a reader takes for one character.

Document 000, "Key Behaviors": "Long messages (>500 chars) are truncated with "..."". Lengths are in code points.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regex import Pattern

TEXT_CHARS = 500
"""Characters of an entry at most."""

DOTS = "..."


def truncate_at_grapheme(text: str, most_chars: int = TEXT_CHARS) -> str:
    """The text if it has at most so many characters (more than three); else its beginning and three dots within them."""
    if len(text) <= most_chars:
        return text
    return text[: _boundary(text, most_chars - len(DOTS))] + DOTS


def truncate_texts(texts: list[str], most_chars: int = TEXT_CHARS) -> list[str | None]:
    """Texts that stand one under the other, shortened together; None for those of which nothing is left."""
    whole = "\n".join(texts)
    if len(whole) <= most_chars:
        return list(texts)
    cut = _boundary(whole, most_chars - len(DOTS))
    shown: list[str | None] = []
    at = 0
    for text in texts:
        if at > cut:
            shown.append(None)
        elif at + len(text) < cut:
            shown.append(text)
        else:
            shown.append(text[: cut - at] + DOTS)
            cut = -1
        at += len(text) + 1
    return shown


def _boundary(text: str, most: int) -> int:
    """The last boundary between graphemes (Unicode Standard Annex 29) at or before `most`; `most` if one fills it all."""
    if text.isascii() and text[most - 1 : most + 1] != "\r\n":
        return most
    ends = [found.end() for found in _grapheme().finditer(text[: most + 1])]
    return max((end for end in ends if end <= most), default=most)


@cache
def _grapheme() -> Pattern[str]:
    import regex

    return regex.compile(r"\X")
