"""The table of session files that can be read, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.interop.json_lines import OnRead
from nexus.interop.transcript import Transcript
from nexus.types.decoding import decodable
from nexus.types.registry import Registry
from nexus.workspace.plugins.guard import InvalidHookResult, describe_error, validate_named
from nexus.workspace.plugins.hooks import Hooks

T = TypeVar("T")


def _never(_value: object) -> bool:
    return False


class FileReader(Struct, frozen=True):
    """Reads one format, and knows it where it has fields that no other format has."""

    read: Callable[[Path, OnRead | None], Iterator[Transcript]]
    owns_value: Callable[[Any], bool] = _never
    """Tells if a JSON value, a line of the file or the whole of it, is of this format alone."""
    owns_message: Callable[[dict[str, Any]], bool] = _never
    """Tells if a message is of this format alone."""
    owns_damaged: Callable[[Path], bool] = _never
    """Tells if a file is of this format that has no JSON, or none that another format owns."""


READERS: Registry[FileReader] = Registry(
    {
        "anthropic": "nexus.interop.chat_files:ANTHROPIC",
        "claude_code": "nexus.interop.claude_code:READER",
        "gemini": "nexus.interop.chat_files:GEMINI",
        "nanobot": "nexus.interop.chat_files:NANOBOT",
        "openai": "nexus.interop.chat_files:OPENAI",
        "responses": "nexus.interop.chat_files:RESPONSES",
    }
)
"""The readers by name. Rooms above add theirs, and plugins."""


def find_reader(name: str) -> FileReader:
    """Return the reader of a format. Raises UnreadableFile, which lists all formats."""
    reader = READERS.get(name)
    if reader is None:
        raise UnreadableFile(f"format {name[:80]!r} not found (formats: {', '.join(READERS)})", code="unknown_format")
    return reader


class PluginReaders(Struct, frozen=True):
    """The readers that a plugin added."""

    names: list[str]
    problems: list[str]
    """Readers that were omitted, and later, when files are looked at, tests that failed: these own nothing."""


def add_readers(hooks: Hooks) -> dict[str, PluginReaders]:
    """Add the readers of an engine's plugins, for the whole process; return them by plugin.

    A reader of Nexus has precedence, then the first plugin's. A failure of `read` is an UnreadableFile.
    """
    added: dict[str, PluginReaders] = {}
    names_in_use = set(READERS.own_names)
    results = hooks.added("nexus_readers", partial(_validate, names_in_use=names_in_use))
    for plugin, (readers, problems) in results.items():
        added[plugin] = PluginReaders([], problems)
        for name, reader in readers.items():
            contained = _contain(reader, f"reader {name!r}", plugin, problems)
            if READERS.add_of_plugin(name, contained, reader.read):
                added[plugin].names.append(name)
            else:
                problems.append(f"reader {name!r} omitted: another plugin of this process has one of that name")
    return added


def _validate(result: object, names_in_use: set[str]) -> tuple[dict[str, FileReader], list[str]]:
    """Return the readers with free names, which are in use from now on, and problems with the others."""
    readers: dict[str, FileReader] = {}
    values, problems = validate_named(result, names_in_use, "reader", "file readers by name")
    for name, value in values.items():
        if not isinstance(value, FileReader):
            problems.append(f"reader {name!r} omitted: {type(value).__name__} is not a FileReader")
        elif not all(map(callable, (value.read, value.owns_value, value.owns_message, value.owns_damaged))):
            problems.append(f"reader {name!r} omitted: its fields are not functions")
        else:
            readers[name] = value
    names_in_use.update(readers)
    return readers, problems


def _contain(reader: FileReader, label: str, plugin: str, problems: list[str]) -> FileReader:
    """Return a plugin's reader whose failures are reported and stop nothing else."""

    def contain_test(test: Callable[[T], bool]) -> Callable[[T], bool]:
        def owns(value: T) -> bool:
            try:
                return bool(test(value))
            except Exception as error:  # noqa: BLE001 - code of a plugin
                text = f"{label} {describe_error(error)}: treated as not its own"
                if text not in problems:
                    problems.append(text)
                return False

        return owns

    def read(path: Path, on_read: OnRead | None) -> Iterator[Transcript]:
        if not path.is_file():
            raise UnreadableFile(f"{path} is not a file")
        try:
            for transcript in reader.read(path, on_read):
                yield _checked(transcript)
        except UnreadableFile:
            raise
        except Exception as error:
            raise UnreadableFile(f"{path}: {label} of plugin {plugin} {describe_error(error)}") from error

    return FileReader(
        read, contain_test(reader.owns_value), contain_test(reader.owns_message), contain_test(reader.owns_damaged)
    )


def _checked(value: object) -> Transcript:
    """Return a transcript with its field types checked. Raises InvalidHookResult."""
    if not isinstance(value, Transcript):
        raise InvalidHookResult(f"returned {type(value).__name__} and not a Transcript")
    try:
        return msgspec.convert(msgspec.to_builtins(value), decodable(Transcript))
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidHookResult(f"returned an invalid Transcript: {error}") from error
