"""Errors as tests tell them apart: by their codes, which are as public as their classes."""

from __future__ import annotations

from collections.abc import Callable

from nexus.errors import NexusError


def has_code(code: str) -> Callable[[BaseException], bool]:
    """Return the check of an error's code, for `pytest.raises`."""

    def check(error: BaseException) -> bool:
        return isinstance(error, NexusError) and error.code == code

    return check
