"""The table of session files that can be read, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from nexus.errors import UnknownFormat
from nexus.interop.json_lines import OnRead
from nexus.interop.transcript import Transcript
from nexus.plugins.guard import validate_named
from nexus.plugins.hooks import Hooks
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
"""The readers by name. Rooms above add theirs, and plugins."""


def find_reader(name: str) -> FileReader:
    """Return the reader of a format. Raises UnknownFormat, which lists all formats."""
    reader = READERS.get(name)
    if reader is None:
        raise UnknownFormat(f"format {name[:80]!r} not found (formats: {', '.join(READERS)})")
    return reader


def add_readers(hooks: Hooks) -> dict[str, list[str]]:
    """Add the readers of an engine's plugins, for the whole process; return the problems by plugin.

    A reader of Nexus has precedence, then the first plugin's.
    """
    problems: dict[str, list[str]] = {}
    names: set[str] = set(READERS.own_names)
    for plugin, (readers, texts) in hooks.added("nexus_readers", partial(_validate, names_in_use=names)).items():
        problems[plugin] = texts
        names.update(readers)
        for name, reader in readers.items():
            READERS.add_of_plugin(name, reader)
    return problems


def _validate(result: object, names_in_use: Collection[str]) -> tuple[dict[str, FileReader], list[str]]:
    readers: dict[str, FileReader] = {}
    values, problems = validate_named(result, names_in_use, "reader", "file readers by name")
    for name, value in values.items():
        if isinstance(value, FileReader):
            readers[name] = value
        else:
            problems.append(f"reader {name!r} omitted: {type(value).__name__} is no FileReader")
    return readers, problems
