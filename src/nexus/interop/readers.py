"""The table of session files that can be read, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from nexus.interop.json_lines import OnRead
from nexus.interop.transcript import Transcript
from nexus.types.registry import Registry


def _never(_value: object) -> bool:
    return False


class FileReader(Struct, frozen=True):
    """Reads one format, and knows it where it has fields that no other format has."""

    read: Callable[[Path, OnRead | None], Iterator[Transcript]]
    owns_value: Callable[[Any], bool] = _never
    """Tells if a line's JSON value is of this format alone."""
    owns_message: Callable[[dict[str, Any]], bool] = _never
    """Tells if a message is of this format alone."""
    owns_damaged: Callable[[Path], bool] = _never
    """Tells if a file that is no JSON is a damaged file of this format."""


READERS: Registry[FileReader] = Registry(
    {
        "anthropic": "nexus.interop.chat_files:ANTHROPIC",
        "claude_code": "nexus.interop.claude_code:READER",
        "nanobot": "nexus.interop.chat_files:NANOBOT",
        "openai": "nexus.interop.chat_files:OPENAI",
    }
)
"""The readers by name. Rooms above add theirs."""
