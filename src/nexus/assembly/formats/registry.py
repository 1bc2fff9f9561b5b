"""The message formats by name: the core's, to which other rooms and plugins add theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nexus.assembly.formats.protocol import MessageFormat
from nexus.errors import bad_profile
from nexus.types.history import Memory
from nexus.types.registry import Registry
from nexus.workspace.plugins.guard import validate_named

_METHODS = ("on_path", "fill_window", "entry_limits", "covered_messages", "plan_eviction", "reply", "plain_text")

FORMATS: Registry[MessageFormat] = Registry(
    {
        "roles": "nexus.assembly.formats.roles:ROLES",
        "truncated_results": "nexus.assembly.formats.truncated_results:TRUNCATED_RESULTS",
    }
)


def find_format(name: str) -> MessageFormat:
    """Return the message format of that name. Raises BadConfig, which lists all names."""
    message_format = FORMATS.get(name)
    if message_format is None:
        raise bad_profile("profile", "message_format", f"one of {', '.join(FORMATS)}, not {name[:80]!r}")
    return message_format


def block_openings() -> dict[str, str]:
    """Return how the blocks of the formats begin, by source: a profile may show one format's blocks in another."""
    return {source: opening for each in FORMATS.values() for source, opening in each.openings.items()}


def add_formats(result: object, names_in_use: Collection[str]) -> tuple[dict[str, MessageFormat], list[str]]:
    """Add a plugin's formats whose names are valid and free; return them, and problems with the others.

    They are added for the whole process, because a recorded call names its format only.
    """
    formats: dict[str, MessageFormat] = {}
    names_in_use = {*FORMATS.own_names, *names_in_use}
    values, problems = validate_named(result, names_in_use, "format", "message formats by name")
    for name, value in values.items():
        if isinstance(value, type) or not isinstance(value, MessageFormat):
            problems.append(f"format {name!r} omitted: {_kind(value)} is not a MessageFormat")
        elif value.name != name:
            problems.append(f"format {name!r} omitted: its own name is {value.name!r}")
        elif invalid := _invalid_field(value):
            problems.append(f"format {name!r} omitted: its `{invalid}` is invalid")
        elif not FORMATS.add_of_plugin(name, value, value):
            problems.append(f"format {name!r} omitted: another plugin of this process has one of that name")
        else:
            formats[name] = value
    return formats, problems


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return type(value).__name__


def _invalid_field(message_format: MessageFormat) -> str:
    """Return the first attribute or method that has another type than the protocol says; empty if none has."""
    memory: object = message_format.memory
    openings: object = message_format.openings
    checks = {
        "memory": memory is None or isinstance(memory, Memory),
        "lists_tools": isinstance(message_format.lists_tools, bool),
        "is_hashed": isinstance(message_format.is_hashed, bool),
        "openings": isinstance(openings, Mapping)
        and all(isinstance(text, str) for pair in openings.items() for text in pair),
        **{name: callable(getattr(message_format, name)) for name in _METHODS},
    }
    return next((name for name, is_valid in checks.items() if not is_valid), "")
