"""Turn logs (document 001): a conversation as one JSON array of numbered entries, read as a transcript to import.

`write` and `console` write and show them, `check` checks them.

When a log is read, an entry is one message, a compaction or a clear; entries whose extra key says so are one message
together. The key counts only if it gives the same entry again: an edited entry is read as it is shown. Details without
a place in a message (the user's id, times and indexes of another program) are kept in the entry's body, so that the log
can be written unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import UnreadableFile
from nexus.interop.json_lines import OnRead
from nexus.interop.readers import FileReader
from nexus.interop.transcript import FileReport, Problem, Step, Transcript, TranscriptPiece, group_into_turns
from nexus.turnlog import times
from nexus.turnlog.check import ReadEntry, Violation, object_of, read_entries, read_text, violations
from nexus.turnlog.console import console_lines
from nexus.turnlog.entries import (
    EXTRA,
    FIELDS,
    FINISH,
    LOG_ROLES,
    NO_SYSTEM,
    NO_USER,
    SUMMARY,
    LogPosition,
    Unit,
    entry_text,
    message_of,
    message_with,
    parse_bare,
    parts_with,
    results_extra,
    results_with,
)
from nexus.turnlog.json_text import canonical, members, minified, object_text, string_of, value_text
from nexus.turnlog.write import FACTS, OLDER, UNPOSTED, entries_for, log_entries, log_texts
from nexus.types.history import UNANSWERED
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Part

__all__ = ["Violation", "console_lines", "log_text", "read", "read_text", "violations"]


def log_text(entries: Iterable[Entry], undone: Collection[int] = ()) -> str:
    """Return a session's turn log as the text of a JSON file, without the undone compactions in `undone`."""
    return "".join(log_texts(log_entries(entries, undone)))


@dataclass(slots=True)
class _Log:
    """State of one pass over a log."""

    name: str
    at: LogPosition = field(default_factory=LogPosition)
    steps: list[Step] = field(default_factory=list[Step])
    problems: list[Problem] = field(default_factory=list[Problem])
    keys: dict[int, str] = field(default_factory=dict[int, str])
    """Key of the step with the entry of an index."""


