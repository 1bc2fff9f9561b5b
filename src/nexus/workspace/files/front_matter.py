"""YAML front matter, between two lines of `---` at the head of a file: texts, lists and maps, each with its line.

The values are built from the parser's events, so that a scalar is the text in the file (`name: on` is the word `on`,
`1_000` and `2026-11-21` stay as they are), tags and aliases are rejected, and depth and length are bounded.
python-frontmatter has no line numbers, which `nexus skill lint` needs, and silently accepts duplicate keys, a missing end
and text in front of the first `---`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

from nexus.errors import UnreadableFile

FRONT_MATTER_CHARS = 10_000
"""Size limit. The standard's fields together have about 2,000 characters at most, without `metadata`."""

MAX_LEVELS = 10  # nesting limit of lists and maps

_BEGIN = re.compile(r"---[ \t]*(?:\n|\Z)")
_END = re.compile(r"^---[ \t]*$", re.MULTILINE)
_yaml: Any = yaml
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DELIMITERS = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)


class Value(Struct, frozen=True):
    """A text, list or map of the front matter, and its line in the file, counted from 1."""

    content: Content
    line: int


Content: TypeAlias = "str | tuple[Value, ...] | dict[str, Value]"


class FrontMatter(Struct, frozen=True):
    """The fields by name, and the position of the text below them."""

    fields: dict[str, Value]
    body_at: int
    body_line: int
    duplicates: tuple[tuple[str, int], ...] = ()
    """Names and lines of repeated fields, of which the first one counts."""


def front_matter(text: str) -> FrontMatter:
    """Return the front matter of a file's text. Raises UnreadableFile."""
    begin = _BEGIN.match(text)
    if begin is None:
        raise UnreadableFile("front matter missing: the first line is not ---", 1, code="bad_skill")
    end = _END.search(text, begin.end())
    if (end.start() if end else len(text)) - begin.end() > FRONT_MATTER_CHARS:
        raise UnreadableFile(
            f"front matter over {FRONT_MATTER_CHARS:,} characters, or without a closing ---", 1, code="bad_skill"
        )
    if end is None:
        raise UnreadableFile("front matter without a closing ---", 1, code="bad_skill")
    duplicates: list[tuple[str, int]] = []
    try:
        parsed: Iterator[Any] = _yaml.parse(text[begin.end() : end.start()], Loader=_LOADER)
        events = (event for event in parsed if not isinstance(event, _DELIMITERS))
        first = next(events)
        content: Content = {}
        if not isinstance(first, yaml.StreamEndEvent):
            content = _value(first, events, duplicates, 0).content
            after: Any = next(events)
            if not isinstance(after, yaml.StreamEndEvent):
                raise UnreadableFile(
                    "front matter has more than one YAML document", after.start_mark.line + 2, code="bad_skill"
                )
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        hint = ""
        if "mapping values" in str(error.problem):
            hint = " (a text with `: ` in it needs quotes)"
        why = error.problem or error.context
        raise UnreadableFile(
            f"front matter is not YAML: {why}{hint}", mark.line + 2 if mark else 1, code="bad_skill"
        ) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise UnreadableFile(f"front matter is not YAML: {str(error).splitlines()[0]}", 1, code="bad_skill") from error
    if not isinstance(content, dict):
        raise UnreadableFile("front matter is not a map of fields (`name: …`)", 2, code="bad_skill")
    return FrontMatter(content, end.end(), text.count("\n", 0, end.end()) + 2, tuple(duplicates))


def _value(event: Any, events: Iterator[Any], duplicates: list[tuple[str, int]], level: int) -> Value:
    """Return the value that begins with `event`."""
    line: int = event.start_mark.line + 2  # the parser counts from 0, below the line `---`
    if isinstance(event, yaml.AliasEvent):
        raise UnreadableFile(
            f"front matter has an alias (*{str(event.anchor)[:40]}); aliases are not read", line, code="bad_skill"
        )
    if event.tag is not None:
        raise UnreadableFile(
            f"front matter has a tag ({str(event.tag)[:80]}); tags are not read", line, code="bad_skill"
        )
    if level > MAX_LEVELS:
        raise UnreadableFile(f"front matter nests deeper than {MAX_LEVELS} levels", line, code="bad_skill")
    if isinstance(event, yaml.ScalarEvent):
        return Value(str(event.value), line)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Value] = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_value(item, events, duplicates, level + 1))
        return Value(tuple(items), line)
    fields: dict[str, Value] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        name = _value(key, events, duplicates, level + 1)
        value = _value(next(events), events, duplicates, level + 1)
        if not isinstance(name.content, str):
            raise UnreadableFile("front matter has a field name that is a list or a map", name.line, code="bad_skill")
        if name.content in fields:
            duplicates.append((name.content, name.line))
        fields.setdefault(name.content, value)
    return Value(fields, line)
