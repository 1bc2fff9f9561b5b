"""Findings of tool calls: files, commands and errors, and sentences in results that state a rule or a value.

Tool output is data, not instructions. Its sentences are quoted with their source, ranked low, and dropped when they
address the assistant. Code, tables, logs and bare data contain no sentences and are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from nexus.compaction.extractive import patterns, statements
from nexus.compaction.extractive.patterns import TOOL_WORDS, Kind
from nexus.compaction.extractive.statements import ExtractedLine, limit_length, sentences, truncate_line
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Text, ToolCall, ToolResult

RULE_WEIGHT, VALUE_WEIGHT, PROSE_WEIGHT = 48, 42, 30
LONE = 3
"""Up to this many sentences in a result stand out from the data around them and weigh more; only they may be plain."""
LONE_GAIN = 8
_QUOTE_CHARS, _SOURCE_CHARS, _WRAPPED_CHARS = 200, 48, 50

_LEAD = re.compile(
    r"^\s*(?:[^\s:]{1,200}\.\w{1,8}[:-])?(?:\d{1,6}\s*(?:→|[:|-]\s|\t|[:-](?=\s|//|#)))?\s*(?:#+|//+|/?\*+|--+|;+|<!--|>|[-+•]|\d{1,3}[.)])?\s*"
)
_ENDS, _CLOSING = (".", "!", "。", "！"), "\"'”’)]"
_TO_THE_READER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|above|previous)|\b(?:assistant|ai model|language model|"
    r"system prompt)\b|\byou (?:must|should|are|will|have to|need to)\b",
    re.IGNORECASE,
)
_REFERS_BACK = re.compile(
    r"\W{0,3}(?:this|that|these|those|it|its|they|he|she|there|here|so|also|then)\b", re.IGNORECASE
)
"""A sentence that says nothing without the one before it."""
_QUOTED = re.compile(r"In .{1,60}: “.{1,300}”\Z")


def is_quoted(line: str) -> bool:
    """Return true if a line of a summary quotes tool output."""
    return _QUOTED.match(line) is not None


def tool_statements(rows: Iterable[StoredMessage]) -> list[ExtractedLine]:
    """Return the sentences of tool results that state a rule or an exact value, and lone sentences.

    Time is linear in the text.
    """
    calls: dict[str, ToolCall] = {}
    findings: dict[str, ExtractedLine] = {}  # by sentence: the newest source of each
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and not part.is_error:
                if part.call_id in calls and _bare_name(calls[part.call_id]) in _WRITE_TOOLS:
                    continue  # what a writing tool prints is about itself
                source = _source_of(calls[part.call_id]) if part.call_id in calls else "a result"
                weighed = list(_weighed_sentences(_result_text(part)))
                gain = LONE_GAIN if len(weighed) <= LONE else 0
                for sentence, weight in weighed:
                    if not (weight or gain):
                        continue
                    line = f"In {truncate_line(source, _SOURCE_CHARS)}: “{redact(sentence).text}”"
                    findings.pop(sentence, None)
                    findings[sentence] = ExtractedLine("fact", line, row.ref, (weight or PROSE_WEIGHT) + gain)
    return list(findings.values())


def _result_text(result: ToolResult) -> str:
    """Return the text of a result. Its lines may still have secrets, except those of several lines."""
    text = "\n".join(item.text for item in result.content if isinstance(item, Text))
    text = statements.strip_markup(limit_length(text))
    return redact(text).text if "-----BEGIN" in text else text


def _weighed_sentences(text: str) -> Iterator[tuple[str, int]]:
    """Yield the complete sentences of a text (of the strings in it if it is JSON): of a rule, of a value, others with 0."""
    before = ""
    for line in (line for piece in _strings(text) for line in piece.split("\n")):
        previous, before = before, line
        if not _ends_sentence(line) or not (bare := _without_lead(line)):
            continue
        previous = _without_lead(previous)
        # After a long line that does not end one, the first sentence is the rest of another.
        is_rest = len(previous) >= _WRAPPED_CHARS and previous[-1].isalnum() and statements.is_prose(previous)
        for sentence in [*sentences(bare)][is_rest:]:
            first = next((letter for letter in sentence if letter.isalnum()), "")
            if first.islower() or not _ends_sentence(sentence) or len(sentence) > _QUOTE_CHARS:
                continue
            if statements.word_count(sentence) < statements.MIN_WORDS or not statements.is_prose(sentence):
                continue
            if _TO_THE_READER.search(sentence):
                continue
            kind = patterns.cued_kind(sentence, by_user=True)
            if kind in ("constraint", "preference") and not patterns.is_soft(sentence):
                yield sentence, RULE_WEIGHT
            elif statements.has_figure(sentence):
                yield sentence, VALUE_WEIGHT
            elif _REFERS_BACK.match(sentence) is None:
                yield sentence, 0


def _ends_sentence(line: str) -> bool:
    """Return true for a line that ends with the end of a sentence and at most two closing marks."""
    line = line.rstrip()
    return line.rstrip(_CLOSING).endswith(_ENDS) and line[-3:].rstrip(_CLOSING) != ""


def _without_lead(line: str) -> str:
    """Return a line without the place, number or mark before its text."""
    return _LEAD.sub("", line, count=1).strip()


def _strings(text: str) -> Iterator[str]:
    """Yield the strings of a JSON object or array; any other text as it is."""
    try:
        values: list[Any] = [json.loads(text)] if text.lstrip()[:1] in ("{", "[") else [text]
    except (ValueError, RecursionError):
        values = [text]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            values.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            values.extend(cast("dict[str, Any]", value).values())


def _source_of(call: ToolCall) -> str:
    """Return the source of a call's result in a few words: the tool with a file name, or the command."""
    arguments = _arguments(call)
    if path := _path(arguments):
        return redact(f"{truncate_line(call.name, 30)} {path.rsplit('/', 1)[-1]}").text
    command = _command(arguments)
    return _label(call, command) if command else truncate_line(call.name, 60)


