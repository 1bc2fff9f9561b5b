"""What results of tools say in sentences: rules and values in files, pages and records, each with where it was found.

A sentence in a result is material and nobody's order, so it is kept in quotation marks, weighs little, and is left out
where it speaks to the assistant. Code, tables, logs and bare data have no sentences and are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive.patterns import Kind
from nexus.compaction.extractive.statements import (
    LEAST_WORDS,
    WIDE,
    ExtractedLine,
    has_figure,
    is_prose,
    limit_length,
    sentences,
    truncate_line,
)
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage
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


def tool_statements(rows: Iterable[StoredMessage]) -> list[ExtractedLine]:
    """The sentences of the results in these rows that state a rule or an exact value. Time is linear in the text."""
    calls: dict[str, ToolCall] = {}
    found: list[ExtractedLine] = []
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and not part.is_error:
                where = source_of(calls[part.call_id]) if part.call_id in calls else "a result"
                text = redact(
                    limit_length("\n".join(item.text for item in part.content if isinstance(item, Text)))
                ).text
                for sentence in _prose(text):
                    if weight := _weight(sentence):
                        line = f"In {truncate_line(where, WHERE_CHARS)}: “{sentence}”"
                        found.append(ExtractedLine("fact", line, row.place, weight))
    return found


def _weight(sentence: str) -> int:
    if _TO_THE_READER.search(sentence) is not None:
        return 0
    if cues.requested_kind(sentence) in ("constraint", "preference") and not cues.is_soft(sentence):
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


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


READ_TOOLS = _names(
    "read read_file readfile cat open open_file view view_file get_file get_file_contents notebookread read_text_file"
)
WRITE_TOOLS = _names(
    "write write_file edit edit_file multiedit multi_edit apply_patch applypatch create_file notebookedit update_file "
    "replace_in_file write_to_file str_replace_editor str_replace_based_edit_tool search_replace insert delete_file "
    "append_file patch"
)
SHELL_TOOLS = _names(
    "bash shell sh run exec execute terminal run_command execute_command run_terminal_cmd local_shell powershell "
    "exec_command shell_command container.exec"
)
"""Usual names of tools that agents have, in lower case."""

_QUIET = (
    "get",
    "list",
    "search",
    "find",
    "fetch",
    "query",
    "read",
    "think",
    "calculate",
    "grep",
    "glob",
    "ls",
    "web",
    "todo",
    "task",
    "exitplan",
    "update_plan",
    "view",
)
_PATHS = (
    "file_path",
    "path",
    "filename",
    "file",
    "notebook_path",
    "target_file",
    "filepath",
    "file_name",
    "absolute_path",
)
_COMMANDS = ("command", "cmd", "script", "commands")
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
_CLEAN = re.compile(r"\b(?:0 errors?|no errors?|0 failed|without errors?)\b", re.IGNORECASE)
_CHANGES_FOLDER = re.compile(r"^\s*cd [^\n&;]{1,300}(?:&&|;)\s*")
_LOOKS = re.compile(
    r"\s*(?:ls|cd|pwd|cat|echo|head|tail|grep|rg|find|wc|which|tree|sed -n|git (?:status|log|diff|show|branch|fetch|blame))\b"
)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(slots=True)
class _Work:
    """What is known so far: calls that wait for their result, the last error of each kind of call, files by their fate."""

    waiting: dict[str, tuple[ToolCall, MessageRef, str]] = field(
        default_factory=dict[str, tuple[ToolCall, MessageRef, str]]
    )
    files: dict[str, tuple[str, MessageRef]] = field(default_factory=dict[str, tuple[str, MessageRef]])
    errors: dict[str, ExtractedLine] = field(default_factory=dict[str, ExtractedLine])
    since: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    solved: list[ExtractedLine] = field(default_factory=list[ExtractedLine])
    commands: dict[str, ExtractedLine] = field(default_factory=dict[str, ExtractedLine])


def tool_activity(rows: Iterable[StoredMessage]) -> list[ExtractedLine]:
    """Files, commands and errors of the tool calls in these rows; of a command that was run again, the last outcome."""
    work = _Work()
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                _asked(work, part, row.place)
            elif isinstance(part, ToolResult) and part.call_id in work.waiting:
                _answered(work, part, row.place)
    found = [
        ExtractedLine("file", f"{fate} {path}", place, 60 if fate == "changed" else 25)
        for path, (fate, place) in work.files.items()
    ]
    return [*found, *work.commands.values(), *work.solved, *work.errors.values()]


def _asked(work: _Work, call: ToolCall, place: MessageRef) -> None:
    given = _arguments(call)
    name = call.name.rsplit("__", 1)[-1].lower()
    command = _command(given) if name in SHELL_TOOLS or "command" in given else ""
    if name in READ_TOOLS or given.get("command") == "view":
        touched = [("read", path) for path in _paths(given)]
    elif name in WRITE_TOOLS:
        patched = _PATCHED.findall(
            limit_length(next((text for text in given.values() if isinstance(text, str)), call.arguments))
        )
        touched = [("changed", path) for path in (*_paths(given), *patched)]
    else:
        touched = list(_touched(command))
    for fate, path in touched:
        _touch(work, fate, path, place)
    if call.id:
        work.waiting[call.id] = (call, place, command)


def _touch(work: _Work, fate: str, path: str, place: MessageRef) -> None:
    path = redact(truncate_line(path, 200)).text.strip()
    if not path or path.startswith(("/dev/", "/proc/")) or path.isdigit():
        return
    before = work.files.pop(path, ("", place))[0]
    work.files[path] = ("changed" if "changed" in (before, fate) else fate, place)
    if fate == "changed":
        for changed in work.since.values():
            if path not in changed:
                changed.append(path)


def _answered(work: _Work, result: ToolResult, place: MessageRef) -> None:
    call, _, command = work.waiting.pop(result.call_id)
    name = call.name.rsplit("__", 1)[-1].lower()
    text = redact(limit_length("\n".join(part.text for part in result.content if isinstance(part, Text)))).text
    said = _shown(call, command)
    key = f"{name} {' '.join(command.split()[:3])}" if command else f"{name} {next(iter(_paths(_arguments(call))), '')}"
    reads = name in READ_TOOLS or name.startswith(_QUIET)
    failed = result.is_error or (bool(command) and not reads and _says_failed(text))
    if failed:
        line = _error_line(text)
        work.errors[key] = ExtractedLine("error", truncate_line(f"{said}: {line}", 300), place, 75 if command else 60)
        work.since[key] = []
    elif key in work.errors:
        error, changed = work.errors.pop(key), work.since.pop(key, [])
        how = f"— solved after changing {', '.join(changed[-3:])}" if changed else "— solved: a later try passed"
        work.solved.append(
            ExtractedLine("error", f"{truncate_line(error.text, 200)} {truncate_line(how, 160)}", place, 40)
        )
    work.commands.pop(said, None)
    if not reads and name not in WRITE_TOOLS and not failed:
        kind: Kind = "command" if command else "done"
        outcome = _last_line(text)
        line = truncate_line(f"{said} → {outcome}" if outcome else said, 220)
        work.commands[said] = ExtractedLine(kind, line, place, (30 if _trivial(command) else 45) if command else 55)


def source_of(call: ToolCall) -> str:
    """Where a call's result came from, in a few words: the command, or the tool with the file's own name if it has one."""
    given = _arguments(call)
    if path := next(_paths(given), ""):
        return redact(f"{truncate_line(call.name, 30)} {path.rsplit('/', 1)[-1]}").text
    command = _command(given)
    return _shown(call, command) if command else truncate_line(call.name, 60)


def _shown(call: ToolCall, command: str) -> str:
    if command:
        first = next(
            (line for line in command.split("\n") if line.strip() and not line.lstrip().startswith("#")), command
        )
        return f"`{redact(truncate_line(first, 100)).text.replace('`', chr(39))}`"
    given = _arguments(call)
    if path := next(_paths(given), ""):
        return redact(f"{truncate_line(call.name, 60)}({truncate_line(path, 200)})").text
    parts = ", ".join(f"{key}={truncate_line(_brief(value), 60)}" for key, value in given.items())
    return redact(truncate_line(f"{call.name}({parts})", 140)).text


def _trivial(command: str) -> bool:
    """Whether a command only looks at something."""
    return _LOOKS.match(_CHANGES_FOLDER.sub("", command)) is not None


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode(errors="replace")


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}


def _command(given: dict[str, Any]) -> str:
    for name in _COMMANDS:
        value = given.get(name)
        if isinstance(value, str):
            return limit_length(value).strip()
        if isinstance(value, list):
            words = [str(word) for word in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return limit_length(
                words[-1] if words[:2] in (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"]) else " ".join(words)
            ).strip()
    return ""


def _paths(given: dict[str, Any]) -> Iterator[str]:
    for name in _PATHS:
        value = given.get(name)
        if isinstance(value, str) and value.strip() and "\n" not in value:
            yield value.strip()
            return


def _touched(command: str) -> Iterator[tuple[str, str]]:
    """The files that a shell command writes by redirection, `tee` or `sed -i`, and those it prints."""
    heredoc = _HEREDOC.search(command)
    script = command[: command.find("\n", heredoc.end())] if heredoc and "\n" in command[heredoc.end() :] else command
    for fate, form in (("changed", _WRITES), ("read", _READS)):
        for hit in form.finditer(script[:8000]):
            path = next((group for group in hit.groups() if group), "")
            if path and not path.startswith("-"):
                yield fate, path


def _says_failed(text: str) -> bool:
    return _FAILED.search(_CLEAN.sub("", text[-4000:])) is not None


def _error_line(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    told = [line for line in lines[-200:] if _FAILED.search(line) and "Traceback" not in line]
    return truncate_line((told or lines or ["failed"])[-1], 180)


def _last_line(text: str) -> str:
    lines = [line for line in text[-4000:].split("\n") if any(letter.isalnum() for letter in line)]
    return truncate_line(lines[-1], 110) if lines else ""
