"""Counts with their nouns, for the texts of errors and commands."""

from __future__ import annotations


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: `1 reply`, `1,200 replies`, `2 days`."""
    if noun.endswith("y") and noun[-2] not in "aeo":
        plural = f"{noun[:-1]}ies"
    else:
        plural = f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
