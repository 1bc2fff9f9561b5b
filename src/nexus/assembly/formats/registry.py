"""The message formats by name. `roles` is the core's; other rooms and plugins add theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nexus.assembly.formats.protocol import MessageFormat
from nexus.errors import BadProfile
from nexus.plugins.guard import validate_named
from nexus.types.registry import Registry

FORMATS: Registry[MessageFormat] = Registry({"roles": "nexus.assembly.formats.roles:ROLES"})


def find_format(name: str) -> MessageFormat:
    """Return the message format of that name. Raises BadProfile, which lists all names."""
    message_format = FORMATS.get(name)
    if message_format is None:
        raise BadProfile("profile", "message_format", f"one of {', '.join(FORMATS)}, not {name[:80]!r}")
    return message_format


def block_openings() -> dict[str, str]:
    """Return how the blocks of the formats begin, by source: a profile may show one format's blocks in another."""
    return {source: opening for each in FORMATS.values() for source, opening in each.openings.items()}


def validate_formats(result: object, names_in_use: Collection[str]) -> tuple[dict[str, MessageFormat], list[str]]:
    """Return a plugin's formats whose names are valid and free, and problems with the others."""
    formats: dict[str, MessageFormat] = {}
    names_in_use = {*FORMATS.own_names, *names_in_use}
    values, problems = validate_named(result, names_in_use, "format", "message formats by name")
    for name, value in values.items():
        if not isinstance(value, MessageFormat):
            problems.append(f"format {name!r} omitted: {type(value).__name__} is no MessageFormat")
        elif value.name != name:
            problems.append(f"format {name!r} omitted: its own name is {value.name!r}")
        else:
            formats[name] = value
    return formats, problems


def add_formats(formats: Mapping[str, MessageFormat]) -> None:
    """Add the formats of plugins: for the whole process, because a recorded call names its format only."""
    for name, message_format in formats.items():
        FORMATS.add_of_plugin(name, message_format)
