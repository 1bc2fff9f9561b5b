"""Regular expressions that are compiled when they are first used: most programs need few of them, and compiling takes long."""

from __future__ import annotations

import re
from typing import Any, cast


class _LatePattern:
    """Stands for a pattern, and takes over its attributes one by one as they are used."""

    def __init__(self, form: str, flags: int) -> None:
        self._form = form
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._form, self._flags), name)  # `re` has it from the second attribute on
        setattr(self, name, value)
        return value


def late_pattern(form: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern for its own methods, `search` and the others. Functions of `re` do not take it."""
    return cast("re.Pattern[str]", _LatePattern(form, flags))