def read(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the file's conversation. Violations are problems; the entry is imported as far as possible.

    Of a file that breaks off, such as a live log of a program that was killed, it is the complete entries.

    Raises:
        UnreadableFile: The file cannot be read or contains no valid entry.
        UnreadableFile: The file is not a JSON array of entries, and has no complete one.
    """
    text, damaged = read_text(path)
    if on_read is not None:
        on_read(path.stat().st_size)
    log = _Log(path.stem)
    if damaged:
        log.problems.append(Problem(1, "not UTF-8", "bytes that are not UTF-8 were kept as lone surrogates"))
    # Entries that may be one unit: a generated system entry with the next one, calls made together.
    group: list[ReadEntry] = []
    broken: UnreadableFile | None = None
    try:
        for entry in read_entries(text):
            joins = object_of(entry.extra).get("more") is True or (len(group) == 1 and _is_generated(group[0]))
            if group and not joins:
                _take(log, group)
                group = []
            group.append(entry)
    except UnreadableFile as error:
        broken = error
    if group:
        _take(log, group)
    if broken is not None and not log.steps:
        raise UnreadableFile(f"{path} is not a turn log: {broken}", code="bad_turn_log") from None
    if broken is not None:
        last = group[-1]
        log.problems.append(
            Problem(last.line, "breaks off", f"entry {last.position} is the last complete one: {broken}")
        )
    if not log.steps:
        raise UnreadableFile(f"{path} contains no valid entry (check it with `nexus turnlog validate`)")
    steps = group_into_turns(log.steps, ended=True)
    report = FileReport(1, counted={"turn log": 1}, problems=tuple(log.problems))
    yield Transcript("turnlog", log.name, steps=steps, report=report)


def _is_generated(entry: ReadEntry) -> bool:
    """Return true for a system entry that was generated for the entry after it; one with results is a unit."""
    extra = object_of(entry.extra)
    return entry.position == 0 and extra.get("made") is True and "results" not in extra


def _take(log: _Log, group: list[ReadEntry]) -> None:
    """Add the steps of a group: by its extra keys if they agree with the printed form, else entry by entry."""
    first, *more = group
    if _take_unit(log, group):
        return
    if not more or not _take_unit(log, group[:1]):
        _take_bare(log, first)
    # Without the generated entry, the others may still be one unit.
    if _is_generated(first) and more:
        _take(log, more)
        return
    for entry in more:
        _take_bare(log, entry)


def _take_unit(log: _Log, group: list[ReadEntry]) -> bool:
    """Add a group by its extra keys; false if there are none or they disagree with the printed form."""
    unit = _unit(group, log)
    if unit is None:
        return False
    for form in (unit, replace(unit, facts={**unit.facts, OLDER: True})):
        if _agrees(form, group, log.at):
            _add(log, form, group)
            return True
    return False


def _agrees(unit: Unit, group: list[ReadEntry], at: LogPosition) -> bool:
    """Return true if the unit is written as these entries, apart from turns, which `check` checks."""
    written = entries_for(unit, at)[0]
    if len(written) != len(group):
        return False
    turned = [replace(entry, turn=read.turn or 0) for entry, read in zip(written, group, strict=True)]
    return [canonical(entry_text(entry)) for entry in turned] == [canonical(read.text) for read in group]


def _add(log: _Log, unit: Unit, group: list[ReadEntry]) -> None:
    """Add a unit's steps. Keys depend on the entries and on each result, so a log that grew adds the rest."""
    new, log.at = entries_for(unit, log.at)
    texts: list[str] = []
    for entry in group:
        # A later version of the log may add results, so the key does not depend on them.
        extra = {name: value for name, value in object_of(entry.extra).items() if name != "results"}
        printed = tuple(member for member in members(entry.text) or () if member[0] != EXTRA)
        texts.append(canonical(object_text(printed)) + (value_text(extra) if extra else ""))
    key = f"{log.name}/{group[0].position}/{_hash(*texts)}"
    at_ms = _at_ms(group[-1])
    facts = {FACTS: unit.facts} if unit.facts else {}
    step = Step(pieces=(TranscriptPiece(key),), at_ms=at_ms, facts=facts)
    if unit.kind == "compaction":
        compaction = replace(
            step,
            kind="compaction",
            summary=unit.summary,
            trigger=unit.about["trigger"],
            tokens_before=unit.about.get("tokens_before", 0),
            kept_from="" if unit.kept_from is None else log.keys[unit.kept_from],
        )
        log.steps.append(compaction)
    elif unit.kind == "clear":
        log.steps.append(replace(step, kind="clear"))
    elif unit.message is not None:
        log.steps.append(replace(step, pieces=(TranscriptPiece(key, (unit.message,)),)))
    if unit.kind != "results":
        log.keys[next(entry.index for entry in new if "made" not in entry.extra)] = key
    for number, (result, value) in enumerate(zip(unit.results, results_extra(unit.results), strict=True)):
        piece = TranscriptPiece(f"{key}/{number}/{_hash(value_text(value))}", (result,))
        log.steps.append(Step(pieces=(piece,), at_ms=result.at_ms or at_ms))


def _hash(*texts: str) -> str:
    """Return sixteen hexadecimal digits for the texts."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _unit(group: list[ReadEntry], log: _Log) -> Unit | None:
    """Return the unit described by the extra keys of a group; None without a valid key."""
    first, *more = group
    extra = object_of(first.extra)
    if not extra or any(entry.has_error for entry in group):
        return None
    results: tuple[Message, ...] = ()
    for entry in group:
        more_results = results_with(object_of(entry.extra))
        if more_results is None:
            return None
        results += more_results
    if extra.get("made") is True:
        if more:
            return _message_unit(more, results, replace(log.at, index=log.at.index + 1, instructions=NO_SYSTEM))
        if not results:
            return None
        at_ms = results[0].at_ms or _at_ms(first)
        return Unit("results", results=results, at_ms=at_ms, facts=_facts(first, log.at))
    if "mark" in extra:
        if more:
            return None
        return _checkpoint(first, extra, results, log)
    return _message_unit(group, results, log.at)


def _checkpoint(entry: ReadEntry, extra: dict[str, Any], results: tuple[Message, ...], log: _Log) -> Unit | None:
    facts = _facts(entry, log.at)
    at_ms = _at_ms(entry)
    if extra.get("mark") == "clear":
        return Unit("clear", results=results, at_ms=at_ms, facts=facts)
    trigger = extra.get("trigger")
    tokens = extra.get("tokens_before", 1)
    kept_from = extra.get("kept_from")
    is_valid = extra.get("mark") == "compaction" and isinstance(trigger, str) and type(tokens) is int
    if not is_valid or not isinstance(entry.content, str) or (kept_from is not None and kept_from not in log.keys):
        return None
    about = {name: extra[name] for name in ("trigger", "tokens_before") if name in extra}
    summary = entry.content.removeprefix(f"{SUMMARY}\n")
    return Unit("compaction", None, results, at_ms, facts, summary=summary, about=about, kept_from=kept_from)


def _message_unit(group: list[ReadEntry], results: tuple[Message, ...], at: LogPosition) -> Unit | None:
    """Return the message of a group with the parts of all its entries."""
    first = group[0]
    parts = list[Part]()
    role = first.role
    index = _index(first, at.index)
    at_ms = _at_ms(first)
    plain: Message | None = None
    for number, entry in enumerate(group):
        if role not in LOG_ROLES or entry.content is None or entry.role != role:
            return None
        bare = parse_bare(role, entry.content)
        plain_part = message_of(role, bare, index + number, at_ms)
        plain = plain or plain_part
        entry_parts = parts_with(object_of(entry.extra), plain_part, bare)
        if entry_parts is None:
            return None
        parts.extend(entry_parts)
    message = None
    if plain:
        message = message_with(object_of(first.extra), plain, tuple(parts))
    if message is None:
        return None
    facts = _facts(first, at)
    if role == "assistant" and not any(message.calls()) and _tool(first) == FINISH:
        facts[UNPOSTED] = True
    return Unit(message=message, results=results, at_ms=at_ms, facts=facts)


def _tool(entry: ReadEntry) -> str:
    if entry.content is None:
        return ""
    return parse_bare("assistant", entry.content).tool


def _take_bare(log: _Log, entry: ReadEntry) -> None:
    """Add an entry as printed; its errors become problems."""
    for violation in entry.violations:
        if violation.level == "error":
            kind = f"requirement {violation.requirement}"
            text = f"entry {entry.position}: {violation.reason}"
            log.problems.append(Problem(entry.line, kind, text))
    role = entry.role
    content = entry.content
    if role not in LOG_ROLES or content is None:
        return
    index = log.at.index
    message = message_of(role, parse_bare(role, content), _index(entry, index), _at_ms(entry))
    facts = _facts(entry, log.at)
    unit = Unit(message=message, at_ms=message.at_ms, facts=facts)
    if not entry.has_error and not _agrees(unit, [entry], log.at):
        unit = Unit(message=message, at_ms=message.at_ms, facts={**facts, "entry": minified(entry.text)})
    if any(message.calls()):
        unit = replace(unit, message=replace(message, source=UNANSWERED))
    _add(log, unit, [entry])


def _facts(entry: ReadEntry, at: LogPosition) -> dict[str, Any]:
    """Return details without a place in a message: the user's id, and another program's index or time.

    `made` is false for a log that begins without a system entry.
    """
    facts: dict[str, Any] = {}
    content = entry.content
    if entry.role == "user" and content is not None and not isinstance(content, str):
        userid = string_of(dict(content).get("userid", ""))
        if userid is not None and userid != NO_USER:
            facts["userid"] = userid
    if entry.at_us is not None and times.format_time(_at_ms(entry) * 1_000) != entry.timestamp:
        facts["timestamp"] = entry.timestamp
    if _index(entry, at.index) != at.index:
        facts["index"] = entry.index
    if at.instructions is None and entry.role != "system":
        facts["made"] = False
    return facts


def _index(entry: ReadEntry, expected: int) -> int:
    if entry.index is None:
        return expected
    return max(entry.index, expected)


def _at_ms(entry: ReadEntry) -> int:
    if entry.at_us is not None:
        return entry.at_us // 1_000
    return 0


def is_entry(message: Mapping[str, Any]) -> bool:
    """Return True for a JSON object that has all fields of an entry."""
    return all(name in message for name in FIELDS)


def is_broken_log(path: Path) -> bool:
    """Return True for a turn log that breaks off, behind at least one complete entry."""
    with suppress(UnreadableFile):
        first = next(read_entries(read_text(path)[0]), None)
        return first is not None and not first.has_error
    return False


READER = FileReader(read, owns_message=is_entry, owns_damaged=is_broken_log)
