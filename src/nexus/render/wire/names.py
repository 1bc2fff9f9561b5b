"""When two model names mean the same model: dates and routes apart."""

from __future__ import annotations

import re
from functools import lru_cache

_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d)$|-latest$")


@lru_cache(maxsize=512)
def bare_name(name: str) -> str:
    """The name without route (`openrouter/anthropic/…`) and date."""
    return _DATE.sub("", name.rsplit("/", 1)[-1].lower())


def same_model(one: str, other: str) -> bool:
    """Whether both names mean the same model, so that signatures made by the one are accepted by the other."""
    return bare_name(one) == bare_name(other)
