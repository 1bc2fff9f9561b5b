"""Findings of tool calls: files, commands and errors, values that are used again, and lone sentences in results.

Tool output is data, not instructions, and most of it is content that can be read again. Two things are kept: a value that
the user or a later call uses, and a sentence that is alone among data. Sentences that address the assistant are dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.summarization.extractive import patterns, statements
from nexus.summarization.extractive.patterns import TOOL_WORDS
from nexus.summarization.extractive.statements import (
    ExtractedLine,
    ends_sentence,
    limit_length,
    sentences,
    truncate_line,
)
from nexus.text.late_pattern import late_pattern
from nexus.text.message_text import typed_text
from nexus.text.redact import redact
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Text, ToolCall, ToolResult

RULE_WEIGHT = 56
VALUE_WEIGHT = 50
PROSE_WEIGHT = 38
USED_WEIGHT = 24
LONE = 3
"""A result with more sentences than this is prose, and none of them is alone."""
_QUOTE_CHARS = 200
_SOURCE_CHARS = 48
_WRAPPED_CHARS = 50

_TO_THE_READER = late_pattern(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|above|previous)|\b(?:assistant|ai model|language model|"
    r"system prompt)\b|\byou (?:must|should|are|will|have to|need to)\b|^your?\b|^(?:use|run|see|try|type) [\"'`]",
    re.IGNORECASE,
)
_FIRST_WORD = late_pattern(r"[\"'“‘(]?[^\W\d_][^\W\d_'’-]*(?:['’-][^\W\d_]+)*[,;:]?(?: |[\u3400-\u9fff]|$)")
_QUOTED = late_pattern(r"In .{1,60}: “.{1,300}”\Z|[\w.-]{2,42} = \S{4,80} \(.{1,60}\)\Z")
_PAIR = late_pattern(r"""["']?\b([A-Za-z][A-Za-z_.-]{1,40})["']?(?::| ?=) ?["']?([\w@.+-]{4,80})(?![\w(\[/:])""")
"""A name with its value, in JSON, settings, headers and shell output."""
_TOKEN = late_pattern(r"[\w@.+-]{4,80}")
_PLAIN_VALUE = late_pattern(r"\D*\Z|[\d.,-]{1,3}\Z|\d{4}-\d\d-\d\d|\d+\.\d+\Z")
"""A value that does not identify anything: without a digit, a small number, a date or a measurement."""

_CHANGING_NAME = late_pattern(r"head|sha|oid|commit|count|size|time|line|index|total|hash", re.IGNORECASE)
"""Names of values that the next step may change."""


def is_quoted(line: str) -> bool:
    """Return true if a line of a summary is from tool output: a quotation, or a value with its name and source."""
    return _QUOTED.match(line) is not None


def tool_statements(rows: Iterable[StoredMessage]) -> list[ExtractedLine]:
    """Return the values of tool results that the user or a later call uses, and lone sentences of results.

    Time is linear in the text.
    """
    calls: dict[str, ToolCall] = {}
    sentences_by_text: dict[str, ExtractedLine] = {}  # the newest source of each
    used: dict[str, ExtractedLine] = {}  # by value
    waiting: dict[str, tuple[str, str, MessageRef]] = {}  # by value: name and source, until it is used
    seen: set[str] = set()

    def use(text: str) -> None:
        for token in map(_without_stop, _TOKEN.findall(limit_length(text))):
            seen.add(token)
            origin = waiting.pop(token, None)
            if origin is not None:
                name, source, place = origin
                line = redact(f"{name} = {token} ({source})").text
                used[token] = ExtractedLine("fact", line, place, USED_WEIGHT)

    for row in rows:
        if row.message.role == "user":
            use(typed_text(row.message))
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
                writes = _bare_name(part) in _WRITE_TOOLS
                use(_path(_arguments(part)) if writes else part.arguments)  # what is written uses no value
            elif isinstance(part, ToolResult):
                call = calls.get(part.call_id)
                source = truncate_line(_source_of(call), _SOURCE_CHARS)
                text = _result_text(part)
                for name, value in _identifying_values(text):
                    if value not in seen:
                        waiting[value] = (name, source, row.ref)
                # What an error and a writing tool say at the beginning and end is about the call.
                about_call = part.is_error or (call is not None and _bare_name(call) in _WRITE_TOOLS)
                for sentence, weight in _lone_sentences(text, between_data=about_call):
                    line = f"In {source}: “{redact(sentence).text}”"
                    sentences_by_text.pop(sentence, None)
                    sentences_by_text[sentence] = ExtractedLine("fact", line, row.ref, weight)
    return [*used.values(), *sentences_by_text.values()]


def _without_stop(token: str) -> str:
    return token.rstrip(".-+")


def _identifying_values(text: str) -> Iterator[tuple[str, str]]:
    """Yield the values in a text that identify something, each behind its name."""
    for name, raw_value in _PAIR.findall(text):
        value = _without_stop(raw_value)
        if _PLAIN_VALUE.match(value) is None and _CHANGING_NAME.search(name) is None:
            yield name, value


def _result_text(result: ToolResult) -> str:
    """Return the text of a result. Its lines may still have secrets, except those of several lines."""
    text = "\n".join(item.text for item in result.content if isinstance(item, Text))
    text = statements.strip_markup(limit_length(text))
    if "-----BEGIN" in text:
        return redact(text).text
    return text


def _lone_sentences(text: str, *, between_data: bool) -> list[tuple[str, int]]:
    """Return the sentences that are alone on a line among data, with their weights.

    Lines that begin with a number, a mark or blanks are content of files, comments and lists. A result with more than
    LONE sentences is prose, and so is a line next to an unfinished one.

    Args:
        text: Text of a result; if it is JSON, its strings are searched.
        between_data: Ignore the first and last line.
    """
    weighed: list[tuple[str, int]] = []
    for piece in _strings(text):
        lines = [line for line in piece.split("\n") if line.strip()]
        for at, line in enumerate(lines):
            if not (_is_prose_line(line) and ends_sentence(line)) or line.rstrip().endswith("..."):
                continue
            line_sentences = list(sentences(line))
            if len(weighed) + len(line_sentences) > LONE:
                return []
            neighbors = [*lines[max(at - 1, 0) : at], *lines[at + 1 : at + 2]]
            is_alone = len(neighbors) == 2 or not between_data
            if any(_is_prose_line(other) and not ends_sentence(other) for other in neighbors):
                is_alone = False
            for sentence in line_sentences:
                weight = _lone_weight(sentence) if is_alone else 0
                weighed.append((sentence, weight))
    return [(sentence, weight) for sentence, weight in weighed if weight]


def _lone_weight(sentence: str) -> int:
    """Return the weight of a lone sentence: of a rule, of a value, of any other; 0 if it means nothing alone."""
    if sentence[0].islower() or not ends_sentence(sentence) or len(sentence) > _QUOTE_CHARS:
        return 0
    if not _is_prose_line(sentence) or _TO_THE_READER.search(sentence):
        return 0
    kind = patterns.cued_kind(sentence, by_user=True)
    if kind in ("constraint", "preference") and not patterns.is_soft(sentence):
        return RULE_WEIGHT
    if patterns.is_volatile(sentence):
        return 0
    if statements.has_figure(sentence):
        return VALUE_WEIGHT
    return PROSE_WEIGHT


def _is_prose_line(line: str) -> bool:
    """Return true for a line of words that begins with one and is a sentence or a long part of one."""
    return (
        _FIRST_WORD.match(line) is not None
        and statements.word_count(line) >= statements.MIN_WORDS
        and statements.is_prose(line)
        and (ends_sentence(line) or (len(line) >= _WRAPPED_CHARS and line[-1].isalnum()))
    )


def _strings(text: str) -> Iterator[str]:
    """Yield the strings of a JSON object or array; any other text as it is."""
    values: list[Any] = [text]
    if text.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            values = [json.loads(text)]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            values.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            values.extend(cast("dict[str, Any]", value).values())


def _source_of(call: ToolCall | None) -> str:
    """Return the source of a call's result in a few words: the tool with a file name, or the command."""
    if call is None:
        return "a result"
    arguments = _arguments(call)
    path = _path(arguments)
    if path:
        return redact(f"{truncate_line(call.name, 30)} {path.rsplit('/', 1)[-1]}").text
    command = _command(arguments)
    if command:
        return _label(call, command)
    return truncate_line(call.name, 60)


_READ_TOOLS, _WRITE_TOOLS, _SHELL_TOOLS = (frozenset(TOOL_WORDS[kind]) for kind in ("read", "write", "shell"))
_PATCHED = late_pattern(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(\S[^\r\n]{0,300})", re.MULTILINE)
_NAME = r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s;&|<>()'\"`$]{1,200}))"
_WRITES = late_pattern(
    rf"(?<![0-9&<>=-])(?:>>?|\btee(?: -a)?)[ \t]{{0,3}}(?![&>(]){_NAME}|\bsed -i\S* [^\n]{{1,300}}? {_NAME}(?=\s*(?:$|[;&|\n]))"
)
_READS = late_pattern(rf"(?:^|[;&|]\s*)(?:cat|less|head|tail|bat)(?: -\S+(?: \d+)?){{0,3}} (?!<<){_NAME}")
_EXIT = late_pattern(
    r"(?:(?:process |command )?(?:exited|failed|finished)?,? ?(?:with )?(?:exit )?(?:code|status):? [1-9]\d{0,2}\b|exit: [1-9])",
    re.IGNORECASE,
)
"""The exit status that a shell tool prints for a failed command, at the beginning of its first or last line."""
_EXIT_FIELD = late_pattern(r"\s*\{.{0,60000}\"(?:exit_?code|returncode)\": ?(?:-\d|[1-9])", re.DOTALL | re.IGNORECASE)
_FAILED = late_pattern(
    r"(?:[\w./\\-]{1,80}: ){0,2}(?:\[?(?:fatal|panic|error)(?:\]|\[\w{1,12}\])?(?:: | (?=TS\d))|npm (?:ERR!|error)|ERR!|Traceback \(most recent|FAILED\b|"
    r"FAIL\b|make(?:\[\d+\])?: \*\*\*|.{0,200}(?:command not found|No such file or directory|[Pp]ermission denied)$|"
    r"(?:[a-z]\w*\.)*[A-Z]\w{0,60}(?:Error|Exception): )"
    r"|=* ?\d{1,6} failed\b|\[[\w:-]{1,40}\] ERROR "
)
"""The beginning of a line in which a program says that it failed."""
_STATUS_LINES = 3
_CHANGES_FOLDER = late_pattern(r"^\s*cd [^\n&;]{1,300}(?:&&|;)\s*")
_LOOKS = late_pattern(
    r"\s*(?:ls|cd|pwd|cat|echo|head|tail|grep|rg|find|wc|which|tree|sed -n|git (?:status|log|diff|show|branch|fetch|blame))\b"
)
_FILTERS = late_pattern(r"\|\s*(?:grep|rg|jq|awk|sed|cut)\b[^|]*$")
"""The end of a command that prints lines of another one's output."""
_REMOVES = late_pattern(rf"(?:^|[;&|]\s*)(?:git )?rm(?: -\S+){{0,3}} {_NAME}")
_DENIED = late_pattern(r"\s*The user doesn['’]t want to proceed.{0,400}?(?:the user said:\s*(.+)|\Z|$)", re.DOTALL)
"""The text that Claude Code returns for a call that the user rejects, and the user's reason."""
_NO_OUTPUT = late_pattern(r"</?[\w-]{1,40}>\Z|Shell cwd was reset")
_NO_PATH = late_pattern(r"[\dTZ:.+-]+\Z")
"""A number or time after a comparison sign."""
_FATES = frozenset({"read", "changed", "removed"})
_SOLVED = "— solved"
_OPTIONS = late_pattern(
    r"\"[^\"]*(?:\"|$)|'[^']*(?:'|$)|(?<=\s)-\S+|\s2>&1|\s*\d?>>?\s*\S+|(?<!\|)\|(?!\|).*$|<<.*$|…$"
)
_LABEL_END = late_pattern(r"(?<=[`)]): ")
_ERROR_TAG = late_pattern(r"</?tool_use_error>")
_HEREDOC = late_pattern(r"<<-?\s*['\"]?(\w+)")


class _PendingCall(Struct, frozen=True):
    label: str
    command: str
    """Command of a shell; empty for other tools."""
    reads: bool
    """True if the result is the content of a file, a page or the like."""
    has_outcome: bool
    """False for tools and commands that read or write files: what they print says nothing new."""
    files: tuple[tuple[str, str], ...]
    """What the call does with which path."""
    place: MessageRef


@dataclass(slots=True)
class _Activity:
    """State of one pass over the tool calls; it begins with the lines of the previous summary."""

    waiting: dict[str, _PendingCall] = field(default_factory=dict[str, "_PendingCall"])
    """Calls without a result, by id."""
    files: dict[str, tuple[str, MessageRef]] = field(default_factory=dict[str, tuple[str, MessageRef]])
    """What was last done with each path, and where."""
    errors: dict[str, tuple[ExtractedLine, list[str]]] = field(
        default_factory=dict[str, tuple[ExtractedLine, list[str]]]
    )
    """Unsolved errors by what was tried, and the files changed since."""
    solved: dict[str, ExtractedLine] = field(default_factory=dict[str, ExtractedLine])
    """Solved errors by what was tried."""
    paths: dict[str, str] = field(default_factory=dict[str, str])
    """The newest path that ends with a file name."""
    commands: dict[str, ExtractedLine] = field(default_factory=dict[str, ExtractedLine])
    """Outcomes of commands and other tools, by label."""


def tool_activity(rows: Iterable[StoredMessage], previous: Iterable[ExtractedLine] = ()) -> list[ExtractedLine]:
    """Return files, commands and errors of the tool calls; for a repeated command only the last outcome.

    `previous`: the lines of these kinds in the previous summary; what the calls changed since is changed in them.
    """
    state = _Activity()
    for line in previous:
        _add_previous(state, line)
    for row in rows:
        for part in row.message.parts:
            if isinstance(part, ToolCall):
                _add_call(state, part, row.ref)
            elif isinstance(part, ToolResult) and part.call_id in state.waiting:
                _add_result(state, part, row.ref)
    for pending in state.waiting.values():  # calls without results
        _add_files(state, pending)
    files: list[ExtractedLine] = []
    for path, (fate, place) in state.files.items():
        weight = 25 if fate == "read" else 60
        files.append(ExtractedLine("file", f"{fate} {path}", place, weight))
    errors = (error for error, _ in state.errors.values())
    return [*files, *state.commands.values(), *state.solved.values(), *errors]


def _add_previous(state: _Activity, line: ExtractedLine) -> None:
    if line.kind == "error":
        key = _key(_LABEL_END.split(line.text, maxsplit=1)[0])
        if is_solved(line.text):
            state.solved[key] = line
        else:
            state.errors[key] = (line, [])
        return
    fate, _, path = line.text.partition(" ")
    if line.kind == "file" and fate in _FATES:
        state.files[path] = (fate, line.place)
        state.paths[path.rsplit("/", 1)[-1]] = path
    else:
        state.commands[line.text.partition(" → ")[0]] = line


def _add_call(state: _Activity, call: ToolCall, place: MessageRef) -> None:
    """Keep a call, with the files that it reads, changes or removes, until its result."""
    arguments = _arguments(call)
    name = _bare_name(call)
    command = ""
    if name in _SHELL_TOOLS or "command" in arguments:
        command = _command(arguments)
    files: list[tuple[str, str]] = []
    if name in _READ_TOOLS or arguments.get("command") == "view":
        files.append(("read", _path(arguments)))
    elif name in _WRITE_TOOLS:
        patch = next((text for text in arguments.values() if isinstance(text, str)), call.arguments)
        files.append(("changed", _path(arguments)))
        files += [("changed", path) for path in _PATCHED.findall(limit_length(patch))]
    else:
        script = _without_heredoc(command)[:8000]
        for fate, form in (("changed", _WRITES), ("read", _READS), ("removed", _REMOVES)):
            for match in form.finditer(script):
                path = next(filter(None, match.groups()), "")
                if not path.startswith("-"):
                    files.append((fate, path))
    reads = name in _READ_TOOLS or name.startswith(TOOL_WORDS["quiet"])
    has_outcome = not (reads or name in _WRITE_TOOLS or _only_looks(command))
    pending = _PendingCall(_label(call, command), command, reads, has_outcome, tuple(files), place)
    if call.id:
        state.waiting[call.id] = pending
    else:
        _add_files(state, pending)


def _without_heredoc(command: str) -> str:
    """Return a command without the lines of its heredoc: they are content, and a ">" in them redirects nothing."""
    heredoc = _HEREDOC.search(command)
    if heredoc is None:
        return command
    end = command.find("\n", heredoc.end())
    if end >= 0:
        return command[:end]
    return command


def _add_files(state: _Activity, pending: _PendingCall) -> None:
    """Add what a call did with files."""
    for fate, argument in pending.files:
        path = redact(truncate_line(argument, 200)).text.strip()
        if not path or path.startswith(("/dev/", "/proc/")) or _NO_PATH.match(path):
            continue
        name = path.rsplit("/", 1)[-1]
        if fate == "removed":
            # A command may name a file by the end of its path.
            full_path = state.paths.get(name, "")
            if not full_path.endswith(path) or ("changed", argument) in pending.files:
                continue
            path = full_path
        previous_fate, _ = state.files.pop(path, ("", pending.place))
        stays_changed = fate == "read" and previous_fate == "changed"
        state.files[path] = ("changed" if stays_changed else fate, pending.place)
        state.paths[name] = path
        if fate == "changed":
            for _, changed_paths in state.errors.values():
                if path not in changed_paths:
                    changed_paths.append(path)


def _add_result(state: _Activity, result: ToolResult, place: MessageRef) -> None:
    """Add the outcome of a call: an error, the solution of an earlier one, or what a command printed last."""
    pending = state.waiting.pop(result.call_id)
    label = pending.label
    command = pending.command
    text = ""
    if result.is_error or not pending.reads:
        text = _ERROR_TAG.sub("", _result_text(result))
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    denial = _DENIED.match(text) if result.is_error else None
    if not result.is_error or (command and denial is None):  # a failed command may have changed files before
        _add_files(state, pending)

    key = _key(label)
    # Many shell tools report a failing command as a successful call.
    failed = result.is_error or (not pending.reads and _says_that_it_failed(command, lines, text))
    if failed:
        reason = _failure_reason(lines, denial, is_command=bool(command))
        line = truncate_line(f"{label}: {truncate_line(reason, 180)}", 300)
        state.errors[key] = (ExtractedLine("error", line, place, 75 if command else 60), [])
        state.solved.pop(key, None)
    elif key in state.errors:
        error, changed_paths = state.errors.pop(key)
        if command:  # how a tool is to be called is no lesson for later
            line = f"{truncate_line(error.text, 200)} {truncate_line(_solution(changed_paths), 160)}"
            state.solved[key] = ExtractedLine("error", line, place, 40)

    state.commands.pop(label, None)
    if failed or not pending.has_outcome:
        return
    printed = _last_output(lines)
    outcome = label
    if printed:
        outcome = f"{label} → {truncate_line(redact(printed).text, 110)}"
    line = truncate_line(outcome, 220)
    if command:
        state.commands[label] = ExtractedLine("command", line, place, 45)
    else:
        state.commands[label] = ExtractedLine("done", line, place, 55)


def _only_looks(command: str) -> bool:
    """Return true for a command that only shows files or the state of a repository."""
    return _LOOKS.match(_CHANGES_FOLDER.sub("", command)) is not None


def _last_output(lines: Sequence[str]) -> str:
    """Return the last line that says something; empty if there is none."""
    for line in reversed(lines[-40:]):
        if any(map(str.isalnum, line)) and not _NO_OUTPUT.match(line):
            return line
    return ""


def _failure_reason(lines: list[str], denial: re.Match[str] | None, *, is_command: bool) -> str:
    """Return why a call failed: a program prints its error last, a tool says first what is wrong."""
    if denial is not None:
        if denial[1]:
            return f"denied by the user: {redact(denial[1]).text}"
        return "denied by the user"
    causes = [line for line in lines if _EXIT.match(line) is None] or lines or ["failed"]
    if not is_command:
        return redact(causes[0]).text
    # "Traceback (most recent call last)" is followed by the error itself.
    errors = [line for line in causes[-200:] if _FAILED.match(line) and "Traceback" not in line]
    explained_errors = [line for line in errors if " " in line]  # unlike a mere "FAIL"
    return redact((explained_errors or errors or causes)[-1]).text


def _solution(changed_paths: Sequence[str]) -> str:
    if changed_paths:
        return f"{_SOLVED} after changing {', '.join(changed_paths[-3:])}"
    return f"{_SOLVED}: a later try passed"


def _says_that_it_failed(command: str, lines: Sequence[str], text: str) -> bool:
    """Return true if the exit status, the first lines or the last line of a command's output report a failure.

    Anything else is content: of a file, a diff, a page, a list of past errors.
    """
    if not command:
        return False
    if _EXIT_FIELD.match(text) or any(_EXIT.match(line) for line in (*lines[:1], *lines[-1:])):
        return True
    if _only_looks(command) or _FILTERS.search(command):
        return False
    return any(_FAILED.match(line) for line in (*lines[:_STATUS_LINES], *lines[-1:]))


def _key(label: str) -> str:
    """Return what a call tried: a command without its options, messages and filters, which a later try may change.

    A file is tried again with any tool.
    """
    if label.startswith("`"):
        return " ".join(_OPTIONS.sub("", _CHANGES_FOLDER.sub("", label.strip("`"))).split())
    return label.partition("(")[2] or label


def is_solved(error: str) -> bool:
    """Return true if the line of an error has its solution."""
    return _SOLVED in error


def _label(call: ToolCall, command: str) -> str:
    if command:
        steps = (line for line in command.split("\n") if line.strip() and not line.lstrip().startswith("#"))
        step = redact(truncate_line(next(steps, command), 100)).text
        return f"`{step.replace('`', chr(39))}`"
    arguments = _arguments(call)
    path = _path(arguments)
    if path:
        return redact(f"{truncate_line(call.name, 60)}({truncate_line(path, 200)})").text
    texts: list[str] = []
    for key, value in arguments.items():
        if isinstance(value, str):
            text = value
        else:
            text = msgspec.json.encode(value).decode(errors="replace")
        texts.append(f"{key}={truncate_line(text, 60)}")
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
    for name in TOOL_WORDS["path_arguments"]:
        path = arguments.get(name)
        if isinstance(path, str) and path.strip() and "\n" not in path:
            return path.strip()
    return ""