_READ_TOOLS, _WRITE_TOOLS, _SHELL_TOOLS = (frozenset(TOOL_WORDS[kind]) for kind in ("read", "write", "shell"))
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(\S[^\r\n]{0,300})", re.MULTILINE)
_NAME = r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s;&|<>()'\"`$]{1,200}))"
_WRITES = re.compile(
    rf"(?<![0-9&<>=-])(?:>>?|\btee(?: -a)?)[ \t]{{0,3}}(?![&>(]){_NAME}|\bsed -i\S* [^\n]{{1,300}}? {_NAME}(?=\s*(?:$|[;&|\n]))"
)
_READS = re.compile(rf"(?:^|[;&|]\s*)(?:cat|less|head|tail|bat)(?: -\S+(?: \d+)?){{0,3}} (?!<<){_NAME}")
_FAILED = re.compile(
    r"\b(?:[A-Z][A-Za-z]{2,40}(?:Error|Exception)\b|error\b[:\[ ]|ERR!|fatal:|panic:|Traceback|FAILED\b|command not found|"
    r"No such file|[Pp]ermission denied|[Ee]xit code:? [1-9]|exited with [1-9]|cannot find|AssertionError|\d+ failed\b)",
    re.IGNORECASE,
)
_NO_ERRORS = re.compile(r"\b(?:0 errors?|no errors?|0 failed|without errors?)\b", re.IGNORECASE)
_CHANGES_FOLDER = re.compile(r"^\s*cd [^\n&;]{1,300}(?:&&|;)\s*")
_LOOKS = re.compile(
    r"\s*(?:ls|cd|pwd|cat|echo|head|tail|grep|rg|find|wc|which|tree|sed -n|git (?:status|log|diff|show|branch|fetch|blame))\b"
)
_TAG = re.compile(r"\s*</?[\w-]{1,40}>\s*")
_ERROR_TAG = re.compile(r"</?tool_use_error>")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(slots=True)
class _Activity:
    """State of one pass over the tool calls."""

    # call id: the call and its shell command
    waiting: dict[str, tuple[ToolCall, str]] = field(default_factory=dict[str, tuple[ToolCall, str]])
    # path: "changed" or "read", and where last
    files: dict[str, tuple[str, MessageRef]] = field(default_factory=dict[str, tuple[str, MessageRef]])
    # unsolved errors by tool and target, and the files changed since
    errors: dict[str, tuple[ExtractedLine, list[str]]] = field(
        default_factory=dict[str, tuple[ExtractedLine, list[str]]]
    )
    solved: list[ExtractedLine] = field(default_factory=list[ExtractedLine])
    commands: dict[str, ExtractedLine] = field(default_factory=dict[str, ExtractedLine])


def tool_activity(rows: Iterable[StoredMessage]) -> list[ExtractedLine]:
    """Return files, commands and errors of the tool calls; for a repeated command only the last outcome."""
    state = _Activity()
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                _add_call(state, part, row.ref)
            elif isinstance(part, ToolResult) and part.call_id in state.waiting:
                _add_result(state, part, row.ref)
    files = [
        ExtractedLine("file", f"{fate} {path}", place, 60 if fate == "changed" else 25)
        for path, (fate, place) in state.files.items()
    ]
    return [*files, *state.commands.values(), *state.solved, *(error for error, _ in state.errors.values())]


