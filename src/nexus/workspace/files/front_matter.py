"""The YAML between two lines of `---` at the head of a file: texts, lists and maps, each with its line.

Nothing is constructed from it. The values are built from the parser's events, so that a scalar is the text that stands
there (`name: on` is the word `on`, `1_000` and `2026-11-21` stay as they are written), tags and aliases are refused, and
how deep and long it may be is bounded. python-frontmatter would split the file in the same two parts, but passes over a
missing end and over text in front of the first `---` in silence, and gives no line numbers, which `nexus skill lint` needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

from nexus.errors import BadSkill

FRONT_MATTER_CHARS = 10_000
"""More is not read: the standard's fields together have about 2,000 characters at most, `metadata` apart."""

MOST_LEVELS = 10
"""How deep lists and maps may nest."""

_BEGIN = re.compile(r"---[ \t]*(?:\n|\Z)")
_END = re.compile(r"^---[ \t]*$", re.MULTILINE)
_yaml: Any = yaml
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_AROUND = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)


class Value(Struct, frozen=True):
    """A text, a list or a map of the front matter, and its line in the file, counted from 1."""

    content: Content
    line: int


Content: TypeAlias = "str | tuple[Value, ...] | dict[str, Value]"


class FrontMatter(Struct, frozen=True):
    """The fields by name, and where the text below them begins. `twice` has fields given a second time, with the line."""

    fields: dict[str, Value]
    body_at: int
    body_line: int
    twice: tuple[tuple[str, int], ...] = ()


def front_matter(text: str) -> FrontMatter:
    """The front matter of a file's text. Of a field that stands there twice the first counts. Raises BadSkill."""
    begin = _BEGIN.match(text)
    if begin is None:
        raise BadSkill("it has no front matter: its first line is not ---", 1)
    end = _END.search(text, begin.end())
    if (end.start() if end else len(text)) - begin.end() > FRONT_MATTER_CHARS:
        raise BadSkill(f"its front matter is longer than {FRONT_MATTER_CHARS:,} characters, or has no closing ---", 1)
    if end is None:
        raise BadSkill("its front matter has no closing ---", 1)
    twice: list[tuple[str, int]] = []
    try:
        content = _content(text[begin.end() : end.start()], twice)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        hint = "; a text with `: ` in it needs quotes" if "mapping values" in str(error.problem) else ""
        why = error.problem or error.context
        raise BadSkill(f"its front matter is not YAML: {why}{hint}", mark.line + 2 if mark else 1) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise BadSkill(f"its front matter is not YAML: {str(error).splitlines()[0]}", 1) from error
    if not isinstance(content, dict):
        raise BadSkill("its front matter is no map of fields (`name: …`)", 2)
    return FrontMatter(content, end.end(), text.count("\n", 0, end.end()) + 2, tuple(twice))


def _content(head: str, twice: list[tuple[str, int]]) -> Content:
    """The content of the one document in `head`; an empty one is an empty map."""
    parsed: Iterator[Any] = _yaml.parse(head, Loader=_LOADER)
    events = (event for event in parsed if not isinstance(event, _AROUND))
    first = next(events)
    if isinstance(first, yaml.StreamEndEvent):
        return {}
    found = _value(first, events, twice, 0)
    after: Any = next(events)
    if not isinstance(after, yaml.StreamEndEvent):
        raise BadSkill("its front matter has more than one YAML document", after.start_mark.line + 2)
    return found.content


def _value(event: Any, events: Iterator[Any], twice: list[tuple[str, int]], level: int) -> Value:
    """The value that begins with `event`."""
    line: int = event.start_mark.line + 2
    if isinstance(event, yaml.AliasEvent):
        raise BadSkill(
            f"its front matter has an alias (*{str(event.anchor)[:40]}), which is not read: repeat the value", line
        )
    if event.tag is not None:
        raise BadSkill(f"its front matter has a tag ({str(event.tag)[:80]}), which is not read", line)
    if level > MOST_LEVELS:
        raise BadSkill(f"its front matter nests deeper than {MOST_LEVELS} levels", line)
    if isinstance(event, yaml.ScalarEvent):
        return Value(str(event.value), line)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Value] = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_value(item, events, twice, level + 1))
        return Value(tuple(items), line)
    fields: dict[str, Value] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        name = _value(key, events, twice, level + 1)
        value = _value(next(events), events, twice, level + 1)
        if not isinstance(name.content, str):
            raise BadSkill("its front matter has a field whose name is a list or a map", name.line)
        if name.content in fields:
            twice.append((name.content, name.line))
        fields.setdefault(name.content, value)
    return Value(fields, line)
