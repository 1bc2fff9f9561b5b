"""The commands that pages name in text and tables, and what is wrong with them: command, options, number of arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from math import inf

import click

import nexus.cli
from nexus.cli._sessions import SessionArgument

FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2`*[ ]*$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?<!\\)`(nexus (?:[^`\n\\]|\\\|)+)`")
SECTION = re.compile(r"^##+ nexus ([^\n]+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| (`[^|]*(?:\\\|[^|]*)*`) \|", re.MULTILINE)
NOTATION = re.compile(r"(?<= )\|(?= )|[\[\]…]|\.\.\.")
"""Signs of the notation for what may be omitted, repeated or chosen."""


def commands_of(text: str) -> Iterator[str]:
    """Yield the lines that begin with `nexus` in the text and tables of a page, as they would be typed."""
    text = FENCE.sub("", text)
    for found in COMMAND.finditer(text):
        yield found[1].replace("\\|", "|")
    for section in SECTION.finditer(text):
        for table in re.findall(r"^\| command \|.*?(?=^(?!\|)|\Z)", section[2], re.DOTALL | re.MULTILINE):
            for row in ROW.finditer(table):
                for code in re.findall(r"`([^`]+)`", row[1]):
                    yield f"nexus {section[1]} {code}".replace("\\|", "|")


def problems_of(line: str) -> list[str]:
    """Return what is wrong with a line: an unknown command or option, or a wrong number of arguments."""
    words = shlex.split(NOTATION.sub("", line))[1:]
    found: click.Command = nexus.cli.cli
    options: dict[str, click.Option] = {}
    arguments = list[str]()
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        options |= {opt: param for param in found.params if isinstance(param, click.Option) for opt in param.opts}
        if word in ("-h", "--help"):
            continue
        if len(word) > 1 and word.startswith("-"):
            if name not in options:
                return [f"{line}: no option {name}"]
            if not options[name].is_flag and not equals:
                del words[: options[name].nargs]
        elif isinstance(found, click.Group):
            subcommand = found.get_command(click.Context(found), word)
            if subcommand is None:
                return [f"{line}: no command {word}"]
            found = subcommand
        else:
            arguments.append(word)
    return _wrong_count(line, found, arguments)


def _wrong_count(line: str, command: click.Command, arguments: list[str]) -> list[str]:
    """Return whether a line has too many or too few arguments; a line without any only names its command."""
    is_named = re.search(r" (-s|--session)\b", line)
    wanted = [
        param
        for param in command.params
        if isinstance(param, click.Argument) and not (is_named and isinstance(param, SessionArgument))
    ]
    most = sum(inf if param.nargs < 0 else param.nargs for param in wanted)
    least = sum(param.required for param in wanted)
    if not arguments or least <= len(arguments) <= most:
        return []
    return [f"{line}: {len(arguments)} arguments, not {least} to {most}"]
