"""The broker's functions of document 002, as free functions on the rooms of Nexus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from nexus.budget.models import resolve

MODEL_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "claude-sonnet-4": 200_000,
        "claude-opus-4": 200_000,
        "gpt-4o": 128_000,
        "o1": 200_000,
        "o3": 200_000,
    }
)
"""The windows that document 002 prints, in tokens."""

_DATE = re.compile(r"-\d{8}\Z")


def get_model_limit(model: str) -> int:
    """The context window of a model in tokens (document 002).

    The printed number for a printed name, with or without a date at its end; else what the snapshot of models says; else
    128,000.
    """
    printed = MODEL_LIMITS.get(_DATE.sub("", model))
    return printed if printed is not None else resolve(model).context_tokens
