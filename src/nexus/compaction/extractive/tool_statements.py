"""What results of tools say in sentences: rules and values in files, pages and records, each with where it was found.

A sentence in a result is material and nobody's order, so it is kept in quotation marks, weighs little, and is left out
where it speaks to the assistant. Code, tables, logs and bare data have no sentences and are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive.finding import Finding
from nexus.compaction.extractive.sentences import bounded, one_line, sentences
from nexus.compaction.extractive.statements import LEAST_WORDS, WIDE, has_figure, is_prose
from nexus.compaction.extractive.tool_activity import source_of
from nexus.text.redact import redact
from nexus.types.ledger_entries import Row
from nexus.types.message import Text, ToolCall, ToolResult

RULE_WEIGHT, VALUE_WEIGHT = 48, 42
MOST_CHARS = 200
WHERE_CHARS = 48

_LEAD = re.compile(r"^\s*(?:\d{1,6}\s*(?:→|[:|]\s|\t))?\s*(?:#+|//+|/?\*+|--+|;+|<!--|>|[-+•]|\d{1,3}[.)])?\s*")
_ENDS = re.compile(r"[.!。！][\"'”’)\]]{0,2}$")
_TO_THE_READER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|above|previous)|\b(?:assistant|ai model|language model|"
    r"system prompt)\b|\byou (?:must|should|are|will|have to|need to)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"In .{1,60}: “.{1,300}”\Z")


def is_quoted(line: str) -> bool:
    """Whether the line of a summary says what a result said."""
    return _QUOTED.match(line) is not None


def told(rows: Iterable[Row]) -> list[Finding]:
    """The sentences of the results in these rows that state a rule or an exact value. Time is linear in the text."""
    calls: dict[str, ToolCall] = {}
    found: list[Finding] = []
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and not part.is_error:
                where = source_of(calls[part.call_id]) if part.call_id in calls else "a result"
                text = redact(bounded("\n".join(item.text for item in part.content if isinstance(item, Text)))).text
                for sentence in _prose(text):
                    if weight := _weight(sentence):
                        line = f"In {one_line(where, WHERE_CHARS)}: “{sentence}”"
                        found.append(Finding("fact", line, row.place, weight))
    return found


def _weight(sentence: str) -> int:
    if _TO_THE_READER.search(sentence) is not None:
        return 0
    if cues.asked_for(sentence) in ("constraint", "preference") and not cues.is_soft(sentence):
        return RULE_WEIGHT
    return VALUE_WEIGHT if has_figure(sentence) else 0


def _prose(text: str) -> Iterator[str]:
    """The whole sentences of a text: of its lines, or of the texts in it where it is JSON."""
    for piece in _strings(text):
        for line in piece.split("\n"):
            bare = _LEAD.sub("", line, count=1).strip()
            if _ENDS.search(bare) is None:
                continue
            for sentence in sentences(bare):
                if len(sentence) <= MOST_CHARS and _is_whole(sentence):
                    yield sentence


def _strings(text: str) -> Iterator[str]:
    """The texts of a JSON object or list; anything else as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        yield text
        return
    try:
        waiting: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        yield text
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            waiting.extend(cast("dict[str, Any]", value).values())


def _is_whole(sentence: str) -> bool:
    """Whether it is a sentence from a capital to a full stop, and prose."""
    words = len(sentence.split()) + len(WIDE.findall(sentence)) // 2
    first = next((letter for letter in sentence if letter.isalnum()), "")
    return words >= LEAST_WORDS and not first.islower() and _ENDS.search(sentence) is not None and is_prose(sentence)
