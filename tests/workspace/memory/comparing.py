"""What a text was before and after a change."""

from __future__ import annotations


def shared(one: str | bytes, other: str | bytes) -> int:
    """How many characters or bytes two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