def _add_call(state: _Activity, call: ToolCall, place: MessageRef) -> None:
    """Add the files that a call reads or changes, and keep the call until its result."""
    arguments = _arguments(call)
    name = _bare_name(call)
    command = _command(arguments) if name in _SHELL_TOOLS or "command" in arguments else ""
    files: list[tuple[str, str]] = []
    if name in _READ_TOOLS or arguments.get("command") == "view":
        files = [("read", _path(arguments))]
    elif name in _WRITE_TOOLS:
        text = next((text for text in arguments.values() if isinstance(text, str)), call.arguments)
        files = [("changed", path) for path in (_path(arguments), *_PATCHED.findall(limit_length(text)))]
    else:
        # The lines after a heredoc's first are content: a ">" in them redirects nothing.
        heredoc = _HEREDOC.search(command)
        script = (
            command[: command.find("\n", heredoc.end())] if heredoc and "\n" in command[heredoc.end() :] else command
        )
        for fate, form in (("changed", _WRITES), ("read", _READS)):
            paths = (next(filter(None, hit.groups()), "") for hit in form.finditer(script[:8000]))
            files += [(fate, path) for path in paths if not path.startswith("-")]
    for fate, argument in files:
        path = redact(truncate_line(argument, 200)).text.strip()
        if not path or path.startswith(("/dev/", "/proc/")) or path.isdigit():
            continue
        before = state.files.pop(path, ("", place))[0]
        state.files[path] = ("changed" if "changed" in (before, fate) else fate, place)
        for _, changed in state.errors.values():
            if fate == "changed" and path not in changed:
                changed.append(path)
    if call.id:
        state.waiting[call.id] = (call, command)


def _add_result(state: _Activity, result: ToolResult, place: MessageRef) -> None:
    """Add the outcome of a call: an error, the solution of an earlier one, or what a command printed last."""
    call, command = state.waiting.pop(result.call_id)
    name = _bare_name(call)
    label = _label(call, command)
    # A later try of a command often has other options: its first three words identify it.
    key = f"{name} {' '.join(command.split()[:3]) if command else _path(_arguments(call))}"
    reads = name in _READ_TOOLS or name.startswith(TOOL_WORDS["quiet"])
    only_looks = _LOOKS.match(_CHANGES_FOLDER.sub("", command)) is not None
    failed = result.is_error
    text = "" if reads and not failed else _ERROR_TAG.sub("", _result_text(result))
    if command and not reads and not only_looks:
        # Many shell tools report a failing command as a successful call; what a file says of errors is content.
        failed = failed or _FAILED.search(_NO_ERRORS.sub("", text[-4000:])) is not None
    if failed:
        lines = [line for line in text.split("\n") if line.strip()] or ["failed"]
        # "Traceback (most recent call last)" is followed by the error itself.
        errors = [line for line in lines[-200:] if _FAILED.search(line) and "Traceback" not in line]
        # A program prints its error last, a tool says first what is wrong.
        error = redact((errors or lines)[-1] if command else lines[0]).text
        line = f"{label}: {truncate_line(error, 180)}"
        state.errors[key] = ExtractedLine("error", truncate_line(line, 300), place, 75 if command else 60), []
    elif key in state.errors:
        error, changed = state.errors.pop(key)
        how = f"— solved after changing {', '.join(changed[-3:])}" if changed else "— solved: a later try passed"
        line = f"{truncate_line(error.text, 200)} {truncate_line(how, 160)}"
        state.solved.append(ExtractedLine("error", line, place, 40))
    state.commands.pop(label, None)
    if not reads and name not in _WRITE_TOOLS and not failed:
        kind: Kind = "command" if command else "done"
        printed = [
            line for line in text[-4000:].split("\n") if any(map(str.isalnum, line)) and not _TAG.fullmatch(line)
        ]
        line = truncate_line(f"{label} → {truncate_line(redact(printed[-1]).text, 110)}" if printed else label, 220)
        state.commands[label] = ExtractedLine(kind, line, place, (30 if only_looks else 45) if command else 55)


def _label(call: ToolCall, command: str) -> str:
    if command:
        steps = (line for line in command.split("\n") if line.strip() and not line.lstrip().startswith("#"))
        return f"`{redact(truncate_line(next(steps, command), 100)).text.replace('`', chr(39))}`"
    arguments = _arguments(call)
    if path := _path(arguments):
        return redact(f"{truncate_line(call.name, 60)}({truncate_line(path, 200)})").text
    texts = (
        f"{key}={truncate_line(value if isinstance(value, str) else msgspec.json.encode(value).decode(errors='replace'), 60)}"
        for key, value in arguments.items()
    )
    return redact(truncate_line(f"{call.name}({', '.join(texts)})", 140)).text


def _bare_name(call: ToolCall) -> str:
    """Return the tool's name in lower case without the prefix of an MCP server (`mcp__fs__read_file`)."""
    return call.name.rsplit("__", 1)[-1].lower()


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}


def _command(arguments: dict[str, Any]) -> str:
    for name in TOOL_WORDS["command_arguments"]:
        value = arguments.get(name)
        if isinstance(value, list):
            words = [str(item) for item in cast("list[Any]", value)]
            shell = words[:2] in (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"])
            value = words[-1] if shell else " ".join(words)
        if isinstance(value, str):
            return limit_length(value).strip()
    return ""


def _path(arguments: dict[str, Any]) -> str:
    """Return the first argument that is a path; empty if there is none."""
    values = (arguments.get(name) for name in TOOL_WORDS["path_arguments"])
    return next((path.strip() for path in values if isinstance(path, str) and path.strip() and "\n" not in path), "")
