"""Searchable words of a message as one text, which PostgreSQL indexes as an array."""

from __future__ import annotations

import hashlib

from nexus.ledger.search_text import words

LONGEST_WORD = 64
"""Characters of a word that are kept; a longer one ends with its hash. An index holds no words of any length."""


def search_words(text: str) -> str | None:
    """Return the words of a text with a space before, between and after them; None if it has none.

    A phrase is in a message if its words are a part of the message's. `text` is as `search_text` returns it.
    """
    tokens = words(text)
    if tokens:
        return f" {' '.join(map(_shortened, tokens))} "
    return None


def _shortened(word: str) -> str:
    if len(word) <= LONGEST_WORD:
        return word
    return word[:LONGEST_WORD] + hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()
